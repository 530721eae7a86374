"""Which schemas the payloads of a subject may be written with."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    FoundSchema,
    RegisteredSchema,
    UnusableSchema,
)
from rangeland.errors import JobFileError


@dataclass(frozen=True, slots=True)
class SubjectWriters:
    """The writers of framed payloads: those of one subject, or any if it is empty. Equal schemas
    have the same id in all subjects, so an id may be registered under several. ``own``: the prefix
    of the topic's subjects, if not all of them are known."""

    subject: str = ""
    own: str | None = None

    def judge(self, schema_id: int, found: FoundSchema) -> RegisteredSchema | UnusableSchema:
        """The schema with this id, if the subject has it: an id that is only registered under
        others is refused. Raises JobFileError, whatever the policy, for a schema of the topic that
        the driver has not seen: its records are sound, and must not count as undecodable, but the
        table has no columns for them."""
        subjects = {at.subject for at in found.versions}
        if isinstance(found.schema, UnusableSchema) or not self.subject or not subjects:
            return found.schema
        if self.subject in subjects:
            return found.schema
        shown = ", ".join(sorted(subjects)[:3])
        if self.own is not None and any(name.startswith(self.own) for name in subjects):
            raise JobFileError(
                f"the table has no columns for schema {schema_id}, which is registered as {shown}",
                why="the columns come from the subjects of the oldest and the newest records, and "
                "this one only occurs between them",
                do="name a schema that has the fields of all subjects in the job file, under "
                "decode.value.schema or decode.key.schema",
                id=schema_id,
            )
        return UnusableSchema(f"schema {schema_id} is registered as {shown}, not {self.subject}")
