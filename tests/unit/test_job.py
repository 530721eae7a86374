"""The job file is a contract: what parses, what it means, and how a mistake is named."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import pytest

from rangeland.cluster_access.cluster_lookup import look_up_cluster, look_up_read_settings
from rangeland.errors import JobFileError
from rangeland.job import Job
from rangeland.job.job_mistakes import fields_of
from rangeland.job.job_text import override, parse_job_text, with_value
from rangeland.job.mistake_texts import EXAMPLES
from rangeland.job.value_parsers import parse_bounds, parse_size, parse_time_ms
from rangeland.job.yaml_loader import load
from rangeland.loss import Action, LossKind
from rangeland.model import (
    Address,
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Isolation,
    Latest,
    Partition,
)
from rangeland.planning.policy import Policy
from rangeland.planning.run_limits import Limits
from rangeland.planning.slices import Slicing

WHOLE = """\
job: orders-hourly
source:
  dialect: kafka
  servers: [127.0.0.1:9092, "[::1]:9093"]
  zookeeper: 127.0.0.1:2181/jafka
  topics: [orders]
  partitions: {orders: [0, 1]}
  isolation: read_uncommitted
  security:
    tls: {ca: ca.pem, certificate: me.pem, key: me.key, key_password: "${file:/run/key}"}
    sasl: {username: lander, password: "${env:KAFKA_PASSWORD}"}
range:
  from: {orders: {0: 23, 1: earliest}}
  until: latest
  first_run: earliest
limits: {max_records: 5000000, max_bytes: 8GiB}
slices: {target_bytes: 64MiB, min_slices: 4}
policy: {expired: fail, recreated: skip, truncated: hold, vanished: skip, corrupt: fail}
sink:
  table: lake/orders
  partition_by: ["date(timestamp)", topic]
  compression: zstd
  target_file_bytes: 256MiB
  transform: my_module:my_function
group: {id: orders-hourly}
"""

LEAST = """\
job: orders
source:
  servers: [b1:9092]
  topics: [orders]
sink: {table: lake/orders}
"""


def test_a_job_made_in_python_is_named_by_the_key_of_the_job_file() -> None:
    least = Job.parse(LEAST)
    assert Job(job="orders", source=least.source, sink=least.sink) == least


def test_every_field_of_the_contract_parses() -> None:
    job = Job.parse(WHOLE)
    assert job.name == "orders-hourly"
    assert job.source.dialect == "kafka"
    assert job.source.addresses == (Address("127.0.0.1", 9092), Address("::1", 9093))
    assert job.source.zookeeper == "127.0.0.1:2181/jafka"
    assert job.source.topics == ("orders",)
    assert job.source.partitions == {"orders": (0, 1)}
    assert job.source.isolation is Isolation.READ_UNCOMMITTED
    listed = {Partition("orders", 0): AtOffset(23), Partition("orders", 1): Earliest()}
    assert job.range.from_.listed == listed
    assert job.range.from_.only_listed
    assert job.request.until_bounds == Bounds(Latest())
    assert job.request.first_run == Earliest()
    assert job.run_limits == Limits(5_000_000, 8 << 30)
    assert job.slicing == Slicing(64 << 20, 4)
    assert job.policies == Policy(
        expired=Action.FAIL,
        recreated=Action.SKIP,
        truncated=Action.HOLD,
        vanished=Action.SKIP,
        corrupt=Action.FAIL,
    )
    assert job.sink.table == "lake/orders"
    assert job.sink.partition_by == ("date(timestamp)", "topic")
    assert job.sink.compression == "zstd"
    assert job.sink.target_file_bytes == 256 << 20
    assert job.sink.transform == "my_module:my_function"
    assert job.group is not None
    assert job.group.id == "orders-hourly"
    assert job.application == "rangeland/orders-hourly"


def test_what_is_left_out_has_the_defaults_of_the_contract() -> None:
    job = Job.parse(LEAST)
    assert job.source.dialect == "kafka"
    assert job.source.isolation is Isolation.READ_COMMITTED
    assert job.request.from_bounds == Bounds(FromCheckpoint())
    assert job.request.until_bounds == Bounds(Latest())
    assert job.request.first_run == Earliest()
    assert job.run_limits == Limits(None, None)
    assert job.slicing == Slicing(128 << 20, 0)
    assert job.policies == Policy()
    assert job.sink.compression == "zstd"
    assert job.group is None


@pytest.mark.parametrize("dialect", ["kafka", "jafka", "rocketmq"])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_each_dialect_and_compression_of_the_contract_parses(
    dialect: str, compression: str
) -> None:
    text = LEAST.replace("source:\n", f"source:\n  dialect: {dialect}\n")
    job = Job.parse(text.replace("{table: ", f"{{compression: {compression}, table: "))
    assert (job.source.dialect, job.sink.compression) == (dialect, compression)


def test_a_compression_level_is_for_zstd() -> None:
    job = Job.parse(LEAST.replace("{table: ", "{compression_level: -3, table: "))
    assert job.sink.compression_level == -3
    with pytest.raises(JobFileError, match="compression_level only with compression: zstd"):
        Job.parse(LEAST.replace("{table: ", "{compression: snappy, compression_level: 3, table: "))


@pytest.mark.parametrize("kind", ["expired", "recreated", "truncated", "vanished"])
@pytest.mark.parametrize("action", ["fail", "skip", "hold"])
def test_each_kind_of_loss_takes_each_action(kind: str, action: str) -> None:
    job = Job.parse(LEAST + f"policy: {{{kind}: {action}}}\n")
    assert job.policies.actions[LossKind(kind)] is Action(action)


def test_tags_are_taken_once_each_and_reach_the_tasks() -> None:
    job = Job.parse(LEAST.replace("topics:", "dialect: rocketmq\n  tags: [B, A|x, B]\n  topics:"))
    assert job.source.tags == ("B", "A|x")
    assert look_up_read_settings(job).tags == ("B", "A|x")


def test_a_rack_reaches_the_connections_and_a_byte_rate_is_a_size() -> None:
    racked = LEAST.replace("topics:", "rack: zone-b\n  topics:")
    job = Job.parse(racked + "limits: {broker_bytes_per_second: 20 MiB}\n")
    assert look_up_cluster(job).rack == "zone-b"
    assert job.limits.broker_bytes_per_second == 20 << 20
    assert (look_up_cluster(Job.parse(LEAST)).rack, look_up_read_settings(job).rates) == ("", ())


def test_jafka_needs_no_servers_where_it_has_zookeeper() -> None:
    text = LEAST.replace("servers: [b1:9092]", "zookeeper: z:2181")
    assert Job.parse(text).source.addresses == ()


# --- words ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("checkpoint", FromCheckpoint()),
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("group:billing", GroupOffset("billing")),
        ("1970-01-01T00:00:00Z", AtTime(0)),
        ("2026-01-01", AtTime(1_767_225_600_000)),
        ("2026-01-01T00:00Z", AtTime(1_767_225_600_000)),
        ("2026-01-01T01:00:00+01:00", AtTime(1_767_225_600_000)),
        ("2026-01-01 00:00:00.001", AtTime(1_767_225_600_001)),
    ],
)
def test_a_word_is_a_bound_for_all_partitions(words: str, bound: Bound) -> None:
    job = Job.parse(LEAST + f"range:\n  from: {words}\n")
    assert job.request.from_bounds == Bounds(bound)


def test_a_time_without_a_zone_is_utc_and_keeps_its_milliseconds() -> None:
    assert parse_time_ms("2026-01-01T00:00:00.123") == 1_767_225_600_123
    assert parse_time_ms("2286-11-20T17:46:39.999Z") == 9_999_999_999_999


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "2026-13-01", "yesterday", ""])
def test_a_time_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_time_ms(text)


def test_listed_partitions_take_every_kind_of_bound() -> None:
    bounds = parse_bounds({"a": {0: 5, "1": "latest", 2: "2026-01-01", 3: "group:g"}})
    assert bounds.of(Partition("a", 0)) == AtOffset(5)
    assert bounds.of(Partition("a", 1)) == Latest()
    assert bounds.of(Partition("a", 2)) == AtTime(1_767_225_600_000)
    assert bounds.of(Partition("a", 3)) == GroupOffset("g")
    assert bounds.of(Partition("a", 4)) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128MiB", 128 << 20),
        ("8GiB", 8 << 30),
        ("1.5KiB", 1536),
        ("2 MB", 2_000_000),
        ("7kb", 7000),
        ("1TiB", 1 << 40),
        ("1TB", 10**12),
        ("12B", 12),
        ("12", 12),
    ],
)
def test_a_size_is_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "line",
    [
        "limits: {max_bytes: '1%s!'}" % (" " * 500_000),
        "sink: {table: 's3a://bucket/%s'}" % ("?" * 500_000),
    ],
)
def test_a_long_value_takes_no_quadratic_time(line: str) -> None:
    sink = "" if line.startswith("sink") else "\nsink: {table: lake/a}"
    text = "job: a\nsource: {servers: [h:1], topics: [t]}\n" + line + sink
    Job.parse("job: a\nsource: {servers: [h:1], topics: [t]}\nsink: {table: lake/a}")  # warm
    started = time.process_time()
    with contextlib.suppress(JobFileError):
        Job.parse(text)
    assert time.process_time() - started < 2


# --- mistakes ---------------------------------------------------------------------------


def _lines(extra: str) -> str:
    return LEAST + extra


def _secured(security: str) -> str:
    return LEAST.replace("sink:", f"  security: {security}\nsink:")


MISTAKES = [
    # (text, line, field, words of what was expected)
    (LEAST.replace("job: orders", "job: Orders!"), 1, "job", "lower-case"),
    (LEAST.replace("job: orders", "job: 12"), 1, "job", "text; write the number in quotes"),
    (LEAST.replace("job: orders\n", ""), None, "job", "required"),
    (LEAST.replace("sink: {table: lake/orders}\n", ""), None, "sink", "required"),
    (LEAST.replace("table: lake/orders", "table: ''"), 5, "sink.table", "not an empty string"),
    (LEAST.replace("{table", "{tabel: x, table"), 5, "sink.tabel", "no such field"),
    (LEAST.replace("b1:9092", "b1"), 3, "source.servers", "host:port"),
    (LEAST.replace("b1:9092", "b1:99999"), 3, "source.servers", "a port is at most 65535"),
    (LEAST.replace("topics: [orders]", "topics: [a b]"), 4, "source.topics", "topic names"),
    (LEAST.replace("topics: [orders]", "topics: []"), 2, "source", "either topics"),
    (LEAST.replace("topics: [orders]", "topic_pattern: '('"), 4, "source.topic_pattern", "regular"),
    (LEAST.replace("  servers: [b1:9092]\n", ""), 2, "source", "servers"),
    (LEAST.replace("lake/orders", "'C:\\lake\\x'"), 5, "sink.table", "not a Windows path"),
    (LEAST.replace("lake/orders", "c:/lake/x"), 5, "sink.table", "not a Windows path"),
    (LEAST.replace("lake/orders", "FILE:/lake/x"), 5, "sink.table", "in lower case, file:"),
    (LEAST.replace("lake/orders", "file://h/lake/x"), 5, "sink.table", "without a host"),
    (
        LEAST.replace("{table", "{partition_by: [day(timestamp)], table"),
        5,
        "sink.partition_by",
        "date(timestamp), hour(timestamp) or a column, not day(...)",
    ),
    (LEAST.replace("lake/orders", "' '"), 5, "sink.table", "a path, a URI or the name"),
    (LEAST.replace("lake/orders", "https://host/x"), 5, "sink.table", "not https:"),
    (
        _lines("decode: {value: {format: protobuf, schema: o.proto, message: a b}}\n"),
        6,
        "decode.value.message",
        "the full name of a message",
    ),
    (
        _secured("{sasl: {mechanism: OAUTHBEARER, token: {callable: fetch}}}"),
        5,
        "source.security.sasl.token.callable",
        "a module and a function",
    ),
    (
        _secured("{sasl: {mechanism: OAUTHBEARER, token: {endpoint: 'https://u:p@h/x'}}}"),
        5,
        "source.security.sasl.token.endpoint",
        "a URL without a user",
    ),
    (
        _secured("{sasl: {mechanism: GSSAPI, kerberos: {service_name: kafka/b1}}}"),
        5,
        "source.security.sasl.kerberos.service_name",
        "a name without spaces, '@' and '/'",
    ),
    (
        _secured("{zookeeper: {login: {username: 'a:b', password: '${env:P}'}}}"),
        5,
        "source.security.zookeeper.login.username",
        "a name without ':'",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  topic_pattern: x.*"),
        2,
        "source",
        "source: there are both topics and topic_pattern; remove one",
    ),
    (
        LEAST.replace("  servers: [b1:9092]\n", "  dialect: rocketmq\n  zookeeper: z:2181\n"),
        2,
        "source",
        "source: rocketmq needs servers: its brokers are not in ZooKeeper",
    ),
    (LEAST.replace("b1:9092", "1:b1:9092"), 3, "source.servers", "servers of kafka have no ids"),
    (LEAST.replace("[b1:9092]", "b1:9092"), 3, "source.servers", "a list, such as [broker-1:9092]"),
    (LEAST.replace("[orders]", "orders"), 4, "source.topics", "a list, such as [orders]"),
    (
        LEAST.replace("topics:", "partitions: {orders: 0}\n  topics:"),
        4,
        "source.partitions.orders",
        "a list, such as [0, 1]",
    ),
    (
        LEAST.replace("{table", "{partition_by: topic, table"),
        5,
        "sink.partition_by",
        "a list, such as [date(timestamp)]",
    ),
    (LEAST.replace("{table: lake/orders}", "lake/orders"), 5, "sink", "{table: lake/orders}"),
    (
        LEAST.replace("[orders]", "[no]"),
        4,
        "source.topics.0",
        "text; YAML reads no and off as false, unless they are in quotes",
    ),
    (_secured("{tls: yes please}"), 5, "source.security.tls", "{ca: /etc/ca.pem}"),
    (_secured("{tls: {verify_hostname: x}}"), 5, "source.security.tls.verify_hostname", "true or"),
    (
        LEAST.replace("topics:", "timeouts: {connect_ms: 5s}\n  topics:"),
        4,
        "source.timeouts.connect_ms",
        "expected whole milliseconds, such as 5000",
    ),
    (
        LEAST.replace("topics:", "timeouts: {connect_ms: 999999999}\n  topics:"),
        4,
        "source.timeouts.connect_ms",
        "expected at most 604800000 milliseconds",
    ),
    (
        LEAST.replace("topics:", "max_batch_bytes: 2GiB\n  topics:"),
        4,
        "source.max_batch_bytes",
        "expected at most 1GiB",
    ),
    (
        _lines("range: {start: 5}\n"),
        6,
        "range.start",
        "there is no such field; range has from, until, first_run",
    ),
    (
        _lines("group: {name: x, id: y}\n"),
        6,
        "group.name",
        "there is no such field; group has id, ",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  partitions: {x: [0]}"),
        5,
        "source.partitions.x",
        "not of 'x'",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  partitions: {orders: []}"),
        5,
        "source.partitions.orders",
        "at least one; omit the field for all",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  partitions: {}"),
        5,
        "source.partitions",
        "at least one; omit the field for all",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  partitions: {orders: [-1]}"),
        5,
        "source.partitions.orders.0",
        "a partition",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  dialect: pulsar"),
        5,
        "source.dialect",
        "'kafka'",
    ),
    (LEAST.replace("topics:", "tags: [A]\n  topics:"), 4, "source.tags", "rocketmq only"),
    (
        LEAST.replace("topics:", "dialect: jafka\n  rack: a\n  topics:"),
        5,
        "source.rack",
        "kafka only",
    ),
    *(
        (
            LEAST.replace("topics:", f"dialect: rocketmq\n  tags: ['{tag}']\n  topics:"),
            5,
            "source.tags",
            "tags of messages",
        )
        for tag in ("", "*", "A || B", " A")
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  isolation: dirty"),
        5,
        "source.isolation",
        "'read_committed'",
    ),
    (
        LEAST.replace("topics: [orders]", "topics: [orders]\n  security:\n    tls:\n      caa: x"),
        7,
        "source.security.tls.caa",
        "no such field",
    ),
    (_lines("range: {from: yesterday}\n"), 6, "range.from", "checkpoint, earliest"),
    (_lines("range: {from: 23}\n"), 6, "range.from", "topic and partition"),
    (_lines("range: {from: true}\n"), 6, "range.from", "earliest"),
    (_lines("range: {from: {}}\n"), 6, "range.from", "at least one topic"),
    (_lines("range: {from: {orders: 5}}\n"), 6, "range.from", "{partition: offset}"),
    (_lines("range: {from: {orders: {x: 5}}}\n"), 6, "range.from", "partition numbers"),
    (_lines("range: {from: {orders: {0: -1}}}\n"), 6, "range.from", "non-negative"),
    (_lines("range: {from: {orders: {0: true}}}\n"), 6, "range.from", "earliest"),
    (_lines("range: {from: {returns: {0: 1}}}\n"), 6, "range.from.returns", "not of 'returns'"),
    (_lines("range: {from: 2026-13-01}\n"), 6, "range.from", "ISO time"),
    (_lines("range: {from: 1969-12-31}\n"), 6, "range.from", "before 1970"),
    (_lines("range: {until: yesterday}\n"), 6, "range.until", "expected earliest, latest, an ISO"),
    (_lines("range: {until: 5}\n"), 6, "range.until", "expected earliest, latest, an ISO"),
    (
        _lines("range: {first_run: yesterday}\n"),
        6,
        "range.first_run",
        "expected earliest, latest, an ISO time or group:<id>, not 'yesterday'",
    ),
    (_lines("range: {until: checkpoint}\n"), 6, "range.until", "cannot end at the checkpoint"),
    (
        _lines("range:\n  until: {orders: {0: checkpoint}}\n"),
        7,
        "range.until",
        "cannot end at the checkpoint",
    ),
    (
        _lines("range:\n  from: 2026-01-31T06:00:00Z\n  until: 2026-01-31T05:00:00Z\n"),
        7,
        "range.from",
        "it begins at 2026-01-31T06:00:00Z, after range.until, 2026-01-31T05:00:00Z; swap them",
    ),
    (
        _lines("range: {from: {orders: {1: 9}}, until: {orders: {1: 8}}}\n"),
        6,
        "range.from",
        "it begins at offset 9 of orders/1, after range.until, offset 8; swap them",
    ),
    (_lines("range: {first_run: checkpoint}\n"), 6, "range.first_run", "earliest, latest"),
    (_lines("range: {first_run: 5}\n"), 6, "range.first_run", "earliest, latest"),
    (_lines("limits: {max_records: 0}\n"), 6, "limits.max_records", "expected a number above 0"),
    (_lines("limits: {max_records: yes}\n"), 6, "limits.max_records", "a whole number"),
    (_lines("limits: {max_records: 1.5}\n"), 6, "limits.max_records", "a whole number"),
    (_lines("limits: {max_bytes: true}\n"), 6, "limits.max_bytes", "a size such as 128MiB or"),
    (_lines("limits: {max_bytes: 8 GiBs}\n"), 6, "limits.max_bytes", "a size such as"),
    (_lines("limits: {max_bytes: -5}\n"), 6, "limits.max_bytes", "a number above 0"),
    (_lines("limits:\n"), 6, "limits", "fields, such as {max_records: 1000000}"),
    (_lines("slices: {min_slices: -1}\n"), 6, "slices.min_slices", "expected at least 0"),
    (_lines("policy: {expired: ignore}\n"), 6, "policy.expired", "'fail', 'skip' or 'hold'"),
    (_lines("policy: {lost: skip}\n"), 6, "policy.lost", "no such field"),
    (_lines("group: {id: ''}\n"), 6, "group.id", "a name, not an empty string"),
    (_lines("group: {name: x}\n"), 6, "group.id", "required"),
    (LEAST.replace("{table", "{transform: f, table"), 5, "sink.transform", "module:function"),
    (LEAST.replace("{table", "{compression: lz4, table"), 5, "sink.compression", "'zstd'"),
]


@pytest.mark.parametrize(("text", "line", "field", "expected"), MISTAKES)
def test_a_mistake_names_file_line_field_and_what_was_expected(
    text: str, line: int | None, field: str, expected: str
) -> None:
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    error = caught.value
    assert error.exit_code == 78
    place = "o.yaml" if line is None else f"o.yaml:{line}"
    assert error.what.startswith(f"{place}: {field}: ")
    assert expected in error.what
    assert (error.facts["file"], error.facts["line"], error.facts["field"]) == (
        "o.yaml",
        line,
        field,
    )


def test_all_mistakes_of_a_file_are_named_at_once() -> None:
    text = LEAST.replace("b1:9092", "b1") + "limits: {max_records: 0}\nnonsense: 1\n"
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    assert [m["field"] for m in caught.value.facts["mistakes"]] == [
        "source.servers",
        "limits.max_records",
        "nonsense",
    ]
    assert "o.yaml:7: nonsense" in str(caught.value)


@pytest.mark.parametrize("source", ["topics: [orders]", "topic_pattern: orders"])
@pytest.mark.parametrize("side", ["from", "until"])
def test_a_range_of_a_topic_that_is_not_read_is_named_with_line_and_field(
    source: str, side: str
) -> None:
    text = LEAST.replace("topics: [orders]", source)
    text += f"range:\n  {side}:\n    orders: {{0: 1}}\n    order: {{0: 23}}\n"
    with pytest.raises(
        JobFileError, match=rf"^o\.yaml:9: range\.{side}\.order: .*'order'"
    ) as caught:
        Job.parse(text, "o.yaml")
    facts = caught.value.facts
    assert (facts["file"], facts["line"], facts["field"]) == ("o.yaml", 9, f"range.{side}.order")


def test_partitions_of_a_topic_that_is_not_read_are_named_with_line_and_field() -> None:
    more = "topics: [orders]\n  partitions:\n    order: [0]"
    with pytest.raises(JobFileError, match=r"^o\.yaml:6: source\.partitions\.order: "):
        Job.parse(LEAST.replace("topics: [orders]", more), "o.yaml")


@pytest.mark.parametrize("tls", ["{x: 1}", "yes please", "5"])
def test_a_mistake_in_tls_is_one_mistake(tls: str) -> None:
    text = LEAST.replace("topics: [orders]", f"topics: [orders]\n  security: {{tls: {tls}}}")
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    assert len(caught.value.facts["mistakes"]) == 1


def test_a_job_is_loaded_from_a_file_with_overrides(tmp_path: Path) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(LEAST, encoding="utf-8")
    assert Job.load(path).limits.max_records is None
    job = Job.load(path, ["limits.max_records=7", "range.until=2026-01-01T00:00:00Z"])
    assert job.limits.max_records == 7
    assert job.request.until_bounds == Bounds(AtTime(1_767_225_600_000))
    with pytest.raises(JobFileError, match=r"--set limits.max_records: limits.max_records: "):
        Job.load(path, ["limits.max_records=0"])


def test_an_override_of_one_partition_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(LEAST + "range: {from: {orders: {0: 5}}}\n", encoding="utf-8")
    job = Job.load(path, ["range.from.orders.0=9"])
    assert job.range.from_.listed == {Partition("orders", 0): AtOffset(9)}


@pytest.mark.parametrize(
    ("table", "is_name"),
    [
        ("main.sales.orders", True),
        ("sales.orders", True),
        ("lake/orders", False),
        ("s3a://lake/orders", False),
        ("orders", False),
    ],
)
def test_a_catalog_name_is_distinguished_from_a_path(table: str, is_name: bool) -> None:
    job = Job.parse(LEAST.replace("lake/orders", table))
    assert job.sink.is_catalog_name is is_name


# --- secrets ----------------------------------------------------------------------------

SECURE = LEAST.replace(
    "topics: [orders]",
    "topics: [orders]\n  security: {sasl: {username: u, password: SECRET}}",
)


@pytest.mark.parametrize("secret", ["hunter2", "12345678", "'${hunter2}'", "'x${env:A}hunter2'"])
def test_a_secret_in_clear_is_refused_and_never_repeated(secret: str) -> None:
    with pytest.raises(JobFileError, match=r"source\.security\.sasl\.password") as caught:
        Job.parse(SECURE.replace("SECRET", secret), "o.yaml")
    error = caught.value
    told = f"{error} {error!r} {error.facts} {error.__context__} {error.__context__!r}"
    assert secret.strip("'") not in told
    assert "${env:NAME}" in str(error)


@pytest.mark.parametrize("field", ["username", "mechanism"])
def test_another_mistake_beside_a_secret_does_not_repeat_it(field: str) -> None:
    text = SECURE.replace("password: SECRET", f"password: hunter2, {field}x: 1")
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    assert "hunter2" not in f"{caught.value} {caught.value.facts} {caught.value.__context__}"


def test_a_job_holds_a_reference_and_never_looks_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGELAND_TEST_SECRET", "hunter2")
    job = Job.parse(SECURE.replace("SECRET", "'${env:RANGELAND_TEST_SECRET}'"))
    assert job.source.security.sasl is not None
    assert job.source.security.sasl.password == "${env:RANGELAND_TEST_SECRET}"
    assert "hunter2" not in f"{job!r} {job} {job.model_dump()} {job.model_dump_json()}"


def test_keys_that_sign_requests_are_looked_up_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETMQ_SECRET", "s3cret")
    security = "security: {acl: {access_key: lake, secret_key: '${env:ROCKETMQ_SECRET}'}}"
    text = LEAST.replace("topics: [orders]", f"topics: ['%DLQ%g']\n  {security}")
    job = Job.parse(text.replace("source:\n", "source:\n  dialect: rocketmq\n"))
    settings = look_up_cluster(job)
    assert settings.sasl is not None
    login = (settings.sasl.mechanism, settings.sasl.username, settings.sasl.password)
    assert login == ("ACL", "lake", "s3cret")
    assert "s3cret" not in repr(settings)
    with pytest.raises(JobFileError, match=r"source.security.acl: .*rocketmq only"):
        Job.parse(text)


def test_a_rebalance_outlasts_a_session() -> None:
    group = "group: {id: g, session_ms: 90000}\n"
    with pytest.raises(JobFileError, match=r"group.rebalance_ms: .*which is 90000"):
        Job.parse(LEAST + group)


@pytest.mark.parametrize(
    "table", ["lake/a\nb", "lake/\x7f", "file:lake/orders", "C:\\lake\\orders", "s3a:bucket/t"]
)
def test_a_path_that_no_table_can_have_is_refused(table: str) -> None:
    with pytest.raises(JobFileError) as caught:
        Job.parse(LEAST.replace("table: lake/orders", f"table: {json.dumps(table)}"))
    assert "sink.table" in str(caught.value)


def test_a_name_with_a_dot_is_answered_with_its_section() -> None:
    with pytest.raises(JobFileError, match="no such field; write id in the section group"):
        Job.parse(LEAST + "group.id: x\n")


DEPENDS_ON_OTHERS = re.compile("the mechanism is|with the dialect|there is no|neither keys")
"""What is said of a value that is good, but not beside those of other fields."""


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_example_of_a_field_is_a_value_that_it_takes(path: str) -> None:
    example, _ = load(EXAMPLES[path])
    written = tuple(path.replace("*", "orders").split("."))
    result = Job.job_or_mistakes(with_value(parse_job_text(LEAST, "o.yaml"), written, example))
    found = [] if isinstance(result, Job) else result
    own = [mistake.expected for mistake in found if mistake.path[: len(written)] == written]
    assert not [expected for expected in own if not DEPENDS_ON_OTHERS.search(expected)]


def test_each_section_has_an_example() -> None:
    sections = {".".join(map(str, path[:-1])) for path in fields_of(Job)} - {""}
    assert {name for name in sections if not name.endswith("tls")} <= set(EXAMPLES)


@pytest.mark.parametrize(
    ("text", "field", "meant"),
    [
        (LEAST.replace("topics:", "topcs:"), "source.topcs", "source.topics"),
        (LEAST.replace("source:", "sorce:"), "sorce", "source"),
        (LEAST + "limits: {max_recods: 1}\n", "limits.max_recods", "limits.max_records"),
        (LEAST + "max_records: 1\n", "max_records", "limits.max_records"),
        (LEAST + "range: {form: latest}\n", "range.form", "range.from"),
        (
            LEAST.replace("servers:", "bootstrap.servers:"),
            "source.bootstrap.servers",
            "source.servers",
        ),
        (
            LEAST.replace("servers:", "bootstrap_servers:"),
            "source.bootstrap_servers",
            "source.servers",
        ),
        (LEAST + "group: {group_id: x}\n", "group.group_id", "group.id"),
        (
            LEAST.replace("sink:", "  security.protocol: SSL\nsink:"),
            "source.security.protocol",
            "source.security",
        ),
        (LEAST + "policy: {topics: {a: {expird: fail}}}\n", "policy.topics.a.expird", None),
        (LEAST + "nonsense: 1\n", "nonsense", None),
    ],
)
def test_a_misspelt_field_comes_first_with_the_one_that_was_meant(
    text: str, field: str, meant: str | None
) -> None:
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    mistakes = caught.value.facts["mistakes"]
    assert [mistake["field"] for mistake in mistakes] == [field]
    suggestion = f"; did you mean {meant}?" if meant else ""
    assert mistakes[0]["expected"] == f"there is no such field{suggestion}"


def test_a_misspelt_override_is_answered_with_the_field_that_was_meant() -> None:
    text = override(parse_job_text(LEAST, "o.yaml"), ["limits.max_recods=1"])
    with pytest.raises(JobFileError, match=r"^--set limits\.max_recods: .*limits\.max_records\?"):
        Job.of(text)


def test_mistakes_come_in_the_order_of_lines() -> None:
    text = "nonsense: 1\n" + LEAST + "limits: {max_records: 0}\n"
    with pytest.raises(JobFileError) as caught:
        Job.parse(text, "o.yaml")
    assert caught.value.what.startswith("o.yaml:1: nonsense: ")
    assert caught.value.why.startswith("1 more mistake: o.yaml:")
