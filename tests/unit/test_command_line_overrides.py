"""Flags override the job file, and a mistake in a flag is reported as the flag's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangeland.errors import JobFileError, UsageError
from rangeland.job.command_line_overrides import check_range_is_closed, load_job, read_partition
from rangeland.job.value_parsers import EXPECTED_UNTIL
from rangeland.model import AtOffset, AtTime, Earliest, Latest, Partition
from tests import sample_results as made


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(made.JOB_YAML)
    return path


def test_words_times_and_offsets_are_taken(job_file: Path) -> None:
    job, text = load_job(job_file, (), '{"orders": {"0": 23, "1": "earliest"}}', "1970-01-02")
    assert job.range.from_.listed == {
        Partition("orders", 0): AtOffset(23),
        Partition("orders", 1): Earliest(),
    }
    assert job.range.until.default == AtTime(86_400_000)
    assert text.values["range"]["until"] == "1970-01-02"


def test_flags_win_over_file_and_settings(job_file: Path) -> None:
    job, _ = load_job(job_file, ["range.from=latest", "limits.max_records=9"], " earliest ")
    assert job.range.from_.default == Earliest()
    assert job.limits.max_records == 9


@pytest.mark.parametrize(
    "bound",
    ["", "yesterday", "23", "{", '{"orders": 3}', '{"orders": {"x": 3}}', '{"orders": {"0": -1}}',
     '{"orders": {"0": true}}', '{"orders": {"0": 1, "0": 2}}', "[1]", "2026-13-01", "group:"],
)  # fmt: skip
@pytest.mark.parametrize("flag", ["--from", "--until"])
def test_a_bad_bound_is_a_usage_error_that_names_the_flag(
    job_file: Path, flag: str, bound: str
) -> None:
    pair = (bound, None) if flag == "--from" else (None, bound)
    with pytest.raises(UsageError) as raised:
        load_job(job_file, (), *pair)
    assert raised.value.what.startswith(flag)
    assert raised.value.why.startswith("expected ")


def test_a_bound_that_only_the_job_can_refuse_is_a_usage_error_too(job_file: Path) -> None:
    with pytest.raises(UsageError, match="cannot end at the checkpoint"):
        load_job(job_file, (), None, "checkpoint")
    with pytest.raises(UsageError, match="'payments'"):
        load_job(job_file, (), '{"payments": {"0": 1}}')


def test_a_mistake_in_the_file_stays_the_files(job_file: Path) -> None:
    job_file.write_text(made.JOB_YAML + "limit: {}\n")
    with pytest.raises(JobFileError, match="limit: there is no such field"):
        load_job(job_file, (), "earliest")


def test_a_bound_of_a_topic_that_a_pattern_leaves_out_names_the_flag(job_file: Path) -> None:
    job_file.write_text(made.JOB_YAML.replace("topics: [orders]", "topic_pattern: orders-.*"))
    load_job(job_file, (), '{"orders-eu": {"0": 1}}')
    with pytest.raises(UsageError, match=r"^--until .*'orders'"):
        load_job(job_file, (), None, '{"orders": {"0": 1}}')


SIX = "2026-01-31T06:00:00Z"
FIVE = "2026-01-31T05:00:00Z"


@pytest.mark.parametrize(
    ("lower", "upper", "problem"),
    [
        (SIX, FIVE, f"{SIX}, after range.until, {FIVE}; swap them"),
        (
            '{"orders": {"0": 40, "1": 9}}',
            '{"orders": {"0": 23, "1": 9}}',
            "offset 40 of orders/0, after range.until, offset 23; swap them",
        ),
        (f'{{"orders": {{"0": "{SIX}"}}}}', FIVE, f"{SIX}, after range.until, {FIVE}; swap them"),
    ],
)
def test_a_range_that_ends_before_it_begins_is_refused(
    job_file: Path, lower: str, upper: str, problem: str
) -> None:
    with pytest.raises(JobFileError) as caught:
        load_job(job_file, (), lower, upper)
    assert caught.value.what == f"--from: range.from: it begins at {problem}"
    load_job(job_file, (), upper, lower)


def test_an_end_in_the_file_before_the_begin_of_an_option_is_refused(job_file: Path) -> None:
    job_file.write_text(made.JOB_YAML + f"range: {{from: 2026-01-01, until: {FIVE}}}\n")
    problem = f"range.from: it begins at {SIX}, after range.until, {FIVE}; swap them"
    with pytest.raises(JobFileError, match=f"^--from: {problem}"):
        load_job(job_file, (), SIX)
    later = "2026-02-01T00:00:00Z"
    assert load_job(job_file, (), SIX, later)[0].range.until.default == AtTime(1_769_904_000_000)


@pytest.mark.parametrize(
    ("flag", "is_offered"), [("--from", True), ("--until", False)], ids=lambda value: str(value)
)
def test_what_an_option_offers_is_what_it_takes(
    job_file: Path, flag: str, is_offered: bool
) -> None:
    pair = ("yesterday", None) if flag == "--from" else (None, "yesterday")
    with pytest.raises(UsageError, match="'yesterday'") as caught:
        load_job(job_file, (), *pair)
    assert ("checkpoint" in caught.value.why) == is_offered


@pytest.mark.parametrize("setting", ["limits.max_records=[1", "limits.max_records", "=1"])
def test_a_setting_that_cannot_be_read_is_a_usage_error(job_file: Path, setting: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        load_job(job_file, [setting])


def test_a_setting_of_a_field_that_is_not_there_is_a_job_file_error(job_file: Path) -> None:
    with pytest.raises(JobFileError, match=r"--set limits\.most: .*there is no such field"):
        load_job(job_file, ["limits.most=1"])
    with pytest.raises(JobFileError, match=r"--set nosuch\.most: nosuch: there is no such field"):
        load_job(job_file, ["nosuch.most=5"])


@pytest.mark.parametrize(
    ("bounds", "missing"),
    [
        ((None, None), ["--from", "--until"]),
        (("earliest", None), ["--until"]),
        ((None, "latest"), ["--from"]),
        (("checkpoint", "latest"), ["--from"]),
        (('{"orders": {"0": "checkpoint"}}', '{"orders": {"0": 9}}'), ["--from"]),
    ],
)
def test_a_backfill_says_both_ends(
    job_file: Path, bounds: tuple[str | None, str | None], missing: list[str]
) -> None:
    job, text = load_job(job_file, (), *bounds)
    with pytest.raises(UsageError) as raised:
        check_range_is_closed(text, job)
    assert raised.value.facts["missing"] == missing


def test_a_checkpoint_that_is_given_to_a_backfill_is_not_called_missing(job_file: Path) -> None:
    job, text = load_job(job_file, (), "checkpoint", "latest")
    with pytest.raises(
        UsageError, match=r"^--from checkpoint: a backfill does not follow the checkpoint"
    ) as e:
        check_range_is_closed(text, job)
    assert e.value.do == f"give one of {EXPECTED_UNTIL}"


def test_a_setting_without_a_value_and_a_wrong_one_are_matters_of_the_option(
    job_file: Path,
) -> None:
    with pytest.raises(UsageError, match=r"^--set limits\.max_records has no value\."):
        load_job(job_file, ["limits.max_records"])
    with pytest.raises(JobFileError, match=r"^--set limits\.max_records: ") as caught:
        load_job(job_file, ["limits.max_records=0"])
    assert caught.value.do == "correct the option"


def test_the_files_own_range_will_do_for_a_backfill(job_file: Path) -> None:
    job_file.write_text(made.JOB_YAML + "range: {from: 2026-01-01, until: latest}\n")
    job, text = load_job(job_file)
    check_range_is_closed(text, job)
    assert job.range.until.default == Latest()


def test_a_partition_is_named_as_its_dialect_numbers_it(job_file: Path) -> None:
    kafka, _ = load_job(job_file)
    jafka, _ = load_job(job_file, ["source.dialect=jafka", "source.security={}"])
    assert read_partition(kafka, "orders", "3") == Partition("orders", 3)
    assert read_partition(jafka, "orders", "1-3") == Partition("orders", 3, "1")
    assert read_partition(jafka, "orders", "3") == Partition("orders", 3)
    assert read_partition(jafka, "orders", "3", "1") == Partition("orders", 3, "1")
    assert read_partition(jafka, "orders", "1-3", "1") == Partition("orders", 3, "1")
    for job, which, broker in (
        (kafka, "1-3", ""),
        (kafka, "3", "1"),
        (kafka, "first", ""),
        (kafka, "", ""),
        (jafka, "1-3", "2"),
    ):
        with pytest.raises(UsageError, match="the partition"):
            read_partition(job, "orders", which, broker)
