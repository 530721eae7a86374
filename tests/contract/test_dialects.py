"""What every dialect must pass. Dialects are found by their folders, so a new one is held
to this as soon as it is there."""

from __future__ import annotations

import inspect

import pytest

from rangeland.dialects.contract import Dialect, dialect_names, load_dialect
from rangeland.errors import BadRecord, JobFileError
from rangeland.model import Isolation

QUESTIONS = sorted(name for name in vars(Dialect) if not name.startswith("_"))


@pytest.fixture(params=dialect_names())
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return load_dialect(request.param)


def test_kafka_is_among_the_dialects() -> None:
    assert "kafka" in dialect_names()


def test_a_dialect_that_has_no_folder_is_refused() -> None:
    with pytest.raises(JobFileError, match="pigeon"):
        load_dialect("pigeon")


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_every_question_with_the_same_arguments(dialect: Dialect, question: str) -> None:
    asked = list(inspect.signature(vars(Dialect)[question]).parameters)[1:]
    there = list(inspect.signature(getattr(dialect, question)).parameters)
    assert there[: len(asked)] == asked


def test_no_bytes_are_no_entry(dialect: Dialect) -> None:
    empty = memoryview(b"")
    assert dialect.next_offset(empty) is None
    assert list(dialect.decode_chunks(empty, 0, 9, Isolation.READ_COMMITTED, ())) == []


@pytest.mark.parametrize("junk", [b"\0", b"\xff" * 64, bytes(64), bytes(range(200))])
def test_junk_is_no_entry_or_a_bad_record(dialect: Dialect, junk: bytes) -> None:
    try:
        chunks = list(dialect.decode_chunks(memoryview(junk), 0, 9, Isolation.READ_COMMITTED, ()))
    except BadRecord:
        return
    assert all(chunk.batch is None for chunk in chunks)


def test_two_sessions_share_nothing(dialect: Dialect) -> None:
    first, second = dialect.open_session("a"), dialect.open_session("a")
    assert first.open() == second.open()
