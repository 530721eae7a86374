"""A job file that costs more to read than a job file can be worth is refused at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangeland.errors import JobFileError, RangelandError, UsageError
from rangeland.job import Job
from rangeland.job.extends import read_job_text
from rangeland.job.job_text import override, parse_job_text
from rangeland.job.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, load

LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2_000))


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        MERGES,
        CHAIN,
        "a: &a [*a]\n",
        "a: &a {b: *a}\n",
        "#" + "x" * (10 << 20) + "\njob: a\n",
        "a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "- " * 400_000 + "x",
        "a: " + "[" * 500_000,
        "a: " + "{b: " * 100_000,
        "a: [" + "1," * (MAX_VALUES + 1) + "]",
        "a: " + "9:" * 300_000 + "9\n",
        "a: " + "1" * 5_000 + "\n",
        "a: 0b" + "1" * 500_000 + "\n",
        "a: " + "1" * 5_000 + ".5\n",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_job_file_that_is_a_bomb_is_refused_as_a_mistake_in_it(text: str) -> None:
    with pytest.raises(JobFileError, match=r"o\.yaml.* is (too large|not YAML)"):
        parse_job_text(text, "o.yaml")


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(JobFileError, match="too large"):
        read_job_text(Path("/dev/zero"))


def test_bases_that_multiply_are_read_once_each(tmp_path: Path) -> None:
    (tmp_path / "0.yaml").write_text("job: a\n")
    for n in range(1, 40):
        (tmp_path / f"{n}.yaml").write_text(f"extends: [{n - 1}.yaml, {n - 1}.yaml]\n")
    assert read_job_text(tmp_path / "19.yaml").values == {"job": "a"}
    with pytest.raises(JobFileError, match="extends"):
        read_job_text(tmp_path / "39.yaml")


def test_aliases_within_bounds_are_taken() -> None:
    text = "a: &a {x: 1}\nb: *a\nc: [*a, *a]\n"
    one = {"x": 1}
    assert parse_job_text(text, "o.yaml").values == {"a": one, "b": one, "c": [one, one]}


def test_a_job_file_of_ten_thousand_partitions_is_taken() -> None:
    text = "orders: {" + ", ".join(f"{n}: {n * 10**9}" for n in range(10_000)) + "}"
    assert len(load(text)[0]["orders"]) == 10_000
    assert len(text) < MAX_BYTES


@pytest.mark.parametrize(
    "given",
    [
        "source.security.sasl.password=!hunter2",
        "source.security.sasl.password=*hunter2",
        "source.security.sasl.password=!!int hunter2",
        "source.security.sasl.password=!!bool hunter2",
        "source.security.sasl.password=!hunter2! x",
        "source.security.sasl.password={hunter2: 1, hunter2: 2}",
        "source.security.sasl.password=[hunter2",
        "source.security.sasl.password='hunter2",
        "source.security.sasl.password: hunter2",
        "source.security.sasl.password:hunter2",
        "source.security.sasl.password hunter2",
        "source.security.sasl.password.hunter2=",
        "source.security.sasl.password.hunter2",
        "source.security.sasl.password.hunter2.=x",
        ".hunter2=",
        ":hunter2",
        "=hunter2",
    ],
)
def test_a_secret_that_is_mistyped_in_a_flag_is_not_repeated(given: str) -> None:
    text = parse_job_text("source: {security: {sasl: {password: '${env:X}'}}}", "o.yaml")
    with pytest.raises((UsageError, JobFileError)) as caught:
        override(text, [given])
    assert_silent(caught.value)


@pytest.mark.parametrize(
    "written", ["!hunter2", "*hunter2", "!!int hunter2", "!!float hunter2", "!hunter2!x y"]
)
def test_a_secret_that_is_mistyped_in_a_file_is_not_repeated(written: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job_text(f"password: {written}\n", "o.yaml")
    assert_silent(caught.value)


def assert_silent(error: RangelandError) -> None:
    chain: BaseException | None = error
    while chain is not None:
        assert "hunter2" not in f"{chain}{chain!r}{getattr(chain, 'facts', '')}"
        chain = chain.__cause__ or chain.__context__


JOB = """
job: a
source: {servers: [h:1], topics: [t], timeouts: {connect_ms: %s}, max_answer_bytes: %s}
range: {from: {t: {%s: %s}}}
sink: {table: lake/a}
"""


@pytest.mark.parametrize(
    "values",
    [
        (10**30, "1MiB", 0, 0),
        (7 * 86_400_000 + 1, "1MiB", 0, 0),
        (1, "9" * 400 + "GiB", 0, 0),
        (1, "9" * 20, 0, 0),
        (1, "1MiB", 0, 2**63),
        (1, "1MiB", 10**20, 0),
    ],
)
def test_a_number_that_nothing_can_have_is_a_mistake_in_the_job_file(
    values: tuple[object, ...],
) -> None:
    Job.parse(JOB % (1, "1MiB", 0, 2**63 - 1))
    with pytest.raises(JobFileError, match="expected"):
        Job.parse(JOB % values)
