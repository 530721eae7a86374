"""The section `sink`: the table, its partitioning and its files."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from rangeland.delta.stores.table_path import TablePath
from rangeland.job.section import Section
from rangeland.job.value_parsers import TOPIC_FIELD, Size, without_secrets


class Sink(Section):
    """The table in which records are landed, and how they are written."""

    table: str = Field(
        min_length=1,
        json_schema_extra={"examples": ["lake/orders", "s3a://lake/orders", "main.sales.orders"]},
        description="Path or URI of a Delta table, or schema.table or catalog.schema.table. It "
        "is created if it does not exist. A path is used unchanged, as in Spark: `%20` and `#` "
        "are part of a folder's name. With `{topic}` in it, such as `lake/{topic}`, each topic "
        "has its own table, with its own ledger and checkpoint.",
    )
    partition_by: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["date(timestamp)"], ["hour(timestamp)", "topic"]]},
        description="Columns, or `date(column)` and `hour(column)`, which add a column `date` or "
        "`hour` in UTC. For a new table; an existing one keeps its partitioning.",
    )
    compression: Literal["zstd", "snappy", "none"] = Field(
        default="zstd", description="The compression of the Parquet files."
    )
    compression_level: int = Field(
        default=1,
        ge=-7,
        le=22,
        description="How hard zstd compresses. Higher levels make smaller files and take longer; "
        "levels below 0 save time, and their files are larger. Below -3 hardly any time is saved.",
    )
    target_file_bytes: Size = Field(
        default=256 << 20, description="A task starts a new file at about this size."
    )
    transform: str | None = Field(
        default=None,
        json_schema_extra={"pattern": r"^[\w.]+:[\w.]+$", "examples": ["my_module:my_function"]},
        description="module:function. It takes a DataFrame and returns one, and is applied to "
        "the rows before they are written.",
    )

    @field_validator("table")
    @classmethod
    def _possible(cls, table: str) -> str:
        """Refuses anything that cannot be a path, URI or table name."""
        if re.match(r"[A-Za-z]:[\\/]|\\\\", table):
            raise ValueError("a POSIX path, such as lake/orders, or a URI, not a Windows path")
        if not table.strip() or "\0" in table:
            raise ValueError("a path, a URI or the name of a table")
        if re.match(r"(?i)(https?|ftp|jdbc):", table):
            scheme = table.partition(":")[0]
            raise ValueError(f"a path or the URI of a store that can be written, not {scheme}:")
        where = TablePath.parse(table)
        if any(ord(c) < 32 or ord(c) == 127 for c in table):
            raise ValueError("a path without control characters")
        if where.scheme and not where.authority and not where.path.startswith("/"):
            raise ValueError("a path, or a URI with a slash after its scheme")
        if not table.startswith(where.scheme):
            raise ValueError(f"a URI whose scheme is in lower case, {where.scheme}:")
        if where.scheme == "file" and where.authority:
            raise ValueError("a path, or a file URI without a host, such as file:///lake/orders")
        fields = re.findall(r"(?i)\{\s*topics?\s*\}", table)
        if fields not in ([], [TOPIC_FIELD]):
            raise ValueError(f"{TOPIC_FIELD} once, where the topic's name belongs")
        return without_secrets(table)

    @field_validator("partition_by")
    @classmethod
    def _functions(cls, partition_by: tuple[str, ...]) -> tuple[str, ...]:
        for text in partition_by:
            call = re.match(r"\s*(\w+)\s*\(", text)
            if call and call[1] not in ("date", "hour"):
                raise ValueError(
                    f"date(timestamp), hour(timestamp) or a column, not {call[1]}(...)"
                )
        return partition_by

    @model_validator(mode="after")
    def _level_of_zstd(self) -> Self:
        if self.compression != "zstd" and "compression_level" in self.model_fields_set:
            raise ValueError("compression_level only with compression: zstd")
        return self

    @field_validator("transform")
    @classmethod
    def _dotted_function(cls, transform: str | None) -> str | None:
        if transform is not None and not re.fullmatch(r"[\w.]+:[\w.]+", transform):
            raise ValueError("module:function")
        return transform

    @property
    def is_catalog_name(self) -> bool:
        name = self.table.replace(TOPIC_FIELD, "t")
        return re.fullmatch(r"[\w`-]+(\.[\w`-]+){1,2}", name) is not None

    @property
    def is_per_topic(self) -> bool:
        """Whether each topic has its own table."""
        return TOPIC_FIELD in self.table
