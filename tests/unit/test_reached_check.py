"""When a log counts as having reached a time: records prove it, silence only after a while."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rangeland.cli import command_line
from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import JobFileError, UsageError
from rangeland.job import Job
from rangeland.job.value_parsers import parse_bounds
from rangeland.model import (
    AbsentPartitions,
    Address,
    Leader,
    LogState,
    OffsetLookups,
    Partition,
    Survey,
)
from rangeland.planning.log_reach import PartitionReach, can_be_awaited, reach, times_awaited
from rangeland.progress_events import NoProgress
from rangeland.queries import reached_check
from rangeland.survey.wanted_partitions import absent_brokers

T = 1_769_839_200_000  # 2026-01-31T06:00:00Z
AT_T = "2026-01-31T06:00:00Z"
P0, P1 = Partition("orders", 0), Partition("orders", 1)
LEADER = Leader(Address("b1", 9092))
YAML = "job: orders\nsource: {servers: [b1:9092], topics: [orders]}\nsink: {table: lake/orders}\n"


def survey(ends: dict[Partition, int], found: dict[Partition, int | None]) -> Survey:
    return Survey(
        taken_at_ms=T,
        logs={p: LogState(p, LEADER, 0, end) for p, end in ends.items()},
        lookups=OffsetLookups({(p, T): offset for p, offset in found.items()}),
    )


def states(until: object, seen: Survey, now_ms: int = T, idle: int | None = None) -> list[str]:
    return [r.state for r in reach(parse_bounds(until), seen, now_ms, idle)]


def test_a_time_is_reached_by_a_record_at_or_after_it_in_each_partition() -> None:
    seen = survey({P0: 9, P1: 4}, {P0: 8, P1: None})
    assert states(AT_T, seen) == ["reached", "waiting"]
    assert reach(parse_bounds(AT_T), seen, T)[0].offset == 8


def test_without_a_margin_silence_is_never_an_answer() -> None:
    assert states(AT_T, survey({P0: 9}, {P0: None}), T + 10**12) == ["waiting"]


@pytest.mark.parametrize(("now_ms", "state"), [(T + 4999, "waiting"), (T + 5000, "idle")])
def test_a_silent_partition_is_idle_once_the_margin_is_over(now_ms: int, state: str) -> None:
    assert states(AT_T, survey({P0: 9}, {P0: None}), now_ms, 5000) == [state]


@pytest.mark.parametrize(
    ("found", "now_ms", "state"),
    [
        (9, T + 4999, "waiting"),
        (9, T + 5000, "idle"),
        (10, T + 5000, "waiting"),  # it has grown meanwhile
    ],
)
def test_an_answer_at_the_end_of_a_log_without_transactions_is_silence(
    found: int, now_ms: int, state: str
) -> None:
    seen = survey({P0: 9}, {P0: found})
    (reached,) = reach(parse_bounds(AT_T), seen, now_ms, 5000, has_transactions=False)
    assert reached.state == state
    assert reached.offset == (9 if state == "idle" else None)
    (without,) = reach(parse_bounds(AT_T), seen, now_ms, None, has_transactions=False)
    assert without.state == "waiting"


def test_an_idle_partition_ends_where_its_log_ends() -> None:
    (found,) = reach(parse_bounds(AT_T), survey({P0: 9}, {P0: None}), T + 5000, 5000)
    assert found.offset == 9


def by_segments(*borders: int, found: int) -> Survey:
    """A log of 9 whose broker only knows when its segments were written."""
    seen = survey({P0: 9}, {P0: found})
    logs = {P0: replace(seen.logs[P0], borders=borders or None)}
    about = replace(seen.lookups, inexact_times=frozenset({(P0, T)}))
    return replace(seen, logs=logs, lookups=about)


@pytest.mark.parametrize(
    ("borders", "found", "state"),
    [
        ((), 0, "waiting"),
        ((0, 9), 0, "waiting"),  # the only segment may have been written before the time
        ((0, 5, 9), 5, "waiting"),  # so may the last one
        ((0, 5, 9), 0, "reached"),  # the last one was written to after it
    ],
)
def test_a_segment_proves_a_time_only_by_the_one_after_it(
    borders: tuple[int, ...], found: int, state: str
) -> None:
    seen = by_segments(*borders, found=found)
    assert states(AT_T, seen) == [state]
    assert states(AT_T, seen, T + 4999, 5000) == [state]
    (margin,) = reach(parse_bounds(AT_T), seen, T + 5000, 5000)
    assert margin.state == ("reached" if state == "reached" else "idle")
    assert margin.offset == found


@pytest.mark.parametrize("idle", [None, 0])
def test_a_record_behind_an_open_transaction_is_waited_for(idle: int | None) -> None:
    assert states(AT_T, survey({P0: 9}, {P0: 9}), T + 10**9, idle) == ["waiting"]


def test_a_partition_with_an_open_transaction_is_not_silent() -> None:
    seen = survey({P0: 9, P1: 9}, {P0: None, P1: None})
    found = reach(parse_bounds(AT_T), seen, T + 5000, 5000, {P1})
    assert [r.state for r in found] == ["idle", "waiting"]


@pytest.mark.parametrize(("end", "state"), [(39, "waiting"), (40, "reached"), (41, "reached")])
def test_an_offset_is_reached_when_the_log_ends_there(end: int, state: str) -> None:
    assert states({"orders": {"0": 40}}, survey({P0: end, P1: 0}, {})) == [state]


def test_a_number_alone_is_waited_for_on_each_broker() -> None:
    ends = {Partition("orders", 0, "a"): 39, Partition("orders", 0, "b"): 40}
    assert states({"orders": {"0": 40}}, survey(ends, {})) == ["waiting", "reached"]


def test_a_listed_partition_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(JobFileError, match="orders/7, which does not exist"):
        states({"orders": {"7": 40}}, survey({P0: 1}, {}))


# --- what could not be asked --------------------------------------------------------------


def without(seen: Survey, **absent: Any) -> Survey:
    return replace(seen, absent=AbsentPartitions(**absent))


NO_LEADER = {P1: "it has no leader"}
SILENT = {"b": "refused"}


@pytest.mark.parametrize("until", [AT_T, {"orders": {"0": 9, "1": 4}}])
def test_a_partition_that_could_not_be_asked_is_waited_for(until: object) -> None:
    seen = without(survey({P0: 9}, {P0: 8}), unreachable=NO_LEADER)
    reached, waiting = reach(parse_bounds(until), seen, T + 10**9, 0)
    assert reached.state == "reached"
    assert waiting == PartitionReach(P1, "waiting", None, None, "it has no leader")


def test_a_partition_without_a_bound_need_not_be_asked() -> None:
    seen = without(survey({P0: 9}, {}), unreachable=NO_LEADER)
    assert states({"orders": {"0": 9}}, seen) == ["reached"]


def test_a_partition_of_a_silent_broker_is_waited_for_if_it_is_listed() -> None:
    on_a, on_b = Partition("orders", 0, "a"), Partition("orders", 0, "b")
    answered = frozenset({"a"})
    seen = without(survey({on_a: 9}, {}), answered_brokers=answered, unanswered_brokers=SILENT)
    (found,) = reach(parse_bounds({"orders": {"b-0": 9}}), seen, T)
    assert (found.partition, found.state, found.why) == (on_b, "waiting", "broker b: refused")
    for number in ("0", "1"):  # on any broker
        names = {p.partition: p.why for p in reach(parse_bounds({"orders": {number: 9}}), seen, T)}
        assert names[Partition("orders", int(number))] == "broker b: refused"


REPLICA = Leader(Address("a-2", 1), is_replica=True)


def view_of(registered: tuple[str, ...], **leaders: dict[Partition, Leader]) -> ClusterView:
    topics = {
        name: TopicView(name, ErrorMeaning.OK, "", leaders=each) for name, each in leaders.items()
    }
    return ClusterView((), topics, registered=frozenset(registered))


ON_A, ON_B = Partition("orders", 0, "a"), Partition("orders", 0, "b")


@pytest.mark.parametrize(
    ("view", "source"),
    [
        (view_of((), orders={ON_A: REPLICA}), "topics: [orders]"),
        # Broker b has no topic that the job reads.
        (
            view_of(("a",), orders={ON_A: LEADER}, other={Partition("other", 0, "b"): REPLICA}),
            "topic_pattern: ord.*",
        ),
    ],
)
@pytest.mark.parametrize("until", [AT_T, '{"orders": {"0": 9}}', '{"orders": {"a-0": 9}}'])
def test_what_a_replica_has_is_reached_and_what_it_lacks_is_waited_for(
    view: ClusterView, source: str, until: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica never has more than its leader."""
    for end, code in ((9, 0), (8, 75)):
        seen = replace(
            survey({ON_A: end}, {ON_A: 8 if end == 9 else None}), absent=absent_brokers(view, ())
        )
        monkeypatch.setattr(reached_check, "survey_of", lambda *_, seen=seen: seen)
        job = tmp_path / "orders.yaml"
        job.write_text(YAML.replace("topics: [orders]", f"{source}, dialect: rocketmq"))
        assert command_line.main(["reached", str(job), "--until", until]) == code


@pytest.mark.parametrize("found", [None, 9])
def test_a_silent_replica_is_never_idle(found: int | None) -> None:
    """Its leader may have records that it lacks, and takes no others while it is down."""
    seen = survey({ON_A: 9, ON_B: 9}, {ON_A: found, ON_B: found})
    logs = {**seen.logs, ON_A: replace(seen.logs[ON_A], leader=REPLICA)}
    until, seen = parse_bounds(AT_T), replace(seen, logs=logs)
    on_a, on_b = reach(until, seen, T + 10**9, 5000, has_transactions=False)
    assert (on_a.state, on_a.offset, on_b.state) == ("waiting", None, "idle")


@pytest.mark.parametrize("listed", ["1", "a-1", "b-1"])
def test_a_partition_that_a_replica_does_not_list_is_waited_for(listed: str) -> None:
    """The replica may not know all partitions of its broker."""
    absent = absent_brokers(view_of((), orders={ON_A: REPLICA, ON_B: REPLICA}), ())
    seen = replace(survey({ON_A: 9, ON_B: 9}, {}), absent=absent)
    (found,) = reach(parse_bounds({"orders": {listed: 9}}), seen, T)
    assert (found.state, found.end_offset) == ("waiting", None)
    assert found.why.startswith("broker b" if listed == "b-1" else "broker a")
    assert "only a replica of it is up" in found.why


B_1 = Partition("orders", 1, "b")


@pytest.mark.parametrize("has_b_0", [{"excluded": frozenset({ON_B})}, {}])
def test_a_number_is_waited_for_on_each_broker_whose_replica_lists_only_others(
    has_b_0: Any,
) -> None:
    """Another broker has that number, and the replica may not know it of its own."""
    a_1 = Partition("orders", 1, "a")
    absent = absent_brokers(view_of(("a",), orders={a_1: LEADER, ON_B: REPLICA}), ())
    ends = {a_1: 9} if has_b_0 else {a_1: 9, ON_B: 9}
    seen = replace(survey(ends, {}), absent=replace(absent, **has_b_0))
    waiting, reached = reach(parse_bounds({"orders": {"1": 9}}), seen, T)
    assert (waiting.partition, waiting.state) == (Partition("orders", 1), "waiting")
    assert waiting.why == "broker b: only a replica of it is up"
    assert (reached.partition, reached.state) == (a_1, "reached")


def test_a_number_that_each_replica_lists_is_not_waited_for_twice() -> None:
    """It is an entry of its own, whether it could be asked or not."""
    absent = absent_brokers(view_of((), orders={ON_A: REPLICA, B_1: REPLICA, ON_B: REPLICA}), ())
    seen = replace(survey({ON_A: 9, ON_B: 9, B_1: 9}, {}), absent=absent)
    until = parse_bounds({"orders": {"0": 9}})
    assert [one.state for one in reach(until, seen, T)] == ["reached", "reached"]
    given_up = replace(absent, unreachable={ON_B: "timed out"})
    found = reach(until, replace(survey({ON_A: 9, B_1: 9}, {}), absent=given_up), T)
    assert [(one.partition, one.state) for one in found] == [(ON_A, "reached"), (ON_B, "waiting")]


def test_a_broker_without_any_leader_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = replace(view_of((), orders={ON_A: REPLICA}), unreachable=SILENT)
    seen = replace(survey({ON_A: 9}, {ON_A: 8}), absent=absent_brokers(view, ("b",)))
    monkeypatch.setattr(reached_check, "survey_of", lambda *_: seen)
    job = tmp_path / "orders.yaml"
    job.write_text(YAML.replace("topics: [orders]", "topics: [orders], dialect: rocketmq"))
    assert command_line.main(["reached", str(job), "--until", AT_T]) == 75


def test_a_listed_partition_that_is_nowhere_is_a_mistake_during_an_election() -> None:
    seen = without(survey({P0: 1}, {}), unreachable=NO_LEADER)
    with pytest.raises(JobFileError, match="orders/7, which does not exist") as caught:
        states({"orders": {"7": 40}}, seen)
    assert "topic orders has partitions 0, 1" in caught.value.why


def test_only_times_and_offsets_can_be_awaited() -> None:
    assert can_be_awaited(parse_bounds({"orders": {"0": 3, "1": AT_T}}))
    for word in ("latest", "earliest", "group:g", {"orders": {"0": "latest"}}):
        assert not can_be_awaited(parse_bounds(word))
    assert times_awaited(parse_bounds({"orders": {"0": 3, "1": AT_T}})) == (T,)


# --- the command ------------------------------------------------------------------------


def test_an_end_that_is_always_there_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError, match="nothing to wait for"):
        reached_check.query_reach(Job.parse(YAML), NoProgress())


@pytest.mark.parametrize(("found", "code"), [(8, 0), (None, 75)])
def test_the_exit_code_says_whether_to_ask_again(
    found: int | None,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked: list[object] = []

    def look(job: object, wanted: object) -> Survey:
        asked.append(wanted)
        return survey({P0: 9}, {P0: found})

    monkeypatch.setattr(reached_check, "survey_of", look)
    job = tmp_path / "orders.yaml"
    job.write_text(YAML)
    assert command_line.main(["reached", str(job), "--until", AT_T, "--json"]) == code
    answer = json.loads(capfd.readouterr().out)
    assert answer["reached"] is (code == 0)
    assert answer["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "broker": None,
            "state": "reached" if code == 0 else "waiting",
            "end": 9,
            "until_offset": found,
        }
    ]
    assert len(asked) == 1
    assert command_line.main(["reached", str(job), "--until", AT_T]) == code
    assert "orders/0" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("until", "absent", "named", "text"),
    [
        (AT_T, {"unreachable": NO_LEADER}, {}, "orders/1: it has no leader"),
        ('{"orders": {"1": 4}}', {"unreachable": NO_LEADER}, {}, "orders/1: it has no leader"),
        (AT_T, {"unanswered_brokers": SILENT}, SILENT, "broker b: refused"),
    ],
)
def test_what_a_policy_holds_is_not_reached_and_is_named(
    until: str,
    absent: Any,
    named: object,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    seen = without(survey({P0: 9}, {P0: 8}), **absent)
    monkeypatch.setattr(reached_check, "survey_of", lambda *_: seen)
    job = tmp_path / "orders.yaml"
    job.write_text(YAML + "policy: {unreachable: hold}\n")
    assert command_line.main(["reached", str(job), "--until", until, "--json"]) == 75
    answer = json.loads(capfd.readouterr().out)
    assert answer["reached"] is False
    assert answer.get("unanswered_brokers", {}) == named
    ends = [(p["partition"], p["state"], p["end"]) for p in answer["partitions"]]
    assert ((1, "waiting", None) in ends) is (not named)
    assert command_line.main(["reached", str(job), "--until", until]) == 75
    assert text in capfd.readouterr().out


def test_a_silent_broker_without_wanted_partitions_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a = Partition("orders", 0, "a")
    seen = without(survey({on_a: 9}, {on_a: 8}), unanswered_brokers=SILENT)
    monkeypatch.setattr(reached_check, "survey_of", lambda *_: seen)
    job = tmp_path / "orders.yaml"
    only = "topics: [orders], dialect: rocketmq, partitions: {orders: [a-0]}}"
    job.write_text(YAML.replace("topics: [orders]}", only))
    assert command_line.main(["reached", str(job), "--until", AT_T]) == 0


def test_a_silent_partition_that_cannot_be_asked_for_open_transactions_is_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = survey({P0: 9, P1: 9}, {P0: None, P1: 8})
    surveys = [committed, without(survey({P1: 9}, {}), unreachable={P0: "it has no leader"})]
    monkeypatch.setattr(reached_check, "survey_of", lambda *_: surveys.pop(0))
    job = tmp_path / "orders.yaml"
    job.write_text(YAML)
    command = ["reached", str(job), "--until", AT_T, "--idle-after", "600"]
    assert command_line.main(command) == 75


@pytest.mark.parametrize(("dialect", "code"), [("rocketmq", 0), ("kafka", 75)])
def test_only_where_transactions_may_be_open_is_an_answer_at_the_end_waited_for(
    dialect: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(job: object, wanted: object, cluster: object = None) -> Survey:
        return survey({P0: 9}, {P0: 9})

    monkeypatch.setattr(reached_check, "survey_of", look)
    job = tmp_path / "orders.yaml"
    job.write_text(YAML.replace("source: {", f"source: {{dialect: {dialect}, "))
    command = ["reached", str(job), "--until", AT_T, "--idle-after", "600"]
    assert command_line.main(command) == code


def test_no_spark_is_started(tmp_path: Path) -> None:
    job = tmp_path / "orders.yaml"
    nobody = YAML.replace("b1:9092", "127.0.0.1:1")
    job.write_text(nobody.replace("orders]}", "orders], timeouts: {survey_ms: 300}}"))
    code = (
        "import sys; from rangeland.cli.command_line import main; "
        f"print(main(['reached', {str(job)!r}, '--until', {AT_T!r}]), 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["75", "False"]


def test_its_help_has_an_example(capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["reached", "--help"]) == 0
    assert "  rangeland reached orders.yaml --until" in capfd.readouterr().out
