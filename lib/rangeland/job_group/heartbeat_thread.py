"""A driver's membership in its group, kept alive while the driver works.

A thread sends heartbeats and remembers the responses. While the driver reads slices of its
partitions, a rebalance waits until the driver has stopped. At all other times, the thread takes
part in rebalances by itself, so that no member waits for a driver that is planning or committing.
All calls except ``beat`` happen under one lock.

An unavailable group backend is tolerated for one session timeout. After that, other members may
own the partitions, and the lease counts as lost until the backend answers again
(``membership_error`` has the reason). Landing continues either way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from rangeland.errors import RangelandError, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, Membership
from rangeland.model import Partition

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAST_BEAT_S = 2
"""How long to wait, at the end, for a heartbeat that is in flight."""


class HeartbeatThread:
    """Keeps one membership alive. ``close`` leaves the group."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.session_s = membership.joining.session_ms / 1000
        self._lock = threading.RLock()
        self._status = HeartbeatStatus.HOLDS
        self._answered_at = time.monotonic()
        self._reading = False
        self._ended = threading.Event()
        self._error: RangelandError | None = None
        self._silence = ""
        self._rejoin_failed = False
        self._turn = 0
        """How often it has rejoined: responses to heartbeats from before that are stale."""
        self._thread = threading.Thread(target=self._beat, name="rangeland-group", daemon=True)
        self._thread.start()

    # --- calls of the driver ---------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def owned(self) -> frozenset[Partition]:
        with self._lock:
            return self._membership.owned

    @property
    def generation(self) -> int:
        with self._lock:
            return self._membership.generation

    @property
    def must_stop(self) -> bool:
        """Whether the driver has to stop reading, because the group is rebalancing, or the driver's
        partitions have new owners. False while the backend does not answer, since no rebalance can
        complete then."""
        with self._lock:
            return self._status is not HeartbeatStatus.HOLDS and self.membership_error is None

    @property
    def membership_error(self) -> RangelandError | None:
        """The reason why the membership cannot be relied on; None while it can."""
        with self._lock:
            if self._error is not None:
                return self._error
            silent_s = time.monotonic() - self._answered_at
        if silent_s <= self.session_s:
            return None
        return Unreachable(
            "the group backend does not answer",
            why=self._silence,
            do="check that it is up, then run again",
            silent_s=round(silent_s),
        )

    @contextmanager
    def hold_assignment(self) -> Iterator[None]:
        """A context in which the thread joins no rebalance; watch ``must_stop`` meanwhile."""
        with self._lock:
            self._reading = True
        try:
            yield
        finally:
            with self._lock:
                self._reading = False

    def join_rebalance(self) -> None:
        """Takes part in a rebalance now, if there is one. Only for a driver that is not reading, or
        if it does not matter that others read the same slices."""
        with self._lock:
            if self._status is not HeartbeatStatus.HOLDS and not self._ended.is_set():
                self._rejoin()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commits the group's offsets. If the membership had expired, joins again and raises
        Fenced: other drivers may have landed since, so read the checkpoint again. Also raises
        Unreachable and Conflict."""
        with self._lock:
            try:
                self._membership.commit(offsets)
            except Fenced:
                self._status = HeartbeatStatus.LOST
                self.join_rebalance()
                if self._error is not None:
                    raise self._error from None
                raise

    def check_generation_is(self, generation: int | None) -> None:
        """Raises Fenced if this is not the generation that the driver is in."""
        with self._lock:
            current = self._membership.generation
            if generation != current:
                raise Fenced(
                    f"member {self.member_id} has begun generation {current}",
                    why="the checkpoint was read before it",
                    do="run the job again",
                    group=self._membership.joining.group,
                    member=self.member_id,
                    generation=current,
                )

    def exclusively(self, request: Callable[[], T]) -> T:
        """Runs a request to the backend while no other request is in flight."""
        with self._lock:
            return request()

    def close(self) -> None:
        """Stops the heartbeats and leaves the group. If that fails or takes too long, the
        membership ends with its session."""
        self._ended.set()
        self._thread.join(LAST_BEAT_S)
        if not self._lock.acquire(timeout=LAST_BEAT_S):
            return
        try:
            if self.membership_error is None:
                self._membership.leave()
        except RangelandError:
            return
        finally:
            self._lock.release()

    # --- the thread ---------------------------------------------------------------------

    def _beat(self) -> None:
        while self._error is None and not self._ended.wait(self._membership.beat_ms / 1000):
            turn = self._turn
            member = self._membership.member_id
            try:
                status = self._membership.beat()
            except Unreachable as error:
                logger.warning("Got no response to a heartbeat of %s: %s", member, error)
                self._silence = str(error)
                continue
            except RangelandError as error:
                logger.warning("A heartbeat of %s was refused: %s", member, error)
                with self._lock:
                    self._give_up(error)
                return
            self._note(turn, status)

    def _note(self, turn: int, status: HeartbeatStatus) -> None:
        with self._lock:
            if self._ended.is_set() or turn != self._turn:
                return
            before = self._status
            self._status = status
            if (before, status) == (HeartbeatStatus.HOLDS, HeartbeatStatus.REBALANCING):
                group = self._membership.joining.group
                name = {"group": group, "member": self._membership.member_id}
                fields = {**name, "generation": self._membership.generation}
                logger.info("Found the group rebalancing", extra=fields)
            # After failing to rejoin, members answer from memory that they hold nothing.
            if status is HeartbeatStatus.HOLDS or not self._rejoin_failed:
                self._answered_at = time.monotonic()
            if status is not HeartbeatStatus.HOLDS and not self._reading:
                self._rejoin()

    def _rejoin(self) -> None:
        try:
            self._membership.rejoin()
        except Unreachable as error:
            # This is tried again until one session timeout after the last response.
            self._silence = str(error)
            self._rejoin_failed = True
        except RangelandError as error:
            self._give_up(error)
        else:
            self._turn += 1
            self._rejoin_failed = False
            self._status = HeartbeatStatus.HOLDS
            self._answered_at = time.monotonic()
            if self._ended.is_set():  # closed meanwhile by a caller that did not wait for this
                self._membership.leave()

    def _give_up(self, error: RangelandError) -> None:
        """Ends the membership for good. A member that sends no heartbeats would be in the way of
        the others, and of offsets that are committed from outside, until its session ends."""
        with suppress(RangelandError):
            self._membership.leave()
        self._error = error
