"""Lands one range of a log, independently of the scheduled runs.

Give **offsets** (with topic and partition) or **times** (for all topics of the job, or for one
partition). Whatever is already in the table is left out, and the scheduled runs continue from
their checkpoint. A dry run shows what would be landed and writes nothing.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, AssetAlias, Param, task
from airflow.sdk.exceptions import AirflowFailException
from rangeland_airflow.commands import BadRequest, asked_range
from rangeland_airflow.operators import HOME, RangelandBackfillOperator, retrying

RETRY_DELAY_S = float(os.environ.get("RANGELAND_RETRY_DELAY_S", "60"))


def offset(title: str, description: str) -> Param:
    kind = ["null", "integer"]
    return Param(None, title=title, description=description, type=kind, minimum=0)


def time(title: str, description: str) -> Param:
    where, kind = "By time, instead of offsets", ["null", "string"]
    return Param(
        None, title=title, description=description, type=kind, format="date-time", section=where
    )


with DAG(
    dag_id="backfill_range",
    description="Lands one range of a log by offsets or times",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    default_args=retrying(RETRY_DELAY_S),
    tags=["rangeland"],
    params={
        "job_file": Param(
            str(HOME / "configs" / "orders-hourly.yaml"),
            type="string",
            minLength=1,
            title="Job file",
            description="Names the log and the table; a path on the workers.",
        ),
        "topic": Param(
            None,
            type=["null", "string"],
            title="Topic",
            description="Required for offsets. Leave it empty to use times for all topics.",
        ),
        "partition": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Partition",
            description="Its number. Leave it empty to use times for all partitions.",
        ),
        "from_offset": offset("From offset", "The first offset to land."),
        "until_offset": offset("Until offset", "The first offset that is not landed."),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only show what would be landed. Turn this off to land it.",
        ),
        "from_time": time("From time", "Lands from the first record at or after this time."),
        "until_time": time(
            "Until time", "Lands everything before the first record at or after this time."
        ),
    },
):

    @task(retries=0)
    def read_form(params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Refuses an invalid form before anything is started."""
        given = params or {}
        try:
            from_bound, until_bound = asked_range(given)
        except BadRequest as error:
            raise AirflowFailException(str(error)) from None
        dry_run = bool(given["dry_run"])
        return {"from": from_bound, "until": until_bound, "dry_run": dry_run}

    asked = read_form()
    RangelandBackfillOperator(
        task_id="land",
        job_file="{{ params.job_file }}",
        from_bound=asked["from"],
        until_bound=asked["until"],
        preview=asked["dry_run"],
        # An alias, since a dry run emits no event, and the job is known only at run time.
        outlets=[AssetAlias("rangeland-backfills")],
    )
