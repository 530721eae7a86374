"""Under which subject a schema is registered: the three strategies of Confluent's serializers."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

RecordField = Literal["key", "value"]


class SubjectNameStrategy(StrEnum):
    """As Confluent's serializers name them."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    @property
    def names_the_record(self) -> bool:
        """Whether a subject depends on the full name of the record, message or title, so that a
        topic may have several."""
        return self is not SubjectNameStrategy.TOPIC


def subject_name(
    strategy: SubjectNameStrategy, topic: str, field: RecordField, record_name: str = ""
) -> str:
    """``record_name``: the full name of the Avro record or Protobuf message, or the ``title`` of a
    JSON Schema; needed if the strategy names the record."""
    if strategy is SubjectNameStrategy.TOPIC:
        return f"{topic}-{field}"
    if not record_name:
        raise ValueError(f"{strategy} needs the name of the record")
    if strategy is SubjectNameStrategy.RECORD:
        return record_name
    return f"{topic}-{record_name}"
