"""Which schemas the payloads of a subject may be written with."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.decode.payload.schema_ids.record_names import record_name
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
        if isinstance(found.schema, UnusableSchema) or not self.subject:
            return found.schema
        subjects = subjects_of(found, self.own)
        if self.subject in subjects or (self.own is None and not subjects):
            return found.schema
        own = self.own
        if own is not None and (not subjects or any(name.startswith(own) for name in subjects)):
            raise _no_columns_error(schema_id, found, subjects)
        shown = _shown(subjects)
        return UnusableSchema(f"schema {schema_id} is registered as {shown}, not {self.subject}")


def subjects_of(found: FoundSchema, own: str | None) -> list[str]:
    """The subjects that a schema is registered under. If they were deleted, the one that producers
    give it by the name of its record, where ``own`` is the prefix of such subjects; else none."""
    if found.versions:
        return [version.subject for version in found.versions]
    if own is None or isinstance(found.schema, UnusableSchema):
        return []
    name = record_name(found.schema)
    return [] if name is None else [f"{own}{name}"]


def _shown(subjects: list[str]) -> str:
    return ", ".join(sorted(set(subjects))[:3])


def _no_columns_error(schema_id: int, found: FoundSchema, subjects: list[str]) -> JobFileError:
    among = "the subjects of the oldest and the newest records"
    why = f"the columns come from {among} that are registered, and this is none of them"
    if found.versions:
        which = f"is registered as {_shown(subjects)}"
        why = f"the columns come from {among}, and this one only occurs between them"
    elif subjects:
        which = f"belongs to {_shown(subjects)} by the name of its record"
    else:
        which = "has neither a subject nor a name"
    return JobFileError(
        f"the table has no columns for schema {schema_id}, which {which}",
        why=why,
        do="name a schema that has the fields of all subjects in the job file, under "
        "decode.value.schema or decode.key.schema",
        id=schema_id,
    )
