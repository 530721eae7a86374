"""What the DAGs ask of the command, and how they understand its answers. No Airflow here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_dags.rangeland_airflow import commands
from airflow_dags.rangeland_airflow.commands import BadRequest, asked_range
from rangeland.model import COUNT_NAMES, Counts, Range
from tests import sample_results as made

HOUR = ("2026-01-31T05:00:00+00:00", "2026-01-31T06:00:00+00:00")
AT = {"topic": "orders", "partition": 3}


# --- command lines ----------------------------------------------------------------------


def test_a_backfill_has_both_ends_and_answers_in_json() -> None:
    built = commands.backfill_command("rangeland backfill", "orders.yaml", *HOUR)
    assert built == ["rangeland", "backfill", "orders.yaml", "--from", HOUR[0], "--until",
                     HOUR[1], "--json"]  # fmt: skip
    assert "--dry-run" in commands.backfill_command(
        "rangeland backfill", "o.yaml", *HOUR, dry_run=True
    )


def test_a_backfill_writes_metrics_where_it_is_told_to_but_a_dry_run_has_none() -> None:
    asked = ("rangeland backfill", "orders.yaml", *HOUR)
    built = commands.backfill_command(*asked, metrics="/textfile/orders.prom")
    assert built[-3:] == ["--metrics", "/textfile/orders.prom", "--json"]
    dry = commands.backfill_command(*asked, dry_run=True, metrics="/textfile/orders.prom")
    assert "--metrics" not in dry


def test_the_program_may_be_a_whole_command_line() -> None:
    program = "spark-submit --master yarn --conf 'a=b c' jobs/backfill_range.py"
    built = commands.backfill_command(program, "o.yaml", *HOUR)
    assert built[:7] == ["spark-submit", "--master", "yarn", "--conf", "a=b c",
                         "jobs/backfill_range.py", "o.yaml"]  # fmt: skip


def test_no_program_is_refused() -> None:
    with pytest.raises(BadRequest, match="is empty"):
        commands.reached_command("  ", "o.yaml", HOUR[1])


def test_a_look_takes_the_silence_that_counts_in_seconds() -> None:
    assert "--idle-after" not in commands.reached_command("rangeland", "o.yaml", HOUR[1])
    built = commands.reached_command("rangeland", "o.yaml", HOUR[1], 600.0)
    assert built == ["rangeland", "reached", "o.yaml", "--until", HOUR[1], "--idle-after", "600",
                     "--json"]  # fmt: skip


@pytest.mark.parametrize("bounds", [("", HOUR[1]), (HOUR[0], " ")])
def test_a_run_without_an_interval_is_refused(bounds: tuple[str, str]) -> None:
    with pytest.raises(BadRequest, match="no data interval"):
        commands.backfill_command("rangeland backfill", "o.yaml", *bounds)


# --- the form ---------------------------------------------------------------------------


def test_offsets_are_of_one_partition() -> None:
    assert asked_range({**AT, "from_offset": 0, "until_offset": 9}) == (
        '{"orders": {"3": 0}}',
        '{"orders": {"3": 9}}',
    )


def test_times_are_of_all_topics_or_of_one_partition() -> None:
    times = {"from_time": HOUR[0], "until_time": HOUR[1]}
    assert asked_range(times) == HOUR
    begins, ends = asked_range({**AT, **times})
    assert json.loads(begins) == {"orders": {"3": HOUR[0]}}
    assert json.loads(ends) == {"orders": {"3": HOUR[1]}}


def test_fields_left_empty_are_not_given() -> None:
    form: dict[str, Any] = {
        "topic": "",
        "partition": None,
        "from_offset": None,
        "from_time": HOUR[0],
    }
    assert asked_range({**form, "until_offset": None, "until_time": HOUR[1]}) == HOUR


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "Give a range"),
        ({**AT}, "Give a range"),
        ({**AT, "from_offset": 0}, "until offset is missing"),
        ({**AT, "until_offset": 5}, "from offset is missing"),
        ({"until_time": HOUR[1]}, "from time is missing"),
        ({"from_offset": 0, "until_offset": 5}, "need a topic and a partition"),
        ({"topic": "orders", "from_offset": 0, "until_offset": 5}, "partition is missing"),
        ({"partition": 0, "from_offset": 0, "until_offset": 5}, "topic is missing"),
        ({**AT, "from_offset": 5, "until_offset": 5}, "5 is not below until offset 5"),
        ({"from_time": HOUR[1], "until_time": HOUR[0]}, "is not before until time"),
        ({"from_time": "yesterday", "until_time": HOUR[0]}, "'yesterday' is not a time"),
        (
            {
                **AT,
                "from_offset": 0,
                "until_offset": 5,
                "from_time": HOUR[0],
                "until_time": HOUR[1],
            },
            "offsets or times, not both",
        ),
        ({**AT, "from_offset": 0, "until_time": HOUR[1]}, "until offset is missing"),
    ],
)
def test_a_form_that_makes_no_sense_says_what_to_change(form: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        asked_range(form)


# --- answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdout", "found"),
    [('{"a": 1}\n', {"a": 1}), ('noise\n{"a": 1}', {"a": 1}), ("", {}), ("no", {}), ("[1]", {})],
)
def test_the_answer_is_the_last_line(stdout: str, found: dict[str, Any]) -> None:
    assert commands.read_answer(stdout) == found


def outcomes(count: int) -> list[tuple[Range, Counts]]:
    return [(made.a_range(n, 0, 1000 + n), Counts(landed=998 + n, control=2)) for n in range(count)]


def test_the_result_is_a_table_of_ranges_with_the_counts_that_are_not_all_zero() -> None:
    answer = made.a_result(outcomes(2)).to_json()
    assert commands.COUNTS == COUNT_NAMES
    lines = commands.result_text(json.loads(json.dumps(answer))).splitlines()
    assert lines[0].startswith("orders: landed, 1,997 records. Table ")
    assert lines[1:4] == [
        "partition  from  until  landed  control",
        "orders/0      0  1,000     998        2",
        "orders/1      0  1,001     999        2",
    ]


def test_a_thousand_partitions_stay_short() -> None:
    text = commands.result_text(made.a_result(outcomes(1000)).to_json())
    assert len(text.splitlines()) < 40
    assert "and 980 more" in text


def test_a_dry_run_says_that_nothing_is_landed() -> None:
    text = commands.result_text(json.loads(json.dumps(made.a_preview().to_json())))
    assert "a dry run, nothing is landed" in text
    assert "orders/0" in text


def test_an_event_carries_table_sequence_version_and_ranges() -> None:
    result = made.a_result(outcomes(2))
    extra = commands.event_extra(json.loads(json.dumps(result.to_json())))
    assert extra["table"] == result.table
    assert extra["sequence"] == result.sequence
    assert extra["version"] == result.table_version
    assert extra["ranges"][1] == {
        "topic": "orders",
        "partition": 1,
        "broker": None,
        "from_offset": 0,
        "until_offset": 1001,
        "landed": 999,
    }


def test_a_failure_says_what_happened_and_the_three_answers() -> None:
    answer = {
        "error": "RangeLost",
        "message": "gone.",
        "data": "safe",
        "retry": "no",
        "acts": "you",
    }
    text = commands.failure_text(66, answer)
    assert text == "RangeLost (exit 66): gone. | data: safe | retry: no | acts: you"
    assert "signal 9" in commands.failure_text(-9, {})
    assert "exit code 1 and printed no result" in commands.failure_text(1, {})


def test_many_tables_have_a_result_an_event_and_a_failure_each() -> None:
    one = {**made.a_result(outcomes(1)).to_json(), "exit": 0}
    good = json.loads(json.dumps({"jobs": [one, {**one, "table": "lake/b"}], "exit": 0}))
    text = commands.result_text(good)
    assert text.count("orders: landed, 998 records. Table ") == 2
    assert [each["table"] for each in commands.event_extra(good)["tables"]] == [
        one["table"],
        "lake/b",
    ]
    assert [each["table"] for each in commands.answers_in(good)] == [one["table"], "lake/b"]
    lost = {"job": "a", "table": "lake/a", "error": "RangeLost", "message": "gone.", "exit": 66}
    bad = {"jobs": [one, lost], "exit": 66}
    assert commands.failure_text(66, bad).splitlines() == [
        "1 of 2 tables failed (exit 66)",
        "lake/a: RangeLost (exit 66): gone.",
    ]


WAITING = {"topic": "orders", "partition": 0, "broker": None, "state": "waiting", "end": 7}
IDLE = {**WAITING, "partition": 1, "state": "idle"}
UNASKED = {**WAITING, "partition": 2, "end": None, "why": "no leader"}
SILENT = {"unanswered_brokers": {"b": "refused"}}


@pytest.mark.parametrize(
    ("code", "answer", "state", "said"),
    [
        (0, {"reached": True, "partitions": [IDLE]}, "reached", "1 of them idle"),
        (75, {"reached": False, "partitions": [WAITING, IDLE]}, "waiting", "orders/0 ends at 7"),
        (75, {"reached": False, "partitions": [UNASKED]}, "waiting", "/2 cannot be asked: no l"),
        (75, {"reached": False, "partitions": [IDLE], **SILENT}, "waiting", "r b did not: refused"),
        (75, {"error": "Unreachable", "message": "no broker"}, "waiting", "no broker"),
        (78, {"error": "JobFileError", "message": "there is no topic"}, "failed", "no topic"),
        (64, {"error": "UsageError", "message": "nothing to wait for"}, "failed", "wait for"),
        (70, {}, "failed", "exit code 70"),
        (0, {}, "failed", "printed no result"),
        (1, {}, "failed", "exit code 1"),
        (-9, {}, "waiting", "signal 9"),
        (130, {"error": "Interrupted", "message": "by somebody"}, "waiting", "by somebody"),
        (137, {}, "waiting", "exit code 137"),
        (143, {"error": "Interrupted", "message": "by somebody"}, "waiting", "by somebody"),
    ],
)
def test_only_what_may_come_is_waited_for(
    code: int, answer: dict[str, Any], state: str, said: str
) -> None:
    look = commands.judge_reached(code, answer)
    assert look["state"] == state
    assert said in look["text"]
