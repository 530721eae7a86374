"""What an error says of the data where its class alone could not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import SparkUpgradeException

from rangeland import errors
from rangeland.cluster_settings import TlsSettings
from rangeland.connection.diagnosis import TlsFailure, tls_error
from rangeland.decode.columns import PLAIN_COLUMNS
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import commit_once
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Snapshot
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.error_answers import (
    ANSWERS,
    FOUND_BEFORE_PLANS,
    PLAN_STAYS,
    PlanStage,
    at_stage,
)
from rangeland.errors import (
    ALL_OR_NOTHING,
    CLUSTER_OPERATOR,
    AccessDenied,
    Conflict,
    EngineFailed,
    JobFileError,
    MissingRequirement,
    RangelandError,
    StorageFailed,
    TableRefused,
    Unreachable,
)
from rangeland.landing.execution.committer import CommittedPlan, PlanCommitter
from rangeland.landing.execution.final_log_check import LogsChanged
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_steps import LandingSteps
from rangeland.model import Address
from rangeland.planning.plan_kind import PlanKind
from rangeland.spark.constraint_query import first_violation
from rangeland.spark.python_workers import check_workers_are_usable
from rangeland.spark.spark_errors import worker_error
from rangeland.zookeeper import access_diagnosis
from rangeland.zookeeper.access_diagnosis import missing_rights_error
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess, ZooKeeperLogin
from tests.fakes.landing import landing_context


def _plan_with(ranges: int) -> CommittedPlan:
    found = SimpleNamespace(outcome=SimpleNamespace(has_landed_ranges=ranges > 0))
    return cast(CommittedPlan, found)


def test_a_command_that_fails_after_landings_does_not_say_that_nothing_was_landed() -> None:
    context = landing_context(None, kind=PlanKind.BACKFILL)
    steps = LandingSteps(context)
    steps._finished += [_plan_with(2), _plan_with(0)]  # the second was given up
    with pytest.raises(Conflict) as caught, steps._recording_losses():
        raise Conflict("another plan is in the way")
    assert caught.value.data.startswith("1 plan had been landed completely; after that, ")


def test_a_store_that_fails_during_the_commit_leaves_open_whether_it_went_through() -> None:
    table = SimpleNamespace(
        path="/lake/orders", version=3, transaction_version=lambda _: None, property=lambda _: None
    )

    class Kernel:
        def storage(self, path: str) -> StoreSettings:
            return StoreSettings(path)

        def commit(self, *_: object, **__: object) -> Any:
            raise StorageFailed("could not commit", why="CommitStateUnknownException: no answer")

    with pytest.raises(StorageFailed) as caught:
        commit_once(
            cast(DeltaKernel, Kernel()),
            cast(Snapshot, table),
            CommitRequest("rangeland/orders", 4, ()),
        )
    assert caught.value.data == ALL_OR_NOTHING


@pytest.mark.parametrize(
    ("meaning", "kind", "acts"),
    [
        (ErrorMeaning.DENIED, AccessDenied, "the brokers' operator"),
        (ErrorMeaning.UNSUPPORTED, MissingRequirement, "the brokers' operator"),
        (ErrorMeaning.REFUSED, JobFileError, "the author of the job file"),
    ],
)
def test_rights_and_versions_are_up_to_the_operator_of_the_brokers(
    meaning: ErrorMeaning, kind: type[RangelandError], acts: str
) -> None:
    error = meaning.refusal_error("orders may not be read", why="no right", do="ask")
    assert (type(error), error.exit_code, error.acts) == (kind, 78, acts)


@pytest.mark.parametrize(
    ("failed", "kind", "acts"),
    [
        (TlsFailure("WRONG_VERSION_NUMBER"), JobFileError, "the author of the job file"),
        (TlsFailure("", 19, "self-signed"), JobFileError, "the author of the job file"),
        (TlsFailure("", 10, "has expired"), AccessDenied, "ZooKeeper's operator"),
        (TlsFailure("NO_SHARED_CIPHER"), AccessDenied, "ZooKeeper's operator"),
        (
            TlsFailure("SSLV3_ALERT_HANDSHAKE_FAILURE"),
            AccessDenied,
            "the author of the job file, or ZooKeeper's operator",
        ),
    ],
)
def test_the_author_sets_tls_and_the_operator_mends_what_the_server_presents(
    failed: TlsFailure, kind: type[RangelandError], acts: str
) -> None:
    error = tls_error(Address("zk", 2281), failed, TlsSettings(), access_diagnosis.PEER)
    assert error is not None
    assert (type(error), error.acts) == (kind, acts)


CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RangelandError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("stage", "kinds", "data"),
    [
        (PlanStage.READING, FOUND_BEFORE_PLANS, PLAN_STAYS),
        (PlanStage.COMMITTING, (StorageFailed,), ALL_OR_NOTHING),
        (PlanStage.UNCONFIRMED, (RangelandError,), ALL_OR_NOTHING),
    ],
    ids=lambda value: value.name if isinstance(value, PlanStage) else "",
)
def test_an_error_answers_by_the_stage_of_its_plan_or_as_its_class_does(
    stage: PlanStage,
    kinds: tuple[type[RangelandError], ...],
    data: str,
    kind: type[RangelandError],
) -> None:
    cause = OSError("no route")
    with pytest.raises(kind) as caught, at_stage(stage):
        raise kind("it broke", why="no route") from cause
    assert caught.value.data == (data if issubclass(kind, kinds) else kind.data)
    assert caught.value.__cause__ is cause


def test_every_stage_has_an_answer() -> None:
    assert set(ANSWERS) == set(PlanStage)


@pytest.mark.parametrize("error", FOUND_BEFORE_PLANS)
def test_no_error_that_may_be_found_while_reading_says_that_nothing_was_read(
    error: type[RangelandError],
) -> None:
    assert error.data == RangelandError.data


@pytest.mark.parametrize(
    ("login", "acts"),
    [
        (None, "the author of the job file, or ZooKeeper's operator"),
        (ZooKeeperLogin("u", "p"), "the author of the job file, or ZooKeeper's operator"),
        (ZooKeeperLogin("u", "p", uses_sasl=True), "ZooKeeper's operator"),
    ],
)
def test_an_access_list_is_up_to_the_operator_of_zookeeper(
    login: ZooKeeperLogin | None, acts: str
) -> None:
    access = ZooKeeperAccess("zk:2181", login=login)
    assert missing_rights_error("read", "zk:2181", access).acts == acts


def test_a_right_that_is_missed_while_reading_leaves_the_plan_in_the_ledger() -> None:
    committer = PlanCommitter.__new__(PlanCommitter)
    context = landing_context(SimpleNamespace(table=SimpleNamespace(version=0)))
    committer._context, committer._target = context, context.target

    def refused(*_: object, **__: object) -> Any:
        raise AccessDenied("orders/0 may not be read", why="TOPIC_AUTHORIZATION_FAILED")

    committer._outcomes = cast(Any, SimpleNamespace(read_and_prepare=refused))
    with pytest.raises(AccessDenied) as caught:
        committer.finish_new(cast(Any, None))
    assert caught.value.data == PLAN_STAYS


def test_a_log_that_keeps_changing_ends_in_an_error_that_the_runbook_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = SparkPlanReader.__new__(SparkPlanReader)
    reader._context = landing_context(None)
    turns: list[bool] = []

    def changes(*_: object, is_new: bool) -> Any:
        turns.append(is_new)
        return LogsChanged("orders/0 has other records", "epoch 3 ended at 7")

    monkeypatch.setattr(reader, "_read_once", changes)
    with pytest.raises(Unreachable, match="epoch 3 ended at 7; nothing is committed") as caught:
        reader.read(cast(Any, None), is_new=True)
    assert type(caught.value) is Unreachable
    assert (turns, len(reader._context.warnings)) == ([True, False], 1)


@pytest.mark.parametrize(
    "report",
    [
        "ModuleNotFoundError: No module named 'pyarrow.compute'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version",
        'Cannot run program "/opt/python"',
    ],
)
def test_what_workers_lack_is_mended_by_the_operator_of_their_cluster(report: str) -> None:
    error = worker_error(report)
    assert isinstance(error, RangelandError)
    assert error.acts == CLUSTER_OPERATOR


def test_constraints_that_spark_fails_to_check_are_not_the_stores_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    def fail(*_: object) -> Any:
        raise PySparkException("job aborted")

    monkeypatch.setattr(functions, "coalesce", fail)
    with pytest.raises(EngineFailed, match="could not check new rows: job aborted") as caught:
        first_violation(SimpleNamespace(columns=[]), (), PLAIN_COLUMNS)
    assert caught.value.data == RangelandError.data


UPGRADE = "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME_BY_NEW_PARSER] Fail to parse"


def of_a_task(name: str, message: str) -> Any:
    """What Spark 3.5 raises for an exception of a task: the job's, with that one as its cause."""
    from py4j.protocol import Py4JJavaError

    def java(name: str, message: str, cause: Any = None) -> Any:
        about = SimpleNamespace(getName=lambda: name)
        return SimpleNamespace(
            getClass=lambda: about, getMessage=lambda: message, getCause=lambda: cause
        )

    class OfJava(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            Exception.__init__(self)
            self.java_exception = java(
                "org.apache.spark.SparkException", "Job aborted", java(name, message)
            )

        def __str__(self) -> str:
            return "An error occurred.\n: org.apache.spark.SparkException: Job aborted"

    return OfJava()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (SparkUpgradeException(UPGRADE), UPGRADE),
        (of_a_task("org.apache.spark.SparkUpgradeException", UPGRADE), UPGRADE),
        (of_a_task("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO]"), "[DIVIDE_BY"),
    ],
    ids=["upgrade", "upgrade in a task", "arithmetic in a task"],
)
def test_constraints_that_fail_on_a_row_would_fail_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    from pyspark.sql import functions

    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(functions, "coalesce", fail)
    with pytest.raises(TableRefused, match="the table's constraints fail on new rows") as caught:
        first_violation(SimpleNamespace(columns=[]), (), PLAIN_COLUMNS)
    assert why in caught.value.why


def test_a_worker_without_the_kernel_is_not_the_mistake_of_who_runs_the_command() -> None:
    import pyspark

    from rangeland import __version__

    worker = {
        "host": "h1",
        "python": "p",
        "failed": {},
        "kernel": MissingRequirement("no kernel", why="no file", do="install it"),
        "rangeland": __version__,
    }
    with pytest.raises(RangelandError) as caught:
        check_workers_are_usable([worker | {"pyspark": pyspark.__version__}])
    assert (caught.value.acts, caught.value.exit_code) == (CLUSTER_OPERATOR, 78)
