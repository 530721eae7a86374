"""The library's reading of Spark's DDL is Spark's own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rangeland.decode.payload.schema_ddl import parse_ddl, print_ddl

pytestmark = pytest.mark.spark

TEXTS = [
    "a BOOLEAN, b TINYINT, c BYTE, d SMALLINT, e SHORT, f INT, g INTEGER, h BIGINT, i LONG",
    "z FLOAT, a REAL, b DOUBLE, c STRING, d BINARY, e DATE, f TIMESTAMP, g TIMESTAMP_LTZ",
    "a TIMESTAMP_NTZ",
    "a DECIMAL, b DEC(5), c NUMERIC(38, 38), d decimal ( 10 , 2 )",
    "id BIGINT NOT NULL, name STRING COMMENT 'it\\'s a \"name\"', `a b``c` INT -- remark",
    "tags ARRAY<STRUCT<k: STRING NOT NULL, v DECIMAL(10,2)>>, m MAP<STRING, ARRAY<INT>> NOT NULL",
    "a: INT, b: STRUCT<c: STRUCT<d: MAP<STRING, STRING>>>",
    "STRUCT<a: INT, b: ARRAY<ARRAY<STRING>>>",
    "struct STRING, array INT, map DATE, comment INT, not INT",
    "_a INT, a1 INT COMMENT \"quoted 'twice'\", /* between */ b INT",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ddl_is_read_and_printed_as_spark_reads_it(spark: Any, text: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    expected = StructType.fromDDL(text)
    found = parse_ddl(text)
    fields = [found.field(i) for i in range(found.num_fields)]
    assert StructType.fromDDL(print_ddl(found)) == expected
    read = from_arrow_schema(pa.schema(fields))
    assert read.simpleString() == expected.simpleString()
    assert [f.nullable for f in read] == [f.nullable for f in expected]
    comments = [(f.metadata or {}).get(b"comment", b"").decode() for f in fields]
    assert comments == [f.metadata.get("comment", "") for f in expected]


@pytest.mark.parametrize("text", ["a", "a INT,", "a INT b INT", "a ARRAY<INT", "1a INT,", "a FOO"])
def test_what_is_refused_is_refused_by_spark(spark: Any, text: str) -> None:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    from rangeland.decode.payload.payload_decoder import PayloadSchemaError

    with pytest.raises(PayloadSchemaError):
        parse_ddl(text)
    with pytest.raises(ParseException):
        StructType.fromDDL(text)
