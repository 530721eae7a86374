"""What damage and gaps mean, by their sender, by the policy, and by what is known of a topic."""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import CleanupPolicy, NoSeedAnswered
from rangeland.errors import BadRecord, Damage, RangeLost, Unreachable
from rangeland.fetch import loss_judgement
from rangeland.fetch.loss_judgement import (
    first_damaged,
    judge_cleanup,
    judge_damage,
    judge_gap,
    located_damage_error,
    passable_until,
    stated_cleanup,
    too_many_gaps_error,
)
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import Address, Partition, Slice
from rangeland.planning.policy import Policy

P = Partition("t", 0)
SLICE = Slice(0, P, 0, 100)
BASE, END = 20, 30
"""Where damage begins and ends."""


def bad(*edges: int | None, **more: Any) -> BadRecord:
    """Damage with these edges; of which nothing is known without any."""
    return BadRecord("t/0: bad", why="torn", damage=Damage(*edges, **more) if edges else None)  # type: ignore[arg-type]


def settings_of(**changed: Any) -> ReadSettings:
    return ReadSettings(ClusterSettings("kafka", ()), **changed)


# --- damage -----------------------------------------------------------------------------------


def judged_damage(
    error: BadRecord,
    action: Action,
    sender: Sender = Sender.LEADER,
    first: int | None = BASE,
    until: int = 50,
) -> DecidedLoss | Fail | None:
    return judge_damage(error, sender, Policy(corrupt=action), SLICE, first, until)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("error", [bad(), bad(BASE), bad(BASE, END)])
@pytest.mark.parametrize("sender", [s for s in Sender if not s.proves_damage])
def test_damage_that_its_sender_does_not_prove_is_read_at_the_leader(
    sender: Sender, error: BadRecord, action: Action
) -> None:
    assert judged_damage(error, action, sender) is None
    assert judged_damage(error, action, sender, first=None) is None


@pytest.mark.parametrize("sender", [s for s in Sender if s.proves_damage])
@pytest.mark.parametrize(
    ("error", "action", "until", "lost_until"),
    [
        (bad(BASE, END), Action.SKIP, 50, END),
        (bad(BASE, END), Action.SKIP, 25, 25),  # the slice or the response ends inside of it
        (bad(BASE, END), Action.QUARANTINE, 50, END),
        (bad(BASE, END, has_bytes=False), Action.SKIP, 50, END),
        (bad(BASE, END), Action.HOLD, 50, 100),
        (bad(BASE, None), Action.HOLD, 50, 100),
        (bad(), Action.HOLD, 50, 100),
    ],
)
def test_the_policy_says_what_is_lost_by_damage(
    error: BadRecord, action: Action, until: int, lost_until: int, sender: Sender
) -> None:
    evidence = f"{error.what}: {error.why}"
    loss = DecidedLoss(P, BASE, lost_until, LossKind.CORRUPT, evidence, action=action)
    assert judged_damage(error, action, sender, until=until) == loss


@pytest.mark.parametrize(
    ("error", "action", "first", "why"),
    [
        (bad(BASE, END), Action.FAIL, BASE, "torn"),
        (bad(), Action.HOLD, None, "torn"),  # where it begins is unknown, so nothing can be held
        (bad(), Action.SKIP, BASE, "its end is unknown, so `skip` cannot"),
        (bad(BASE, None), Action.SKIP, BASE, "its end is unknown, so `skip` cannot"),
        (bad(BASE, None), Action.QUARANTINE, BASE, "its end is unknown, so `quarantine` cannot"),
        (bad(BASE, END), Action.SKIP, END, "its end is unknown, so `skip` cannot"),
        (bad(BASE, END, has_bytes=False), Action.QUARANTINE, BASE, "no longer returns its bytes"),
    ],
)
def test_damage_that_the_policy_cannot_pass_ends_the_run(
    error: BadRecord, action: Action, first: int | None, why: str
) -> None:
    judged = judged_damage(error, action, first=first)
    assert isinstance(judged, Fail)
    assert isinstance(judged.error, BadRecord)
    assert judged.error.what == "t/0: bad"
    assert why in judged.error.why


@pytest.mark.parametrize(
    ("damage", "next_offset", "good_end", "first"),
    [
        (None, 10, 50, None),
        (Damage(20), 10, 50, 20),
        (Damage(5), 10, 50, 10),  # it began before
        (Damage(60), 10, 50, 60),  # after what was tried, and within the response
        (Damage(60, None, 40), 10, 50, 40),  # everything before 40 was decoded
        (Damage(60, None, 5), 10, 50, 10),
        (Damage(200), 10, 50, 10),  # where it cannot be: nothing shows where it begins
        (Damage(200, None, 45), 10, 50, 45),
    ],
)
def test_damage_begins_where_nothing_before_it_is_in_doubt(
    damage: Damage | None, next_offset: int, good_end: int, first: int | None
) -> None:
    assert first_damaged(damage, next_offset, good_end, 100) == first


@pytest.mark.parametrize(
    ("error", "at_leader", "at_replica"),
    [
        (bad(), None, None),
        (bad(BASE, END), END, BASE),
        (bad(BASE, None), BASE, BASE),
        (bad(10, END), END, None),  # it begins at the requested offset
        (bad(5, 10), None, None),
    ],
)
def test_a_damaged_response_is_passed_up_to_an_edge_that_its_sender_proves(
    error: BadRecord, at_leader: int | None, at_replica: int | None
) -> None:
    for sender in Sender:
        expected = at_leader if sender.proves_range else at_replica
        assert passable_until(error, 10, sender) == expected


def test_damage_is_located_and_keeps_its_own_advice() -> None:
    error = BadRecord("bad", why="torn", do="restore it", damage=Damage(BASE))
    located = located_damage_error(error, P, "b1:1", Capabilities())
    assert (located.what, located.why, located.do) == ("t/0: bad", "torn", "restore it")
    assert (located.damage, located.facts["leader"]) == (Damage(BASE), "b1:1")
    with_tool = located_damage_error(bad(BASE), P, "b1:1", Capabilities(log_tool="dump"))
    assert with_tool.do == "check the log segment on the leader with dump"


# --- gaps -------------------------------------------------------------------------------------

COMPACTS, DELETES, UNKNOWN = (CleanupPolicy(x, "as it says") for x in (True, False, None))


def judged_gap(cleanup: CleanupPolicy, action: Action, sender: Sender) -> DecidedLoss | Fail | None:
    return judge_gap(cleanup, sender, Policy(missing=action), SLICE, BASE, END)


@pytest.mark.parametrize("action", [Action.FAIL, Action.SKIP, Action.HOLD])
@pytest.mark.parametrize("cleanup", [DELETES, UNKNOWN])
@pytest.mark.parametrize("sender", [s for s in Sender if s is not Sender.LEADER_AGAIN])
def test_a_gap_without_an_explanation_is_read_at_the_leader_once_more(
    sender: Sender, cleanup: CleanupPolicy, action: Action
) -> None:
    assert judged_gap(cleanup, action, sender) is None


@pytest.mark.parametrize("cleanup", [DELETES, UNKNOWN])
def test_a_gap_that_the_leader_shows_again_is_missing(cleanup: CleanupPolicy) -> None:
    for action, until in ((Action.SKIP, END), (Action.HOLD, 100)):
        loss = judged_gap(cleanup, action, Sender.LEADER_AGAIN)
        assert isinstance(loss, DecidedLoss)
        bounds = (loss.from_offset, loss.until_offset, loss.kind, loss.action)
        assert bounds == (BASE, until, LossKind.MISSING, action)
        assert loss.evidence.endswith("not known to be the reason: as it says")
    failing = judged_gap(cleanup, Action.FAIL, Sender.LEADER_AGAIN)
    assert isinstance(failing, Fail)
    assert isinstance(failing.error, RangeLost)
    assert failing.error.what == "t/0 [20, 30) missing"


def test_so_many_gaps_of_one_slice_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_judgement, "MAX_LOSSES", 2)
    loss = DecidedLoss(P, BASE, END, LossKind.MISSING, "", action=Action.SKIP)
    assert too_many_gaps_error(SLICE, 2, loss) is None
    error = too_many_gaps_error(SLICE, 3, loss)
    assert error is not None
    assert "has more than 2 gaps, the last of them" in error.what
    assert "source.compacted" in error.do


# --- how a topic is cleaned -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compacted", "names"), [((), None), (("tt",), None), (("a", "t"), "t"), (("[st]",), "[st]")]
)
def test_a_job_file_may_say_that_a_topic_is_compacted(
    compacted: tuple[str, ...], names: str | None
) -> None:
    stated = names and CleanupPolicy(True, f"source.compacted names {names}")
    assert stated_cleanup("t", settings_of(compacted=compacted)) == stated


@pytest.mark.parametrize(
    ("reported", "registered", "compacts", "evidence"),
    [
        (COMPACTS, None, True, "as it says"),
        (DELETES, (("t", "compact"),), False, "as it says"),
        (UNKNOWN, (("t", "delete,compact"),), True, "in ZooKeeper is delete,compact"),
        (UNKNOWN, (("t", "delete"),), False, "in ZooKeeper is delete"),
        (UNKNOWN, (("other", "compact"),), None, "in ZooKeeper is not set"),
    ],
)
def test_zookeeper_is_believed_where_brokers_do_not_know(
    reported: CleanupPolicy,
    registered: tuple[tuple[str, str], ...] | None,
    compacts: bool | None,
    evidence: str,
) -> None:
    settings = settings_of(asks_zookeeper=True, zookeeper_cleanup=registered)
    found = judge_cleanup("t", reported, settings)
    assert isinstance(found, CleanupPolicy)
    assert found.compacts is compacts
    assert found.evidence.endswith(evidence)


def test_where_nobody_else_may_know_it_what_brokers_report_counts() -> None:
    for reported in (COMPACTS, DELETES, UNKNOWN):
        assert judge_cleanup("t", reported, settings_of()) == reported


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        (
            NoSeedAnswered({Address("b1", 1): "gone", Address("b2", 2): "refused"}),
            "b1:1: gone; b2:2: ref",
        ),
        (UNKNOWN, "ZooKeeper could not be asked"),
    ],
)
def test_one_that_may_know_it_and_cannot_be_asked_is_asked_by_a_later_run(
    reported: CleanupPolicy | NoSeedAnswered, why: str
) -> None:
    judged = judge_cleanup("t", reported, settings_of(asks_zookeeper=True))
    assert isinstance(judged, Fail)
    assert isinstance(judged.error, Unreachable)
    assert "whether it is compacted" in judged.error.what
    assert why in judged.error.why
