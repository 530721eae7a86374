"""Offsets between two entries of a log: compacted, or missing.

A decoder that finds a gap does not know its cause. Compaction explains it if the topic's
configuration contains `compact`, or if the job file names the topic (`source.compacted`). Nothing
else does: a log that has lost a segment looks the same. So the brokers are asked at the first gap
of a topic, which most logs do not have.

Without that evidence a gap is not called compacted. Brokers before 0.11 and those that refuse
DescribeConfigs do not report the configuration, and an empty override in ZooKeeper proves nothing.

The entry after a gap proves that there is one. A log that ends with a gap looks like a slow
response, so it is waited for. Before 4.0 a cleaner may leave such an end, if all that it had kept
there was removed later; the next record written shows the gap. Plain messages of formats 0 and 1
each stand for themselves, so compaction between them needs the same evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rangeland.dialects.cluster_values import CleanupPolicy, NoReply
from rangeland.errors import Unreachable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_failures import log_loss, settle_loss
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Address, Slice
from rangeland.patterns import matches
from rangeland.planning.loss_errors import range_lost_error

MAX_LOSSES = 10_000
"""Gaps of one slice that are recorded as lost, at most."""
AskCleanup = Callable[[str, Sequence[Address]], CleanupPolicy | NoReply]


class GapExplainer:
    """Explains gaps in the logs of one task. Not for several threads at once. ``ask`` asks brokers
    for the cleanup policy of a topic, those given first."""

    def __init__(self, settings: ReadSettings, ask: AskCleanup) -> None:
        self._settings = settings
        self._ask = ask
        self._known: dict[str, CleanupPolicy] = {}
        self._lost: dict[int, int] = {}

    def are_explained(self, topic: str) -> bool:
        """Whether gaps of this topic are known to come from compaction."""
        known = self._known.get(topic)
        return known is not None and known.compacts is True

    def explain(self, topic: str, asked: Sequence[Address]) -> bool:
        """Whether compaction explains gaps in this topic's log. The brokers in ``asked`` are asked
        first. Raises Unreachable if no broker answers now."""
        if topic not in self._known:
            self._known[topic] = self._find_out(topic, asked)
        return self.are_explained(topic)

    def loss_of(self, slice_: Slice, from_offset: int, until_offset: int) -> Loss:
        """The gap as a loss, with what the policy does about it. Raises RangeLost if the policy is
        to fail."""
        partition = slice_.partition
        evidence = (
            "the log has nothing at these offsets and continues after them, and compaction is not "
            f"known to be the reason: {self._known[partition.topic].evidence}"
        )
        loss = Loss(partition, from_offset, until_offset, LossKind.MISSING, evidence)
        loss = settle_loss(loss, self._settings.policy, slice_)
        self._count(slice_, loss)
        return loss

    def _count(self, slice_: Slice, loss: Loss) -> None:
        self._lost[slice_.index] = self._lost.get(slice_.index, 0) + 1
        if self._lost[slice_.index] == 1 or loss.action is Action.HOLD:
            log_loss(loss)
        if self._lost[slice_.index] > MAX_LOSSES:
            raise range_lost_error([loss]).with_words(
                what=f"{slice_} has more than {MAX_LOSSES} gaps, the last of them {loss}",
                do="if it is or was compacted, name the topic in `source.compacted`",
            )

    def _find_out(self, topic: str, asked: Sequence[Address]) -> CleanupPolicy:
        settings = self._settings
        for pattern in settings.compacted:
            if topic == pattern or matches(pattern, topic):
                return CleanupPolicy(True, f"source.compacted names {pattern}")
        reported = self._ask(topic, asked)
        if isinstance(reported, NoReply):
            why = "; ".join(f"{address}: {why}" for address, why in reported.tried.items())
            raise self._unanswered_error(topic, why)
        if reported.compacts is not None or not settings.asks_zookeeper:
            return reported
        if settings.zookeeper_cleanup is None:
            raise self._unanswered_error(topic, "ZooKeeper could not be asked when reading began")
        registered = dict(settings.zookeeper_cleanup).get(topic, "")
        why = f"{reported.evidence}; its cleanup.policy in ZooKeeper is {registered or 'not set'}"
        # If it is not set, the brokers' own default applies, which ZooKeeper does not have.
        return CleanupPolicy("compact" in registered.split(",") if registered else None, why)

    def _unanswered_error(self, topic: str, why: str) -> Unreachable:
        return Unreachable(
            f"the log of {topic} has a gap, and no broker could be asked whether it is compacted",
            why=why,
            do="run again when the brokers are up: the same plan is read again",
            topic=topic,
        )
