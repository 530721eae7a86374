"""The target of a job: its table, with the ledger and the quarantine beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rangeland.job import Job
from rangeland.landing.target.identity_check import IdentityCheck
from rangeland.landing.target.job_history import JobHistory
from rangeland.landing.target.table_location import TableLocation
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_quarantine import TargetQuarantine
from rangeland.landing.target.target_table import TargetTable
from rangeland.landing.target.target_writer import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LandingTarget:
    """The parts of a target; callers take the parts that they need. All parts see the state that
    the ledger's ``refresh``, which reads ledger and table again, has last read."""

    table: TargetTable
    ledger: TargetLedger
    quarantine: TargetQuarantine
    identity: IdentityCheck
    history: JobHistory
    writer: TargetWriter


def open_target(spark: SparkSession, job: Job) -> LandingTarget:
    """Reads the ledger and the table of a job. Either may not exist yet."""
    table = TargetTable(TableLocation(spark, job), job)
    ledger = TargetLedger(spark, table)
    ledger.refresh()
    identity = IdentityCheck(job.application, table, ledger)
    return LandingTarget(
        table=table,
        ledger=ledger,
        quarantine=TargetQuarantine(table.location),
        identity=identity,
        history=JobHistory(job, table, ledger, identity),
        writer=TargetWriter(job, table, ledger),
    )
