"""Avro and Protobuf payloads to Arrow: records per second of CPU, against an object per record.

``python -m tests.bench.binary_payloads``: the same 12 fields in both formats, sides in turn, in
one process. The ratios say something; the numbers depend on the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.payload_decoder import PayloadDecoder
from rangeland.decode.payload.protobuf.protobuf_format import ProtobufFormat
from rangeland.schema_registry.proto_compiler import compile_proto

ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}],
}
FIELDS = {
    "id": "long",
    "customer": "string",
    "amount": "double",
    "paid": "boolean",
    "created": {"type": "long", "logicalType": "timestamp-micros"},
    "country": "string",
    "note": ["null", "string"],
    "rank": ["null", "int"],
    "discount": "float",
    "status": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]},
    "token": "bytes",
    "items": {"type": "array", "items": ITEM},
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
PROTO = """
syntax = "proto3";
message Order {
  message Item { string sku = 1; int32 quantity = 2; }
  enum Status { NEW = 0; PAID = 1; SENT = 2; }
  int64 id = 1; string customer = 2; double amount = 3; bool paid = 4; int64 created = 5;
  string country = 6; optional string note = 7; optional int32 rank = 8; float discount = 9;
  Status status = 10; bytes token = 11; repeated Item items = 12;
}
"""


def orders(count: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        yield {
            "id": at,
            "customer": f"customer-{at % 1000}",
            "amount": at / 7,
            "paid": at % 3 == 0,
            "created": 1_700_000_000_000_000 + at,
            "country": "DE",
            "note": None if at % 4 else "leave at the door",
            "rank": None if at % 2 else at % 100,
            "discount": 0.5,
            "status": ("NEW", "PAID", "SENT")[at % 3],
            "token": b"12345678",
            "items": [{"sku": f"sku-{n}", "quantity": n} for n in range(at % 4)],
        }


@dataclass(frozen=True)
class Side:
    name: str
    decode: Callable[[list[bytes]], Any]


def columnar(decoder: PayloadDecoder) -> Callable[[list[bytes]], Any]:
    def decode(payloads: list[bytes]) -> Any:
        found = decoder.decode(pa.array(payloads, pa.binary()))
        assert not found.undecodable
        return found.values

    return decode


def avro(count: int) -> tuple[list[bytes], list[Side]]:
    parsed = fastavro.parse_schema(AVRO)
    payloads = []
    for order in orders(count):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, order)
        payloads.append(out.getvalue())
    form = AvroFormat(json.dumps(AVRO))

    def objects(wanted: list[bytes]) -> Any:
        rows = [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in wanted]
        return pa.array(rows, form.arrow_type)

    return payloads, [Side("kernel", columnar(form.decoder())), Side("fastavro", objects)]


def protobuf(count: int) -> tuple[list[bytes], list[Side]]:
    descriptors = compile_proto("order.proto", {"order.proto": PROTO})
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    payloads = [kind(**order).SerializeToString() for order in orders(count)]
    form = ProtobufFormat(descriptors)

    def objects(wanted: list[bytes]) -> Any:
        """Only parsed: to make columns of the objects would take several times as long."""
        return [kind.FromString(one) for one in wanted]

    return payloads, [Side("kernel", columnar(form.decoder())), Side("Google's, parsed", objects)]


def measure(side: Side, payloads: list[bytes]) -> float:
    begin = time.process_time()
    side.decode(payloads)
    return len(payloads) / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    for name, make in (("Avro", avro), ("Protobuf", protobuf)):
        payloads, sides = make(chosen.records)
        found: dict[str, list[float]] = {side.name: [] for side in sides}
        for _ in range(chosen.rounds):
            for side in sides:
                found[side.name].append(measure(side, payloads))
        print(f"{name}: {sum(map(len, payloads)) / len(payloads):.0f} bytes per record")
        medians = {side: statistics.median(rates) for side, rates in found.items()}
        for side, rates in found.items():
            ratio = medians["kernel"] / medians[side]
            low, high = min(rates) / 1e3, max(rates) / 1e3
            print(
                f"  {side:18} {medians[side] / 1e3:8.0f} k/s ({low:.0f}-{high:.0f})  1:{ratio:.1f}"
            )


if __name__ == "__main__":
    main()
