"""The quarantine beside a job's table."""

from __future__ import annotations

from collections.abc import Iterator

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.quarantine.quarantine_table import IsWanted, Quarantine, QuarantinedBatch
from rangeland.delta.quarantine.quarantine_writer import QuarantineWriterSettings
from rangeland.delta.transaction_log.table_commit import FilesGone
from rangeland.landing.target.table_location import TableLocation
from rangeland.planning.plan import Plan
from rangeland.spark.catalog_names import QUARANTINE_SUFFIX


class TargetQuarantine:
    """The quarantine of a table. It is created when the first bytes are kept."""

    def __init__(self, location: TableLocation) -> None:
        self._location = location

    def writer_settings(self, plan: Plan) -> QuarantineWriterSettings:
        """The settings with which tasks of a plan keep batches that they cannot decode."""
        where = self._open().storage()
        return QuarantineWriterSettings(where, plan.job, plan.application, plan.sequence, plan.hash)

    def commit(self, outcome: OutcomeEvent) -> FilesGone | None:
        """Commits the quarantined batches of an outcome, before the outcome itself; they replace
        the batches of an earlier attempt. Idempotent."""
        quarantine = self._open()
        if paths := quarantine.gone_files(outcome):
            return FilesGone(paths)
        quarantine.commit(outcome)
        if outcome.quarantine_files:
            self._location.register(QUARANTINE_SUFFIX, quarantine.path)
        return None

    def batches(self, is_wanted: IsWanted) -> Iterator[QuarantinedBatch]:
        """The wanted batches among all that were ever kept, one file at a time."""
        return iter(()) if self._location.path is None else self._open().batches(is_wanted)

    def gone_files(self) -> tuple[str, ...]:
        """The paths of files that the quarantine names and that are gone."""
        return () if self._location.path is None else self._open().gone_named_files()

    def _open(self) -> Quarantine:
        return Quarantine(self._location.delta, self._location.uri)
