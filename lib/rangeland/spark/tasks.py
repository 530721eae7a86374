"""What runs inside an executor: read the slices of one task, write files, hand in receipts.

Imports are cheap and stay so: a Python worker pays for them in every new process. A task
either hands in a receipt for each of its slices or raises; a retry or a speculative twin
writes files of its own, and only the files of the result that Spark takes are ever named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.delta.facts import Layout
from rangeland.delta.files import FileWriter
from rangeland.delta.storage import StoreSettings
from rangeland.fetch.consumer import read_slices
from rangeland.fetch.settings import ClusterSettings
from rangeland.fetch.tally import Tally
from rangeland.model import Slice, TaskResult


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Where and how a task writes. ``prefix`` names the plan in every file's name. Keys to
    the table's store are in here in the clear, and in no ``repr``."""

    table: StoreSettings | str
    layout: Layout
    compression: str
    target_file_bytes: int
    prefix: str


def land_slices(
    slices: Sequence[Slice], cluster: ClusterSettings, writer: WriterSettings
) -> TaskResult:
    """Reads the slices to their ends and writes their rows; nothing is visible yet.

    Raises what reading or writing raises; its partial files are removed then."""
    tally = Tally(slices)
    files = open_writer(writer)
    try:
        for chunk in read_slices(slices, cluster):
            tally.add(chunk)
            if chunk.batch is not None:
                files.write(chunk.batch)
        return TaskResult(tally.receipts(), tuple(files.close()))
    except BaseException:
        files.abort()
        raise


def open_writer(writer: WriterSettings) -> FileWriter:
    """The writer of one task."""
    return FileWriter(
        writer.table,
        writer.layout,
        compression=writer.compression,
        target_file_bytes=writer.target_file_bytes,
        name_prefix=writer.prefix,
    )
