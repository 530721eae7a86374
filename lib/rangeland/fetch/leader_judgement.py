"""Decides what metadata, a leader's report of its log's range, or a response without records means
for a slice: an event of the table in ``slice_state``, with the loss that it causes or makes likely.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.dialects.cluster_values import ClusterView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.fetch.replica_choice import ReadMode, Sender
from rangeland.fetch.slice_failures import refused_error, rest_lost_observation
from rangeland.fetch.slice_state import Fail, Observation, SliceEvent, SliceState, Suspicion
from rangeland.loss import LossKind
from rangeland.model import Address, Leader, Partition
from rangeland.planning.policy import Policy
from rangeland.survey.wanted_partitions import absent_brokers

SHORT_END_REPORTS = 2
"""How often a leader must report that its log ends too early before that is believed."""
SHORT_END_MS = 5_000
"""The minimum time between the first and the last of these reports if no epoch confirms the end:
the broker may just have started."""
OTHER_TOPIC_MS = 5_000
"""How long metadata must name another topic id: a broker that lags may name an old one."""


@dataclass(frozen=True, slots=True)
class FoundLeaders:
    """The current leaders of partitions, according to metadata."""

    leaders: Mapping[Partition, Leader] = field(default_factory=dict)
    """A partition that is missing here has no known leader yet."""
    unknown: frozenset[Partition] = frozenset()
    """Partitions that do not exist according to the cluster."""
    unreachable: Mapping[Partition, str] = field(default_factory=dict)
    """Why no leader is known: the only broker that has a partition cannot be asked for it, or no
    broker could be asked at all."""
    answered_by: Address | None = None
    """The broker that answered, if it was a single one."""
    unsupported: Mapping[Partition, str] = field(default_factory=dict)
    """Partitions that this client cannot read from any broker, each with the reason."""


def judge_metadata(
    view: ClusterView, partitions: Sequence[Partition], named_brokers: Collection[str]
) -> FoundLeaders:
    """The meaning of metadata for these partitions. ``named_brokers``: the names of the brokers
    that were asked, if each has its own partitions."""
    answered = (topic for topic in view.topics.values() if topic.meaning is ErrorMeaning.OK)
    leaders = {p: leader for topic in answered for p, leader in topic.leaders.items()}
    absent = absent_brokers(view, named_brokers)
    led = {p for p, leader in leaders.items() if leader.address is not None}
    unled = (p for p in partitions if p not in led)
    unreachable = {p: why for p in unled if (why := absent.why_unreachable(p))}
    unnamed = [p for p in partitions if p not in leaders and p not in unreachable]
    unknown = frozenset(p for p in unnamed if _is_unknown(view, p))
    topics = view.topics.values()
    reasons = {t.name: t.code_name for t in topics if t.meaning is ErrorMeaning.UNSUPPORTED}
    unsupported = {p: reasons[p.topic] for p in unnamed if p.topic in reasons}
    return FoundLeaders(leaders, unknown, unreachable, view.answered_by, unsupported)


def _is_unknown(view: ClusterView, partition: Partition) -> bool:
    """Whether the cluster reports that the topic, or the partition in it, does not exist."""
    topic = view.topics.get(partition.topic)
    return topic is None or topic.meaning is ErrorMeaning.OK or topic.is_unknown


def judge_empty(state: SliceState, readable_end: int | None, *, throttled: bool) -> Observation:
    """The meaning of a response without records and without an error. It proves nothing: a quota, a
    slow disk or slow remote storage looks the same as a log without records. ``readable_end``: the
    offset up to which the log can be read, if the sender has said so."""
    sender = state.broker.sender
    if sender is Sender.REPLICA:
        unproved = unproved_observation(state, "it answered without records")
        return replace(unproved, event=SliceEvent.NO_RECORDS) if throttled else unproved
    answer = "its leader answered without records"
    if readable_end is None:
        # Idle, truncated and deleted logs look the same here, so the end is requested.
        return Observation(SliceEvent.NO_RECORDS_AT_END, answer)
    if readable_end >= state.slice.until_offset:
        reason = f"{answer}, though its log is readable up to {readable_end}"
        return Observation(SliceEvent.NO_RECORDS, reason, asks_alone=True)
    # Newer brokers also answer as followers: the plan's leader may lag now.
    event = SliceEvent.NO_RECORDS_AT_END if sender.proves_end else SliceEvent.LEADER_FAILED
    return Observation(event, f"its leader's log is readable up to {readable_end} only")


def proved_end(
    leader: Leader, readable_end: int, epoch_end: int | None, *, has_epochs: bool
) -> int | None:
    """The end of a leader's log, including records that are not readable yet; None if unknown. Its
    high watermark may lag for a while; the end of its epoch does not. ``epoch_end``: None if the
    broker cannot report it."""
    if not has_epochs:
        return readable_end
    # With a single replica the high watermark does not wait for others.
    return readable_end if epoch_end is None and leader.copies == 1 else epoch_end


def judge_log_range(
    state: SliceState,
    policy: Policy,
    now_ms: int,
    log_start: int,
    log_end: int,
    written_end: int | None,
    *,
    has_epochs: bool,
) -> Observation | Fail:
    """Judges a leader's report that its log is readable in ``[log_start, log_end)``, for a slice
    whose next offset was outside the log or at its end. ``written_end``: the end including records
    that are not readable yet, if known."""
    reason = state.retry.last_failure
    next_offset = state.next_offset
    if not state.broker.sender.proves_range:
        return unproved_observation(state, f"its log is [{log_start}, {log_end})")
    if next_offset < log_start:
        evidence = f"{reason}; the nearest valid offset is {log_start}"
        return rest_lost_observation(
            state, policy, LossKind.EXPIRED, evidence, until_offset=log_start
        )
    if written_end is not None and max(written_end, log_end) <= next_offset:
        return _judge_short_end(state, policy, now_ms, written_end, has_epochs=has_epochs)
    if next_offset > log_end:
        # A leader that has just taken over may lag for a moment.
        evidence = f"{reason}; its log ends at {log_end}"
        suspicion = state.suspicion_of(LossKind.TRUNCATED, evidence, now_ms)
        return _suspect(SliceEvent.LEADER_FAILED, suspicion)
    return Observation(SliceEvent.IN_RANGE, reason)


def _judge_short_end(
    state: SliceState, policy: Policy, now_ms: int, written_end: int, *, has_epochs: bool
) -> Observation | Fail:
    """The meaning of a log that ends at or before the next offset, although the slice continues.
    The sender may no longer be the leader, so its report counts only the second time, after new
    metadata."""
    evidence = f"the log of its leader {state.broker.address} ends at {written_end}"
    reports = state.short_ends + (1 if state.broker.sender.proves_end else 0)
    is_long = has_epochs or (reports > 1 and now_ms - state.short_end_at_ms >= SHORT_END_MS)
    if reports < SHORT_END_REPORTS or not is_long:
        suspicion = state.suspicion_of(LossKind.TRUNCATED, evidence, now_ms)
        return _suspect(SliceEvent.ENDS_HERE, suspicion)
    evidence += f"; asked {reports} times, with metadata from other brokers if any"
    return rest_lost_observation(state, policy, LossKind.TRUNCATED, evidence)


def judge_leader(
    state: SliceState, policy: Policy, now_ms: int, found: FoundLeaders
) -> Observation | Fail:
    """The meaning of the leader that metadata names, if it names one. If the cluster reports that a
    partition does not exist, this is believed only if it is still so at the deadline."""
    partition = state.slice.partition
    leader = found.leaders.get(partition)
    if partition in found.unsupported:
        reason = found.unsupported[partition]
        return Fail(refused_error(state, ErrorMeaning.UNSUPPORTED, reason))
    if leader is None and partition in found.unknown:
        evidence = "the cluster no longer names this partition"
        suspicion = state.suspicion_of(LossKind.VANISHED, evidence, now_ms)
        return _suspect(SliceEvent.NO_LEADER, suspicion)
    if leader is None or leader.address is None:
        why = found.unreachable.get(partition, "it has no leader")
        return Observation(SliceEvent.NO_LEADER, why)
    if leader.is_replica and state.broker.mode is ReadMode.LEADER_ONLY:
        reason = f"its leader is down, and {leader.address} is only a replica"
        return Observation(SliceEvent.NO_LEADER, reason)
    planned = state.slice.topic_id
    if planned and leader.topic_id and planned != leader.topic_id:
        evidence = f"its topic id was {planned} when planned and is {leader.topic_id} now"
        suspicion = state.suspicion_of(LossKind.RECREATED, evidence, now_ms, leader.topic_id)
        if now_ms - suspicion.since_ms < OTHER_TOPIC_MS:
            return _suspect(SliceEvent.NO_LEADER, suspicion)
        return rest_lost_observation(state, policy, LossKind.RECREATED, evidence)
    if state.broker.is_deposed(leader):
        return _judge_earlier_epoch(state, now_ms, leader)
    if leader.address == state.left_leader and state.retry.failures <= 1:
        # Metadata names nothing new, so this leader gets a moment to recover.
        return Observation(SliceEvent.NO_LEADER, state.retry.last_failure, supports=state.suspicion)
    return Observation(SliceEvent.LEADER_FOUND, leader=leader)


def _judge_earlier_epoch(state: SliceState, now_ms: int, leader: Leader) -> Observation:
    """The meaning of metadata that names a leader of an earlier epoch than the known one: it is
    stale, so other brokers are asked. If no topic id shows that the log is the same, the topic may
    also have been recreated, which is believed if it is still so at the deadline."""
    known = state.broker.known_epoch
    evidence = (
        f"metadata names its leader of epoch {leader.epoch}, but epoch {known} is already known"
    )
    if state.slice.topic_id is not None and leader.topic_id is not None:
        return Observation(SliceEvent.NO_LEADER, evidence)
    suspicion = state.suspicion_of(LossKind.RECREATED, evidence, now_ms)
    return _suspect(SliceEvent.NO_LEADER, suspicion)


def _suspect(event: SliceEvent, suspicion: Suspicion) -> Observation:
    return Observation(event, suspicion.evidence, supports=suspicion)


def unproved_observation(state: SliceState, evidence: str) -> Observation:
    """The observation that the broker has sent something it cannot prove, so that the leader is
    asked: the broker may be a lagging replica, or no longer the leader."""
    is_leader = state.broker.sender.proves_range
    which = "" if is_leader else f"{state.broker.address}, a replica that may lag, is read; "
    return Observation(state.failure, which + evidence)
