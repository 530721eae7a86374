"""When an id that a schema registry does not have counts as unknown, and when it may be late."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    SchemaFormat,
    UnusableSchema,
)
from rangeland.errors import Unreachable
from rangeland.schema_registry.missing_ids import (
    CONFIRM_S,
    CONFIRMATIONS,
    FAR_IDS,
    LATE_MS,
    LONGEST_PAUSE_S,
    AskAgain,
    LookHigher,
    MayBeLate,
    MissingId,
    UnknownForGood,
    judge_missing,
    why_not_late,
)
from rangeland.schema_registry.registry_client import RegistryClient
from rangeland.schema_registry.registry_responses import SchemaResponse
from rangeland.schema_registry.registry_settings import (
    LONG_AGO,
    RegistrySettings,
    WrittenBefore,
)
from rangeland.schema_registry.unknown_ids import UnknownIds
from rangeland.untrusted import MAX_INT32

SCHEMA = SchemaResponse(SchemaFormat.AVRO, '"long"', ())
NO_PROGRESS_S = 120
JUST_NOW = WrittenBefore(1_000, 1_500)
Has = Callable[[int, float], bool]
"""Whether the registry has an id at a time."""


class FakeRegistry(RegistryClient):
    """Time passes only in pauses."""

    def __init__(self, has: Has) -> None:
        super().__init__(RegistrySettings(("http://none",)))
        self.has, self.time, self.asked = has, 0.0, list[int]()

    def schema(self, schema_id: int) -> SchemaResponse | None:
        self.asked.append(schema_id)
        return SCHEMA if self.has(schema_id, self.time) else None

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds


def of(has: Has, known: Iterable[int] = ()) -> tuple[UnknownIds, FakeRegistry]:
    registry = FakeRegistry(has)
    ids = UnknownIds(
        registry, known, NO_PROGRESS_S * 1000, now=lambda: registry.time, pause=registry.wait
    )
    return ids, registry


def up_to(highest: int, but: Iterable[int] = ()) -> Has:
    gone = set(but)
    return lambda schema_id, _: schema_id <= highest and schema_id not in gone


def test_a_known_id_is_asked_for_once() -> None:
    ids, registry = of(up_to(10))
    assert ids.schema(7, None) is SCHEMA
    assert registry.asked == [7]


@pytest.mark.parametrize("known", [(), (3,), (10,)])
def test_an_id_below_one_that_the_registry_has_was_deleted(known: tuple[int, ...]) -> None:
    ids, registry = of(up_to(10, but=[7]), known)
    found = ids.schema(7, JUST_NOW)
    assert isinstance(found, UnusableSchema)
    assert "has no schema with id 7, and it has later ones" in found.reason
    assert CONFIRM_S <= registry.time < NO_PROGRESS_S
    assert registry.asked[-1] == 7  # the last response that counts is that about the id itself


def test_several_ids_that_are_gone_are_looked_past() -> None:
    ids, _ = of(up_to(10, but=[7, 8, 9]))
    assert isinstance(ids.schema(7, JUST_NOW), UnusableSchema)


def test_the_next_id_may_be_late() -> None:
    ids, registry = of(up_to(10), (10,))
    with pytest.raises(Unreachable, match="does not have schema id 11 yet") as raised:
        ids.schema(11, JUST_NOW)
    assert registry.time >= NO_PROGRESS_S
    assert raised.value.exit_code == 75
    assert "(10)" in raised.value.why


def test_an_id_that_arrives_is_found() -> None:
    ids, _ = of(lambda schema_id, time: schema_id <= 10 or time > 60, (10,))
    assert ids.schema(11, JUST_NOW) is SCHEMA


def test_a_copy_that_catches_up_between_two_responses_is_no_proof() -> None:
    """Another response shows a higher id before the copy that lacks this one has both."""
    responses = iter([False, True, True])
    ids, registry = of(lambda *_: next(responses), (10,))
    assert ids.schema(11, JUST_NOW) is SCHEMA
    assert registry.asked[0] == registry.asked[-1] == 11


@pytest.mark.parametrize("copies", [2, 3, 4])
@pytest.mark.parametrize("first", range(4))
def test_behind_a_load_balancer_each_copy_is_asked(copies: int, first: int) -> None:
    """Only one of the copies, which are asked in turn, has what was registered last."""
    turns = itertools.count(first)

    def has(schema_id: int, _: float) -> bool:
        return schema_id <= (30 if next(turns) % copies == 0 else 10) and schema_id != 7

    ids, _ = of(has, (10,))
    assert isinstance(ids.schema(7, JUST_NOW), UnusableSchema)
    for schema_id in (20, 25):
        assert ids.schema(schema_id, JUST_NOW) is SCHEMA


@pytest.mark.parametrize("forged", [MAX_INT32, 12 + FAR_IDS])
def test_an_id_that_is_far_above_the_highest_is_unknown(forged: int) -> None:
    ids, registry = of(up_to(10), (10,))
    found = ids.schema(forged, JUST_NOW)
    assert isinstance(found, UnusableSchema)
    assert "its ids are far lower, such as 10" in found.reason
    assert registry.time < NO_PROGRESS_S


def test_nothing_is_far_from_a_registry_without_schemas() -> None:
    """A copy that has just started may not have read any yet."""
    ids, _ = of(up_to(0))
    with pytest.raises(Unreachable, match=r"\(none\)"):
        ids.schema(MAX_INT32, JUST_NOW)


def test_a_record_does_not_wait_for_ever() -> None:
    ids, registry = of(up_to(10), (10,))
    found = ids.schema(11, WrittenBefore(5_000, 5_000 + LATE_MS))
    assert found == UnusableSchema(
        "the schema registry has no schema with id 11, even an hour after a record that names it "
        "was written"
    )
    assert CONFIRM_S <= registry.time < NO_PROGRESS_S


def test_further_ids_of_the_same_plan_are_not_waited_for() -> None:
    """They were written as early, and so have been late for as long."""
    ids, registry = of(up_to(100, but=[7, 8, 9]))
    ids.schema(7, JUST_NOW)
    before = registry.time
    for schema_id in (8, 9):
        assert isinstance(ids.schema(schema_id, JUST_NOW), UnusableSchema)
    assert registry.time == before


def test_ids_of_a_later_plan_are_waited_for_again() -> None:
    ids, registry = of(up_to(100, but=[7, 8]))
    ids.schema(7, JUST_NOW)
    before = registry.time
    ids.schema(8, WrittenBefore(2_000, 2_500))
    assert registry.time >= before + CONFIRM_S


def test_what_is_not_final_is_judged_at_once_and_by_its_age() -> None:
    ids, _ = of(up_to(0))
    assert isinstance(ids.schema(7, LONG_AGO), UnusableSchema)


@pytest.mark.parametrize(
    ("schema_id", "highest", "age_ms", "reason"),
    [
        (7, 8, 0, "and it has later ones, such as 8"),
        (7, 7, 0, None),
        (7, 6, LATE_MS - 1, None),
        (7, 6, LATE_MS, "even an hour after a record that names it was written"),
        (FAR_IDS + 6, 6, 0, None),
        (FAR_IDS + 7, 6, 0, "and its ids are far lower, such as 6"),
        (FAR_IDS + 7, 0, 0, None),
    ],
)
def test_why_a_missing_id_cannot_be_late(
    schema_id: int, highest: int, age_ms: int, reason: str | None
) -> None:
    assert why_not_late(schema_id, WrittenBefore(0, age_ms), highest) == reason


# --- what follows from one response -------------------------------------------------------------

LATER = "and it has later ones, such as 8"


def missing(highest: int = 6, asked_for_s: float = 0.0, **more: Any) -> MissingId:
    return MissingId(7, JUST_NOW, NO_PROGRESS_S, highest, asked_for_s, **more)


def test_before_an_id_above_all_others_counts_as_late_higher_ones_are_looked_for() -> None:
    assert judge_missing(missing()) == LookHigher()
    assert judge_missing(missing(has_looked_higher=True)) == AskAgain(1.0, 1, None)


def test_once_something_shows_that_it_is_not_late_it_is_asked_for_several_times_more() -> None:
    assert judge_missing(missing(8)) == AskAgain(1.0, 1 + CONFIRMATIONS, LATER)
    assert judge_missing(missing(8, CONFIRM_S + 1)) == AskAgain(0.0, 1 + CONFIRMATIONS, LATER)


@pytest.mark.parametrize("asked_for_s", [0.0, CONFIRM_S])
def test_only_a_reason_that_was_known_before_the_last_response_makes_it_unknown(
    asked_for_s: float,
) -> None:
    judgement = judge_missing(missing(8, asked_for_s, reason=LATER))
    is_over = asked_for_s >= CONFIRM_S
    assert judgement == (
        UnknownForGood(LATER) if is_over else AskAgain(1.0, 1 + CONFIRMATIONS, LATER)
    )


def test_nothing_is_decided_once_there_was_no_progress_for_long_enough() -> None:
    for asked_for_s, judgement in [
        (NO_PROGRESS_S - 2.0, AskAgain(2.0, 1, None)),
        (NO_PROGRESS_S, MayBeLate()),
    ]:
        assert judge_missing(missing(6, asked_for_s, pauses=9, has_looked_higher=True)) == judgement


@pytest.mark.parametrize(
    ("pauses", "after_s"), [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (9_999, LONGEST_PAUSE_S)]
)
def test_pauses_grow_up_to_a_limit(pauses: int, after_s: float) -> None:
    judgement = judge_missing(missing(pauses=pauses, has_looked_higher=True))
    assert judgement == AskAgain(after_s, 1, None)
