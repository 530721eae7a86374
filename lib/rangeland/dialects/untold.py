"""The answers of a dialect whose brokers have no leader epochs, report no retention, and do not
say which logins they offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rangeland.dialects.contract import Question
from rangeland.model import Leader, Partition, Retention


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


def ask_retention(topics: Sequence[str]) -> list[Question]:
    return []


def read_retention(answers: Sequence[Any]) -> dict[str, Retention]:
    return {}
