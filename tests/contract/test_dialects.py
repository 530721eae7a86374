"""What every dialect must pass. Dialects are found by their folders, so a new one is held
to this as soon as it is there."""

from __future__ import annotations

import importlib
import inspect
from typing import get_type_hints

import pytest

from rangeland.decode.columns import row_schema
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import NoSeedAnswered
from rangeland.dialects.dialect import Dialect, dialect_names, load_dialect
from rangeland.errors import BadRecord, JobFileError, Unreachable
from rangeland.model import Address
from tests.fetched_records import fetched_at

QUESTIONS = sorted(
    name for name, what in vars(Dialect).items() if inspect.isfunction(what) and name[0] != "_"
)
SEED = Address("seed.example", 9092)


@pytest.fixture(params=dialect_names())
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return load_dialect(request.param)


def test_kafka_and_jafka_are_among_the_dialects() -> None:
    assert {"kafka", "jafka"} <= set(dialect_names())


def test_a_dialect_that_has_no_folder_is_refused() -> None:
    with pytest.raises(JobFileError, match="pigeon"):
        load_dialect("pigeon")


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_every_question_with_the_same_arguments(dialect: Dialect, question: str) -> None:
    asked = list(inspect.signature(vars(Dialect)[question]).parameters)[1:]
    there = list(inspect.signature(getattr(dialect, question)).parameters)
    assert there[: len(asked)] == asked


@pytest.mark.parametrize("question", ["scan", "cut_out"])
def test_its_log_entries_answer_as_the_base_class_promises(dialect: Dialect, question: str) -> None:
    entries = importlib.import_module(f"{type(dialect).__module__}.log_entries")
    answer, promise = vars(entries)[question], vars(Dialect)[question]
    assert getattr(dialect, question) is answer
    parameters = list(inspect.signature(promise).parameters.values())[1:]
    assert list(inspect.signature(answer).parameters.values()) == parameters
    assert issubclass(get_type_hints(answer)["return"], get_type_hints(promise)["return"])


def test_it_says_what_sets_its_logs_apart(dialect: Dialect) -> None:
    nature = dialect.capabilities
    assert isinstance(nature, Capabilities)
    assert not {column.name for column in nature.columns} & set(row_schema(broker=True).names)


def test_a_topic_that_is_not_named_is_refused_or_asked_for(dialect: Dialect) -> None:
    search = dialect.find_leaders(None, (SEED,), {})
    try:
        assert SEED in next(search).seeds
    except JobFileError as error:
        refused: JobFileError | None = error
    else:
        refused = None
    assert refused is None or (refused.why and refused.do)


def test_a_search_that_nobody_answers_names_every_address(dialect: Dialect) -> None:
    search = dialect.find_leaders(("t",), (SEED,), {"1": SEED})
    assert next(search).seeds == (SEED,)
    with pytest.raises(Unreachable, match="no route") as caught:
        search.send(NoSeedAnswered({SEED: "no route"}))
    assert str(SEED) in str(caught.value)


def test_a_search_that_only_strangers_answer_is_the_jobs_mistake(dialect: Dialect) -> None:
    search = dialect.find_leaders(("t",), (SEED,), {"1": SEED})
    next(search)
    with pytest.raises(JobFileError, match="no broker"):
        search.send(NoSeedAnswered({SEED: "no broker there"}, not_brokers=1))


def test_no_bytes_are_no_entry(dialect: Dialect) -> None:
    empty = memoryview(b"")
    assert dialect.scan(fetched_at(empty)).next_offset is None
    assert list(dialect.decode_chunks(fetched_at(empty), 0, 9)) == []


@pytest.mark.parametrize("junk", [b"\0", b"\xff" * 64, bytes(64), bytes(range(200))])
def test_junk_is_either_no_entry_or_a_bad_record(dialect: Dialect, junk: bytes) -> None:
    try:
        chunks = list(dialect.decode_chunks(fetched_at(junk), 0, 9))
    except BadRecord:
        return
    assert all(chunk.batch is None for chunk in chunks)


def test_two_sessions_share_nothing(dialect: Dialect) -> None:
    first, second = dialect.open_session("a"), dialect.open_session("a")
    assert first.open() == second.open()
