"""Reads the slices of one task in an executor, writes files and returns receipts.

There are few imports, because every new Python worker has to load them. A task either returns a
receipt for each of its slices or raises an error. A retry or a speculative copy writes files of its
own, and only the files in the result that Spark accepts are ever committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rangeland.delta.parquet_files.data_files import FileWriter, FileWriterSettings
from rangeland.delta.quarantine.quarantine_writer import QuarantineWriter, QuarantineWriterSettings
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import SliceChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.model import Slice
from rangeland.planning.slice_receipt import Receipt, TaskResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """The settings with which a task writes: for its rows, and for bytes that cannot be decoded if
    they are quarantined."""

    files: FileWriterSettings
    quarantine: QuarantineWriterSettings | None = None


class TaskReceipts:
    """Counts what a task reads of its slices, and quarantines bytes that cannot be decoded. If
    there is no quarantine, they are only counted."""

    def __init__(
        self,
        slices: Sequence[Slice],
        settings: ReadSettings,
        quarantine: QuarantineWriterSettings | None,
    ) -> None:
        self._receipts = ReceiptBuilder(slices, settings.columns)
        self._slices = {s.index: s for s in slices}
        self._quarantine = QuarantineWriter(quarantine) if quarantine is not None else None

    def add(self, chunk: SliceChunk) -> None:
        self._receipts.add(chunk)
        if self._quarantine is None:
            return
        slice_ = self._slices[chunk.slice_index]
        for lost in chunk.lost_offsets:
            if lost.quarantined_bytes is not None:
                where = replace(lost.loss.range, topic_id=slice_.topic_id)
                self._quarantine.add(slice_.index, where, lost.quarantined_bytes, chunk.address)

    def close(self) -> tuple[Receipt, ...]:
        """A receipt for each slice."""
        receipts = self._receipts.receipts()
        return receipts if self._quarantine is None else self._quarantine.close(receipts)

    def abort(self) -> None:
        if self._quarantine is not None:
            self._quarantine.abort()


def read_and_write(
    slices: Sequence[Slice], settings: ReadSettings, writer: WriterSettings
) -> TaskResult:
    """Reads the slices to their ends and writes their rows, which are not visible yet.

    Raises what reading or writing raises, after removing the files that it wrote.
    """
    receipts = TaskReceipts(slices, settings, writer.quarantine)
    files = FileWriter(writer.files)
    try:
        with logged_reading(slices):
            for chunk in read_slices(slices, settings):
                receipts.add(chunk)
                if chunk.rows is not None:
                    files.write(chunk.rows)
            return TaskResult(receipts.close(), tuple(files.close()))
    except BaseException:
        files.abort()
        receipts.abort()
        raise


@contextmanager
def logged_reading(slices: Sequence[Slice]) -> Iterator[None]:
    """Logs when a task starts on its slices, and how it ends."""
    fields = {"slices": ", ".join(map(str, slices[:3])), "count": len(slices)}
    logger.info("Task started", extra=fields)
    start = time.monotonic()
    try:
        yield
    except Exception as error:
        logger.info("Task failed: %s", error, extra=fields)
        raise
    seconds = round(time.monotonic() - start, 3)
    logger.info("Task ended", extra={**fields, "seconds": seconds})
