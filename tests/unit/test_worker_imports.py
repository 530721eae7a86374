"""What a new Python worker imports to land records: not pandas, which takes it long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
import pyarrow as pa
from rangeland.fetch.read_settings import ReadSettings
from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import TableLayout
from rangeland.dialects.row_schema import typed_rows
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import DamagedBytes
from rangeland.model import Partition, Slice
from tests.record_batches import Batch, Record, encode
from tests.unit.test_avro_decoder import encode as avro, record

assert "pandas" not in sys.modules
sys.modules["pandas"] = None  # to import it is an ImportError from now on
kinds = [("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
         ("m", {"type": "map", "values": "int"}), ("t", ["null", "string"])]
value = avro(record(*kinds), {"e": "B", "m": {"a": 1, "b": 2}, "t": "x"})
key = b'{"a":1,"l":["x"],"m":{"k":1.5}}'
formats = RowFormat(
    JsonFormat(parse_ddl("a INT, l ARRAY<STRING>, m MAP<STRING, DOUBLE>")),
    AvroFormat(json.dumps(record(*kinds))),
)
piece = Slice(0, Partition("t", 7), 0, 4)
stored = encode(Batch(0, [Record(key, value, ((b"h", b"x"),))] * 4))
kept = {0: DamagedBytes(stored, (), "")}
for rows in (None, formats):
    settings = ReadSettings(ClusterSettings("kafka", ()), quarantined_bytes=kept, row_format=rows)
    receipts = ReceiptBuilder([piece])
    layout = TableLayout(typed_rows("kafka", rows))
    names = {"compression": "zstd", "name_prefix": "x"}
    table = StoreSettings(sys.argv[1])
    writer = FileWriter(FileWriterSettings(table, layout, target_file_bytes=1 << 28, **names))
    for chunk in read_slices([piece], settings):
        receipts.add(chunk)
        writer.write(chunk.rows)
    (file,) = writer.close()
    (receipt,) = receipts.receipts()
    assert receipt.counts.landed == 4
print("landed")
"""


def test_records_land_without_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "landed\n", done.stderr[-2000:]
