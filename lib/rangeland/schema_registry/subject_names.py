"""The subjects of schemas, named by the three strategies of Confluent's serializers."""

from __future__ import annotations

from enum import StrEnum

from rangeland.decode.payload.schema_ids.record_names import record_name
from rangeland.decode.payload.schema_ids.schema_catalogue import RegisteredSchema, TopicField


class SubjectNameStrategy(StrEnum):
    """The strategies, as Confluent's serializers name them."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    @property
    def names_the_record(self) -> bool:
        """Whether a subject depends on the full name of the record, so that the values of a topic
        may have several."""
        return self is not SubjectNameStrategy.TOPIC


def own_prefix(strategy: SubjectNameStrategy, topic: str) -> str | None:
    """The prefix of the names of a topic's subjects; None if there is only one subject, whose name
    is known."""
    if strategy is SubjectNameStrategy.RECORD:
        return ""
    return f"{topic}-" if strategy.names_the_record else None


def subject_name(
    strategy: SubjectNameStrategy, of: TopicField, schema: RegisteredSchema | None = None
) -> str | None:
    """The subject of a topic's keys or values. ``schema``: a schema of the records, from which to
    take their name. None if the strategy requires the record's name, and there is no schema or it
    has no name."""
    if not strategy.names_the_record:
        return f"{of.topic}-{of.field}"
    name = record_name(schema) if schema is not None else None
    if name is None:
        return None
    return name if strategy is SubjectNameStrategy.RECORD else f"{of.topic}-{name}"
