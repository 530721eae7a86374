"""The messages that the runbook shows are those that the code says, word for word."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.columns import row_schema
from rangeland.delta.stores.store_errors import store_error
from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.schema_compatibility import new_table, row_layout
from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.legacy_messages import batch_error
from rangeland.dialects.kafka.requests import CAPABILITIES
from rangeland.dialects.kafka.session import KafkaSession
from rangeland.errors import RangelandError
from rangeland.fetch.loss_judgement import located_damage_error
from rangeland.job import Job
from rangeland.job.command_line_overrides import check_range_is_closed
from rangeland.job.job_text import parse_job_text
from rangeland.landing.target import landing_commits
from rangeland.loss import Loss, LossKind
from rangeland.model import Address, Isolation, Partition, Range, Slice
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.proof import prove
from rangeland.spark.python_workers import check_workers_are_usable
from rangeland.spark.spark_errors import unexpected_error
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import wanted_partitions
from tests import docs
from tests import sample_results as made

ORDERS = Partition("orders", 0)


def usage() -> None:
    text = parse_job_text(made.JOB_YAML + "range: {until: latest}\n", "orders.yaml")
    check_range_is_closed(text, Job.of(text))


def job_file() -> None:
    Job.parse(
        made.JOB_YAML.replace("  topics: [orders]", "  topics: [orders]\n  topcs: [x]"),
        "orders.yaml",
    )


def denied() -> None:
    topic = TopicView("orders", ErrorMeaning.DENIED, "TOPIC_AUTHORIZATION_FAILED")
    wanted_partitions(ClusterView((), {"orders": topic}), SurveyRequest(("orders",)))


def missing() -> None:
    failed = {"pyarrow": "ModuleNotFoundError: No module named 'pyarrow'"}
    check_workers_are_usable([{"host": "host-1", "python": "/usr/bin/python3", "failed": failed}])


def unreachable() -> None:
    settings = ClusterSettings("kafka", (Address("127.0.0.1", 1),), survey_ms=100)
    with ConnectionPool(settings) as brokers:
        take_survey(brokers, SurveyRequest(("orders",)))


def storage() -> None:
    path = "/lake/orders/part-00000.zstd.parquet"
    raise store_error(OSError(errno.ENOSPC, "No space left on device"), path, 128 << 20)


def engine() -> None:
    from py4j.protocol import Py4JError

    from rangeland.spark.spark_errors import translate_spark_error

    raise translate_spark_error(
        Py4JError(
            "org.apache.spark.SparkException: Job aborted due to stage failure: "
            "ExecutorLostFailure (executor 3 exited)"
        )
    )


def remote() -> None:
    session = KafkaSession("docs")
    session.open()
    session.take_negotiation(b"\x00\x00\x00\x07rest")


def local() -> None:
    KafkaSession("docs").encode(m.MetadataRequest())


def bad_record() -> None:
    raise located_damage_error(
        batch_error(81204, "its checksum is wrong (codec lz4)"),
        Partition("orders", 3),
        "broker-1:9092",
        CAPABILITIES,
    )


def transform() -> None:
    from rangeland.spark.failing_records import located_error
    from rangeland.spark.transform import RaisedByTransform, transform_error

    found = [Slice(0, ORDERS, 81204, 81205, 0, None)]
    raised = RaisedByTransform("KeyError", "'amount'", "my_module.py:12")
    raise located_error(transform_error("my_module:my_function", raised), found, found)


def lost() -> None:
    evidence = "the log begins at 5000 on broker-1:9092"
    raise range_lost_error([Loss(ORDERS, 1200, 5000, LossKind.EXPIRED, evidence)])


def conflict() -> None:
    from rangeland.landing.audit.removed_and_unknown_rows import removal_error

    found = landing_commits.Restored(43, 41, 0, (PlanId("rangeland/orders-hourly", 17),))
    raise removal_error("lake/orders", found)


def refused() -> None:
    narrow = row_schema().remove(row_schema().get_field_index("headers"))
    row_layout(TableMetadata("/lake/orders", 1, new_table(narrow).schema_json), row_schema())


def proof() -> None:
    slice_ = Slice(3, Partition("orders", 1), 5000, 9000, 0, None)
    where = Range(Partition("orders", 1), 5000, 9000)
    plan = Plan("orders", "a", 1, "kafka", Isolation.READ_COMMITTED, (where,), (slice_,), (), {}, 0)
    prove(plan, {})


def bug() -> None:
    raise unexpected_error(KeyError("orders"))


RAISED: dict[str, Callable[..., None]] = {
    "UsageError": usage,
    "JobFileError": job_file,
    "AccessDenied": denied,
    "MissingRequirement": missing,
    "Unreachable": unreachable,
    "StorageFailed": storage,
    "EngineFailed": engine,
    "RemoteProtocolError": remote,
    "LocalProtocolError": local,
    "BadRecord": bad_record,
    "TransformFailed": transform,
    "RangeLost": lost,
    "Conflict": conflict,
    "TableRefused": refused,
    "ProofFailed": proof,
    "Bug": bug,
}


@pytest.mark.parametrize("name", RAISED)
def test_a_message_of_the_runbook_is_what_the_code_says(name: str) -> None:
    section = docs.page("jobs/README.md").partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    raiser = RAISED[name]
    with pytest.raises(RangelandError) as caught:
        raiser()
    assert type(caught.value).__name__ == name
    shown = " ".join(section.partition("```text\n")[2].partition("```")[0].split())
    assert caught.value.message in re.sub(r" in \w+\.py:\d+", "", shown)
