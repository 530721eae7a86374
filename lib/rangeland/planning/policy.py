"""The policy: what to do about each kind of loss, as a value. It is decided here and nowhere else.

There is no boolean for "data loss". Each kind of loss has its own action: *fail* ends the run,
*skip* continues and records the lost offsets, *hold* leaves that partition where it is and lands
the others, *quarantine* stores the bytes that cannot be decoded and continues. Topics may have
their own rules: the first rule whose pattern is the topic's name, or matches all of it, decides the
kinds that it names; the general policy decides the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.patterns import matches


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Actions for some kinds of loss, in the topics that a pattern matches."""

    pattern: str
    actions: tuple[tuple[LossKind, Action], ...]

    def matches(self, topic: str) -> bool:
        return topic == self.pattern or matches(self.pattern, topic)


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """One action per kind of loss, and rules for ``topics``."""

    actions: Mapping[LossKind, Action]
    topics: tuple[TopicRule, ...]

    def __init__(self, topics: tuple[TopicRule, ...] = (), **actions: Action) -> None:
        """``actions``: actions by the names of kinds of loss. Other kinds fail."""
        by_kind = dict.fromkeys(LossKind, Action.FAIL)
        by_kind |= {LossKind(name): action for name, action in actions.items()}
        object.__setattr__(self, "actions", by_kind)
        object.__setattr__(self, "topics", topics)

    @staticmethod
    def all(action: Action) -> Policy:
        """The same action for every kind."""
        return Policy((), **dict.fromkeys(LossKind, action))

    def action_for(self, loss: Loss) -> Action:
        """The action for a loss. Offsets that may turn out not to be lost are not skipped."""
        action = self.of(loss.kind, loss.partition.topic)
        may_skip = loss.is_sure and Action.SKIP in loss.kind.traits.actions
        return Action.FAIL if action is Action.SKIP and not may_skip else action

    def decide_loss(self, loss: Loss) -> DecidedLoss:
        """The loss with its action."""
        return loss.with_action(self.action_for(loss))

    def reads_again(self, loss: Loss) -> bool:
        """Whether a plan is read once more if this loss occurred while its log was read: a second
        reading, from the beginning, finds out whether it is a loss."""
        return self.of(loss.kind, loss.partition.topic) in loss.kind.traits.read_again

    def of(self, kind: LossKind, topic: str) -> Action:
        """The action that the job specifies for a kind of loss in a topic."""
        rule = next((rule for rule in self.topics if rule.matches(topic)), None)
        general = self.actions[kind]
        return general if rule is None else dict(rule.actions).get(kind, general)

    def without_receipts(self) -> Policy:
        """The policy for reading a DataFrame, without receipts or a quarantine: losses that would
        be held or quarantined fail. What may be skipped is left out silently."""

        def strict(action: Action) -> Action:
            return action if action is Action.SKIP else Action.FAIL

        rules = tuple(
            replace(rule, actions=tuple((kind, strict(action)) for kind, action in rule.actions))
            for rule in self.topics
        )
        return Policy(rules, **{kind: strict(action) for kind, action in self.actions.items()})

    def ever(self, kind: LossKind, action: Action) -> bool:
        """Whether this action applies to any topic."""
        rules = [dict(rule.actions).get(kind) for rule in self.topics]
        return action in (self.actions[kind], *rules)

    @property
    def tolerates_missing_leaders(self) -> bool:
        """Whether a survey may continue without partitions that have no leader, because some are
        then held."""
        return self.ever(LossKind.UNREACHABLE, Action.HOLD)
