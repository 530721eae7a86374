"""A plan is a frozen value with a hash; the proof accepts exact tilings and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rangeland.errors import Conflict, ProofFailed
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Address, Counts, Isolation, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan, advance, canonical, contradiction, with_own_application
from rangeland.planning.plan_kind import TRAITS, PlanKind
from rangeland.planning.proof import prove, prove_part
from rangeland.planning.slice_receipt import RangeResult, Receipt
from rangeland.untrusted import parse_address

P0, P1 = Partition("t", 0), Partition("t", 1, "broker-a")
B1 = Address("b1", 9092)

PLAN = Plan(
    job="orders",
    application="rangeland/orders",
    sequence=7,
    dialect="kafka",
    isolation=Isolation.READ_COMMITTED,
    ranges=(Range(P0, 0, 30, "A", 300), Range(P1, 5, 9, None, 40)),
    slices=(
        Slice(0, P0, 10, 20, 100, "A", B1),
        Slice(1, P0, 20, 30, 100, "A", Address("::1", 1)),
        Slice(2, P1, 5, 9, 40, None, None),
    ),
    losses=(Loss(P0, 0, 10, LossKind.EXPIRED, "the log begins at 10"),),
    checkpoint={P0: LogMark(30, "A"), P1: LogMark(9)},
    made_at_ms=1234,
)


def test_a_plan_survives_json_whole() -> None:
    back = Plan.from_json(json.loads(json.dumps(PLAN.to_json())))
    assert back == PLAN
    assert back.hash == PLAN.hash


def test_the_hash_does_not_depend_on_the_order_of_a_mapping() -> None:
    turned = replace(PLAN, checkpoint=dict(reversed(list(PLAN.checkpoint.items()))))
    assert turned.hash == PLAN.hash
    assert canonical({"b": 1, "a": [1, "ä"]}) == '{"a":[1,"\\u00e4"],"b":1}'


def test_the_hash_is_the_same_in_every_version() -> None:
    # Plans of earlier versions stand in ledgers under their hash.
    assert PLAN.hash == replace(PLAN).hash
    least = Plan("j", "rangeland/j", 1, "kafka", Isolation.READ_COMMITTED, (), ())
    assert least.hash == "ac8c61dce025ce9ba1d5423d79cf16bb8ea9c95f68febb260becf616bb375f5f"


OTHERS: dict[str, Any] = {
    "job": "other",
    "application": "rangeland/other",
    "sequence": 8,
    "dialect": "jafka",
    "isolation": Isolation.READ_UNCOMMITTED,
    "losses": (),
    "checkpoint": {P0: LogMark(30, "A"), P1: LogMark(10)},
    "made_at_ms": 1235,
    "tags": ("A", "B"),
}
RANGE_CHANGES: list[dict[str, Any]] = [
    {"partition": Partition("u", 0)},
    {"partition": Partition("t", 2)},
    {"partition": Partition("t", 0, "x")},
    {"from_offset": 1},
    {"until_offset": 31},
    {"topic_id": None},
    {"estimated_bytes": 301},
]
LOSS_CHANGES: list[dict[str, Any]] = [
    {"from_offset": 1},
    {"until_offset": 11},
    {"kind": LossKind.TRUNCATED},
    {"evidence": "other"},
]
CHANGED = [
    *(replace(PLAN, **{name: value}) for name, value in OTHERS.items()),
    *(replace(PLAN, ranges=(replace(PLAN.ranges[0], **c), PLAN.ranges[1])) for c in RANGE_CHANGES),
    *(
        replace(PLAN, slices=(replace(PLAN.slices[0], **c), *PLAN.slices[1:]))
        for c in [*RANGE_CHANGES, {"index": 9}, {"leader": None}]
    ),
    *(replace(PLAN, losses=(replace(PLAN.losses[0], **c),)) for c in LOSS_CHANGES),
    replace(PLAN, checkpoint={P0: LogMark(30, "B"), P1: LogMark(9)}),
]


def test_the_hash_changes_with_every_field() -> None:
    hashes = {plan.hash for plan in [PLAN, *CHANGED]}
    assert len(hashes) == len(CHANGED) + 1


@pytest.mark.parametrize("plan", CHANGED)
def test_every_changed_plan_survives_json_too(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_width_and_bytes_are_sums() -> None:
    assert (PLAN.width, PLAN.estimated_bytes) == (34, 240)


@pytest.mark.parametrize("format_", [0, 2, None, "1"])
def test_a_plan_of_another_format_is_a_conflict(format_: object) -> None:
    with pytest.raises(Conflict, match="format"):
        Plan.from_json({**PLAN.to_json(), "format": format_})


def _damage(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(PLAN.to_json()))
    change(document)
    return document


@pytest.mark.parametrize(
    "document",
    [
        _damage(lambda d: d.pop("job")),
        _damage(lambda d: d.update(isolation="dirty")),
        _damage(lambda d: d.update(ranges=None)),
        _damage(lambda d: d["ranges"][0].pop("until_offset")),
        _damage(lambda d: d["slices"][0].update(leader="nowhere")),
        _damage(lambda d: d["losses"][0].update(verdict="stolen")),
        _damage(lambda d: d.update(checkpoint=[1])),
    ],
)
def test_a_damaged_plan_is_a_conflict_and_no_foreign_exception(document: dict[str, Any]) -> None:
    with pytest.raises(Conflict, match="cannot be read"):
        Plan.from_json(document)


@pytest.mark.parametrize("kind", list(PlanKind))
def test_the_kind_of_a_plan_survives_json_and_is_known_of_plans_that_do_not_record_it(
    kind: PlanKind,
) -> None:
    application = kind.application("orders", PLAN.hash)
    plan = replace(PLAN, kind=kind, application=application)
    document = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(document) == plan
    document.pop("kind", None)  # as version 0.1.0 wrote it
    assert Plan.from_json(document) == plan
    assert Plan.from_json(document).hash == plan.hash


def test_a_job_that_is_named_like_a_kind_has_runs() -> None:
    for kind in PlanKind:
        assert PlanKind.of_application(kind.value, f"rangeland/{kind.value}") is PlanKind.RUN
        name = PlanKind.BACKFILL.application(kind.value, "0" * 64)
        assert PlanKind.of_application(kind.value, name) is PlanKind.BACKFILL


def test_the_table_has_each_kind_and_only_runs_move_the_checkpoint() -> None:
    assert set(TRAITS) == set(PlanKind)
    assert [kind for kind in PlanKind if kind.traits.moves_checkpoint] == [PlanKind.RUN]


def test_a_kind_that_may_be_given_up_says_what_stays() -> None:
    for kind, traits in TRAITS.items():
        assert bool(traits.given_up_for) == bool(traits.stays), kind


def test_an_unknown_kind_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="cannot be read"):
        Plan.from_json({**PLAN.to_json(), "kind": "borrow"})


def test_a_run_keeps_the_application_of_its_job() -> None:
    assert with_own_application(PLAN) is PLAN


@pytest.mark.parametrize("kind", [kind for kind in PlanKind if kind is not PlanKind.RUN])
def test_any_other_plan_is_named_after_the_hash_that_it_had_as_the_next_one_of_its_job(
    kind: PlanKind,
) -> None:
    plan = replace(PLAN, kind=kind, schema_json='{"type": "struct", "fields": []}')
    own = with_own_application(plan)
    assert own.application == f"rangeland/{plan.job}/{kind.value}/{plan.hash[:12]}"
    assert own == replace(plan, application=own.application, sequence=1)
    assert with_own_application(plan) == own
    for other in (
        replace(plan, sequence=plan.sequence + 1),
        replace(plan, made_at_ms=plan.made_at_ms + 1),
        replace(plan, schema_json=""),
        replace(plan, repairs_all=True),
    ):
        assert with_own_application(other).application != own.application


@pytest.mark.parametrize("address", [B1, Address("::1", 1), Address("fe80::1", 65535)])
def test_an_address_is_parsed_as_it_is_written(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "b1", "b1:", ":9092", "b1:0", "b1:65536", "b1:x", "b1:-1"])
def test_what_is_not_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_address(text)


# --- the proof --------------------------------------------------------------------------


def receipt(slice_: Slice, **counts: int) -> Receipt:
    counted = Counts(**counts) if counts else Counts(landed=slice_.width)
    return Receipt(slice_.index, slice_.partition, slice_.from_offset, slice_.until_offset, counted)


RECEIPTS = {slice_.index: receipt(slice_) for slice_ in PLAN.slices}


def test_an_exact_tiling_is_proved_range_by_range() -> None:
    receipts = RECEIPTS | {1: receipt(PLAN.slices[1], landed=4, control=1, aborted=2, compacted=3)}
    assert prove(PLAN, receipts) == [
        RangeResult(PLAN.ranges[0], Counts(landed=14, control=1, aborted=2, compacted=3, lost=10)),
        RangeResult(PLAN.ranges[1], Counts(landed=4)),
    ]


def test_a_loss_while_reading_counts_where_it_is_reported() -> None:
    lossy = replace(
        receipt(PLAN.slices[2], landed=1, lost=3),
        losses=(Loss(P1, 5, 8, LossKind.EXPIRED, "gone").with_action(Action.SKIP),),
    )
    assert prove(PLAN, RECEIPTS | {2: lossy})[1].counts == Counts(landed=1, lost=3)


def test_a_range_names_who_served_the_last_of_it() -> None:
    served = {i: replace(r, address=f"b{i}:9092") for i, r in RECEIPTS.items()}
    last = max(s.index for s in PLAN.slices if s.partition == PLAN.ranges[0].partition)
    assert prove(PLAN, served)[0].address == f"b{last}:9092"
    assert prove(PLAN, RECEIPTS)[0].address == ""


def test_the_order_of_slices_does_not_matter() -> None:
    slices = list(PLAN.slices)
    random.Random(1).shuffle(slices)
    assert prove(replace(PLAN, slices=tuple(slices)), RECEIPTS) == prove(PLAN, RECEIPTS)


def test_an_empty_plan_is_proved_by_nothing() -> None:
    assert prove(replace(PLAN, ranges=(), slices=(), losses=()), {}) == []


def _receipts(index: int, **changes: Any) -> dict[int, Receipt]:
    return RECEIPTS | {index: replace(RECEIPTS[index], **changes)}


S0, S1, S2 = PLAN.slices
R0, R1 = PLAN.ranges
TOLD = Loss(P0, 10, 12, LossKind.EXPIRED, "").with_action(Action.SKIP)
NOT_ADDING_UP = {
    "no receipt": (PLAN, {0: RECEIPTS[0], 2: RECEIPTS[2]}),
    "one offset too few": (PLAN, _receipts(0, counts=Counts(landed=9))),
    "one offset too many": (PLAN, _receipts(0, counts=Counts(landed=11))),
    "a negative class": (PLAN, _receipts(0, counts=Counts(landed=12, compacted=-2))),
    "lost and not told": (PLAN, _receipts(0, counts=Counts(landed=8, lost=2))),
    "told and not lost": (PLAN, _receipts(0, losses=(TOLD,))),
    "a receipt that begins later": (PLAN, _receipts(0, from_offset=11)),
    "a receipt that ends earlier": (PLAN, _receipts(0, until_offset=19)),
    "a receipt of another partition": (PLAN, _receipts(0, partition=P1)),
    "two receipts swapped": (PLAN, RECEIPTS | {0: RECEIPTS[1], 1: RECEIPTS[0]}),
    "a receipt nobody asked for": (PLAN, RECEIPTS | {3: RECEIPTS[0]}),
    "a slice missing in the middle": (
        replace(PLAN, slices=(S1, S2)),
        {1: RECEIPTS[1], 2: RECEIPTS[2]},
    ),
    "a slice missing at the end": (
        replace(PLAN, slices=(S0, S2)),
        {0: RECEIPTS[0], 2: RECEIPTS[2]},
    ),
    "a loss missing": (replace(PLAN, losses=()), RECEIPTS),
    "a loss twice": (replace(PLAN, losses=PLAN.losses * 2), RECEIPTS),
    "a slice twice": (
        replace(PLAN, slices=(*PLAN.slices, replace(S0, index=3))),
        RECEIPTS | {3: replace(RECEIPTS[0], slice_index=3)},
    ),
    "a range twice": (replace(PLAN, ranges=(R0, R0, R1)), RECEIPTS),
    "a range that is longer": (replace(PLAN, ranges=(replace(R0, until_offset=31), R1)), RECEIPTS),
    "a range that is shorter": (replace(PLAN, ranges=(replace(R0, until_offset=29), R1)), RECEIPTS),
    "a slice outside all ranges": (replace(PLAN, ranges=(R0,)), RECEIPTS),
    "a range nobody reads": (replace(PLAN, ranges=(R0, R1, Range(P1, 9, 10))), RECEIPTS),
    "a gap and an overlap of one width": (
        replace(PLAN, slices=(S0, replace(S1, from_offset=19, until_offset=29), S2)),
        _receipts(1, from_offset=19, until_offset=29),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_ADDING_UP)
def test_what_does_not_add_up_is_never_committed(case: str) -> None:
    plan, receipts = NOT_ADDING_UP[case]
    with pytest.raises(ProofFailed) as caught:
        prove(plan, receipts)
    assert caught.value.what


# --- the proof of several incarnations -----------------------------------------------------


def of_incarnations(*parts: tuple[str, int, int]) -> Plan:
    """A plan with these offsets of one partition, as a redrive of a recreated topic has them."""
    ranges = tuple(Range(P0, *interval, topic_id) for topic_id, *interval in parts)
    slices = tuple(Slice(i, P0, *r.interval, topic_id=r.topic_id) for i, r in enumerate(ranges))
    return replace(PLAN, ranges=ranges, slices=slices, losses=(), kind=PlanKind.REDRIVE)


CROSSING = {
    "equal": of_incarnations(("A", 0, 10), ("B", 0, 10)),
    "nested": of_incarnations(("A", 0, 10), ("B", 0, 6)),
    "nested inside": of_incarnations(("A", 0, 10), ("B", 3, 6), ("B", 7, 8)),
    "crossing": of_incarnations(("A", 0, 10), ("B", 5, 15)),
    "three": of_incarnations(("A", 0, 10), ("B", 0, 6), ("C", 2, 12)),
}
crossing = pytest.mark.parametrize("plan", CROSSING.values(), ids=CROSSING)


@crossing
def test_each_incarnation_of_a_topic_is_proved_by_itself(plan: Plan) -> None:
    receipts = {
        s.index: replace(receipt(s), address=f"{s.topic_id}:1", rowless=()) for s in plan.slices
    }
    assert contradiction(plan) is None
    assert prove(plan, receipts) == [
        RangeResult(r, Counts(landed=r.width), f"{r.topic_id}:1", ()) for r in plan.ranges
    ]
    prove_part(plan, receipts)
    prove_part(plan, {0: receipts[0]})


@crossing
@pytest.mark.parametrize("lacking", [0, 1])
def test_an_offset_of_one_incarnation_does_not_prove_that_of_another(
    plan: Plan, lacking: int
) -> None:
    receipts = {s.index: receipt(s) for s in plan.slices}
    s = plan.slices[lacking]
    slices = tuple(x for x in plan.slices if x is not s)
    other_id = next(x.topic_id for x in slices if x.topic_id != s.topic_id)
    without = {x.index: receipts[x.index] for x in slices}
    shorter = replace(s, until_offset=s.until_offset - 1)
    for wrong, proved in (
        (replace(plan, slices=slices), without),
        (replace(plan, slices=(*slices, shorter)), {**without, s.index: receipt(shorter)}),
        (replace(plan, slices=(*slices, replace(s, topic_id=other_id))), receipts),
        (plan, without),
    ):
        with pytest.raises(ProofFailed):
            prove(wrong, proved)


def test_what_is_held_of_one_incarnation_shortens_no_other() -> None:
    plan = CROSSING["equal"]
    held = Loss(P0, 4, 10, LossKind.UNDECODABLE, "").with_action(Action.HOLD)
    receipts = {s.index: receipt(s) for s in plan.slices}
    receipts[1] = replace(receipts[1], until_offset=4, counts=Counts(landed=4), losses=(held,))
    assert [(x.range, x.counts.landed) for x in prove(plan, receipts)] == [
        (Range(P0, 0, 10, "A"), 10),
        (Range(P0, 0, 4, "B"), 4),
    ]


def test_a_slice_without_a_topic_id_may_be_of_any_incarnation() -> None:
    nameless = replace(PLAN, slices=tuple(replace(s, topic_id=None) for s in PLAN.slices))
    assert prove(nameless, RECEIPTS) == prove(PLAN, RECEIPTS)


# --- the checkpoint ---------------------------------------------------------------------


def test_the_checkpoint_moves_to_the_end_of_what_landed() -> None:
    before = {P0: LogMark(10, "A"), P1: LogMark(3)}
    after = advance(before, (Range(P0, 10, 30, "A"), Range(P0, 40, 50, "A")))
    assert after == {P0: LogMark(50, "A"), P1: LogMark(3)}
    assert before == {P0: LogMark(10, "A"), P1: LogMark(3)}


def test_the_checkpoint_never_moves_back_within_an_incarnation() -> None:
    assert advance({P0: LogMark(50, "A")}, (Range(P0, 0, 30, "A"),)) == {P0: LogMark(50, "A")}
    assert advance({P0: LogMark(50)}, (Range(P0, 0, 30, "A"),)) == {P0: LogMark(50, "A")}


def test_a_topic_created_again_starts_over() -> None:
    assert advance({P0: LogMark(50, "A")}, (Range(P0, 0, 30, "B"),)) == {P0: LogMark(30, "B")}


def test_a_known_topic_id_is_not_forgotten() -> None:
    # Or a topic created again could not be told from the old one later.
    assert advance({P0: LogMark(50, "A")}, (Range(P0, 50, 60, None),)) == {P0: LogMark(60, "A")}


def test_a_new_partition_gets_a_mark() -> None:
    assert advance({}, (Range(P0, 5, 5, "A"),)) == {P0: LogMark(5, "A")}
