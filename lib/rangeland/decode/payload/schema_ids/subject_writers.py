"""Decides with which schemas the payloads of a subject may have been written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rangeland.decode.payload.schema_ids.record_names import record_name
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    FoundSchema,
    RegisteredSchema,
    UnusableSchema,
)
from rangeland.errors import JobFileError, Unreachable


@dataclass(frozen=True, slots=True)
class SubjectWriters:
    """The writers of framed payloads: those of one subject, or any writers if it is empty. Equal
    schemas have the same id in all subjects, so an id may be registered under several. ``own``: the
    prefix of the topic's subjects, if not all of them are known."""

    subject: str = ""
    own: str | None = None

    def judge(self, schema_id: int, found: FoundSchema) -> RegisteredSchema | UnusableSchema:
        """The schema with this id, if the subject has it; an id that is registered only under other
        subjects is refused. Raises JobFileError, whatever the policy, for a schema of the topic
        that the driver has not seen: its records are intact and must not count as undecodable, but
        the table has no columns for them."""
        if isinstance(found.schema, UnusableSchema) or not self.subject:
            return found.schema
        subjects = subjects_of(found, self.own)
        if self.subject in subjects or (self.own is None and not subjects):
            return found.schema
        own = self.own
        if own is not None and _is_of_topic(subjects, own):
            why = _ONLY_BETWEEN if found.versions else _NOT_REGISTERED
            raise _no_columns_error(schema_id, found, subjects, why)
        shown = _shown(subjects)
        return UnusableSchema(f"schema {schema_id} is registered as {shown}, not {self.subject}")


def check_is_of_others(
    schema_id: int, found: FoundSchema, topic: str, lacking: str, own: str | None
) -> None:
    """Raises an error for a schema of a topic for which the registry had none when the run began:
    its records are intact and must not count as undecodable. ``lacking``: the topic's subject, if
    it has only one. If neither this nor ``own`` is known, the topic may have any subject."""
    if isinstance(found.schema, UnusableSchema):
        return
    had_none = f"the schema registry had no schema for {topic} when the run began"
    if lacking and any(version.subject == lacking for version in found.versions):
        raise Unreachable(
            had_none,
            why=f"schema {schema_id}, which a record names, is registered as {lacking}",
            do="run again: it was registered after the run began, or a lagging copy of the "
            "registry was asked",
            id=schema_id,
        )
    subjects = subjects_of(found, own)
    is_unknown = not lacking and own is None
    if is_unknown or _is_of_topic(subjects, own):
        raise _no_columns_error(schema_id, found, subjects, had_none)


def _is_of_topic(subjects: list[str], own: str | None) -> bool:
    """Whether a schema may belong to the topic whose subjects have the prefix ``own``."""
    return not subjects or (own is not None and any(name.startswith(own) for name in subjects))


def subjects_of(found: FoundSchema, own: str | None) -> list[str]:
    """The subjects under which a schema is registered. If they were deleted, the subject that
    producers derive from the name of its record, provided that ``own`` is the prefix of such
    subjects; otherwise none."""
    if found.versions:
        return [version.subject for version in found.versions]
    if own is None or isinstance(found.schema, UnusableSchema):
        return []
    name = record_name(found.schema)
    return [] if name is None else [f"{own}{name}"]


def _shown(subjects: list[str]) -> str:
    return ", ".join(sorted(set(subjects))[:3])


_ONLY_BETWEEN: Final = (
    "the columns come from the subjects of the oldest and the newest records, and this one only "
    "occurs between them"
)
_NOT_REGISTERED: Final = (
    "the columns come from the registered subjects of the oldest and the newest records, and it "
    "belongs to none of them"
)


def _no_columns_error(
    schema_id: int, found: FoundSchema, subjects: list[str], why: str
) -> JobFileError:
    if found.versions:
        which = f"is registered as {_shown(subjects)}"
    elif subjects:
        which = f"belongs to {_shown(subjects)} by the name of its record"
    else:
        which = "is registered nowhere"
    return JobFileError(
        f"the table has no columns for schema {schema_id}, which {which}",
        why=why,
        do="in the job file, name a schema that has the fields of all subjects, under "
        "decode.value.schema or decode.key.schema",
        id=schema_id,
    )
