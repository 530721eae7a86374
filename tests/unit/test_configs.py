"""The job files that are shipped, the schema that editors check them by, and their page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from rangeland.cli import command_line
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import JobFileError
from rangeland.job import Job, reference_page
from rangeland.job.decode_section import PayloadSpec
from rangeland.job.job_schema import job_schema, schema_text
from rangeland.job.job_text import parse_job_text
from rangeland.job.value_parsers import (
    parse_bound,
    parse_bounds,
    parse_first,
    parse_size,
    parse_until,
    size_text,
)
from rangeland.model import AtTime, Partition

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.glob("*.yaml"))
BASES = {"base.yaml"}
JOBS = [path for path in FILES if path.name not in BASES]
MARK = "# yaml-language-server: $schema=job.schema.json\n"


def checker() -> jsonschema.Draft7Validator:
    jsonschema.Draft7Validator.check_schema(job_schema())
    return jsonschema.Draft7Validator(job_schema())


def as_editors_see_it(text: str) -> Any:
    """Keys are text, and times are not times."""
    from rangeland.job.yaml_loader import load

    return json.loads(json.dumps(load(text)[0]))


# --- the files --------------------------------------------------------------------------


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_file_is_named_after_its_job(path: Path) -> None:
    assert Job.load(path).name == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_editor_finds_nothing_wrong_and_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(MARK)
    checker().validate(as_editors_see_it(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_on_the_page_and_short_and_says_why(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"({path.name})" in (CONFIGS / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 25
    assert text.count("#") >= 2


def test_what_is_laid_over_a_base_has_both() -> None:
    job = Job.load(CONFIGS / "orders-prod.yaml")
    assert job.source.servers == ("prod-1:9093", "prod-2:9093")
    assert job.source.timeouts.connect_ms == 2000
    assert job.limits.max_bytes == 8 << 30
    assert job.policy.truncated == "hold"


def test_what_the_files_mean() -> None:
    since = Job.load(CONFIGS / "events-since.yaml")
    assert since.range.until.default == AtTime(1_767_312_000_000)
    listed = Job.load(CONFIGS / "orders-offsets.yaml").range.from_.listed
    assert set(listed) == {Partition("orders", 0), Partition("orders", 1)}
    assert Job.load(CONFIGS / "clicks-by-hour.yaml").sink.partition_by == ("hour(timestamp)",)
    assert Job.load(CONFIGS / "orders-prod.yaml").sink.is_catalog_name


def test_there_is_a_file_for_each_format_of_values() -> None:
    formats = {path.stem: Job.load(path).decode.value.format for path in JOBS}
    kinds = get_args(PayloadSpec.model_fields["format"].annotation)
    assert set(formats.values()) == set(kinds)
    typed = {name: kind for name, kind in formats.items() if kind != "bytes"}
    assert typed == {
        "logs-text": "string",
        "orders-typed": "json",
        "orders-avro": "avro",
        "payments-protobuf": "protobuf",
    }
    assert Job.load(CONFIGS / "orders-avro.yaml").decode.registry is not None


def test_secrets_are_looked_up_after_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.yaml").write_text(
        "source:\n  security: {sasl: {username: me, password: '${env:STAGE_PASSWORD}'}}\n"
    )
    over = tmp_path / "prod.yaml"
    over.write_text(
        "extends: base.yaml\njob: orders\nsink: {table: t}\n"
        "source: {servers: [b:9092], topics: [orders], security: {sasl: {username: you}}}\n"
    )
    monkeypatch.setenv("STAGE_PASSWORD", "hunter2")
    job = Job.load(over)
    assert "hunter2" not in repr(job)
    sasl = look_up_cluster(job).sasl
    assert sasl is not None
    assert (sasl.username, sasl.password) == ("you", "hunter2")


# --- the schema -------------------------------------------------------------------------

GOOD = """\
job: orders
source: {servers: ["b1:9092", "[::1]:9093"], topics: [orders]}
sink: {table: lake/orders}
"""


def of(text: str) -> list[str]:
    """What an editor would mark."""
    return [error.message for error in checker().iter_errors(as_editors_see_it(text))]


def test_the_kept_schema_is_current() -> None:
    assert (CONFIGS / "job.schema.json").read_text(encoding="utf-8") == schema_text()


def test_the_page_is_current() -> None:
    page = (CONFIGS / "README.md").read_text(encoding="utf-8")
    assert reference_page.updated_page(page) == page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        reference_page.updated_page("# nothing\n")


def test_page_and_schema_are_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (CONFIGS / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(page.replace("| `sink`", "| gone"))
    assert reference_page.main([str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == page
    assert (tmp_path / "job.schema.json").read_text() == schema_text()


def test_the_command_prints_the_schema(capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["schema"]) == 0
    assert capfd.readouterr() == (schema_text(), "")
    assert command_line.main(["schema", "--json"]) == 0
    out, _ = capfd.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out) == job_schema()


def test_the_command_writes_the_schema(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.schema.json"
    assert command_line.main(["schema", "--out", str(path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"file": str(path)}
    assert path.read_text(encoding="utf-8") == schema_text()
    assert command_line.main(["schema", "--out", str(tmp_path / "no" / "s.json"), "--json"]) == 64
    assert "cannot be written" in json.loads(capfd.readouterr().out)["message"]


def fields(schema: dict[str, Any], at: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, node in schema["properties"].items():
        found.append((at + name, node))
        section = reference_page.section_schema(node)
        found += fields(section, f"{at}{name}.") if section else []
    return found


def test_every_field_has_a_meaning_and_no_section_takes_others() -> None:
    for name, node in fields(job_schema()):
        assert node.get("description"), name
        assert node["description"].endswith("."), name
        section = reference_page.section_schema(node)
        assert section is None or section["additionalProperties"] is False, name


def test_every_field_is_on_the_page() -> None:
    page = reference_page.settings_page()
    for name, node in fields(job_schema()):
        inside = name.split(".", 1)[-1]
        if reference_page.section_schema(node) is None:
            assert f"| `{inside}` |" in page, name


def test_a_default_on_the_page_is_the_default_of_the_model() -> None:
    with_group = GOOD + "group: {id: g}\n"
    bare = Job.parse(with_group)
    values: dict[str, Any] = as_editors_see_it(with_group)
    checked = 0
    for name, node in fields(job_schema()):
        needs_more = name.startswith(("source.security.", "decode.registry."))
        if "default" not in node or node["default"] is None or needs_more:
            continue
        place, *path = values, *name.split(".")
        for part in path[:-1]:
            place = place.setdefault(part, {})
        if path[-1] not in place:
            place[path[-1]] = node["default"]
            checked += 1
    assert checked >= 15
    assert Job.parse(json.dumps(values)) == bare


@pytest.mark.parametrize(
    "wrong",
    [
        GOOD + "limit: {max_records: 3}\n",
        GOOD.replace("topics: [orders]", "topic: [orders]"),
        GOOD.replace("topics: [orders]", "topics: [orders], topic_pattern: o.*"),
        GOOD.replace("topics: [orders]", "topics: [a b]"),
        GOOD.replace("b1:9092", "b1"),
        GOOD.replace("b1:9092", "me:secret@b1:9092"),
        GOOD.replace("job: orders", "job: Orders"),
        GOOD.replace("sink: {table: lake/orders}", ""),
        GOOD.replace("{table: lake/orders}", "{compression: lz4, table: t}"),
        GOOD.replace("{table: lake/orders}", "{transform: f, table: t}"),
        GOOD + "range: {from: yesterday}\n",
        GOOD + "range: {from: 23}\n",
        GOOD + "range: {from: {orders: {x: 1}}}\n",
        GOOD + "range: {from: {orders: {0: -1}}}\n",
        GOOD + "range: {until: checkpoint}\n",
        GOOD + "range: {first_run: {orders: {0: 1}}}\n",
        GOOD + "limits: {max_bytes: 8 GiBs}\n",
        GOOD + "limits: {max_records: 0}\n",
        GOOD + "policy: {expired: ignore}\n",
        GOOD + "policy: {corrupt: keep}\n",
        GOOD + "extends: 3\n",
        GOOD + "extends: []\n",
        GOOD.replace("servers: [", "security: {sasl: {username: u, password: p}}, servers: ["),
        GOOD.replace("servers: [", "security: {sasl: {username: u}}, servers: ["),
        GOOD.replace("servers: [", "security: {tls: {caa: x}}, servers: ["),
        "source: {topcs: [a]}\n",
    ],
)
def test_an_editor_marks_what_the_job_refuses(wrong: str) -> None:
    assert of(GOOD) == []
    assert of(wrong)
    with pytest.raises(JobFileError):
        Job.parse(wrong)


@pytest.mark.parametrize("part", ["sink: {compression: snappy}", "extends: a\njob: b", "{}"])
def test_a_part_needs_not_be_whole(part: str) -> None:
    assert of(part + "\n") == []


@pytest.mark.parametrize(
    ("field", "parse", "words"),
    [
        (
            "limits.max_bytes",
            parse_size,
            ["8GiB", "1.5KiB", "2 MB", "7kb", "12B", "12", "", "GiB", "8 GiBs", "8K", "-1B"],
        ),
        (
            "range.first_run",
            parse_first,
            ["earliest", "latest", "group:g", "group:", "2026-01-01", "2026-13-01", "checkpoint",
             "2026-01-31T06:00:00Z", "2026-01-31 06:00", "2026-01-31T06:00:00.123+01:00", "soon"],
        ),
        (
            "range.from",
            parse_bounds,
            ["checkpoint", "earliest", "now", {"a": {"0": 5, "1": "latest"}}, {"a": {"0": "g"}},
             {"a": {}}, {}, {"a": 5}, {"a": {"x": 5}}, {"a": {"0": "checkpoint"}}],
        ),
        (
            "range.until",
            parse_until,
            ["checkpoint", "latest", {"a": {"0": "checkpoint"}}, {"a": {"0": "2026-01-01"}}],
        ),
    ],
)  # fmt: skip
def test_the_schema_takes_the_words_that_the_parser_takes(
    field: str, parse: Any, words: list[Any]
) -> None:
    section, name = field.split(".")
    outcomes = set()
    for word in words:
        try:
            taken = parse(word) is not None
        except ValueError:
            taken = False
        assert (of(json.dumps({section: {name: word}})) == []) is taken, word
        outcomes.add(taken)
    assert outcomes == {True, False}


def test_an_offset_is_a_bound_of_a_partition_alone() -> None:
    assert parse_bound(23) is not None
    assert of("range: {from: {a: {0: 23}}}\n") == []


@pytest.mark.parametrize(
    ("size", "text"), [(128 << 20, "128MiB"), (1 << 40, "1TiB"), (1000, "1000"), (0, "0")]
)
def test_a_size_is_written_with_its_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text
    assert parse_size(text) in (size, str(size))


def test_a_text_in_no_file_extends_nothing() -> None:
    with pytest.raises(JobFileError, match="not in a file"):
        parse_job_text("extends: a\n", "o")
