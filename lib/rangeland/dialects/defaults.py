"""The answers of a dialect whose brokers have no leader epochs, report no retention, know no
transactions that hold readers back, and do not say which logins they offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rangeland.dialects.dialect import CleanupPolicy, Question
from rangeland.model import Leader, OpenTransaction, Partition, Retention


def ask_epochs(
    leaders: Mapping[Partition, Leader], epochs: Mapping[Partition, int]
) -> list[Question]:
    return []


def read_epochs(answers: Sequence[Any]) -> dict[Partition, int]:
    return {}


def epoch_of(records: memoryview) -> int | None:
    return None


def ask_mechanisms() -> list[Question]:
    return []


def read_mechanisms(answers: Sequence[Any]) -> tuple[str, ...] | None:
    return None


def ask_transactions(partitions: Collection[Partition]) -> list[Question]:
    return []


def read_transactions(answers: Sequence[Any]) -> dict[Partition, OpenTransaction]:
    return {}


def ask_cleanup(topic: str) -> list[Question]:
    return []


def read_cleanup(answers: Sequence[Any]) -> CleanupPolicy:
    return CleanupPolicy(None, "its brokers do not say how its log is cleaned")


def ask_retention(topics: Sequence[str]) -> list[Question]:
    return []


def read_retention(answers: Sequence[Any]) -> dict[str, Retention]:
    return {}
