"""Whether rows fit a table: names, types, nulls, partitions, table features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.delta.java_bridge.java_errors import NoTable, StaleTransaction, translate
from rangeland.delta.stores.store_kinds import (
    StoreKind,
    is_replaceable_log_store,
    store_capabilities,
)
from rangeland.delta.table_metadata import Function, PartitionColumn, TableMetadata
from rangeland.delta.table_schema.arrow_schema import arrow_type, delta_type, schema_json
from rangeland.delta.table_schema.schema_compatibility import (
    new_table,
    parse_partition_by,
    row_layout,
)
from rangeland.delta.table_schema.table_features import features_page
from rangeland.errors import (
    Bug,
    Conflict,
    JobFileError,
    StorageFailed,
    TableRefused,
)
from tests.unit.test_delta_files import ROWS


def table(*, fields: list[dict[str, Any]] | None = None, **facts: Any) -> TableMetadata:
    own = json.loads(schema_json(ROWS))["fields"] if fields is None else fields
    text = json.dumps({"type": "struct", "fields": own})
    return TableMetadata(path="file:/lake/orders", version=4, schema_json=text, **facts)


def column(name: str, kind: Any, nullable: Any = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def own_fields() -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema_json(ROWS))["fields"]
    return fields


def test_a_table_made_for_the_rows_fits_them() -> None:
    found = row_layout(table(), ROWS)
    assert found.layout.schema.equals(ROWS)
    assert found.filled == ()
    assert found.notes == ()


def test_names_match_in_any_case_and_the_tables_spelling_wins() -> None:
    fields = [f | {"name": f["name"].upper()} for f in own_fields()]
    assert row_layout(table(fields=fields), ROWS).layout.schema.names == [
        n.upper() for n in ROWS.names
    ]


def test_columns_that_only_the_table_has_stay_null() -> None:
    found = row_layout(table(fields=[*own_fields(), column("loaded_by", "string")]), ROWS)
    assert found.filled == ("loaded_by",)


def test_a_not_null_column_that_rows_lack_is_refused() -> None:
    with pytest.raises(TableRefused, match="NOT NULL") as caught:
        row_layout(
            table(fields=[*own_fields(), column("loaded_by", "string", nullable=False)]), ROWS
        )
    assert caught.value.facts["column"] == "loaded_by"


def test_a_missing_column_is_refused_with_the_statement_to_run() -> None:
    fields = [f for f in own_fields() if f["name"] != "headers"]
    with pytest.raises(TableRefused) as caught:
        row_layout(table(fields=fields), ROWS)
    assert caught.value.facts["statement"] == (
        "ALTER TABLE delta.`/lake/orders` ADD COLUMNS "
        "(headers ARRAY<STRUCT<key: STRING, value: BINARY>>)"
    )


@pytest.mark.parametrize(
    ("name", "theirs", "fits"),
    [
        ("partition", "long", True),
        ("partition", "short", False),
        ("offset", "integer", False),
        ("value", "string", False),
        ("timestamp", "timestamp_ntz", False),
    ],
)
def test_only_wider_numbers_take_our_values(name: str, theirs: str, fits: bool) -> None:
    facts = table(
        fields=[f | ({"type": theirs} if f["name"] == name else {}) for f in own_fields()]
    )
    if fits:
        assert row_layout(facts, ROWS).layout.schema.field(name).type == arrow_type(theirs)
        return
    with pytest.raises(TableRefused, match=f"column {name}"):
        row_layout(facts, ROWS)


def test_a_not_null_column_that_rows_may_lack_is_checked_row_by_row() -> None:
    facts = table(fields=[f | {"nullable": f["name"] != "key"} for f in own_fields()])
    assert row_layout(facts, ROWS).layout.required == {"key"}


def test_the_tables_partitioning_wins_and_is_said() -> None:
    found = row_layout(table(partition_columns=("topic",)), ROWS, ["date(timestamp)"])
    assert found.layout.partition_by == (PartitionColumn("topic", "topic"),)
    assert found.notes == ("The table is partitioned by topic; sink.partition_by is not used.",)
    assert "topic" not in found.layout.file_schema.names


def test_days_and_hours_are_computed_where_the_job_says_so() -> None:
    facts = table(fields=[*own_fields(), column("date", "date")], partition_columns=("date",))
    found = row_layout(facts, ROWS, ["date(timestamp)"])
    assert found.layout.partition_by == (PartitionColumn("date", "timestamp", Function.DATE),)
    assert found.filled == ()
    with pytest.raises(TableRefused, match=r"date\(timestamp\) under sink.partition_by"):
        row_layout(facts, ROWS)
    wrong = table(fields=[*own_fields(), column("date", "string")], partition_columns=("date",))
    with pytest.raises(TableRefused, match="partitioned by date STRING"):
        row_layout(wrong, ROWS, ["date(timestamp)"])


@pytest.mark.parametrize("word", ["nope", "date(key)", "headers", "value", "date(nope)"])
def test_a_partition_by_that_cannot_be_done_is_a_mistake_in_the_job(word: str) -> None:
    with pytest.raises(JobFileError, match="partition_by"):
        parse_partition_by([word], ROWS)


def test_a_table_that_is_partitioned_by_bytes_is_refused() -> None:
    """Delta's log has partition values as text, which only some bytes are."""
    for rows in (ROWS, ROWS.remove(ROWS.get_field_index("key"))):
        with pytest.raises(TableRefused, match="is partitioned by key BINARY") as caught:
            row_layout(table(partition_columns=("key",)), rows)
        assert caught.value.facts["column"] == "key"
        assert caught.value.do == "land in another table"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(4)])
def test_bytes_cannot_partition_a_new_table(kind: pa.DataType) -> None:
    with pytest.raises(JobFileError, match="cannot partition"):
        parse_partition_by(["id"], pa.schema([("id", kind)]))


def test_a_new_table_has_the_columns_of_the_rows_and_of_its_partitions() -> None:
    made = new_table(ROWS, ["hour(timestamp)", "topic"])
    fields = {f["name"]: f["type"] for f in json.loads(made.schema_json)["fields"]}
    assert fields["hour"] == "timestamp"
    assert list(fields)[:-1] == ROWS.names
    assert made.partition_columns == ("hour", "topic")
    assert "topic" not in made.layout.file_schema.names


@pytest.mark.parametrize(
    "feature",
    ["appendOnly", "changeDataFeed", "deletionVectors", "inCommitTimestamp", "rowTracking"],
)
def test_features_that_do_not_concern_an_append_are_honoured(feature: str) -> None:
    assert row_layout(table(features=frozenset([feature])), ROWS).filled == ()


@pytest.mark.parametrize(
    ("feature", "extra", "configuration"),
    [
        ("generatedColumns", column("x", "long", **{"delta.generationExpression": "1"}), {}),
        ("identityColumns", column("x", "long", **{"delta.identity.start": 1}), {}),
        ("allowColumnDefaults", column("x", "long", CURRENT_DEFAULT="1"), {}),
    ],
)
def test_a_feature_is_refused_as_soon_as_it_is_used(
    feature: str, extra: dict[str, Any], configuration: dict[str, str]
) -> None:
    features = frozenset([feature])
    unused = table(fields=[*own_fields(), column("x", "long")], features=features)
    assert row_layout(unused, ROWS).filled == ("x",)
    used = table(fields=[*own_fields(), extra], configuration=configuration, features=features)
    with pytest.raises(TableRefused, match=feature) as caught:
        row_layout(used, ROWS)
    assert caught.value.do


def test_columns_that_rows_have_need_no_default_and_can_be_checked() -> None:
    """A day that the job computes is compared with the table's expression before the commit."""
    day = column("date", "date", **{"delta.generationExpression": "CAST(timestamp AS DATE)"})
    generated = table(
        fields=[*own_fields(), day],
        partition_columns=("date",),
        features=frozenset(["generatedColumns"]),
    )
    assert row_layout(generated, ROWS, ["date(timestamp)"]).filled == ()
    with pytest.raises(TableRefused, match="generatedColumns"):
        row_layout(generated, ROWS)
    key = [column("key", "binary", CURRENT_DEFAULT="X'00'"), *own_fields()[1:]]
    assert row_layout(table(fields=key, features=frozenset(["allowColumnDefaults"])), ROWS)


def test_iceberg_finds_partition_columns_in_the_files() -> None:
    features = frozenset(["icebergCompatV2"])
    found = row_layout(
        table(
            fields=[*own_fields(), column("date", "date")],
            partition_columns=("date", "topic"),
            features=features,
        ),
        ROWS,
        ["date(timestamp)", "topic"],
    )
    assert found.layout.file_schema.names[-2:] == ["date", "topic"]


def test_each_feature_says_what_is_done_about_it() -> None:
    page = Path("configs/README.md").read_text()
    assert features_page() in page


@pytest.mark.parametrize("feature", ["icebergCompatV1", "catalogManaged", "brandNewFeature"])
def test_a_feature_that_is_not_known_or_not_possible_is_refused(feature: str) -> None:
    with pytest.raises(TableRefused, match=feature):
        row_layout(table(features=frozenset([feature])), ROWS)


def test_statistics_follow_the_tables_settings() -> None:
    listed = table(configuration={"delta.dataSkippingStatsColumns": "offset,`Topic`"})
    assert row_layout(listed, ROWS).layout.stats_columns == {"offset", "topic"}
    first = table(configuration={"delta.dataSkippingNumIndexedCols": "3"})
    assert row_layout(first, ROWS).layout.stats_columns == {"key", "value", "topic"}


def test_types_survive_the_way_to_delta_and_back() -> None:
    for field in ROWS:
        assert arrow_type(delta_type(field.type)) == field.type
    with pytest.raises(TableRefused, match="time64"):
        delta_type(pa.time64("us"))


def test_stores_are_distinguished() -> None:
    assert store_capabilities("file:/lake").kind is StoreKind.LOCAL
    assert store_capabilities("abfss://c@a.dfs.core.windows.net/t").kind is StoreKind.PUT_IF_ABSENT
    single = store_capabilities("s3a://bucket/t")
    assert single.kind is StoreKind.SINGLE_DRIVER
    assert "spark.delta.logStore.s3a.impl" in single.note
    safe = store_capabilities("s3a://bucket/t", "io.delta.storage.S3DynamoDBLogStore")
    assert (safe.kind, safe.note) == (StoreKind.PUT_IF_ABSENT, "")


@pytest.mark.parametrize(
    ("log_store", "passed_over"),
    [
        ("", True),
        ("io.delta.storage.S3SingleDriverLogStore", True),
        ("org.apache.spark.sql.delta.storage.S3SingleDriverLogStore", True),
        ("org.apache.spark.sql.delta.storage.DelegatingLogStore", True),
        ("io.delta.storage.GCSLogStore", True),
        ("io.delta.storage.S3DynamoDBLogStore", False),
        ("com.example.OwnLogStore", False),
    ],
)
def test_log_stores_of_users_are_used_and_deltas_own_are_not(
    log_store: str, passed_over: bool
) -> None:
    assert is_replaceable_log_store(log_store) is passed_over
    alone, together = (
        store_capabilities("s3a://bucket/t", log_store, has_conditions=condition)
        for condition in (False, True)
    )
    assert together.kind is StoreKind.PUT_IF_ABSENT
    assert alone.kind is (StoreKind.SINGLE_DRIVER if passed_over else StoreKind.PUT_IF_ABSENT)
    assert ("OPTIMIZE" in together.note) is passed_over


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ([("io.delta.kernel.exceptions.TableNotFoundException", "gone")], NoTable),
        ([("rangeland.ConditionIgnoredException", "s3a://lake replaces objects")], TableRefused),
        ([("org.apache.hadoop.fs.s3a.AWSUnsupportedFeatureException", "501")], TableRefused),
        ([("io.delta.kernel.exceptions.ConcurrentTransactionException", "x")], StaleTransaction),
        (
            [
                ("java.lang.RuntimeException", "x"),
                ("java.io.IOException", "No space left on device"),
            ],
            StorageFailed,
        ),
        (
            [
                ("java.io.UncheckedIOException", "x"),
                ("java.nio.file.AccessDeniedException", "/lake/_delta_log"),
            ],
            TableRefused,
        ),
        ([("io.delta.kernel.exceptions.UnsupportedTableFeatureException", "x")], TableRefused),
        ([("io.delta.kernel.exceptions.MetadataChangedException", "x")], Conflict),
        (
            [
                ("io.delta.kernel.exceptions.KernelEngineException", "x"),
                ("java.io.IOException", "connection reset"),
            ],
            StorageFailed,
        ),
        (
            [
                (
                    "java.lang.IllegalArgumentException",
                    "checksum version (4) should be less than or equal to LogSegment version (3)",
                )
            ],
            TableRefused,
        ),
        (
            [
                (
                    "java.lang.IllegalArgumentException",
                    "Must provide maxCatalogVersion for catalogManaged tables",
                )
            ],
            TableRefused,
        ),
        ([("java.lang.NullPointerException", "")], Bug),
    ],
)
def test_what_java_says_becomes_one_of_our_errors(
    chain: list[tuple[str, str]], kind: type[Exception]
) -> None:
    assert type(translate("committing", chain)) is kind
