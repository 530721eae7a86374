"""Which topics of a template came after its first run: their tables begin at the beginning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.errors import RangelandError, StorageFailed
from rangeland.fleet import landed_topics
from rangeland.fleet.landed_topics import later_topics
from rangeland.job import Job

UNUSED, FOREIGN = "unused", "without a ledger"


class Catalog:
    """Tables of a catalog: for each topic the job that has landed in it, or what is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **tables: str | RangelandError) -> None:
        self.tables = tables
        self.opened: list[str] = []
        self.listed = 0
        monkeypatch.setattr(landed_topics, "open_target", self.open_target)

    @property
    def catalog(self) -> Any:
        return SimpleNamespace(databaseExists=lambda _: True, listTables=self.list_tables)

    def list_tables(self, schema: str) -> list[Any]:
        self.listed += 1
        without = (UNUSED, FOREIGN)
        ledgers = [f"{t}__rangeland" for t, owner in self.tables.items() if owner not in without]
        return [SimpleNamespace(name=name) for name in (*self.tables, *ledgers)]

    def open_target(self, spark: object, job: Job) -> Any:
        topic = job.sink.table.rpartition(".")[2]
        self.opened.append(topic)
        owner = self.tables[topic]
        if isinstance(owner, RangelandError):
            raise owner
        ledger = SimpleNamespace(
            opened=None if owner == FOREIGN else object(), entered=int(owner != UNUSED)
        )
        position = SimpleNamespace(topics={topic} if owner == job.name else set())
        return SimpleNamespace(
            ledger=ledger, history=SimpleNamespace(last_known=lambda application: position)
        )

    def later(self, topics: str, range_: str = "first_run: latest") -> list[str]:
        job = Job.parse(
            "{job: all, source: {servers: [k:9092], topic_pattern: '.*'}, "
            f"sink: {{table: 'main.events.{{topic}}'}}, range: {{{range_}}}}}"
        )
        return sorted(later_topics(job, self, list(topics)))  # type: ignore[arg-type]


def test_a_topic_without_a_table_is_later_once_another_has_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(monkeypatch, a="all", b="all")
    assert catalog.later("abcd") == ["c", "d"]
    assert (catalog.listed, catalog.opened) == (1, ["a"])


def test_where_nothing_of_the_job_has_landed_it_is_its_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Catalog(monkeypatch).later("ab") == []
    assert Catalog(monkeypatch, a="other", b=FOREIGN).later("abc") == []


def test_a_table_of_another_job_is_not_that_of_a_later_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Catalog(monkeypatch, a="all", b="other", c=FOREIGN).later("abcd") == ["d"]


def test_a_table_in_which_no_plan_was_entered_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Catalog(monkeypatch, a="all", b=UNUSED).later("ab") == ["b"]


def test_where_all_topics_have_tables_none_of_them_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(monkeypatch, a="all", b="other")
    assert catalog.later("ab") == []
    assert catalog.opened == []


@pytest.mark.parametrize("range_", ["first_run: earliest", "first_run: latest, from: earliest"])
def test_nobody_is_asked_where_it_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, range_: str
) -> None:
    catalog = Catalog(monkeypatch, a="all")
    assert catalog.later("ab", range_) == []
    assert catalog.listed == 0


def test_a_table_that_cannot_be_read_does_not_matter_if_another_has_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = StorageFailed("the store is down")
    assert Catalog(monkeypatch, a=down, b="all").later("abc") == ["c"]
    with pytest.raises(StorageFailed, match="the store is down"):
        Catalog(monkeypatch, a=down, b="other").later("abc")
