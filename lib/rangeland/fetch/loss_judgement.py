"""Judges damage and gaps in a log, and applies the policy to any loss of a slice. The result is a
loss with its action, or the error that ends the run. For damage or a gap, it may also be None, if
the sender does not prove it, so that the leader has to be read first.

**Damage** can be found at two points: when the end of a response is determined, and when its
records are decoded. It is judged by ``BadRecord.damage`` and by its sender.

**A gap** lies between two entries, and the decoder that finds it does not know its cause.
Compaction explains it if the topic's configuration contains `compact`, or if the job file names the
topic (`source.compacted`). Nothing else does: a log that has lost a segment looks the same. So the
brokers are asked at the first gap of a topic; most logs have none.

Without that evidence a gap is not called compacted. Brokers before 0.11 and those that refuse
DescribeConfigs do not report the configuration, and an empty override in ZooKeeper proves nothing.

The entry after a gap proves that the gap exists. A log that ends with a gap looks like a slow
response, so the reader waits. Before Kafka 4.0, a cleaner may leave such an end, if everything that
it had kept there was removed later; the next record written then shows the gap. Plain messages of
formats 0 and 1 are entries of their own, so compaction between them needs the same evidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import CleanupPolicy, NoSeedAnswered
from rangeland.errors import BadRecord, Damage, DamagedLog, RangelandError, RangeLost, Unreachable
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import Fail
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Partition, Slice
from rangeland.patterns import matches
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.policy import Policy

if TYPE_CHECKING:
    from rangeland.fetch.read_settings import ReadSettings

MAX_LOSSES = 10_000
"""The maximum number of gaps in one slice that are recorded as lost, and of losses by undecodable
records: each is a row of the ledger. More than that suggests a mistake in the job file rather than
a damaged log."""


def decide_loss(
    loss: Loss, policy: Policy, slice_: Slice, error: RangelandError | None = None
) -> DecidedLoss | Fail:
    """The loss within the slice, with its action; a held loss extends to the slice's end.
    ``error``: the error that ends the run if the policy is to fail, RangeLost by default."""
    end = slice_.until_offset
    decided = policy.decide_loss(replace(loss, until_offset=min(loss.until_offset, end)))
    if decided.action is Action.FAIL:
        return Fail(error or range_lost_error([decided]))
    return replace(decided, until_offset=end) if decided.action is Action.HOLD else decided


# --- damage -----------------------------------------------------------------------------------


def inspection_advice(what: str, capabilities: Capabilities) -> str:
    """What to do about damaged bytes, naming the tool with which an operator can inspect them."""
    return f"check {what} on the leader" + (
        f" with {capabilities.log_tool}" if capabilities.log_tool else ""
    )


def located_damage_error(
    error: BadRecord, partition: Partition, address: str, capabilities: Capabilities
) -> BadRecord:
    """A decoder's error, completed with the partition and the broker, which the decoder does not
    know."""
    located = error.with_words(
        what=f"{partition}: {error.what}",
        do=error.do or inspection_advice("the log segment", capabilities),
    )
    return located.with_values(log=DamagedLog(partition)).with_facts(leader=address)


def passable_until(error: BadRecord, asked_at: int, sender: Sender) -> int | None:
    """The offset up to which a damaged response to a request at ``asked_at`` can be taken: the end
    of the damage, or its beginning, so that decoding sees the records around it. None if neither is
    known. Damage that a replica may have sent is never passed: the leader is read instead."""
    damage = error.damage
    if damage is None:
        return None
    edges = (damage.next_offset, damage.base_offset)
    passable = edges if sender.proves_range else edges[1:]
    return next((edge for edge in passable if edge is not None and edge > asked_at), None)


def first_damaged(
    damage: Damage | None, next_offset: int, good_end: int, until_offset: int
) -> int | None:
    """The first offset of ``[next_offset, until_offset)`` that cannot be decoded, None if unknown.
    ``good_end``: the end of the offsets that were to be decoded."""
    if damage is None:
        return None
    first = max(next_offset, damage.base_offset)
    if first < good_end:
        return first
    # Only the damaged bytes themselves say where they begin, so the offsets before are in doubt.
    doubtful_from = next_offset if first >= until_offset else first
    return max(next_offset, doubtful_from if damage.good_until is None else damage.good_until)


def judge_damage(
    error: BadRecord,
    sender: Sender,
    policy: Policy,
    slice_: Slice,
    from_offset: int | None,
    until_offset: int,
) -> DecidedLoss | Fail | None:
    """The loss by damage. It is skipped or quarantined up to ``until_offset`` at most, or the slice
    is held from there on. The run ends if the policy is to fail, or if reading cannot continue
    after the damage. None if the sender does not prove the damage, so that the leader must be read.
    ``from_offset``: the beginning of the damage; None if unknown."""
    if not sender.proves_damage:
        return None
    if from_offset is None:
        return Fail(error)
    evidence = f"{error.what}: {error.why}"
    damage = error.damage
    damaged = Loss(slice_.partition, from_offset, until_offset, LossKind.CORRUPT, evidence)
    loss = decide_loss(damaged, policy, slice_, error)
    if isinstance(loss, Fail) or loss.action is Action.HOLD:
        return loss
    if damage is None or damage.next_offset is None or damage.next_offset <= from_offset:
        reason = f"its end is unknown, so `{loss.action}` cannot continue after it"
        return Fail(_impassable_error(error, reason))
    if loss.action is Action.QUARANTINE and not damage.has_bytes:
        reason = "the leader no longer returns its bytes, so they cannot be quarantined"
        return Fail(_impassable_error(error, reason))
    return replace(loss, until_offset=min(until_offset, damage.next_offset))


def _impassable_error(error: BadRecord, reason: str) -> BadRecord:
    return error.with_words(
        why=f"{error.why}; {reason}",
        do="restore the log from a good replica, or land the other partitions with "
        "`policy: {corrupt: hold}`",
    )


# --- gaps -------------------------------------------------------------------------------------


def judge_gap(
    cleanup: CleanupPolicy,
    sender: Sender,
    policy: Policy,
    slice_: Slice,
    from_offset: int,
    until_offset: int,
) -> DecidedLoss | Fail | None:
    """The loss by a gap in the log of a topic whose cleanup policy does not explain it. None if the
    sender does not prove the gap, so that the leader has to be read."""
    if not sender.proves_gap:
        return None
    evidence = (
        "the log has nothing at these offsets and continues after them, and compaction is not "
        f"known to be the reason: {cleanup.evidence}"
    )
    loss = Loss(slice_.partition, from_offset, until_offset, LossKind.MISSING, evidence)
    return decide_loss(loss, policy, slice_)


def too_many_gaps_error(slice_: Slice, count: int, last: Loss) -> RangeLost | None:
    """The error if ``count`` gaps, up to the last one, are too many for one slice."""
    if count <= MAX_LOSSES:
        return None
    return range_lost_error([last]).with_words(
        what=f"{slice_} has more than {MAX_LOSSES} gaps, the last of them {last}",
        do="if it is or was compacted, name the topic in `source.compacted`",
    )


def stated_cleanup(topic: str, settings: ReadSettings) -> CleanupPolicy | None:
    """The cleanup policy of a topic, if the job file states it."""
    for pattern in settings.compacted:
        if topic == pattern or matches(pattern, topic):
            return CleanupPolicy(True, f"source.compacted names {pattern}")
    return None


def judge_cleanup(
    topic: str, reported: CleanupPolicy | NoSeedAnswered, settings: ReadSettings
) -> CleanupPolicy | Fail:
    """The cleanup policy of a topic according to brokers and ZooKeeper, or the error that ends the
    run if they could not be asked."""
    if isinstance(reported, NoSeedAnswered):
        why = "; ".join(f"{address}: {why}" for address, why in reported.tried.items())
        return Fail(_unanswered_error(topic, why))
    if reported.compacts is not None or not settings.asks_zookeeper:
        return reported
    if settings.zookeeper_cleanup is None:
        return Fail(_unanswered_error(topic, "ZooKeeper could not be asked when reading began"))
    registered = dict(settings.zookeeper_cleanup).get(topic, "")
    why = f"{reported.evidence}; its cleanup.policy in ZooKeeper is {registered or 'not set'}"
    # If it is not set, the brokers' own default applies, which is not stored in ZooKeeper.
    return CleanupPolicy("compact" in registered.split(",") if registered else None, why)


def _unanswered_error(topic: str, why: str) -> Unreachable:
    return Unreachable(
        f"the log of {topic} has a gap, and no broker could be asked whether it is compacted",
        why=why,
        do="run again when the brokers are up: the same plan is read again",
        topic=topic,
    )
