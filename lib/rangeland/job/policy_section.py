"""The section ``policy`` of a job file: what to do about each kind of loss."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from rangeland.job.section import Section
from rangeland.loss import Action, LossKind
from rangeland.patterns import check_pattern_is_valid
from rangeland.planning.policy import Policy, TopicRule

OnLoss = Literal["fail", "skip", "hold"]
OnSilence = Literal["fail", "hold"]
OnCorrupt = Literal["fail", "skip", "hold", "quarantine"]
OnUndecodable = Literal["fail", "skip", "quarantine"]


class TopicPolicy(Section):
    """The policy for some topics; for kinds that it omits, the general policy applies."""

    expired: OnLoss | None = None
    recreated: OnLoss | None = None
    truncated: OnLoss | None = None
    vanished: OnLoss | None = None
    unreachable: OnSilence | None = None
    corrupt: OnCorrupt | None = None
    missing: OnLoss | None = None
    undecodable: OnUndecodable | None = None

    def rule(self, pattern: str) -> TopicRule:
        words = self.model_dump(exclude_none=True)
        actions = tuple((LossKind(name), Action(word)) for name, word in words.items())
        return TopicRule(pattern, actions)


class PolicySpec(Section):
    """What to do about offsets that cannot be read: `fail` ends the run, `skip` continues and
    records the loss in the ledger, `hold` leaves that partition where it is and lands the
    others."""

    expired: OnLoss = Field(
        default="fail", description="Retention removed them before they were landed."
    )
    recreated: OnLoss = Field(
        default="fail",
        description="The topic was deleted and created again: its offsets now refer to other "
        "records.",
    )
    truncated: OnLoss = Field(
        default="fail",
        description="The log ends before the requested or landed offsets, as after an unclean "
        "leader election.",
    )
    vanished: OnLoss = Field(
        default="fail", description="A partition or topic that was landed no longer exists."
    )
    unreachable: OnSilence = Field(
        default="fail",
        description="The partition has no leader after `source.timeouts.survey_ms` of waiting. "
        "Nothing is lost: `fail` ends the run, to be tried again later; `hold` also goes on "
        "without a broker of Jafka or RocketMQ that is gone for good.",
    )
    corrupt: OnCorrupt = Field(
        default="fail",
        description="A batch cannot be decoded: checksum, codec or layout. `quarantine` keeps its "
        "bytes beside the table and continues; `rangeland redrive` lands what can be decoded "
        "later.",
    )
    missing: OnLoss = Field(
        default="fail",
        description="The log has an unexplained gap: brokers do not report that the topic is "
        "compacted, and the records after the gap exist. A log that has lost a segment looks like "
        "this.",
    )
    undecodable: OnUndecodable = Field(
        default="fail",
        description="A record is intact, but its key or value does not match `decode`: it is "
        "missing a required field, for example; or the transform raises an exception for it. Per "
        "record: `skip` counts it as lost, `quarantine` keeps its bytes, and `rangeland redrive` "
        "lands it once it can be decoded, for example with a corrected schema.",
    )
    topics: dict[str, TopicPolicy] = Field(
        default={},
        json_schema_extra={
            "title": "{topic: {loss kind: action}}",
            "examples": [{"orders": {"expired": "fail"}, "audit-.*": {"corrupt": "hold"}}],
        },
        description="Different policies for some topics, by name or by a pattern that matches "
        "the whole name. The first match counts; for kinds that it omits, the policy above "
        "applies.",
    )

    @field_validator("topics")
    @classmethod
    def _patterns(cls, topics: dict[str, TopicPolicy]) -> dict[str, TopicPolicy]:
        for pattern in topics:
            try:
                check_pattern_is_valid(pattern)
            except ValueError as error:
                raise ValueError(
                    f"a topic or an RE2 regular expression: {pattern}: {error}"
                ) from None
        return topics

    @property
    def values(self) -> Policy:
        general = self.model_dump(exclude={"topics"})
        rules = tuple(topic_policy.rule(pattern) for pattern, topic_policy in self.topics.items())
        return Policy(rules, **{name: Action(word) for name, word in general.items()})
