"""``rangeland demo``: the whole story on one machine, explained step by step and checked.

A real broker, a topic with awkward records, a job file, and then the commands: plan, run, run
again, more records, run, backfill, verify and repair; finally a sample of the values, and a table
that has their fields as columns. It calls the same functions as the command line. Each of its
claims is a ``Promise``, which is checked with another client and SQL; a broken promise ends the
demo with an error. It cleans up after itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.cli.command_output import CommandOutput
from rangeland.cli.interruption import Interruption
from rangeland.jvm.java import find_java
from rangeland.monitoring.lineage_client import without_lineage
from rangeland.planning.plan_kind import PlanKind
from rangeland.queries.payload_sample import sample
from rangeland.queries.verify_and_find import verify
from rangeland.render.plan_view import render_plan
from rangeland.render.result_view import render_result
from rangeland.render.sample_view import render_sample
from rangeland.render.text_drawing import console_for, safe_text, table_of
from rangeland.render.verify_view import render_verify
from rangeland.results import RunResult
from rangeland.run import backfill, preview, run
from rangeland.testing.client_library import library
from rangeland.testing.consumer import offsets
from rangeland.testing.demo_story import Stage, Story, open_local_spark
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import remove_directory, temporary_directory
from rangeland.testing.shop import Digest, Written, digest_of_log, more_orders, open_shop
from rangeland.wording import count_noun, duration, number

VERSION = "4.1.0"
TOPIC = "orders"
JOB_FILE = """\
job: demo-orders
source:
  servers: [{servers}]
  topics: [{topic}]
range: {{from: checkpoint, until: latest}}
slices: {{target_bytes: 8MiB}}
sink:
  table: {table}
"""
TYPED_FILE = """\
job: demo-typed
source:
  servers: [{servers}]
  topics: [{topic}]
decode:
  value: {{format: json, schema: {schema}}}
  layout: flat
sink:
  table: {table}
"""
SUMS = (
    "COUNT({id}), SUM(CAST({id} AS BIGINT)), SUM(CRC32({user})), SUM(CRC32({event})), "
    "SUM(CRC32({url})), SUM(CAST(ROUND(CAST({price} AS DOUBLE) * 100) AS BIGINT)), "
    "SUM(CAST({ts} AS BIGINT)), SUM(CRC32({agent}))"
)
TEXTS = ("key", "value", "user", "event")
FIELDS = ("id", "user", "event", "url", "price", "ts", "agent")


def show(output: CommandOutput, records: int, keep: bool) -> None:
    """Runs the demo and prints a summary. Raises UsageError if Java or the client library is
    missing, and Bug if a promise was broken."""
    find_java()
    library()  # It writes the records. If it is missing, fail before the long wait.
    silent = output.quiet and not output.json
    console = console_for(sys.stderr if output.json else output.stdout)
    console.quiet = silent
    story = Story(console)
    folder = _make_folder(keep)
    output.when_interrupted = _interruption(folder if keep else None)
    cluster = KafkaCluster(VERSION)
    try:
        with without_lineage():
            _tell_story(story, output, cluster, folder, records)
        story.check()
        if keep:
            _wait_for_enter(story, folder)
    except Exception:
        if keep:
            story.tell(f"\nWhat there is of the demo is kept in {folder}.")
        raise
    finally:
        cluster.close()
        if not keep:
            remove_directory(folder)
    summary = _summary(story, records, folder if keep else None)
    output.print_result(summary, _closing_words(story, folder if keep else None))


def _make_folder(keep: bool) -> Path:
    prefix = "rangeland-demo-"
    return Path(tempfile.mkdtemp(prefix=prefix)) if keep else temporary_directory(prefix)


def _interruption(kept: Path | None) -> Interruption:
    folder = "its folder removed" if kept is None else f"its folder kept: {kept}"
    return Interruption(
        f"Interrupted. The demo's broker is stopped and {folder}.",
        data="the demo uses no data but its own",
    )


# --- the story --------------------------------------------------------------------------


def _tell_story(
    story: Story, output: CommandOutput, cluster: KafkaCluster, folder: Path, records: int
) -> None:
    more = max(4, records // 10)
    with story.step(f"Start a Kafka {VERSION} broker (its jars are downloaded the first time)"):
        servers = cluster.start().bootstrap
        story.tell(f"   It is up at {servers[0]}.")
    with story.step(f"Write {number(records)} records to the topic {TOPIC}, 4 partitions"):
        first_records = open_shop(servers, TOPIC, records)
        story.tell(
            f"   {number(first_records.tombstones)} of them are tombstones, "
            f"{number(first_records.with_headers)} have headers, some came in a transaction;\n"
            f"   {number(first_records.rolled_back)} more were rolled back and must never be seen."
        )
    with story.step("Start Spark with Delta, and write a job file"):
        stage = Stage(servers, folder, open_local_spark("rangeland demo", folder), output)
        _write_job_file(story, stage, JOB_FILE, stage.job_file, table=stage.table)
    _land_it(story, stage, first_records)
    new_records, version = _land_what_is_new(story, stage, more)
    _backfill_it(story, stage, version)
    _repair_it(story, stage)
    with story.step("Look at the table with SQL, and at the log with another client"):
        log = digest_of_log(servers, TOPIC)
        _compare_with_log(story, stage, first_records + new_records, log)
        _show_rows(story, stage)
    _land_columns(story, stage, first_records + new_records)


def _write_job_file(
    story: Story, stage: Stage, template: str, job_file: Path, **paths: Path
) -> None:
    quoted = {name: json.dumps(str(path)) for name, path in paths.items()}
    text = template.format(servers=stage.servers[0], topic=TOPIC, **quoted)
    job_file.write_text(text, encoding="utf-8")
    story.tell(Text(indent(text.rstrip(), "   "), "dim"))


def _land_it(story: Story, stage: Stage, written: Written) -> None:
    with story.step("rangeland plan orders.yaml: what would be landed? It writes nothing"):
        plan = stage.run(preview)
        story.tell(render_plan(plan))
        story.promise("a plan alone creates no table", False, stage.table.exists())
    with story.step("rangeland run orders.yaml: land it"):
        first = stage.run(run)
        story.tell(render_result(first))
        counts = first.counts
        width = sum(end - start for start, end in offsets(stage.servers, TOPIC).values())
        story.promise("the first run accounts for every offset of the log", width, counts.total)
        story.promise("every visible record is a row", written.visible, counts.landed)
        story.promise(
            "no record that was rolled back is a row", written.rolled_back, counts.aborted
        )
        story.promise("exactly the plan was landed", plan.draft.plan.width, counts.total)
    with story.step("rangeland run orders.yaml, once more: nothing should happen"):
        second = stage.run(run)
        story.tell(render_result(second))
        story.promise("the second run lands nothing", "nothing 0", _in_short(second))
        versions = first.table_version, second.table_version
        story.promise("the second run creates no new version of the table", *versions)


def _land_what_is_new(story: Story, stage: Stage, more: int) -> tuple[Written, int | None]:
    with story.step(f"Append {number(more)} records and run again: only those are landed"):
        new_records = more_orders(stage.servers, TOPIC, more)
        third = stage.run(run)
        story.tell(render_result(third))
        story.promise("exactly the new records are landed", f"landed {more}", _in_short(third))
        return new_records, third.table_version


def _backfill_it(story: Story, stage: Stage, version: int | None) -> None:
    ends = offsets(stage.servers, TOPIC)
    first = json.dumps({TOPIC: {str(p): start for p, (start, _) in ends.items()}})
    last = json.dumps({TOPIC: {str(p): end for p, (_, end) in ends.items()}})
    with story.step("rangeland backfill orders.yaml with the same range: it is already landed"):
        again = stage.run(backfill, first, last)
        story.tell(render_result(again))
        story.promise("the backfill lands nothing twice", "already-landed 0", _in_short(again))
        story.promise(
            "the backfill creates no new version of the table", version, again.table_version
        )


def _repair_it(story: Story, stage: Stage) -> None:
    with story.step("Somebody deletes rows. rangeland verify orders.yaml: which are missing?"):
        count = stage.sql("DELETE FROM {table} WHERE partition = 1 AND offset % 1000 < 10")[0][0]
        damaged = stage.run(verify)
        story.tell(render_verify(damaged))
        holes = sum(hole.width for hole in damaged.audit.holes)
        story.promise("exactly the deleted rows are missing", count, holes)
    with story.step("rangeland backfill orders.yaml --missing: land them again"):
        repair = stage.run(partial(backfill, kind=PlanKind.HOLES))
        story.tell(render_result(repair))
        story.promise("exactly those are landed", f"landed {count}", _in_short(repair))
        story.promise(
            "each landed offset is back in the table exactly once", True, stage.run(verify).is_well
        )


def _compare_with_log(story: Story, stage: Stage, total: Written, log: Digest) -> None:
    *digest, with_headers = stage.sql(
        "SELECT COUNT(*), COUNT_IF(value IS NULL), SUM(CRC32(COALESCE(key, X''))), "
        "SUM(CRC32(COALESCE(value, X''))), COUNT_IF(SIZE(headers) > 0) FROM {table}"
    )[0]
    places = "SELECT DISTINCT partition, offset FROM {table}"
    distinct = stage.sql(f"SELECT COUNT(*) FROM ({places})")[0][0]
    table = Digest(*digest)
    story.promise("the table has every record that was written", total.visible, table.records)
    story.promise("no offset is in the table twice", table.records, distinct)
    story.promise("tombstones are null values", total.tombstones, table.null_values)
    story.promise("headers are kept", total.with_headers, with_headers)
    claim = "keys and values are the same as confluent-kafka reads (counts and checksums)"
    story.promise(claim, log, table)


def _land_columns(story: Story, stage: Stage, total: Written) -> None:
    with story.step(
        "rangeland sample orders.yaml --out orders.ddl: which fields do the values have?"
    ):
        sample_result = stage.run(lambda job, spark, progress: sample(job, progress, 100))
        stage.schema_file.write_text(f"{sample_result.schema}\n", encoding="utf-8")
        story.tell(render_sample(sample_result, stage.schema_file.name))
    with story.step("Name these fields in another job file, and run it: values become columns"):
        paths = {"schema": stage.schema_file, "table": stage.typed_table}
        _write_job_file(story, stage, TYPED_FILE, stage.typed_file, **paths)
        result = stage.run(run, job_file=stage.typed_file)
        story.tell(render_result(result))
        claim = "every visible record is a row of that table too"
        story.promise(claim, f"landed {total.visible}", _in_short(result))
        columns = {name: f"`{name}`" for name in FIELDS}
        values = {name: f"get_json_object(CAST(value AS STRING), '$.{name}')" for name in FIELDS}
        sums = [
            tuple(stage.sql(f"SELECT {SUMS.format(**names)} FROM {{{table}}}")[0])
            for names, table in ((values, "table"), (columns, "typed"))
        ]
        claim = "its columns have what Spark's get_json_object finds in the bytes (sums, checksums)"
        story.promise(claim, *sums)
        rows = stage.sql(
            "SELECT _partition, _offset, id, user, event, price FROM {typed} "
            "WHERE _offset IN (0, 1) ORDER BY _partition, _offset LIMIT 5"
        )
        story.tell("\n   SELECT * FROM orders_typed LIMIT 5 (shortened)")
        names = ["_partition", "_offset", "id", "user", "event", "price"]
        story.tell(_as_table(names, rows))


def _show_rows(story: Story, stage: Stage) -> None:
    rows = stage.sql(
        "SELECT partition, offset, timestamp, CAST(key AS STRING) AS key, "
        "SUBSTRING(CAST(value AS STRING), 1, 34) AS value FROM {table} "
        "WHERE offset IN (0, 1) ORDER BY partition, offset LIMIT 5"
    )
    story.tell("\n   SELECT * FROM orders LIMIT 5 (shortened)")
    story.tell(_as_table(["partition", "offset", "timestamp", "key", "value"], rows))
    ledger = stage.sql(
        "SELECT sequence, written_at, SUM(r.until_offset - r.from_offset) AS offsets, "
        "SUM(r.landed) AS landed, SUM(r.control) AS control, SUM(r.aborted) AS aborted "
        "FROM {ledger} LATERAL VIEW EXPLODE(ranges) AS r WHERE event = 'outcome' "
        "GROUP BY ALL ORDER BY sequence"
    )
    story.tell("\n   The ledger, a Delta table next to the table: one outcome per landing")
    names = ["sequence", "written_at", "offsets", "landed", "control", "aborted"]
    story.tell(_as_table(names, ledger))


# --- helpers -----------------------------------------------------------------------


def _in_short(result: RunResult) -> str:
    return f"{result.state} {result.counts.landed}"


def _as_table(names: Sequence[str], rows: Sequence[Any]) -> RenderableType:
    table = table_of(*(name if name in TEXTS else f">{name}" for name in names))
    for row in rows:
        cells = [f"{value:%H:%M:%S}" if hasattr(value, "hour") else value for value in row]
        table.add_row(*(Text("null", "dim") if c is None else safe_text(c) for c in cells))
    return table


def _wait_for_enter(story: Story, folder: Path) -> None:
    """In a terminal, keeps the broker running until the user presses Enter."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    job = folder / "orders.yaml"
    story.tell(
        "\nThe broker stays up until you press Enter. In another terminal try:\n"
        f"  rangeland status {job}\n"
        f"  rangeland plan {job}\n"
        f"  rangeland run {job} --json"
    )
    sys.stdin.readline()


def _summary(story: Story, records: int, folder: Path | None) -> dict[str, Any]:
    return {
        "ok": all(promise.held for promise in story.promises),
        "records": records,
        "promises": [asdict(promise) for promise in story.promises],
        "steps": [{"what": title, "seconds": seconds} for title, seconds in story.seconds.items()],
        "folder": str(folder) if folder else None,
        "seconds": round(time.monotonic() - story.began, 3),
    }


def _closing_words(story: Story, folder: Path | None) -> RenderableType:
    elapsed = duration(time.monotonic() - story.began)
    count = count_noun(len(story.promises), "promise")
    parts: list[RenderableType] = [
        Text(f"\nAll {count} kept, in {elapsed}.", "bold green"),
        safe_text(
            "What happened: a run asked the broker where each partition begins and ends, recorded "
            "these ranges as a plan, read exactly those, accounted for every offset, and made rows "
            "and checkpoint visible in one commit of the Delta table. That is why a second run and "
            "a backfill of the same range had nothing to do, and why the next run finishes one "
            "that died, instead of repeating it. The ledger next to the table records every "
            "range, so that the table can be verified and repaired later."
        ),
    ]
    if folder is None:
        parts.append(safe_text("The broker, topic, table and job file have been removed."))
    else:
        parts.append(
            safe_text(
                f"\nThe table and the job file are in {folder}. Look at them with:\n"
                f"  cat {folder}/orders.yaml\n"
                f"  ls {folder}/lake/orders\n"
                "Remove them with:\n"
                f"  rm -r {folder}"
            )
        )
    parts.append(
        safe_text(
            "Next: `python -m rangeland.testing kafka --records 1000000` starts a broker to try "
            "a job file of your own on; `rangeland --help` has the commands."
        )
    )
    return Group(*parts)
