"""The text for people has all the facts, fits the screen, and is safe against hostile names."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from rangeland.errors import RangeLost
from rangeland.loss import Action, LossKind
from rangeland.model import Counts, OpenTransaction, Partition
from rangeland.query_results import PartitionStatus
from rangeland.render.error_view import render_error
from rangeland.render.plan_view import render_plan
from rangeland.render.result_view import closing_sum, render_adopt, render_result
from rangeland.render.status_view import render_check, render_status
from rangeland.render.text_drawing import LogBar, console_for, plain, table_of
from rangeland.results import AdoptResult, FinishedBy, PlanToFinish, WriterSchema
from rangeland.wording import duration, size
from tests import sample_results as made


def rendered(renderable: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    """The text on a terminal without colours."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    console.print(renderable)
    stream.flush()
    return raw.getvalue().decode(encoding)


def lines_with(text: str, word: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if word in line]


def test_a_plan_shows_offsets_bytes_slices_and_tasks() -> None:
    text = rendered(render_plan(made.a_preview()))
    row = lines_with(text, "orders/0")[0]
    assert row[2:] == ["1,000", "26,000", "25,000", "2.4", "MiB", "1"]
    assert "34,000 offsets of 2 partitions, about 3.2 MiB, in 2 slices read by 2 tasks" in text
    assert made.a_preview().draft.plan.hash[:16] in text


def test_a_plan_has_one_size_also_where_some_of_it_is_lost() -> None:
    """What is lost is not read, so it has no size here nor there."""
    whole = made.a_range(0, 1_000, 26_000)
    plan = made.a_plan([whole], [made.a_loss(0, 1_000, 11_000)])
    (slice_,) = plan.slices
    rest = replace(slice_, from_offset=11_000, estimated_bytes=15_000 * 100)
    preview = made.a_preview()
    draft = replace(preview.draft, plan=replace(plan, slices=(rest,)))
    text = rendered(render_plan(replace(preview, draft=draft)))
    row = lines_with(text, "orders/0")[0]
    assert row[5:7] == ["1.4", "MiB"]
    assert "25,000 offsets of 1 partition, about 1.4 MiB, in 1 slice" in text


def test_a_plan_names_what_it_leaves_out_and_why() -> None:
    mine = made.a_plan([made.a_range(0, 0, 10)])
    text = rendered(
        render_plan(
            made.a_preview(
                already=(made.a_range(1, 0, 4_000),),
                held=(made.a_loss(5, 3, 4, LossKind.RECREATED).with_action(Action.HOLD),),
                losses=[made.a_loss(0, 1_000, 1_200)],
                unfinished_plans=(PlanToFinish(mine, FinishedBy.NEXT_RUN),),
            )
        )
    )
    assert "already landed, left out: orders/1 [0, 4000)" in text
    assert "held where they are: orders/5 [3, 4) is recreated: the log begins at 4" in text
    assert "lost, as the policy allows: orders/0 [1000, 1200) is expired" in text
    assert "entered but not landed yet: plan 12 of rangeland/orders, 10 offsets" in text


def test_an_empty_plan_says_why_it_is_empty() -> None:
    nothing_new = render_plan(made.a_preview([]))
    landed = render_plan(made.a_preview([], already=(made.a_range(0, 0, 5),)))
    loss = made.a_loss(0, 0, 5).with_action(Action.HOLD)
    held = render_plan(made.a_preview([], held=(loss,)))
    assert "no new offsets in 2 partitions" in rendered(nothing_new)
    assert "is already landed" in rendered(landed)
    assert "the policy holds what is new" in rendered(held)


@pytest.mark.parametrize("width", [80, 100])
def test_a_thousand_partitions_stay_under_sixty_lines(width: int) -> None:
    ranges = [made.a_range(n, 0, 1_000 + n) for n in range(1_000)]
    logs = [made.a_log(n, 0, 5_000) for n in range(1_000)]
    already = tuple(made.a_range(n, 0, 10) for n in range(1_000))
    plan = rendered(render_plan(made.a_preview(ranges, logs, already=already)), width)
    result = made.a_result([(r, Counts(landed=r.width)) for r in ranges], already=already)
    for text in (plan, rendered(render_result(result), width)):
        assert len(text.splitlines()) < 60
        assert "orders/999" in text
        assert "+ 989 more" in text
        assert "1,499,500" in text
        assert max(map(len, text.splitlines())) <= width


def test_a_result_shows_only_classes_that_occur_and_the_sum_closes() -> None:
    text = rendered(render_result(made.a_result()))
    columns = ["partition", "from", "until", "landed", "control", "aborted"]
    assert lines_with(text, "partition")[0] == columns
    assert "34,000 offsets = 33,985 landed + 5 control + 10 aborted" in text
    assert "landing 12, 4 files, 3.0 MiB, 2.0 s, 16,992 records/s" in text
    assert "compacted" not in text


def test_a_sum_that_does_not_close_is_not_drawn_as_if_it_did() -> None:
    wrong = made.a_result([(made.a_range(0, 0, 10), Counts(landed=9))])
    assert closing_sum(wrong).plain == "10 offsets != 9 landed"


def test_only_offsets_that_are_bytes_are_summed_as_bytes() -> None:
    of_a_broker = replace(made.a_range(0, 0, 10), partition=Partition("orders", 0, "broker-a"))
    queue = made.a_result([(of_a_broker, Counts(landed=9))])
    assert closing_sum(queue).plain == "10 offsets != 9 landed"
    (outcome,) = queue.ranges
    log = replace(queue, ranges=(replace(outcome, offsets_are_bytes=True),))
    assert closing_sum(log).plain == "10 offsets in bytes: 9 landed"


def test_a_result_without_landing_says_so() -> None:
    nothing = rendered(render_result(made.a_result([], state="nothing")))
    already = (made.a_range(0, 0, 100),)
    before = rendered(render_result(made.a_result([], state="already-landed", already=already)))
    assert "nothing to land in lake/orders (version 34, " in nothing
    assert "already landed, nothing new in lake/orders" in before
    assert "orders/0 [0, 100)" in before


def test_a_typed_result_names_new_columns_and_the_schemas_of_its_values() -> None:
    typed = replace(
        made.a_result(),
        added_columns=("coupon", "note"),
        schemas=(WriterSchema(12, 1_000, "orders-value", 3), WriterSchema(7, 1)),
    )
    text = rendered(render_result(typed))
    assert "columns added to the table: coupon, note" in text
    lines = [line.strip() for line in text.splitlines()]
    assert "12, version 3 of orders-value: 1,000 records" in lines
    assert "7: 1 record" in lines


def test_status_shows_checkpoint_end_lag_and_group() -> None:
    text = rendered(render_status(made.a_status()))
    assert lines_with(text, "orders/0 ")[0][2:] == ["0", "26,000", "40,000", "14,000", "25,000"]
    assert lines_with(text, "orders/1 ")[0][2:] == ["0", "-", "9,000", "9,000", "-"]
    assert "23,000 offsets not landed yet" in text
    assert "plan 12 of rangeland/orders, 1,000 offsets" in text
    assert "landing 12, 2023-11-14 22:13:20 UTC, 33,985 records" in text


def test_status_says_which_part_of_the_lag_backfills_have_landed() -> None:
    first, _ = made.a_status().partitions
    landed = PartitionStatus(Partition("orders", 0), None, 0, 30, landed=((0, 30),))
    text = rendered(render_status(replace(made.a_status(), partitions=(landed,))))
    assert "everything is landed, 1 partition; 30 offsets of the lag landed already" in text
    ahead = replace(first, landed=((0, 26_000), (30_000, 31_000)))
    text = rendered(render_status(replace(made.a_status(), partitions=(ahead,))))
    assert "13,000 offsets not landed yet" in text
    assert ahead.to_json()["lag"] == 14_000


def test_status_names_a_log_on_which_no_run_can_continue() -> None:
    cut = PartitionStatus(Partition("orders", 0), 100, 0, 50, landed=((0, 100),))
    text = rendered(render_status(replace(made.a_status(), partitions=(cut,))))
    assert "everything is landed" not in text
    assert "orders/0: ends before the checkpoint" in text


def test_status_without_partitions_does_not_say_that_everything_is_landed() -> None:
    text = rendered(render_status(replace(made.a_status(), partitions=())))
    assert "the cluster has none of the job's partitions" in text
    assert "everything is landed" not in text


def test_status_shows_what_an_open_transaction_holds_back() -> None:
    status = made.a_status()
    waiting = replace(
        status.partitions[0],
        checkpoint=40_000,
        high_watermark=45_000,
        last_stable_offset=40_000,
        open_transaction=OpenTransaction(40_000, 7, 1),
        open_for_ms=7_200_000,
    )
    text = rendered(render_status(replace(status, partitions=(waiting,))))
    assert "everything is landed" not in text
    assert "5,000 of them behind an open transaction" in text
    assert "5,000 offsets from 40,000 on, open for 2 h" in text
    assert "producer 7, epoch 1" in text


def test_check_names_what_is_not_well() -> None:
    assert "all checks passed" in rendered(render_check(made.a_check()))
    text = rendered(render_check(made.a_check(well=False)))
    assert lines_with(text, "brokers")[0][0] == "FAILED"
    assert "1 check failed" in text


def test_an_error_answers_the_three_questions() -> None:
    error = RangeLost("orders/7 [1, 5) expired", why="the log begins at 3", do="land the rest")
    text = rendered(render_error(error), 120)
    sentences = (f"{error.what}.", "The log begins at 3.", "Land the rest.")
    for answer in (*sentences, error.data, error.retry, error.acts):
        assert answer in text
    assert "RangeLost, exit 66" in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[link=http://e.x]y[/link]", ":smile:"])
def test_names_are_never_taken_for_markup(name: str) -> None:
    ranges = [made.a_range(0, 0, 10, name)]
    logs = [made.a_log(0, 0, 10, name)]
    renderables = [
        render_plan(made.a_preview(ranges, logs, already=(ranges[0],), table=name)),
        render_result(made.a_result([(ranges[0], Counts(landed=10))], warnings=(name,))),
        render_error(RangeLost(name, why=name, do=name)),
    ]
    for renderable in renderables:
        assert name in rendered(renderable)


def test_names_bring_no_control_codes_to_the_terminal() -> None:
    evil = "a\x1b[2Jb\rc\x07\x9b"
    text = rendered(render_error(RangeLost(evil, why=evil)))
    assert not set(text) & set("\x1b\r\x07\x9b")
    assert "a\\x1b[2Jb\\rc\\x07\\x9b" in text
    assert plain(Partition(evil, 0)) == "a\\x1b[2Jb\\rc\\x07\\x9b/0"


def test_long_names_leave_the_numbers_whole() -> None:
    topic = "t" * 249
    ranges = [made.a_range(7, 123_456_789, 987_654_321, topic)]
    logs = [made.a_log(7, 0, 987_654_321, topic)]
    text = rendered(render_plan(made.a_preview(ranges, logs)), 100)
    assert "t...t" in text
    assert "tttt/7 " in text
    for whole in ("123,456,789", "987,654,321", "864,197,532"):
        assert whole in text


def test_a_bar_shows_what_is_where() -> None:
    bar = LogBar(0, 100, ((0, 20, "already"), (20, 60, "land"), (60, 100, "later")))
    assert bar.draw(10).plain == "▒▒████░░░░"
    assert bar.draw(10, ascii_only=True).plain == "==####----"
    assert LogBar(0, 100, ((50, 60, "land"),)).draw(10).plain == "·····█····"


def test_a_small_range_in_a_large_log_is_never_invisible() -> None:
    bar = LogBar(0, 10**12, ((10**12 // 3, 10**12 // 3 + 1, "lost"),))
    assert bar.draw(20).plain.count("x") == 1


def test_an_empty_log_is_drawn_as_such() -> None:
    assert LogBar(5, 5, ()).draw(10).plain == "empty"


def test_pictures_can_be_drawn_where_only_ascii_is_known() -> None:
    text = rendered(render_plan(made.a_preview()), encoding="ascii")
    assert "####" in text
    assert "RangeLost" in rendered(render_error(RangeLost("x")), encoding="ascii")


def test_sizes_and_durations_have_units() -> None:
    assert [size(n) for n in (0, 1023, 1536, 3 << 40)] == ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]
    assert [duration(s) for s in (0.04, 59.9, 72, 3_720)] == [
        "0.0 s",
        "59.9 s",
        "1 min 12 s",
        "1 h 02 min",
    ]


def test_without_a_terminal_no_control_code_is_printed() -> None:
    stream = io.StringIO()
    console_for(stream).print(render_result(made.a_result()))
    assert "\x1b" not in stream.getvalue()


def test_an_adoption_whose_version_is_unknown_names_none() -> None:
    known = AdoptResult("orders", "lake/orders", 4, 9, ())
    assert "adopted lake/orders (version 9)" in rendered(render_adopt(known))
    assert "version" not in rendered(render_adopt(replace(known, table_version=None)))


def test_a_table_with_little_room_is_wide_and_cuts_no_number() -> None:
    table = table_of("partition", "log", ">from", ">until", "why")
    bar = LogBar(0, 10, ((0, 10, "land"),))
    table.add_row("orders/0", bar, "25,000", "25,001", "the value is not a whole number")
    stream = io.StringIO()
    Console(file=stream, width=30).print(table, crop=False)
    lines = lines_with(stream.getvalue(), "")
    assert lines[0] == ["partition", "log", "from", "until", "why"]
    assert (lines[1][0], lines[1][2], lines[1][3]) == ("orders/0", "25,000", "25,001")
    words = [word for line in (lines[1][4:], *lines[2:]) for word in line]
    assert " ".join(words) == "the value is not a whole number"


def test_status_draws_as_landed_only_what_has_landed() -> None:
    partition = replace(
        made.a_status().partitions[0],
        start=0,
        end=1_000,
        checkpoint=800,
        landed=((500, 700), (900, 1_000)),
        high_watermark=1_000,
    )
    status = replace(made.a_status(), partitions=(partition,))
    drawn = rendered(render_status(status), width=200)
    (bar,) = [cell for line in drawn.splitlines() for cell in line.split() if "·····" in cell]
    assert bar == "·" * 16 + "█" * 6 + "-" * 4 + "░" * 2 + "█" * 4
    assert "before the job's beginning, never landed" in drawn
