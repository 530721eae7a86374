"""The action for a loss: by loss kind, unless the topic has its own."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from rangeland.errors import BadRecord, Damage, DamagedLog, JobFileError, RangeLost
from rangeland.job import Job
from rangeland.job.policy_section import PolicySpec, TopicPolicy
from rangeland.job.section import Section
from rangeland.landing.target.loss_records import losses_in
from rangeland.loss import TRAITS, Action, Loss, LossKind
from rangeland.model import Partition
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import PLAN_JSON
from rangeland.planning.policy import Policy, TopicRule

JOB = """
job: orders
source: {servers: [localhost:9092], TOPICS}
sink: {table: lake/orders}
policy:
  expired: skip
  topics:
    orders: {expired: fail}
    audit-.*: {corrupt: hold, expired: hold}
    .*: {vanished: skip}
"""


def policy(topics: str = 'topic_pattern: "a.*|orders.*"') -> Policy:
    return Job.parse(JOB.replace("TOPICS", topics)).policies


@pytest.mark.parametrize(
    ("topic", "kind", "action"),
    [
        ("orders", LossKind.EXPIRED, Action.FAIL),
        ("orders", LossKind.VANISHED, Action.FAIL),  # the first that fits counts, and it alone
        ("audit-eu", LossKind.CORRUPT, Action.HOLD),
        ("audit-eu", LossKind.TRUNCATED, Action.FAIL),
        ("orders-2", LossKind.EXPIRED, Action.SKIP),
        ("orders-2", LossKind.VANISHED, Action.SKIP),
    ],
)
def test_the_first_rule_that_fits_a_topic_decides(
    topic: str, kind: LossKind, action: Action
) -> None:
    assert policy().of(kind, topic) is action


def test_a_rule_is_a_name_or_matches_all_of_one() -> None:
    assert TopicRule("a.b", ()).matches("a.b")
    assert TopicRule("a+b", ()).matches("a+b")
    assert not TopicRule("a.b", ()).matches("xa.b")


def test_some_topic_may_be_held_though_others_are_not() -> None:
    found = policy()
    assert found.ever(LossKind.CORRUPT, Action.HOLD)
    assert not found.ever(LossKind.RECREATED, Action.HOLD)


def test_rules_for_topics_that_a_job_does_not_read_are_refused() -> None:
    with pytest.raises(JobFileError, match=r"policy\.topics\.audit-\.\*: expected a topic of this"):
        policy("topics: [orders]")


@pytest.mark.parametrize("wrong", ["{a: {expired: quarantine}}", "{a: {unreachable: skip}}"])
def test_a_topic_s_words_are_those_of_the_kind(wrong: str) -> None:
    text = JOB.replace("TOPICS", "topics: [a]").partition("policy:")[0]
    with pytest.raises(JobFileError, match=r"policy\.topics\.a"):
        Job.parse(f"{text}policy: {{topics: {wrong}}}")


def test_each_kind_has_a_row() -> None:
    assert set(TRAITS) == set(LossKind)


@pytest.mark.parametrize("section", [PolicySpec, TopicPolicy])
def test_a_job_file_may_choose_what_the_table_of_kinds_allows(section: type[Section]) -> None:
    for kind, traits in TRAITS.items():
        chosen = section.model_json_schema()["properties"][kind.value]
        options = next((one for one in chosen.get("anyOf", ()) if "enum" in one), chosen)["enum"]
        assert options == [action.value for action in traits.actions], kind


def test_only_what_is_surely_lost_is_skipped() -> None:
    policy = Policy.all(Action.SKIP)
    loss = Loss(Partition("t", 0), 0, 5, LossKind.TRUNCATED, "the log ends at 0")
    unsure, away = replace(loss, is_sure=False), replace(loss, kind=LossKind.UNREACHABLE)
    assert [policy.action_for(one) for one in (loss, unsure, away)] == [
        Action.SKIP,
        Action.FAIL,
        Action.FAIL,
    ]
    assert policy.reads_again(unsure)
    assert Policy.all(Action.HOLD).action_for(away) is Action.HOLD


def test_a_loss_has_an_action_once_a_policy_has_decided() -> None:
    loss = Loss(Partition("t", 0), 0, 5, LossKind.EXPIRED, "gone", is_sure=False, topic_id="A")
    assert not hasattr(loss, "action")
    for action in (Action.FAIL, Action.HOLD):
        decided = Policy.all(action).decide_loss(loss)
        assert decided == loss.with_action(action)
        assert (decided.is_sure, decided.topic_id, decided.interval) == (False, "A", (0, 5))
    assert Policy.all(Action.SKIP).decide_loss(loss).action is Action.FAIL, "it is not sure"


def test_the_losses_of_an_error_are_found_again() -> None:
    found = Loss(Partition("t", 1, "b-1"), 5, 9, LossKind.EXPIRED, "the log begins at 9")
    loss = found.with_action(Action.FAIL)
    error = range_lost_error([loss])
    assert losses_in(error) == losses_in(pickle.loads(pickle.dumps(error))) == [loss]
    assert error.facts == {"losses": [PLAN_JSON.write(found)]}
    bad = BadRecord(
        "t/1: the batch", why="why", damage=Damage(3), log=DamagedLog(Partition("t", 1))
    )
    (found,) = losses_in(bad)
    assert (found.from_offset, found.until_offset, found.kind) == (3, 3, LossKind.CORRUPT)


def test_offsets_that_a_log_has_not_reached_are_not_said_to_be_gone() -> None:
    beyond = Loss(Partition("t", 0), 500, 900, LossKind.TRUNCATED, "the log ends at 500")
    gone = Loss(Partition("t", 1), 0, 5, LossKind.EXPIRED, "the log begins at 5")
    only_beyond = range_lost_error([beyond])
    assert only_beyond.retry.startswith("not before the log has reached them")
    assert "no longer" not in only_beyond.data
    both = range_lost_error([beyond, gone])
    assert (both.retry, both.data) == (RangeLost.retry, RangeLost.data)
