"""The text about losses and the quarantine: what was done, where, why, and what can be decoded
now.
"""

from __future__ import annotations

from dataclasses import replace

from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.loss import Action, DamagedBytes, DecidedLoss, LossKind
from rangeland.model import Isolation, Partition, Range
from rangeland.render.result_view import render_redrive, render_result
from rangeland.result_json import RESULT_JSON
from rangeland.results import QuarantinedRange, RedriveResult, RunResult
from tests.unit.test_render import rendered

WHERE = Range(Partition("orders", 3), 1000, 1010, "id")


def loss(action: str, evidence: str = "its checksum is wrong") -> LossEvent:
    ends = (WHERE.partition, WHERE.from_offset, WHERE.until_offset)
    found = DecidedLoss(*ends, LossKind.CORRUPT, evidence, action=Action(action), topic_id="id")
    return LossEvent("rangeland/orders", "orders", 7, found, 5, 6, "hash")


def kept(why: str = "") -> QuarantinedRange:
    bytes_kept = DamagedBytes(b"x" * 2048, (), "its checksum is wrong")
    batch = QuarantinedBatch(
        WHERE, "rangeland/orders", 7, bytes_kept.reason, "b1:9092", 2048, bytes_kept
    )
    return QuarantinedRange(batch, Isolation.READ_COMMITTED, why)


def run_with(*losses: LossEvent) -> RunResult:
    held = tuple(x.loss for x in losses if x.loss.action is Action.HOLD)
    return RunResult(
        "orders", "rangeland/orders", 7, "landed", "t", 1, (), 1.0, held_losses=held, losses=losses
    )


def test_a_run_says_of_each_loss_what_was_done_and_what_was_seen() -> None:
    text = rendered(render_result(run_with(loss("quarantine"), loss("hold"), loss("skip"))))
    assert "in quarantine: orders/3 [1000, 1010) corrupt: its checksum is wrong" in text
    assert text.count("orders/3 [1000, 1010)") == 3  # what is held is not told twice


def test_what_the_log_cannot_give_of_the_quarantine_is_not_said_to_be_held() -> None:
    still = replace(loss("hold"), application="rangeland/orders/reread/c17977143f16")
    text = rendered(render_result(run_with(still)))
    assert "damaged in the log as well: orders/3 [1000, 1010) corrupt" in text
    assert "held" not in text


def test_where_a_loss_is_is_said_once() -> None:
    seen = loss("skip", "orders/3: the batch at offset 1000 cannot be decoded")
    text = " ".join(rendered(render_result(run_with(seen))).split())
    assert "orders/3 [1000, 1010) corrupt: the batch at offset 1000 cannot be decoded" in text


def test_a_loss_is_reported_to_machines_in_the_words_of_the_ledger() -> None:
    told = run_with(loss("skip")).to_json()["losses"]
    assert told == [RESULT_JSON.write(loss("skip"))]
    assert told[0]["count"] == 10
    assert (told[0]["verdict"], told[0]["action"]) == ("corrupt", "skip")


def test_the_quarantine_shows_what_is_there_why_and_whether_it_decodes() -> None:
    bad = replace(kept("codec 9 is not known"), batch=kept().batch)
    text = rendered(render_redrive(RedriveResult("orders", "lake/orders", (kept(), bad), 1.0)))
    assert "2 ranges, 1 can be decoded now" in text
    assert "codec 9 is not known" in text
    assert "2.0 KiB" in text


def test_bytes_that_are_gone_are_told_with_their_offsets_and_files() -> None:
    gone = replace(kept("its bytes are gone"), gone_files=("part-1", "part-2"))
    result = RedriveResult("orders", "lake/orders", (kept(), gone, gone), 1.0)
    text = rendered(render_redrive(result))
    assert "the quarantine no longer has the bytes of 20 offsets" in text
    assert text.count("part-1") == text.count("part-2") == 1
    assert "rangeland redrive JOB.yaml --from-log" in text
    told = result.to_json()["quarantine"]
    assert [one.get("missing_files") for one in told] == [None, *[["part-1", "part-2"]] * 2]
    assert result.exit_code == 73
    no_file = RedriveResult("orders", "lake/orders", (replace(gone, gone_files=()),), 1.0)
    assert no_file.exit_code == 73
    assert no_file.to_json()["quarantine"][0]["missing_files"] == []


def test_an_empty_quarantine_is_said() -> None:
    result = RedriveResult("orders", "lake/orders", (), 1.0)
    assert "Nothing is in quarantine" in rendered(render_redrive(result))
    assert result.to_json()["quarantine"] == []


def test_a_piece_is_reported_to_machines_without_its_bytes() -> None:
    result = RedriveResult("orders", "lake/orders", (kept("why"),), 1.0, run_with())
    told = result.to_json()
    (piece,) = told["quarantine"]
    assert told["state"] == "landed"
    assert (piece["bytes"], piece["decodes"], piece["why"]) == (2048, False, "why")
    assert "records" not in piece
