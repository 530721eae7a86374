"""The commands that land nothing but report on logs, tables and ledgers: ``check``, ``status``,
``report``, ``verify``, ``find``, ``reached``, ``sample``, ``schema``."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.many_jobs import (
    ManyJobs,
    Parallel,
    TableCommand,
    load_jobs,
    run_table_command,
    work_on_job,
)
from rangeland.cli.options import (
    JobPath,
    JobPaths,
    Settings,
    check_can_be_written,
    check_is_no_other_file,
    command,
    end_with_result,
    load_job_with,
    spark_for,
    write_out,
    write_whole,
)
from rangeland.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rangeland.fleet.table_job import TableJob
    from rangeland.progress_events import Progress
    from rangeland.query_results import SampleResult, Status


@command
def check(output: CommandOutput, job_files: JobPaths, settings: Settings = None) -> None:
    """Check everything a run needs: job file, brokers, topics, Spark, table. Lands nothing.

    To find out whether the table can be written, it writes small test files to the table's folders
    and removes them again.

    \b
    Example:
      rangeland check orders.yaml
    """
    jobs = load_jobs(job_files, load_job_with(settings))

    from rangeland.queries.job_check import check as check_job
    from rangeland.render.status_view import render_check

    def table_command() -> TableCommand:
        return TableCommand(
            lambda table_job, spark, progress: check_job(table_job.job, lambda: spark, progress),
            render_check,
        )

    if isinstance(jobs, ManyJobs):
        run_table_command(output, jobs, table_command)
        return
    job = jobs.job
    result = check_job(job, lambda: spark_for(output, job), output.progress())
    end_with_result(output, result, render_check(result))


@command
def status(
    output: CommandOutput,
    job_files: JobPaths,
    parallel: Parallel = None,
    settings: Settings = None,
) -> None:
    """Show how far a job has got in its logs: checkpoint, end, lag. Writes nothing.

    \b
    Examples:
      rangeland status orders.yaml
      rangeland status orders.yaml --json | tail -n 1 | jq '[.partitions[].lag] | add'
    """

    def table_command() -> TableCommand:
        from rangeland.queries.job_status import status as status_job
        from rangeland.render.status_view import render_status

        def work(table_job: TableJob, spark: SparkSession, progress: Progress) -> Status:
            return status_job(table_job.job, spark, progress, table_job.template)

        return TableCommand(work, render_status)

    jobs = load_jobs(job_files, load_job_with(settings), parallel)
    run_table_command(output, jobs, table_command, asks_brokers=True)


@command
def report(
    output: CommandOutput,
    job_file: JobPath,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The page, such as orders.html.")
    ],
    verifies: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also compare the rows of the table with the ledger, as `verify` does; exit 66 "
            "if any are missing or duplicated.",
        ),
    ] = False,
    settings: Settings = None,
) -> None:
    """Write a page about a job, for people: what has landed, what is left, what is lost.

    One HTML file that needs nothing else: it loads nothing, runs no script, and can be printed or
    sent. If the logs cannot be asked, it is written from the table and its ledger, and says so.
    Logins are left out. Lands nothing.

    \b
    Examples:
      rangeland report orders.yaml --out orders.html
      rangeland report orders.yaml --out orders.html --verify
    """
    check_can_be_written(out)
    check_is_no_other_file(out, job_file)
    job, text = load_job_with(settings)(job_file)
    if job.sink.is_per_topic:
        also = " --set source.topic_pattern=null" if job.source.topic_pattern else ""
        raise UsageError(
            f"{job.sink.table} stands for a table for each topic, and a report is about one table",
            do=f"name it, with --set sink.table=TABLE --set source.topics=[TOPIC]{also}",
        )
    began_at = time.monotonic()
    spark = spark_for(output, job)

    from rangeland.queries.job_report import report as report_job
    from rangeland.render.report_page import render_report
    from rangeland.render.report_summary import render_written
    from rangeland.report_results import result_of

    content = report_job(job, text, spark, output.progress(), verifies=verifies)
    page = render_report(content).encode()
    write_whole(out, page)
    if content.log_error:
        output.progress().warn(f"the logs could not be asked: {content.log_error}")
    result = result_of(content, str(out), len(page), time.monotonic() - began_at)
    end_with_result(output, result, render_written(content, result))


@command
def verify(
    output: CommandOutput,
    job_files: JobPaths,
    parallel: Parallel = None,
    settings: Settings = None,
) -> None:
    """Prove from the table itself that every landed offset is in it exactly once.

    Compares the offsets of all rows with the ledger, even after a restore, delete, optimize or
    vacuum. Exit 66 if anything is missing or duplicated. Asks no broker and writes nothing.

    \b
    Examples:
      rangeland verify orders.yaml
      rangeland verify orders.yaml --json | tail -n 1 | jq .holes
    """

    def table_command() -> TableCommand:
        from rangeland.queries.verify_and_find import verify as verify_job
        from rangeland.render.verify_view import render_verify

        return TableCommand(work_on_job(verify_job), render_verify)

    jobs = load_jobs(job_files, load_job_with(settings), parallel, asks_cluster=False)
    run_table_command(output, jobs, table_command)


@command
def find(
    output: CommandOutput,
    job_file: JobPath,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")],
    partition: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION", help="The partition's number, or 1-0 for partition 0 of broker 1."
        ),
    ],
    offset: Annotated[
        int, typer.Argument(metavar="OFFSET", min=0, help="The offset of the record.")
    ],
    broker: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="NAME",
            help="The broker, if each broker numbers its own partitions.",
        ),
    ] = "",
    settings: Settings = None,
) -> None:
    """Show which run landed an offset, when, from which leader, and in which file it is.

    Exit 66 if its row should be in the table but is missing; otherwise 0, even if the offset has
    not landed. Scripts find what became of it in the field "state" of --json. Asks no broker.

    \b
    Examples:
      rangeland find orders.yaml orders 0 123456
      rangeland find clicks.yaml clicks 1-0 123456
    """
    from rangeland.job.command_line_overrides import read_partition
    from rangeland.job.topic_tables import job_of_topic

    job, text = load_job_with(settings)(job_file)
    if job.sink.is_per_topic:
        job = job_of_topic(job, text, topic)[0]
    topic_partition = read_partition(job, topic, partition, broker)

    spark = spark_for(output, job)

    from rangeland.queries.verify_and_find import find as find_offset
    from rangeland.render.verify_view import render_find

    result = find_offset(job, spark, topic_partition, offset, output.progress())
    end_with_result(output, result, render_find(result))


def parse_idle_after_ms(text: str) -> int:
    """The value of ``--idle-after``, which is given in seconds. Raises UsageError for anything that
    is not a length of time, such as ``5m`` or ``inf``."""
    with suppress(ValueError, OverflowError):  # ``round`` cannot turn nan and inf into integers.
        idle_after_ms = round(float(text) * 1000)
        if idle_after_ms >= 0:
            return idle_after_ms
    raise UsageError(
        f"--idle-after {text} is not a length of time", do="give a number of seconds, such as 300"
    )


@command
def reached(
    output: CommandOutput,
    job_file: JobPath,
    until_bound: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="BOUND",
            help="What to wait for: an ISO time, or offsets as JSON. By default range.until of "
            "the job file.",
        ),
    ] = None,
    idle_after_ms: Annotated[
        int | None,
        typer.Option(
            "--idle-after",
            metavar="SECONDS",
            parser=parse_idle_after_ms,
            help="If a partition has no record at or after --until, treat it as complete once this "
            "many seconds have passed since then, by this machine's clock, unless only "
            "a replica of it is up. Without this option, wait for a record.",
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Check whether the logs have reached --until: exit 0 if so, 75 if not yet.

    For schedulers that wait for an interval to be complete. Checks once, without Spark.
    An offset is reached when the log ends there or later; a time, when each partition
    has a record at or after it. A partition that cannot be asked is not reached, even if
    policy.unreachable holds it; the result says why.

    \b
    Examples:
      rangeland reached orders.yaml --until 2026-01-31T06:00:00Z --idle-after 300
      rangeland reached orders.yaml --until '{"orders": {"0": 40}}'
    """
    job, _ = load_job_with(settings, until_bound)(job_file)

    from rangeland.queries.reached_check import query_reach
    from rangeland.render.status_view import render_reach

    result = query_reach(job, output.progress(), idle_after_ms)
    end_with_result(output, result, render_reach(result))


@command
def sample(
    output: CommandOutput,
    job_file: JobPath,
    records: Annotated[
        int,
        typer.Option(
            "--records",
            metavar="N",
            min=1,
            max=100_000,
            help="How many records to read from each partition.",
        ),
    ] = 100,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the fields of values as Spark DDL."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Look at the newest records: their formats, schemas and fields, decoded as the job says. Lands
    nothing.

    You can use the file that --out writes as decode.value.schema. Needs no Spark.

    \b
    Examples:
      rangeland sample orders.yaml
      rangeland sample orders.yaml --records 1000 --out orders.ddl
    """
    job, _ = load_job_with(settings)(job_file)

    from rangeland.queries.payload_sample import sample as sample_job
    from rangeland.render.sample_view import render_sample

    result = sample_job(job, output.progress(), records)
    if out is not None:
        write_schema(result, out)
    output.print_result(result.to_json(), render_sample(result, str(out or "")))


def write_schema(result: SampleResult, out: Path) -> None:
    """Writes the schema to a file. Raises UsageError if there is no schema, or if the file cannot
    be written."""
    if not result.schema:
        raise UsageError(
            f"--out {out}: there is no schema to write",
            why="none of the records that were read is a JSON object with fields, and the job "
            "declares none",
            do="read more of them with --records",
        )
    write_out(out, result.schema + "\n")


@command
def schema(
    output: CommandOutput,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it to a file instead.")
    ] = None,
) -> None:
    """Print the JSON schema of job files, which editors use to complete and check them.

    \b
    Examples:
      rangeland schema --out job.schema.json
    and as the first line of a job file in the same folder:
      # yaml-language-server: $schema=job.schema.json
    """
    from rangeland.job.job_schema import job_schema, schema_text

    if out is not None:
        write_out(out, schema_text())
        output.print_result({"file": str(out)}, f"Written to {out}")
    elif output.json:
        output.print_result(job_schema(), "")
    else:
        # Not through `print_result`, which wraps lines at the width of the terminal.
        print(schema_text(), end="", file=output.stdout)
