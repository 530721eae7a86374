"""The fetch loop as a state machine: leader failover per slice, no clock, no socket.

Whoever drives it asks ``next(now_ms)`` for the next step, does it, and reports what came
of it with one of the ``on_...`` methods. It descends from two consumers: the position is
advanced only by delivered data and stays on every error (SimpleConsumer); each round asks
one leader for all of its readable slices in one request, errors of one partition delay
that one only, and data is taken only if it was asked for at the present position (the
fetcher threads). A slice ends when its position reaches its ``until_offset``; it is never
short. What cannot end well ends in an error of the taxonomy.

Leaders: a lost connection or a stale-metadata code sends the slice to look for its leader
anew. The client never elects, it asks, waits and asks again. The same leader is given a
moment first, since it may only have hiccuped. A new leader's high watermark may be behind
what was acknowledged; that is waited for, until the deadline, and not taken for loss before.
Offsets that are gone end the run, unless the job's policy skips them: then they are counted.
Who is asked, leader or replica, is kept in ``replicas``; only a leader is believed in a loss.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import BadRecord, Bug
from rangeland.fetch.damage_policy import damage_loss
from rangeland.fetch.loop_actions import (
    AllRead,
    FetchLimits,
    FetchTarget,
    FindLeaders,
    SendFetch,
    SendLogRange,
    Step,
    WaitUntil,
)
from rangeland.fetch.replica_choice import ReplicaMove, ServingReplica
from rangeland.fetch.slice_state import (
    Phase,
    SliceState,
    asks_with,
    not_allowed,
    not_served,
    only_older,
    stuck,
    too_large,
    unreadable,
)
from rangeland.fetch.throttle import Throttle
from rangeland.model import Address, Leader, Partition, Slice
from rangeland.planning.loss_errors import range_lost
from rangeland.planning.policy import Action, Loss, LossKind, Policy

CUT_SHORT_LOOKS = 2
"""So many times a leader must say that its log ends too early before that is believed."""
CUT_SHORT_MS = 5_000
"""And for so long, where no epoch vouches for the end: its broker may just have started."""
AGAIN_MS = 500
"""Before it is asked again."""


@dataclass(slots=True)
class FetchLoop:
    """See the head of this file. ``now_ms`` must never run backwards."""

    slices: Sequence[Slice]
    patience: FetchLimits
    policy: Policy
    now_ms: int
    nature: Capabilities = field(default_factory=Capabilities)
    manners: Throttle = field(default_factory=Throttle)
    leader_only: bool = False
    """No replica is read: not one that a leader names, and none that stands in for it."""
    readings: dict[int, SliceState] = field(init=False)
    gone: list[tuple[int, Loss]] = field(init=False, default_factory=list)
    """(slice index, loss) of what a policy has skipped; whoever drives the loop takes them."""

    def __post_init__(self) -> None:
        self.readings = {s.index: self._start(s) for s in self.slices}
        if len(self.readings) != len(self.slices):
            raise Bug("two slices of one task have the same index")

    def _start(self, piece: Slice) -> SliceState:
        empty = piece.from_offset >= piece.until_offset
        phase = Phase.READING if piece.leader is not None else Phase.FINDING
        return SliceState(
            slice=piece,
            position=piece.from_offset,
            server=self._server(piece),
            phase=Phase.DONE if empty else phase,
            fetch_bytes=self._first_fetch_bytes(piece),
            progress_at_ms=self.now_ms,
        )

    def _server(self, piece: Slice) -> ServingReplica:
        leader = Leader(piece.leader, topic_id=piece.topic_id)
        until_ms = sys.maxsize if self.leader_only else 0
        return ServingReplica(
            leader, self.nature.leader_id, stays=self.leader_only, until_ms=until_ms
        )

    def _first_fetch_bytes(self, piece: Slice) -> int:
        if piece.estimated_bytes <= 0:
            return self.patience.fetch_bytes
        # A quarter above the estimate, so that a small slice is one answer and not two.
        guess = piece.estimated_bytes * 5 // 4 + self.patience.smallest_fetch_bytes
        return min(self.patience.fetch_bytes, guess)

    # --- what to do next --------------------------------------------------------------

    def next(self, now_ms: int) -> Step:
        """The next step. Raises Unreachable when a slice has stood still for too long."""
        self.now_ms = now_ms
        open_ones = [r for r in self.readings.values() if r.phase is not Phase.DONE]
        if not open_ones:
            return AllRead()
        for reading in open_ones:
            self._give_up_if_stuck(reading)
            reading.server.pass_time(now_ms)
        open_ones = [r for r in open_ones if r.phase is not Phase.DONE]
        if not open_ones:
            return AllRead()
        ready = [r for r in open_ones if self._ready_at(r) <= now_ms]
        if not ready:
            return WaitUntil(min(self._ready_at(r) for r in open_ones))
        measuring = next((r for r in ready if r.phase is Phase.MEASURING), None)
        if measuring and measuring.server.address:
            return SendLogRange(measuring.server.address, self._want(measuring))
        finding = [r for r in ready if r.phase is Phase.FINDING]
        if finding:
            return self._find_leaders(finding)
        askable = [r for r in ready if r.phase is Phase.READING]
        return self._ask([r for r in askable if r.slice.is_urgent] or askable)

    def _ready_at(self, reading: SliceState) -> int:
        if reading.phase is Phase.FINDING:
            return reading.resume_at_ms
        return max(reading.resume_at_ms, self.manners.free_at(reading.server.address))

    def _ask(self, ready: list[SliceState]) -> SendFetch:
        # The reading that has waited longest chooses the leader, so none is starved.
        first = min(ready, key=lambda r: (r.progress_at_ms, r.slice.index))
        address = first.server.address
        if address is None:
            raise Bug(f"{first.slice} is to be read and has no leader")
        mates = (
            [first] if first.alone else [r for r in ready if asks_with(r, first) and not r.alone]
        )
        wants: list[FetchTarget] = []
        taken: set[Partition] = set()
        budget = self.patience.request_bytes
        for reading in sorted(mates, key=lambda r: (r is not first, r.slice.index)):
            # A request names a partition once: a second slice of it has its turn later.
            if reading.slice.partition in taken or (wants and reading.fetch_bytes > budget):
                continue
            taken.add(reading.slice.partition)
            budget -= reading.fetch_bytes
            wants.append(self._want(reading))
        return SendFetch(address, tuple(wants), stays=first.server.stays)

    def _want(self, reading: SliceState) -> FetchTarget:
        return FetchTarget(
            index=reading.slice.index,
            partition=reading.slice.partition,
            topic_id=reading.slice.topic_id,
            epoch=reading.server.leader.epoch,
            offset=reading.position,
            max_bytes=reading.fetch_bytes,
        )

    def _find_leaders(self, finding: list[SliceState]) -> FindLeaders:
        seeds: dict[Address, None] = {}
        for reading in finding:
            for replica in reading.server.leader.replicas:
                if replica != reading.left_leader:
                    seeds[replica] = None
        return FindLeaders(tuple(sorted({r.slice.partition for r in finding})), tuple(seeds))

    def _give_up_if_stuck(self, reading: SliceState) -> None:
        # From the first failed attempt to the last one: time that went by elsewhere, such as
        # in a slow writer, is not held against the brokers.
        if reading.stuck_since_ms is None:
            return
        waited_ms = reading.tried_at_ms - reading.stuck_since_ms
        if waited_ms <= self.patience.no_progress_ms:
            return
        if reading.suspected:
            verdict, evidence = reading.suspected
            self._skip(reading, verdict, reading.slice.until_offset, evidence)
            return
        error = stuck(reading, waited_ms)
        topic = reading.slice.partition.topic
        if self.policy.of(LossKind.UNREACHABLE, topic) is not Action.HOLD:
            raise error
        evidence = f"{error.what}: {error.why}"
        self._skip(reading, LossKind.UNREACHABLE, reading.slice.until_offset, evidence)

    def is_replica(self, want: FetchTarget) -> bool:
        """Whether it is a replica that is asked for this."""
        return self._is_replica(self.readings[want.index])

    def _is_replica(self, reading: SliceState) -> bool:
        """Where a replica stands in for a leader that is away, a plan may have named it."""
        is_named = self.nature.leader_id is not None and not reading.server.is_told
        return is_named or not reading.server.is_leader

    def is_doubtful(self, want: FetchTarget) -> bool:
        """Whether it may be a replica that is asked: who led when the plan was made may follow
        by now, and newer brokers answer all the same."""
        has_replicas = self.nature.leader_id is not None or not self.nature.numbered_per_broker
        is_told = self.readings[want.index].server.is_told
        return self.is_replica(want) or (has_replicas and not is_told)

    # --- what came of it --------------------------------------------------------------

    def on_answer(self, leader: Address, size: int, throttle_ms: int, now_ms: int) -> None:
        """An answer of ``size`` bytes came, before its parts are told. A broker that holds us
        back is there: that time is not held against it, within limits."""
        self.now_ms = now_ms
        # Brokers hold a client back for a quota's window, seconds: days are a mistake of theirs.
        throttle_ms = max(0, min(throttle_ms, self.patience.no_progress_ms))
        self.manners.on_answer(leader, size, throttle_ms, now_ms)
        for reading in self.readings.values():
            if reading.server.address == leader and reading.stuck_since_ms is not None:
                left_ms = self.patience.most_throttled_ms - reading.held_back_ms
                excused_ms = max(0, min(throttle_ms, left_ms))
                reading.held_back_ms += excused_ms
                reading.stuck_since_ms += excused_ms

    def on_records(self, want: FetchTarget, next_offset: int) -> bool:
        """Complete batches came; the next offset wanted is ``next_offset``. False where they
        are of no use, and the leader is asked instead of its replica."""
        reading = self._current(want)
        if next_offset <= reading.position:
            error = only_older(reading, next_offset, self.nature)
            if self._is_doubted(reading, error):
                return False
            raise error
        reading.position = next_offset
        reading.progress_at_ms = self.now_ms
        reading.stuck_since_ms = None
        reading.held_back_ms = 0
        reading.troubles = 0
        reading.cut_short = 0
        reading.alone = False
        reading.suspected = None
        reading.left_leader = None
        if reading.position >= reading.slice.until_offset:
            reading.phase = Phase.DONE
        return True

    def on_too_small(self, want: FetchTarget) -> None:
        """Bytes came without one complete batch: the fetch size is below the batch size."""
        reading = self._current(want)
        if reading.fetch_bytes >= self.patience.largest_fetch_bytes:
            self.on_damaged(want, too_large(reading, self.nature))
            return
        reading.fetch_bytes = min(reading.fetch_bytes * 2, self.patience.largest_fetch_bytes)
        reading.alone = True

    def on_damaged(self, want: FetchTarget, error: BadRecord) -> None:
        """Bytes that nobody can walk over: there is no telling where reading would go on, so
        the partition is held there, or the run ends. A replica's copy alone may be damaged."""
        reading = self._current(want)
        if self._is_doubted(reading, error):
            return
        whole = reading.slice.until_offset
        self._apply(
            reading, damage_loss(error, self.policy, reading.slice, reading.position, whole)
        )

    def on_empty(self, want: FetchTarget, high_watermark: int, throttled: bool) -> None:
        """Nothing came and nothing is wrong, which proves nothing: a quota, a slow disk or slow
        remote storage look the same as a log without records. It is asked again."""
        reading = self._current(want)
        if not reading.server.is_leader:
            self._doubt(reading, f"its log is readable up to {high_watermark}", throttled)
        elif high_watermark < 0:
            # Some brokers do not tell: an idle log, one cut short and one that is gone look
            # the same, so it is asked where the log ends.
            self._pause(reading, "its leader answered without records")
            reading.phase = Phase.MEASURING
        elif high_watermark >= reading.slice.until_offset:
            reading.alone = True
            self._pause(
                reading,
                f"its leader answered without records, though its log is readable up to "
                f"{high_watermark}",
            )
        elif reading.server.is_told:
            self._pause(reading, f"its leader's log is readable up to {high_watermark} only")
            reading.phase = Phase.MEASURING
        else:
            # Newer brokers answer as followers, too: one that led when planned may lag now.
            self._leave(reading, f"its leader's log is readable up to {high_watermark} only")

    def on_verdict(self, want: FetchTarget, verdict: ErrorMeaning, name: str) -> None:
        """The partition's part of the answer carried an error code called ``name``."""
        reading = self._current(want)
        trouble = f"{reading.server.address} answered {name} at offset {reading.position}"
        if self._go_back(reading, trouble):
            return
        match verdict:
            case ErrorMeaning.RETRY | ErrorMeaning.UNKNOWN:
                self._pause(reading, trouble)
            case ErrorMeaning.FIND_LEADER | ErrorMeaning.RECREATED:
                # Whether the topic was made anew is told by its id, in the metadata.
                self._leave(reading, trouble)
            case ErrorMeaning.OUT_OF_RANGE:
                reading.phase = Phase.MEASURING
                reading.last_trouble = trouble
            case ErrorMeaning.CORRUPT:
                self.on_damaged(want, unreadable(reading, trouble))
            case ErrorMeaning.REFUSED:
                raise not_allowed(reading, trouble)
            case _:
                raise not_served(reading, trouble)

    def on_log_range(
        self, want: FetchTarget, log_start: int, log_end: int, written_end: int | None = None
    ) -> None:
        """The leader's log is readable in ``[log_start, log_end)``, and the slice's position was
        out of it or at its end. ``written_end``: where it ends, with what is not readable yet;
        None where that is not known."""
        reading = self._current(want, Phase.MEASURING)
        reading.phase = Phase.READING
        trouble = reading.last_trouble
        if self._is_replica(reading):
            self._doubt(reading, f"its log is [{log_start}, {log_end})")
        elif reading.position < log_start:
            evidence = f"{trouble}; the nearest valid offset is {log_start}"
            self._skip(reading, LossKind.EXPIRED, log_start, evidence)
        elif written_end is not None and max(written_end, log_end) <= reading.position:
            self._cut_short(reading, written_end)
        elif reading.position > log_end:
            # A leader that has just taken over may be behind for a moment.
            evidence = f"{trouble}; its log ends at {log_end}"
            reading.suspected = (LossKind.TRUNCATED, evidence)
            self._leave(reading, evidence)
        else:
            reading.cut_short = 0
            self._pause(reading, trouble)

    def _cut_short(self, reading: SliceState, written_end: int) -> None:
        """The leader has nothing at the position or after it, and the slice goes on there. It
        may be a leader no more, so what it says counts the second time, with new metadata."""
        evidence = f"the log of its leader {reading.server.address} ends at {written_end}"
        reading.cut_short += 1 if reading.server.is_told else 0
        if reading.cut_short <= 1:
            reading.cut_short_at_ms = self.now_ms
        waited_ms = self.now_ms - reading.cut_short_at_ms
        is_long = self.nature.has_epochs or waited_ms >= CUT_SHORT_MS
        if reading.cut_short < CUT_SHORT_LOOKS or not is_long:
            reading.suspected = (LossKind.TRUNCATED, evidence)
            self._leave(reading, evidence)
            reading.resume_at_ms = self.now_ms + AGAIN_MS
            return
        evidence += f"; asked {reading.cut_short} times, with metadata from other brokers if any"
        self._skip(reading, LossKind.TRUNCATED, reading.slice.until_offset, evidence)

    def on_lost(self, leader: Address, trouble: str) -> None:
        """The connection to a leader broke, also after the one reconnect."""
        for reading in self.readings.values():
            asked = reading.phase in (Phase.READING, Phase.MEASURING)
            if asked and reading.server.address == leader and not self._go_back(reading, trouble):
                self._leave(reading, trouble)

    def on_preferred(self, index: int, replica_id: int) -> bool:
        """The broker would rather have this replica read. True if the slice goes elsewhere,
        and what came without records is no trouble."""
        reading = self.readings[index]
        if reading.phase is not Phase.READING:
            return False
        move = reading.server.prefer(replica_id, self.now_ms)
        if move is ReplicaMove.FIND:
            reading.phase = Phase.FINDING
        return move is not ReplicaMove.STAY

    def on_leaders(
        self,
        leaders: Mapping[Partition, Leader],
        unknown: Collection[Partition] = (),
        away: Mapping[Partition, str] | None = None,
    ) -> None:
        """Metadata came. A partition that is not in it has no known leader yet, for the reason
        in ``away`` if it is there; of those in ``unknown`` the cluster says that they do not
        exist, which is believed if it stays so."""
        for reading in self.readings.values():
            if reading.phase is not Phase.FINDING or reading.resume_at_ms > self.now_ms:
                continue
            found = leaders.get(reading.slice.partition)
            if found is None and reading.slice.partition in unknown:
                evidence = "the cluster no longer names this partition"
                reading.suspected = (LossKind.VANISHED, evidence)
                self._pause(reading, evidence)
                continue
            if found is None or found.address is None:
                why = (away or {}).get(reading.slice.partition, "it has no leader")
                self._pause(reading, why)
                continue
            if found.is_replica and self.leader_only:
                self._pause(reading, f"its leader is away, and {found.address} is a replica of it")
                continue
            if not self._check_life(reading, found):
                continue
            if found.address == reading.left_leader and reading.troubles <= 1:
                self._pause(reading, reading.last_trouble)
                continue
            reading.server.on_leader(found, self.now_ms)
            reading.phase = Phase.READING

    def on_no_metadata(self, trouble: str) -> None:
        """No broker could be asked for leaders."""
        for reading in self.readings.values():
            if reading.phase is Phase.FINDING and reading.resume_at_ms <= self.now_ms:
                self._pause(reading, trouble)

    # --- moves ------------------------------------------------------------------------

    def _current(self, want: FetchTarget, phase: Phase = Phase.READING) -> SliceState:
        reading = self.readings[want.index]
        if reading.phase is not phase or want.offset != reading.position:
            raise Bug(
                f"{reading.slice}: an answer for offset {want.offset} came while the slice is "
                f"{reading.phase.value} at {reading.position}"
            )
        return reading

    def _pause(self, reading: SliceState, trouble: str) -> None:
        reading.troubles += 1
        reading.last_trouble = trouble
        reading.tried_at_ms = self.now_ms
        if reading.stuck_since_ms is None:
            reading.stuck_since_ms = self.now_ms
        if reading.suspected and trouble != reading.suspected[1]:
            # Only what is so to the last is believed.
            reading.suspected = None
        delay_ms = self.patience.backoff_ms * 2 ** min(reading.troubles - 1, 10)
        reading.resume_at_ms = self.now_ms + min(delay_ms, self.patience.max_backoff_ms)

    def _leave(self, reading: SliceState, trouble: str) -> None:
        reading.phase = Phase.FINDING
        reading.left_leader = reading.server.leader.address
        self._pause(reading, trouble)
        if reading.troubles <= 1:
            # The first time, metadata is asked for at once: it may name a new leader.
            reading.resume_at_ms = self.now_ms

    def _go_back(self, reading: SliceState, trouble: str) -> bool:
        """From a replica to its leader, at once. False where no replica was read."""
        if reading.server.replica is None:
            return False
        reading.last_trouble = trouble
        reading.server.go_back(self.now_ms)
        return True

    def _doubt(self, reading: SliceState, what: str, throttled: bool = False) -> None:
        """A replica has not got what is wanted: it may be behind, so its leader must say."""
        trouble = f"{reading.server.address}, a replica that may be behind, is asked; {what}"
        if throttled:
            self._pause(reading, trouble)
        elif not self._go_back(reading, trouble):
            self._leave(reading, trouble)

    def _is_doubted(self, reading: SliceState, error: BadRecord) -> bool:
        """True where these bytes are a replica's own: its leader may have them whole."""
        if not self._is_replica(reading):
            return False
        trouble = f"{reading.server.address}, a replica, gave bytes that are damaged: {error.what}"
        if not self._go_back(reading, trouble):
            self._leave(reading, trouble)
        return True

    def _check_life(self, reading: SliceState, found: Leader) -> bool:
        planned = reading.slice.topic_id
        if not planned or not found.topic_id or planned == found.topic_id:
            return True
        evidence = f"its topic id was {planned} when planned and is {found.topic_id} now"
        self._skip(reading, LossKind.RECREATED, reading.slice.until_offset, evidence)
        return False

    def _skip(
        self, reading: SliceState, verdict: LossKind, until_offset: int, evidence: str
    ) -> None:
        """Offsets are gone: RangeLost, unless the policy skips them and has them counted, or
        holds the partition."""
        until_offset = min(until_offset, reading.slice.until_offset)
        loss = Loss(reading.slice.partition, reading.position, until_offset, verdict, evidence)
        action = self.policy.of(verdict, loss.partition.topic)
        if action not in (Action.SKIP, Action.HOLD):
            raise range_lost([loss])
        if action is Action.HOLD:
            # The rest of the slice stays where it is, too.
            loss = replace(loss, until_offset=reading.slice.until_offset, action=Action.HOLD)
        self._apply(reading, loss)

    def _apply(self, reading: SliceState, loss: Loss) -> None:
        self.gone.append((reading.slice.index, loss))
        reading.position = loss.until_offset
        reading.progress_at_ms = self.now_ms
        reading.stuck_since_ms = None
        if reading.position >= reading.slice.until_offset:
            reading.phase = Phase.DONE
