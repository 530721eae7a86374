"""The sides without Spark: a client library, and bare library calls as the bound.

``land_with_client`` is what a Python script does: confluent-kafka's ``consume``, pyarrow,
Parquet. ``land_bare`` is the least that can be done with the same libraries this project
uses: fetch, decompress, decode, write, in one process per core, without checksums, counts,
failover, statistics or a table. It asks for the next response before it decodes the last.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rangeland.dialects.fetch_values import FetchedRecords

FETCH_BYTES = 8 << 20
CONSUME_RECORDS = 50_000
IDLE_S = 30

_CLIENT_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
    ]
)


def land_with_client(bootstrap: str, topic: str, partitions: int, records: int, out: Path) -> None:
    """One process, one consumer, one file; ends once it has ``records`` of them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.max.messages.kbytes": 256 << 10,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    out.mkdir(parents=True)
    taken = 0
    try:
        with pq.ParquetWriter(
            out / "part-0.parquet", _CLIENT_SCHEMA, compression="snappy", use_dictionary=False
        ) as writer:
            while taken < records:
                messages = consumer.consume(CONSUME_RECORDS, IDLE_S)
                if not messages:
                    raise RuntimeError(f"the client stopped at {taken} of {records} records")
                writer.write_batch(_client_batch(topic, messages))
                taken += len(messages)
    finally:
        consumer.close()


def _client_batch(topic: str, messages: Sequence[Any]) -> pa.RecordBatch:
    rows = [(m.key(), m.value(), m.partition(), m.offset(), m.timestamp()[1]) for m in messages]
    keys, values, numbers, offsets, times = zip(*rows, strict=True)
    columns: list[Any] = [keys, values, [topic] * len(rows), numbers, offsets, times]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _CLIENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_CLIENT_SCHEMA)


class BareProcesses:
    """Processes for ``land_bare``, started once, so that a warm side is measured."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._count = processes
        self._pool = ProcessPoolExecutor(processes, mp_context=context)

    def land(
        self, address: tuple[str, int], topic: str, ends: Sequence[int], compression: str, out: Path
    ) -> None:
        """``ends``: the end offset of each partition. One file per partition."""
        out.mkdir(parents=True)
        work = [
            self._pool.submit(land_bare, address, topic, number, end, compression, str(out))
            for number, end in enumerate(ends)
        ]
        for done in work:
            done.result()

    def close(self) -> None:
        self._pool.shutdown()


def land_bare(
    address: tuple[str, int], topic: str, number: int, end: int, compression: str, out: str
) -> None:
    """One partition from its beginning to ``end``."""
    from rangeland.cluster_settings import ClusterSettings
    from rangeland.connection.pool import ConnectionPool
    from rangeland.decode import kafka_decoder
    from rangeland.decode.columns import with_partition
    from rangeland.decode.kafka.entry_layouts import BATCH_V2
    from rangeland.decode.kafka.layout import Payload
    from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
    from rangeland.dialects.kafka.compression import decompress
    from rangeland.dialects.kafka.log_entries import entries, scan
    from rangeland.dialects.kafka.record_batch import BatchV2
    from rangeland.model import Address, Isolation, Partition
    from rangeland.survey.metadata_lookup import ask_metadata

    host, port = address
    settings = ClusterSettings("kafka", (Address(host, port),))
    terms = FetchOptions(Isolation.READ_UNCOMMITTED, 500, 4 * FETCH_BYTES)
    partition = Partition(topic, number)
    brokers = ConnectionPool(settings)
    leader = ask_metadata(brokers, (topic,), settings.seeds).topics[topic].leaders[partition]
    connection = brokers.connect(settings.seeds[0])

    def ask(offset: int) -> list[PartitionFetch]:
        asked = [PartitionFetch(partition, leader.topic_id, None, offset, FETCH_BYTES)]
        (question,) = brokers.dialect.records_requests(asked, terms)
        connection.send(question)
        return asked

    def decoded(records: FetchedRecords, offset: int) -> pa.RecordBatch:
        payloads = []
        for entry in entries(records):
            assert isinstance(entry, BatchV2)
            header = entry.header
            data = decompress(header.attributes & 7, entry.stored[BATCH_V2.size :])
            first, count, delta = header.base_offset, header.record_count, header.last_offset_delta
            payloads.append(Payload(data, first, header.base_timestamp_ms, None, count, delta))
        return with_partition(kafka_decoder().decode_records(payloads, offset, end), partition)

    writer: pq.ParquetWriter | None = None
    offset, asked = 0, ask(0)
    try:
        while offset < end:
            response = brokers.dialect.read_records([connection.receive()], asked, terms.isolation)
            records = response.partitions[0].records
            following = scan(records).next_offset
            if following is None:
                raise RuntimeError(f"the broker has nothing at {partition} {offset}")
            if following < end:
                asked = ask(following)
            batch = decoded(records, offset)
            if writer is None:
                place = Path(out) / f"part-{number}.parquet"
                level = 1 if compression == "zstd" else None
                writer = pq.ParquetWriter(
                    place,
                    batch.schema,
                    compression=compression,
                    compression_level=level,
                    use_dictionary=False,
                    write_statistics=False,
                )
            writer.write_batch(batch)
            offset = following
    finally:
        if writer is not None:
            writer.close()
        brokers.close()
