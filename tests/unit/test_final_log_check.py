"""What a plan does about logs that have changed while they were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.cluster_access import cluster_lookup
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import ClusterView, LeaderRequest, OffsetResult, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import RangeLost, Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job import Job
from rangeland.landing.execution import final_log_check
from rangeland.landing.execution.final_log_check import FinalLogCheck, LogsBefore
from rangeland.landing.execution.plan_settings import look_up_log_settings
from rangeland.landing.execution.shared_reader_interface import (
    PlanReceipts,
    PlanToRead,
    SharedReader,
)
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Address, Counts, Earliest, Leader, Partition, Range, Slice, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.log_identity import Changed, FinalJudgement, Fingerprints, Unchanged
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import Receipt
from rangeland.survey import log_comparison
from rangeland.zookeeper import broker_registry
from tests.fakes.landing import landing_context
from tests.unit import test_landing_target
from tests.unit.test_landing_target import Drivers, columns_are_there, finisher_of, plan

drivers, lake = test_landing_target.drivers, test_landing_target.lake

P = Partition("orders", 0)
PLAN = replace(plan(), checkpoint={P: LogMark(100, "id", 7)})
ALL = Receipt(0, P, 0, 100, Counts(filtered=100), rowless=((0, 100),))


def job(policy: str, source: str = "servers: [b1:9092]") -> Job:
    return Job.parse(
        f"job: orders\nsource: {{{source}, topics: [orders]}}\n"
        f"policy: {{{policy}}}\nsink: {{table: lake/orders}}\n"
    )


class FoundChanges(FinalLogCheck):
    """``found``: the losses after each reading, and the leader epoch then."""

    def __init__(
        self,
        job: Job,
        settings_of: Callable[[Plan], ReadSettings],
        found: list[dict[Loss, int | None]],
    ) -> None:
        super().__init__(job, settings_of, list)
        self.found, self.after = found, []  # type: ignore[var-annotated]

    def logs_before(self, settings: object, plan: Plan, after: Changed | None = None) -> LogsBefore:
        return LogsBefore(plan, after=after)

    def judge(self, settings: Any, before: LogsBefore, receipts: object) -> FinalJudgement:
        self.after.append(before.after)
        losses = self.found.pop(0)
        return Changed(losses) if losses else Unchanged()


class Reading(SparkPlanReader):
    """A reader of logs in which ``found`` has happened after each reading."""

    def __init__(
        self,
        policy: str,
        found: list[dict[Loss, int | None]],
        target: Any = None,
        group: SharedReader | None = None,
        source: str = "servers: [b1:9092]",
    ) -> None:
        surveys = SimpleNamespace(last=Survey(0, {}))
        context = landing_context(target, job(policy, source), surveys=surveys)
        self.warnings = context.warnings
        super().__init__(context, lambda: group)
        self.log_check = check = FoundChanges(
            context.job, partial(look_up_log_settings, context), found
        )
        self.after = check.after
        self._tasks = cast(Any, self)
        self.read_new: list[bool] = []

    def read_all(self, *_: object, is_new: bool) -> Any:
        self.read_new.append(is_new)
        return {0: ALL}, []


def loss(kind: LossKind = LossKind.TRUNCATED, first: int = 60, **more: Any) -> Loss:
    return Loss(P, first, 100, kind, "seen", **more)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("truncated: skip", LossKind.TRUNCATED),
        ("recreated: skip", LossKind.RECREATED),
        ("recreated: hold", LossKind.RECREATED),
    ],
)
def test_a_loss_that_the_policy_allows_is_read_once_more(policy: str, kind: LossKind) -> None:
    reading = Reading(policy, [{loss(kind): 8}, {}])
    reading.read(PLAN, is_new=True)
    assert reading.read_new == [True, False]
    (warning,) = reading.warnings
    assert "it is read once more" in warning
    assert reading.after == [None, Changed({loss(kind): 8})]


@pytest.mark.parametrize("policy", ["truncated: fail", "truncated: hold", "recreated: skip"])
def test_a_truncation_that_the_policy_does_not_skip_ends_the_plan(policy: str) -> None:
    with pytest.raises(RangeLost):
        Reading(policy, [{loss(): 8}]).read(PLAN, is_new=True)


def test_a_replacement_removes_no_rows_for_what_was_truncated_and_written_again() -> None:
    replacing = replace(PLAN, kind=PlanKind.REPLACE)
    with pytest.raises(RangeLost):
        Reading("truncated: skip", [{loss(): 8}]).read(replacing, is_new=True)


def test_a_log_that_changes_at_each_reading_is_read_by_a_later_run() -> None:
    reading = Reading("truncated: skip", [{loss(): 8}, {loss(first=50): 9}])
    with pytest.raises(Unreachable, match="is truncated while it was being read"):
        reading.read(PLAN, is_new=True)


def test_a_loss_that_reading_once_more_does_not_change_ends_the_plan() -> None:
    with pytest.raises(RangeLost):
        Reading("truncated: skip", [{loss(): None}, {loss(): None}]).read(PLAN, is_new=True)


def test_zookeeper_is_asked_when_a_reading_begins_and_for_brokers_again_before_the_last_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def brokers(*_: object) -> Any:
        asked.append("brokers")
        return SimpleNamespace(brokers={"1": Address("b1", 9092)})

    def policies(*_: object, **__: object) -> dict[str, str]:
        asked.append("policies")
        return {}

    monkeypatch.setattr(cluster_lookup, "look_up_broker_registry", brokers)
    monkeypatch.setattr(broker_registry, "read_cleanup_policies", policies)
    reading = Reading("", [{}], source="zookeeper: zk:2181")
    reading.read(PLAN, is_new=True)
    assert asked == ["brokers", "policies", "brokers"]


# --- what is recorded of it ---------------------------------------------------------------------


def test_what_was_truncated_and_written_again_is_known_with_its_epoch() -> None:
    found = Reading("truncated: skip", [{loss(): 8}, {}]).read(PLAN, is_new=True)
    assert found == PlanReceipts({0: ALL}, [], {loss().with_action(Action.SKIP): 8})


@pytest.mark.parametrize(
    ("seen", "epoch", "read_until", "recorded"),
    [
        (loss(), 8, 80, [(60, 80)]),  # readers have seen the rest
        (loss(), 8, 60, []),
        (loss(), None, 100, []),  # nothing shows that it was not the end of a lagging leader
        (loss(is_sure=False), 8, 100, []),
        (loss(LossKind.RECREATED), 8, 100, []),  # readers record it
    ],
)
def test_only_what_was_read_in_place_of_other_records_is_recorded(
    seen: Loss, epoch: int | None, read_until: int, recorded: list[tuple[int, int]]
) -> None:
    lost = Loss(P, read_until, 100, LossKind.TRUNCATED, "the log ends").with_action(Action.SKIP)
    receipt = replace(ALL, losses=(lost,) if read_until < 100 else ())
    found = Changed({seen: epoch}).regrown_offsets(PLAN, [receipt])
    assert [(x.from_offset, x.until_offset) for x in found] == recorded


def test_it_is_recorded_with_the_outcome_and_the_next_run_begins_in_the_later_epoch(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(PLAN, [])
    finisher_of(Reading("truncated: skip", [{loss(): 8}, {}], target)).finish_entered(
        EnteredPlan(PLAN, None, None)
    )
    later = drivers.another()
    position = later.history.position(PLAN.application)
    assert position.checkpoint == {P: LogMark(100, "id", 8, epoch_is_later=True)}
    assert position.covered.of(P, "id") == [(0, 100)]
    (event,) = later.history.losses()
    assert event.loss == loss(topic_id="id").with_action(Action.SKIP)
    assert (event.sequence, event.plan_hash, event.epoch) == (1, "", 8)


class Sharing:
    """Stands for a group: what this driver has read of a plan is confirmed, and handed in."""

    def __call__(self, work: PlanToRead) -> Any:
        changed = work.find_change(work.before, [ALL])
        assert changed is not None
        return changed


def test_a_driver_of_a_group_reads_alone_once_more_what_has_changed(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    assert target.writer.enter(PLAN, [])
    reading = Reading("truncated: skip", [{loss(): 8}, {}], target, Sharing())
    done = finisher_of(reading).finish_new(PLAN)
    assert (done.landed.is_new, done.is_shared) == (True, False)
    assert reading.read_new == [False]
    assert len(reading.warnings) == 1
    (event,) = drivers.another().history.losses()
    assert event.epoch == 8


def test_a_driver_of_a_group_ends_where_the_policy_does_not_go_on(drivers: Drivers) -> None:
    reading = Reading("truncated: fail", [{loss(): 8}], drivers.another(), Sharing())
    with pytest.raises(RangeLost):
        finisher_of(reading).finish_new(PLAN)


# --- brokers with partitions of their own -------------------------------------------------------

NEAR, FAR = Partition("orders", 0, "near"), Partition("orders", 0, "far")
TWO = {p: Address(p.broker, 9) for p in (NEAR, FAR)}
SAME = {NEAR: 7, FAR: 8}


class TwoBrokers:
    """Connections to two brokers with a log each, from ``start`` to ``end``. Those of ``away`` do
    not answer, and ``silent`` brokers list nothing."""

    def __init__(
        self,
        *away: Partition,
        listed: Sequence[Partition] = (NEAR, FAR),
        silent: str = "",
        start: int = 0,
        end: int = 60,
    ) -> None:
        self.away, self.listed, self.silent = [TWO[p] for p in away], listed, silent
        self.start, self.end = start, end
        named_brokers = tuple((p.broker, address) for p, address in TWO.items())
        self.settings = ClusterSettings("kafka", (), survey_ms=50, named_brokers=named_brokers)
        self.capabilities, self.requests = Capabilities(numbered_per_broker=True), 0
        self.dialect = self

    def __enter__(self) -> TwoBrokers:
        return self

    def __exit__(self, *error: object) -> None: ...

    def find_leaders(self, *about: Any) -> Any:
        yield LeaderRequest(tuple(TWO.values()), (BrokerRequest("topics"),))
        leaders = {p: Leader(TWO[p]) for p in self.listed}
        topics = {"orders": TopicView("orders", ErrorMeaning.OK, "", leaders=leaders)}
        return ClusterView((), topics, {self.silent: "it is down"} if self.silent else {})

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        if address in self.away:
            raise ConnectionLost(f"{address} does not answer")
        return [each.message for each in questions]

    def offsets_requests(self, leaders: Any, when: Any, isolation: Any) -> list[BrokerRequest]:
        return [BrokerRequest((tuple(leaders), self.start if when == Earliest() else self.end))]

    def read_offsets(self, responses: Sequence[Any]) -> dict[Partition, OffsetResult]:
        ((partitions, offset),) = responses or [((), 0)]
        return {p: OffsetResult(ErrorMeaning.OK, "", offset) for p in partitions}

    def sizes_requests(self, logs: Any) -> list[BrokerRequest]:
        return []

    def read_sizes(self, responses: Sequence[Any]) -> dict[Partition, int]:
        return {}


def changes_in(
    brokers: TwoBrokers,
    monkeypatch: pytest.MonkeyPatch,
    before: Fingerprints = {},  # noqa: B006  # read only
    now: Fingerprints = {},  # noqa: B006  # read only
) -> list[Partition] | str:
    """The partitions that have lost something since both were read up to 100, or what is said of
    another change."""
    monkeypatch.setattr(log_comparison, "batch_checksums", lambda *about: dict(now))
    monkeypatch.setattr(final_log_check, "ConnectionPool", lambda cluster: brokers)
    monkeypatch.setattr(log_comparison, "LAGGING_S", 0)
    ranges = tuple(Range(p, 0, 100) for p in TWO)
    both = replace(plan(), ranges=ranges, checkpoint={p: LogMark(100) for p in TWO})
    receipts = [Receipt(i, p, 0, 100, Counts(landed=100)) for i, p in enumerate(TWO)]
    settings = ReadSettings(brokers.settings)
    check = FinalLogCheck(job("truncated: fail"), lambda plan: settings, list)
    try:
        changed = check.find_change(LogsBefore(both, before), receipts)
    except RangeLost as lost:
        return [loss.partition for loss in lost.losses]
    return [] if changed is None else changed.what


def test_a_broker_that_is_down_keeps_no_other_log_from_being_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert changes_in(TwoBrokers(), monkeypatch) == [FAR, NEAR]
    assert changes_in(TwoBrokers(FAR), monkeypatch) == [NEAR]
    assert changes_in(TwoBrokers(FAR, listed=(NEAR,), silent="far"), monkeypatch) == [NEAR]


def test_nothing_is_confirmed_if_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable) as raised:
        changes_in(TwoBrokers(FAR, NEAR), monkeypatch, SAME, SAME)
    assert raised.value.exit_code == 75


@pytest.mark.parametrize(
    "brokers",
    [TwoBrokers(FAR, end=100), TwoBrokers(FAR, listed=(NEAR,), silent="far", end=100)],
)
def test_a_log_whose_broker_went_down_after_it_was_read_is_not_taken_for_unchanged(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = changes_in(brokers, monkeypatch, SAME, SAME)
    assert found == "it is unknown whether orders/far-0 changed while it was being read"


@pytest.mark.parametrize(
    ("start", "before", "now"),
    [
        (0, {NEAR: 7}, {NEAR: 7, FAR: 8}),  # no answer before
        (0, {NEAR: 7, FAR: 8}, {NEAR: 7}),  # no answer now
        (0, {NEAR: 7, FAR: 8}, {NEAR: 7, FAR: None}),
        (99, {NEAR: 7, FAR: 8}, {NEAR: 7}),  # the log begins at the last offset that was read
    ],
)
def test_bytes_that_do_not_arrive_are_not_taken_for_the_same(
    start: int, before: Fingerprints, now: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = changes_in(TwoBrokers(start=start, end=100), monkeypatch, before, now)
    assert found == "it is unknown whether orders/far-0 changed while it was being read"


@pytest.mark.parametrize(
    ("start", "before", "now"),
    [
        (0, {NEAR: 7, FAR: 8}, {NEAR: 7, FAR: 8}),
        (0, {NEAR: 7, FAR: None}, {NEAR: 7, FAR: 8}),  # a batch that was too large, and compacted
        (100, {NEAR: 7, FAR: 8}, {NEAR: None, FAR: None}),  # expired since
    ],
)
def test_logs_are_confirmed_by_their_bytes_as_long_as_they_have_them(
    start: int, before: Fingerprints, now: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changes_in(TwoBrokers(start=start, end=100), monkeypatch, before, now) == []


def test_a_log_whose_bytes_differ_has_changed_while_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = changes_in(TwoBrokers(end=100), monkeypatch, SAME, {FAR: 9, NEAR: 7})
    assert found == "the log of orders/far-0 changed while it was being read"


def test_a_log_is_asked_again_for_its_bytes_by_whoever_leads_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, asked = TwoBrokers(), []

    def checksums(_: Any, leaders: Any, offsets: Any) -> Fingerprints:
        asked.append(dict(leaders))
        return {p: 7 for p, leader in leaders.items() if leader.address == TWO[p]}

    monkeypatch.setattr(log_comparison, "batch_checksums", checksums)
    monkeypatch.setattr(final_log_check, "ConnectionPool", lambda cluster: brokers)
    monkeypatch.setattr(log_comparison, "RESURVEY_POLL_S", 0)
    slices = (Slice(0, NEAR, 0, 100, leader=TWO[NEAR]), Slice(1, FAR, 0, 100, leader=TWO[NEAR]))
    both = replace(plan(), ranges=tuple(Range(p, 0, 100) for p in TWO), slices=slices)
    settings = ReadSettings(brokers.settings)
    check = FinalLogCheck(job("truncated: fail"), lambda plan: settings, list)
    assert check.logs_before(settings, both) == LogsBefore(both, {NEAR: 7, FAR: 7})
    assert asked == [{NEAR: Leader(TWO[NEAR]), FAR: Leader(TWO[NEAR])}, {FAR: Leader(TWO[FAR])}]


@pytest.mark.parametrize("silent", ["", "another"])
def test_a_log_that_its_broker_no_longer_has_is_unknown_whoever_else_is_down(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreachable, match="nothing is committed"):
        changes_in(TwoBrokers(listed=(NEAR,), silent=silent), monkeypatch)
