"""One job file extends another: which value wins, and where a mistake is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rangeland.errors import JobFileError, UsageError
from rangeland.job import Job
from rangeland.job.command_line_overrides import check_range_is_closed, load_job
from rangeland.job.extends import read_job_text
from rangeland.landing.drafts.plan_file import read_plan_file, write_plan_file
from rangeland.model import AtOffset, Partition
from tests import sample_results as made

BASE = """\
source:
  servers: [b1:9092]
  topics: [orders]
  partitions: {orders: [0, 1]}
limits: {max_records: 5}
sink:
  table: lake/orders
  partition_by: [topic]
"""
PROD = """\
extends: base.yaml
job: orders
source:
  servers: [p1:9092, p2:9092]
sink: {compression: snappy}
"""
Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes files by their names without ``.yaml``; the path of the last."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / f"{name}.yaml"
            path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(path: Path) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        Job.load(path)
    assert caught.value.exit_code == 78
    return caught.value


def test_sections_are_merged_and_lists_and_values_replaced(written: Written) -> None:
    job = Job.load(written(base=BASE, prod=PROD))
    assert job.source.servers == ("p1:9092", "p2:9092")
    assert job.source.topics == ("orders",)
    assert job.limits.max_records == 5
    assert (job.sink.table, job.sink.compression) == ("lake/orders", "snappy")
    assert job.sink.partition_by == ("topic",)


def test_later_files_of_a_list_win_and_the_file_itself_over_all(written: Written) -> None:
    eu = "limits: {max_records: 6, max_bytes: 1GiB}\nsink: {compression: none}\n"
    prod = PROD.replace("base.yaml", "[base.yaml, eu.yaml]")
    job = Job.load(written(base=BASE, eu=eu, prod=prod))
    assert job.run_limits.max_records == 6
    assert job.sink.compression == "snappy"
    prod = PROD.replace("base.yaml", "[eu.yaml, base.yaml]")
    job = Job.load(written(prod=prod))
    assert (job.limits.max_records, job.limits.max_bytes) == (5, 1 << 30)


def test_a_base_may_extend_another_from_its_own_folder(written: Written, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "all.yaml").write_text(BASE)
    (tmp_path / "shared" / "eu.yaml").write_text("extends: all.yaml\nlimits: {max_records: 7}\n")
    job = Job.load(written(prod=PROD.replace("base.yaml", "shared/eu.yaml")))
    assert (job.limits.max_records, job.sink.table) == (7, "lake/orders")


def test_two_bases_may_share_a_third(written: Written) -> None:
    a, b = "extends: base.yaml\nlimits: {max_records: 8}\n", "extends: base.yaml\n"
    prod = PROD.replace("base.yaml", "[a.yaml, b.yaml]")
    assert Job.load(written(base=BASE, a=a, b=b, prod=prod)).limits.max_records == 5


def test_a_partition_is_the_same_quoted_or_not(written: Written) -> None:
    base = BASE + "range: {from: {orders: {0: 5, 1: 6}}}\n"
    job = Job.load(written(base=base, prod=PROD + 'range: {from: {orders: {"0": 9}}}\n'))
    assert job.range.from_.listed == {
        Partition("orders", 0): AtOffset(9),
        Partition("orders", 1): AtOffset(6),
    }


def test_null_takes_back_what_a_base_says(written: Written) -> None:
    job = Job.load(written(base=BASE, prod=PROD + "limits: {max_records: null}\n"))
    assert job.limits.max_records is None


def test_set_and_flags_win_over_all_files(written: Written) -> None:
    path = written(base=BASE, prod=PROD + "limits: {max_records: 6}\n")
    assert Job.load(path, ["limits.max_records=7"]).limits.max_records == 7
    job, text = load_job(path, ["sink.compression=none"], "earliest", "latest")
    assert job.sink.compression == "none"
    check_range_is_closed(text, job)


def test_a_plan_file_carries_the_merged_job(written: Written, tmp_path: Path) -> None:
    path = written(base=BASE, prod=PROD)
    job, text = load_job(path)
    write_plan_file(tmp_path / "plan.json", made.a_preview(), text)
    for file in ("base.yaml", "prod.yaml"):
        (tmp_path / file).unlink()
    assert read_plan_file(tmp_path / "plan.json").job == job
    assert "extends" not in json.loads((tmp_path / "plan.json").read_text())["job"]


# --- mistakes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "prod", "file", "line", "field"),
    [
        (BASE + "limit: {}\n", PROD, "base", 9, "limit"),
        (BASE.replace("b1:9092", "b1"), PROD.replace("  servers: [p1:9092, p2:9092]\n", "  {}\n"),
         "base", 2, "source.servers"),
        (BASE, PROD.replace("p2:9092", "p2"), "prod", 4, "source.servers"),
        (BASE, PROD.replace("snappy", "lz4"), "prod", 5, "sink.compression"),
        (BASE.replace("max_records: 5", "max_records: 0"), PROD, "base", 5, "limits.max_records"),
        (BASE.replace("[0, 1]", "[0, -1]"), PROD, "base", 4, "source.partitions.orders.1"),
        (BASE.replace("lake/orders", "''"), PROD, "base", 7, "sink.table"),
        (BASE.replace("limits: {max_records: 5}", "limits: 5"), PROD + "limits: {x: 1}\n",
         "prod", 6, "limits.x"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_file_it_stands_in(
    written: Written, base: str, prod: str, file: str, line: int, field: str
) -> None:
    path = written(base=base, prod=prod)
    error = refused(path)
    named = path.with_name(f"{file}.yaml")
    assert error.what.startswith(f"{named}:{line}: {field}: ")
    assert (error.facts["file"], error.facts["line"]) == (str(named), line)


def test_what_is_nowhere_is_missing_in_the_file_that_was_asked_for(written: Written) -> None:
    path = written(base=BASE, prod=PROD.replace("job: orders\n", ""))
    assert refused(path).what == f"{path}: job: this field is required"


def test_a_mistake_in_a_set_is_not_blamed_on_a_file(written: Written) -> None:
    with pytest.raises(JobFileError, match=r"^--set limits.max_records: "):
        Job.load(written(base=BASE, prod=PROD), ["limits.max_records=0"])


def test_a_base_that_is_not_there_is_named_with_where_it_was_asked_for(written: Written) -> None:
    path = written(prod="job: orders\nextends: base.yaml\n")
    base = path.with_name("base.yaml")
    assert refused(path).what == f"{path}:2: extends: {base} cannot be read"


def test_a_base_that_is_not_yaml_is_named_with_its_line(written: Written) -> None:
    path = written(base="source:\n  x: y: z\n", prod=PROD)
    assert refused(path).what == f"{path.with_name('base.yaml')}:2 is not YAML"


@pytest.mark.parametrize("extended", ["3", "[]", "''", "{a: b}", "[base.yaml, 3]", "null"])
def test_extends_takes_a_file_or_a_list_of_files(written: Written, extended: str) -> None:
    path = written(base=BASE, prod=PROD.replace("base.yaml", extended))
    assert refused(path).what.startswith(f"{path}:1: extends: expected a file")


def test_a_circle_is_named_with_all_its_files(written: Written) -> None:
    written(a="job: x\nextends: b.yaml\n", b="extends: c.yaml\n")
    path = written(c="limits: {}\nextends: ./a.yaml\n")
    error = refused(path.with_name("a.yaml"))
    assert error.what.startswith(
        f"{path}:2: extends: expected files that do not extend one another in a circle"
    )
    assert [error.what.count(f"{name}.yaml") for name in "abc"] == [2, 1, 2]


def test_a_file_that_extends_itself_is_refused(written: Written) -> None:
    path = written(prod="job: x\nextends: prod.yaml\n")
    assert "files that do not extend one another in a circle" in refused(path).what


def test_a_flag_cannot_extend(written: Written) -> None:
    with pytest.raises(UsageError, match="only a file can extend others"):
        Job.load(written(base=BASE, prod=PROD), ["extends=base.yaml"])


def test_nothing_is_left_of_extends(written: Written) -> None:
    text = read_job_text(written(base=BASE, prod=PROD))
    assert "extends" not in text.values
    assert not any(path[0] == "extends" for path in text.positions)
