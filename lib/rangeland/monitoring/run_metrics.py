"""How a command ended for its tables, as Prometheus metrics. Pure.

All of them are gauges, since they describe the last command. What is not known has no sample: a
run that failed has no lag, rather than a lag of zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rangeland.errors import BadRecord, RangelandError, RangeLost
from rangeland.grouping import group_by
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import COUNT_NAMES, LogState, Partition
from rangeland.monitoring.table_run import TableRun
from rangeland.planning.incarnation import LogMark, is_recreated

if TYPE_CHECKING:
    from rangeland.results import RunResult

HELP: Final[Mapping[str, str]] = {
    "rangeland_run_success": "Whether the last command succeeded for this table: 1 or 0.",
    "rangeland_run_exit_code": "Exit code of the last command for this table; 0 means done.",
    "rangeland_run_end_timestamp_seconds": "When the last command ended for this table.",
    "rangeland_run_duration_seconds": "How long the last command worked on this table.",
    "rangeland_run_landed_records": "Records landed by the last command.",
    "rangeland_run_written_rows": "Rows added to the table by the last command.",
    "rangeland_run_written_bytes": "Bytes of the files added to the table by the last command.",
    "rangeland_run_written_files": "Files added to the table by the last command.",
    "rangeland_run_recovered_plans": "Unfinished plans of other runs that the last command "
    "finished.",
    "rangeland_run_offsets": "Offsets of the ranges landed by the last command, by what became of "
    "them.",
    "rangeland_run_losses": "Losses that the last command found, by kind of loss and action of the "
    "policy. Only those with the action skip are left behind.",
    "rangeland_run_loss_offsets": "Offsets of these losses, except where a whole log is gone: how "
    "many offsets it had is not known.",
    "rangeland_run_passed_over_offsets": "Offsets that the checkpoint was moved past by the last "
    "command.",
    "rangeland_run_held_partitions": "Partitions held by a policy during the last command.",
    "rangeland_run_warnings": "Warnings of the last command.",
    "rangeland_table_version": "Version of the Delta table after the last command.",
    "rangeland_partition_checkpoint_offset": "Checkpoint of the job after the last command.",
    "rangeland_partition_end_offset": "End of what can be read of the log, when the last command "
    "made its plan. With read_committed, records behind an open transaction are not counted.",
    "rangeland_partition_lag_offsets": "Offsets between checkpoint and end of what can be read. "
    "With read_committed, records behind an open transaction are not counted.",
    "rangeland_partition_until_offset": "End (exclusive) of the range that a backfill landed.",
}
"""All metrics in the order in which they are written, with their help texts. The texts never
vary: the textfile collector wants one text for a metric in all files."""


class _Sample(NamedTuple):
    name: str
    value: float
    labels: dict[str, str]


class RunCollector(Collector):
    """The metrics of these runs as ``prometheus_client`` collects them."""

    def __init__(self, runs: Sequence[TableRun]) -> None:
        self._runs = runs

    def collect(self) -> list[GaugeMetricFamily]:
        return metric_families(self._runs)


def metric_families(runs: Iterable[TableRun]) -> list[GaugeMetricFamily]:
    """The metrics of these runs. Of two with the same names the last one counts: a file with the
    same sample twice would be refused as a whole."""
    by_name = {(run.command, run.job, run.table): run for run in runs}
    samples = group_by((s for run in by_name.values() for s in _samples_of(run)), lambda s: s.name)
    return [_family(name, samples[name]) for name in HELP if name in samples]


def _family(name: str, samples: Sequence[_Sample]) -> GaugeMetricFamily:
    """One metric. Its samples have the same labels; where one does not apply, it is empty, which
    means to Prometheus that it is not there."""
    label_names = list(dict.fromkeys(label for sample in samples for label in sample.labels))
    family = GaugeMetricFamily(name, HELP[name], labels=label_names)
    for sample in samples:
        values = [_as_unicode(sample.labels.get(label, "")) for label in label_names]
        family.add_metric(values, sample.value)
    return family


def _as_unicode(text: str) -> str:
    """The text without lone surrogates, which a path has for bytes that are not UTF-8: a single one
    would leave the whole file unwritten."""
    return text.encode(errors="backslashreplace").decode()


def _samples_of(run: TableRun) -> Iterator[_Sample]:
    labels = {"command": run.command, "job": run.job, "table": run.table or ""}
    for name, value in _end_values(run).items():
        if value is not None:
            yield _Sample(f"rangeland_run_{name}", value, labels)
    for sample in _loss_samples(run):
        yield sample._replace(labels=labels | sample.labels)
    if run.result is not None:
        for sample in _result_samples(run.result):
            yield sample._replace(labels=labels | sample.labels)


def _end_values(run: TableRun) -> dict[str, float | None]:
    return {
        "success": int(run.exit_code == 0),
        "exit_code": run.exit_code,
        "end_timestamp_seconds": run.ended_at_ms / 1000,
        "duration_seconds": run.seconds,
    }


def _loss_samples(run: TableRun) -> Iterator[_Sample]:
    """The samples of its losses, without the labels that all samples of its table have."""
    losses = _losses_in_failure(run.error) if run.result is None else _losses_in_result(run.result)
    for (partition, kind, action), alike in group_by(losses, _loss_key).items():
        labels = {**_partition_labels(partition), "kind": kind.value, "action": action.value}
        yield _Sample("rangeland_run_losses", len(alike), labels)
        if not kind.traits.is_whole_log:
            yield _Sample("rangeland_run_loss_offsets", sum(x.width for x in alike), labels)


def _loss_key(loss: DecidedLoss) -> tuple[Partition, LossKind, Action]:
    return loss.partition, loss.kind, loss.action


def _losses_in_result(result: RunResult) -> list[DecidedLoss]:
    """The losses in its plans, those skipped beside them, and those for which partitions are
    held."""
    losses = [event.loss for event in result.losses if event.loss.action is not Action.HOLD]
    return [*losses, *result.skipped_losses, *result.held_losses]


def _losses_in_failure(error: RangelandError | None) -> Sequence[DecidedLoss]:
    if not isinstance(error, RangeLost | BadRecord):
        return ()
    # Imported only if there are losses: a command that fails early has not loaded the ledger.
    from rangeland.landing.target.loss_records import losses_in

    return losses_in(error)


def _result_samples(result: RunResult) -> Iterator[_Sample]:
    """The samples of a result, without the labels that all samples of its table have."""
    for name, value in _result_values(result).items():
        yield _Sample(f"rangeland_run_{name}", value, {})
    for name in COUNT_NAMES:
        yield _Sample("rangeland_run_offsets", getattr(result.counts, name), {"class": name})
    if result.table_version is not None:
        yield _Sample("rangeland_table_version", result.table_version, {})
    for name, offsets in _partition_offsets(result).items():
        for partition, offset in sorted(offsets.items()):
            yield _Sample(f"rangeland_partition_{name}", offset, _partition_labels(partition))


def _result_values(result: RunResult) -> dict[str, int]:
    return {
        "landed_records": result.landed,
        "written_rows": result.rows,
        "written_bytes": result.bytes_written,
        "written_files": result.files,
        "recovered_plans": len(result.recovered),
        "passed_over_offsets": sum(passed.width for passed in result.passed_over),
        "held_partitions": len({loss.partition for loss in result.held_losses}),
        "warnings": len(result.warnings),
    }


def _partition_offsets(result: RunResult) -> dict[str, dict[Partition, int]]:
    """Offsets by metric and partition. Without a checkpoint there is no lag either: the distance
    from the end of a backfill to the end of the log means nothing."""
    ends = {log.partition: log.end_offset for log in result.logs}
    if result.checkpoint is None:
        until: dict[Partition, int] = {}
        for of_range in (r.range for r in result.ranges):
            landed_until = until.get(of_range.partition, 0)
            until[of_range.partition] = max(landed_until, of_range.until_offset)
        return {"end_offset": ends, "until_offset": until}
    checkpoint = _checkpoint(result.checkpoint, result.logs)
    lags = {
        log.partition: max(0, log.end_offset - checkpoint.get(log.partition, log.start_offset))
        for log in result.logs
    }
    return {"checkpoint_offset": checkpoint, "end_offset": ends, "lag_offsets": lags}


def _checkpoint(
    marks: Mapping[Partition, LogMark], logs: Iterable[LogState]
) -> dict[Partition, int]:
    """The offsets of these marks. As in ``status``, a mark that belongs to a deleted log is left
    out: nothing of the log that has taken its place is landed."""
    recreated = {
        x.partition for x in logs if x.partition in marks and is_recreated(marks[x.partition], x)
    }
    return {p: mark.until_offset for p, mark in marks.items() if p not in recreated}


def _partition_labels(partition: Partition) -> dict[str, str]:
    labels = {"topic": partition.topic, "partition": str(partition.number)}
    return labels | ({"broker": partition.broker} if partition.broker else {})
