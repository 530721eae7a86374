"""A session is made in steps, each once, and only when something needs it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.jvm.spark_jvm import SparkJvm, jvm_of
from rangeland.spark import deferred_session
from rangeland.spark.deferred_session import (
    DeferredSession,
    is_local_master,
    local_parallelism,
    parallelism_of,
)


@pytest.fixture
def made() -> list[str]:
    return []


@pytest.fixture
def spark(made: list[str], monkeypatch: pytest.MonkeyPatch) -> DeferredSession:
    jvm = SparkJvm(gateway=object(), hadoop=object(), settings={"spark.master": "local[3]"})
    runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(availableProcessors=lambda: 8))
    classes = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Runtime=runtime)))
    monkeypatch.setattr(SparkJvm, "classes", property(lambda self: classes))
    monkeypatch.setattr(deferred_session, "without_context", lambda gateway: jvm)

    def make(what: str) -> Any:
        time.sleep(0.01)  # in which another thread may ask for the same
        made.append(what)
        return SimpleNamespace(name=what, range=lambda n: n)

    return DeferredSession(object(), "4.2.0", lambda: make("context"), lambda: make("session"))


def test_what_the_jvm_can_tell_makes_nothing(spark: DeferredSession, made: list[str]) -> None:
    assert jvm_of(spark) is spark.spark_jvm
    assert (spark.version, parallelism_of(spark)) == ("4.2.0", 3)
    assert made == []


def test_tasks_need_the_context_alone(spark: DeferredSession, made: list[str]) -> None:
    assert spark.sparkContext is spark.sparkContext
    assert spark.sparkContext.name == "context"
    assert made == ["context"]


def test_anything_else_is_asked_of_the_session(spark: DeferredSession, made: list[str]) -> None:
    assert spark.range(7) == 7
    assert spark.session.name == "session"
    assert made == ["context", "session"]


def test_threads_that_ask_at_once_get_the_same_session(
    spark: DeferredSession, made: list[str]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(spark.range, range(8))) == list(range(8))
    assert made == ["context", "session"]


def test_python_s_own_protocols_make_no_session(spark: DeferredSession, made: list[str]) -> None:
    assert not hasattr(spark, "__len__")
    assert not hasattr(spark, "__deepcopy__")
    assert made == []


def test_a_context_that_could_not_be_made_is_made_when_it_is_needed_again(
    spark: DeferredSession, made: list[str]
) -> None:
    good, spark._make_context = spark._make_context, lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        _ = spark.sparkContext
    spark._make_context = good
    assert spark.sparkContext.name == "context"


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", 1), ("local[12]", 12), ("local[*]", 8), ("local[4, 2]", 4), ("local[*,3]", 8)],
)
def test_parallelism_is_what_spark_makes_of_a_local_master(master: str, expected: int) -> None:
    assert local_parallelism({"spark.master": master}, lambda: 8) == expected
    given = {"spark.master": master, "spark.default.parallelism": "5"}
    assert local_parallelism(given, lambda: 8) == 5


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://h:7077", "yarn", ""])
def test_other_masters_are_not_local(master: str) -> None:
    assert not is_local_master(master)
