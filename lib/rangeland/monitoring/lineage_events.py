"""OpenLineage events about landings, as values of the OpenLineage client. Pure.

Imported only if events are sent: importing the client takes half a second. An event states what was
seen, and leaves out the rest: only the event of a landing that has succeeded contains offsets,
statistics, and the version and the columns of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import attr
from openlineage.client import event_v2 as event
from openlineage.client.constants import DEFAULT_NAMESPACE_NAME
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from rangeland import __version__
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import fields_of
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.planning.slice_receipt import RangeResult
from rangeland.result_json import RESULT_JSON
from rangeland.results import RunResult
from rangeland.spark.catalog_names import parts_of

PRODUCER = f"urn:rangeland:{__version__}"
SCHEMA_URL = (
    "urn:rangeland:openlineage:1-0-0:OffsetRangesInputDatasetFacet.json"
    "#/$defs/OffsetRangesInputDatasetFacet"
)
"""Names the schema that is shipped beside this module, as ``offset_ranges_facet.json``."""
OFFSET_RANGES = "rangeland_offsetRanges"

SPARK_CATALOG = "spark_catalog"
CURRENT_CATALOG = "current catalog"
METASTORE = "hive.metastore.uris"
"""A setting of Hadoop, which a ``hive-site.xml`` may have."""
CATALOG_SETTINGS = ("spark.sql.catalogImplementation", "spark.sql.warehouse.dir")
"""Settings of Spark that always have a value."""

_OBJECT_STORES = dict(s3="s3", s3a="s3", s3n="s3", gs="gs", abfs="abfss", abfss="abfss")


@attr.define(kw_only=True)
class OffsetRangesInputDatasetFacet(InputDatasetFacet):
    """The offsets of a topic that a landing accounts for. ``ranges`` are as in the field
    ``partitions`` of ``rangeland run --json``; ``table_version`` is the table's version with all of
    them."""

    ranges: list[dict[str, Any]]
    table_version: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA_URL


@dataclass(frozen=True, slots=True)
class DatasetName:
    """The name of a dataset, by the naming conventions of OpenLineage."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class LandedTable:
    """What is known of the table that a command lands in. ``symlink`` is its name in a catalog, if
    that is known; ``schema_json`` has the table's own columns after a landing, as Delta's JSON."""

    name: DatasetName
    symlink: DatasetName | None = None
    schema_json: str = ""


@dataclass(frozen=True, slots=True)
class LineageJob:
    """What the job file says about a landing."""

    name: str
    source: str = ""
    """The namespace of the topics."""
    topics: tuple[str, ...] = ()
    """Empty if the job names them by a pattern."""
    table: LandedTable | None = None
    """None if only Spark knows where it is."""


def lineage_job(job: Job) -> LineageJob:
    table = None
    if not job.sink.is_catalog_name:
        path = TablePath.parse(job.sink.table)
        # Spark completes other paths with the file system that it is configured for.
        if path.scheme == "file" or path.authority:
            table = LandedTable(table_name(path))
    return LineageJob(job.name_with_topic, _source_namespace(job), job.source.topics, table)


def _source_namespace(job: Job) -> str:
    """``kafka://host:port`` of the first server, which is the convention for Kafka; the same with
    other dialects. ``kafka://host:port/path`` of the first ZooKeeper if no server is listed."""
    if job.source.servers:
        return f"{job.source.dialect}://{job.source.addresses[0]}"
    hosts, slash, path = (job.source.zookeeper or "").partition("/")
    return f"{job.source.dialect}://{hosts.split(',')[0]}{slash}{path}"


def table_name(path: TablePath) -> DatasetName:
    """The name of a table by its location, as OpenLineage's own Spark integration has it: Delta
    tables are known by their locations there, even if they are in a catalog."""
    if path.is_local:
        return DatasetName("file", path.path or "/")
    if store := _OBJECT_STORES.get(path.scheme):
        return DatasetName(f"{store}://{path.authority}", path.path.strip("/") or "/")
    authority = f"//{path.authority}" if path.authority else ""
    return DatasetName(f"{path.scheme}:{authority}".rstrip(":"), path.path or "/")


def catalog_symlink(table: str, path: TablePath, conf: Mapping[str, str]) -> DatasetName | None:
    """The name of a table in Spark's own catalog: below the Hive metastore, or below the warehouse
    if the table is in it. ``table``: ``schema.table`` or ``catalog.schema.table``; None for other
    catalogs. ``conf``: the settings of ``CATALOG_SETTINGS`` and ``METASTORE``, and
    the ``CURRENT_CATALOG``."""
    *catalog, schema, name = parts_of(table)
    current = conf.get(CURRENT_CATALOG, SPARK_CATALOG)
    if (catalog or [current]) != [SPARK_CATALOG]:
        return None
    metastore = conf.get(METASTORE, "").split(",")[0]
    if conf.get("spark.sql.catalogImplementation") == "hive" and metastore:
        return DatasetName(f"hive://{TablePath.parse(metastore).authority}", f"{schema}.{name}")
    warehouse = TablePath.parse(conf.get("spark.sql.warehouse.dir", ""))
    folder = table_name(warehouse)
    mine = table_name(path)
    if not warehouse.path or mine.namespace != folder.namespace:
        return None
    if not mine.name.startswith(f"{folder.name.rstrip('/')}/"):
        return None
    separator = ":" if folder.namespace == "file" else "/"
    return DatasetName(f"{folder.namespace}{separator}{folder.name}", f"{schema}.{name}")


# --- the parent --------------------------------------------------------------------------


def parent_facet(environment: Mapping[str, str]) -> parent_run.ParentRunFacet | None:
    """The run that has started this one, from ``OPENLINEAGE_PARENT_ID`` and, if it is not the
    outermost one, ``OPENLINEAGE_ROOT_PARENT_ID``: each is ``namespace/job/run-id``. Raises
    ValueError if one of them is something else."""
    parent_id = environment.get("OPENLINEAGE_PARENT_ID", "")
    if not parent_id:
        return None
    namespace, name, run_id = _parts(parent_id)
    root = _parts(environment.get("OPENLINEAGE_ROOT_PARENT_ID") or parent_id)
    return parent_run.ParentRunFacet(
        run=parent_run.Run(run_id),
        job=parent_run.Job(namespace, name),
        root=parent_run.Root(
            run=parent_run.RootRun(root[2]), job=parent_run.RootJob(root[0], root[1])
        ),
        producer=PRODUCER,
    )


def _parts(identifier: str) -> tuple[str, str, str]:
    namespace, name, run_id = identifier.rsplit("/", 2)
    return namespace, name, run_id


# --- the events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LandingEvents:
    """Makes the events about one landing. They have the run id in common, a UUID."""

    run_id: str
    job: LineageJob
    namespace: str
    """The namespace of the job."""
    parent: parent_run.ParentRunFacet | None = None

    def start(self, at: datetime) -> event.RunEvent:
        return self._event(event.RunState.START, at)

    def complete(
        self,
        at: datetime,
        result: RunResult,
        table: LandedTable | None = None,
        spark_version: str = "",
    ) -> event.RunEvent:
        """The end of a command that has landed this, or found nothing to land. In the latter case,
        too, the table is an output, with statistics of 0: without it, the job would lose its table
        in tools that show the inputs and outputs of a job's last run. ``table`` is None if it does
        not exist, and its location is up to a catalog."""
        landed = [r.range.partition.topic for r in result.ranges]
        topics = dict.fromkeys((*self.job.topics, *landed))
        return self._event(
            event.RunState.COMPLETE,
            at,
            engine=spark_version,
            inputs=[self._input(topic, result) for topic in topics],
            outputs=[] if table is None else [_output(table, result)],
        )

    def fail(
        self,
        at: datetime,
        error: RangelandError,
        table: LandedTable | None = None,
        spark_version: str = "",
    ) -> event.RunEvent:
        """The end of a command that has failed. ``table`` is None unless it was read."""
        facet = error_message_run.ErrorMessageRunFacet(error.message, "PYTHON", producer=PRODUCER)
        facets: dict[str, RunFacet] = {"errorMessage": facet}
        outputs = None if table is None else [_output(table)]
        return self._event(event.RunState.FAIL, at, facets, spark_version, outputs=outputs)

    def abort(self, at: datetime) -> event.RunEvent:
        """The end of a command that was interrupted."""
        return self._event(event.RunState.ABORT, at)

    def _event(
        self,
        state: event.RunState,
        at: datetime,
        facets: Mapping[str, RunFacet] | None = None,
        engine: str = "",
        *,
        inputs: list[event.InputDataset] | None = None,
        outputs: list[event.OutputDataset] | None = None,
    ) -> event.RunEvent:
        job = self.job
        if inputs is None:
            inputs = [event.InputDataset(job.source, topic) for topic in job.topics]
        if outputs is None:
            outputs = [] if job.table is None else [_output(job.table)]
        kind = job_type_job.JobTypeJobFacet("BATCH", "RANGELAND", "JOB", producer=PRODUCER)
        return event.RunEvent(
            eventType=state,
            eventTime=at.isoformat(timespec="milliseconds"),
            run=event.Run(self.run_id, {**self._run_facets(engine), **(facets or {})}),
            job=event.Job(self.namespace, job.name, {"jobType": kind}),
            inputs=inputs,
            outputs=outputs,
            producer=PRODUCER,
        )

    def _run_facets(self, spark_version: str) -> dict[str, RunFacet]:
        facets: dict[str, RunFacet] = {}
        if self.parent is not None:
            facets["parent"] = self.parent
        if spark_version:
            facets["processing_engine"] = processing_engine_run.ProcessingEngineRunFacet(
                spark_version, "spark", __version__, producer=PRODUCER
            )
        return facets

    def _input(self, topic: str, result: RunResult) -> event.InputDataset:
        ranges = [r for r in result.ranges if r.range.partition.topic == topic]
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=sum(map(_records_read, ranges)), producer=PRODUCER
        )
        facets: dict[str, InputDatasetFacet] = {"inputStatistics": statistics}
        if ranges:
            facets[OFFSET_RANGES] = OffsetRangesInputDatasetFacet(
                ranges=[RESULT_JSON.write(r) for r in ranges],
                table_version=result.table_version,
                producer=PRODUCER,
            )
        return event.InputDataset(self.job.source, topic, inputFacets=facets)


def landing_events(
    job: LineageJob, parent: parent_run.ParentRunFacet | None, environment: Mapping[str, str]
) -> LandingEvents:
    """The events of a landing that begins now, in the namespace of the client's configuration."""
    namespace = environment.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE_NAME
    return LandingEvents(str(generate_new_uuid()), job, namespace, parent)


def _records_read(result: RangeResult) -> int:
    """How many records the brokers have returned: not markers, and not what is compacted or lost.
    Where offsets are bytes, those in quarantine are of an unknown number of records."""
    counts = result.counts
    quarantined = 0 if result.offsets_are_bytes else counts.quarantined
    return counts.landed + counts.aborted + counts.filtered + quarantined


def _output(table: LandedTable, result: RunResult | None = None) -> event.OutputDataset:
    facets: dict[str, DatasetFacet] = {
        "storage": storage_dataset.StorageDatasetFacet("delta", "parquet", producer=PRODUCER)
    }
    if table.schema_json:
        fields = [_field(field) for field in fields_of(table.schema_json)]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    if table.symlink is not None:
        link = symlinks_dataset.Identifier(table.symlink.namespace, table.symlink.name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([link], producer=PRODUCER)
    of_output: dict[str, OutputDatasetFacet] = {}
    if result is not None:
        of_output["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=result.rows,
                size=result.bytes_written,
                fileCount=result.files,
                producer=PRODUCER,
            )
        )
    if result is not None and result.table_version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            str(result.table_version), producer=PRODUCER
        )
    name = table.name
    return event.OutputDataset(name.namespace, name.name, facets=facets, outputFacets=of_output)


def _field(field: Mapping[str, Any]) -> schema_dataset.SchemaDatasetFacetFields:
    """A column, or a field in one, from Delta's JSON. The names for what is inside of arrays and
    maps are those of the specification."""
    kind = field["type"]
    if isinstance(kind, str):
        return schema_dataset.SchemaDatasetFacetFields(field["name"], kind)
    if kind["type"] == "array":
        inner = [{"name": "_element", "type": kind["elementType"]}]
    elif kind["type"] == "map":
        inner = [{"name": n, "type": kind[f"{n}Type"]} for n in ("key", "value")]
    else:
        inner = kind.get("fields", [])  # Other types, such as user-defined ones, have none.
    fields = [_field(one) for one in inner]
    return schema_dataset.SchemaDatasetFacetFields(field["name"], kind["type"], fields=fields)
