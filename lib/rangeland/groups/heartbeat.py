"""A driver's place in its group, kept while the driver works.

A thread beats for the membership and remembers what it was told. While the driver reads
slices of partitions it owns, a rebalance waits until the driver has stopped; at all other
times the thread takes part in it by itself, so that nobody waits for a driver that plans
or commits. All calls but ``beat`` happen under one lock.

A home that cannot be asked is waited for as long as a session lasts. After that others may
hold the partitions, and the place is ``gone`` until the home answers again. Landing goes on
either way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from rangeland.errors import RangelandError, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, Membership
from rangeland.model import Partition

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_BEAT_S = 2
"""How long a beat that is under way is waited for at the end."""


class HeartbeatThread:
    """Keeps one membership. ``close`` it; that leaves the group."""

    def __init__(
        self,
        membership: Membership,
        session_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._membership = membership
        self.session_s = session_ms / 1000
        self._clock = clock
        self._lock = threading.RLock()
        self._standing = HeartbeatStatus.HOLDS
        self._heard = clock()
        self._reading = False
        self._ended = threading.Event()
        self._out: RangelandError | None = None
        self._silence = ""
        self._turn = 0
        """How often it has joined again: what was said of an earlier turn is over."""
        self._thread = threading.Thread(target=self._beat, name="rangeland-group", daemon=True)
        self._thread.start()

    # --- what the driver sees ---------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def owned(self) -> frozenset[Partition]:
        with self._lock:
            return self._membership.owned

    @property
    def must_stop(self) -> bool:
        """The driver is to give up what it reads: others want to take part, or have taken
        over. Not where the home is silent: then nobody could take over in order."""
        with self._lock:
            return self._standing is not HeartbeatStatus.HOLDS and self.gone is None

    @property
    def gone(self) -> RangelandError | None:
        """Why this place is not to be relied on, None while it is."""
        with self._lock:
            if self._out is not None:
                return self._out
            silent_s = self._clock() - self._heard
        if silent_s <= self.session_s:
            return None
        return Unreachable(
            "the group's home does not answer", why=self._silence, silent_s=round(silent_s)
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While this is open no rebalance is taken part in; look at ``must_stop``."""
        with self._lock:
            self._reading = True
        try:
            yield
        finally:
            with self._lock:
                self._reading = False

    def settle(self) -> None:
        """Takes part in a rebalance now, if there is one. Only for who reads nothing, or
        does not mind that others read the same."""
        with self._lock:
            if self._standing is not HeartbeatStatus.HOLDS and not self._ended.is_set():
                self._rejoin()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """The group's offsets. Raises Fenced where this place was over, after joining anew:
        others may have landed since, so the offsets are to be looked up again. Raises
        Unreachable, Conflict."""
        with self._lock:
            try:
                self._membership.commit(offsets)
            except Fenced:
                self._standing = HeartbeatStatus.LOST
                self.settle()
                if self._out is not None:
                    raise self._out from None
                raise

    def asked(self, question: Callable[[], T]) -> T:
        """The answer to a question to the home, while nothing else is asked of it."""
        with self._lock:
            return question()

    def close(self) -> None:
        """Stops beating and leaves. What fails here, or would have to be waited for, ends with
        the session."""
        self._ended.set()
        self._thread.join(LAST_BEAT_S)
        if not self._lock.acquire(timeout=LAST_BEAT_S):
            return
        try:
            if self.gone is None:
                self._membership.leave()
        except RangelandError:
            return
        finally:
            self._lock.release()

    # --- the thread ---------------------------------------------------------------------

    def _beat(self) -> None:
        while self._out is None and not self._ended.wait(self._membership.beat_ms / 1000):
            turn = self._turn
            try:
                said = self._membership.beat()
            except Unreachable as error:
                log.warning("No answer to a heartbeat of %s: %s", self._membership.member_id, error)
                self._silence = str(error)
                continue
            except RangelandError as error:
                log.warning("Heartbeat of %s refused: %s", self._membership.member_id, error)
                self._out = error
                return
            self._note(turn, said)

    def _note(self, turn: int, said: HeartbeatStatus) -> None:
        with self._lock:
            if self._ended.is_set() or turn != self._turn:
                return
            if said is not self._standing:
                log.info("Member %s: %s", self._membership.member_id, said.value)
            self._standing = said
            if said is HeartbeatStatus.HOLDS:
                self._heard = self._clock()
            elif not self._reading:
                self._rejoin()

    def _rejoin(self) -> None:
        try:
            self._membership.rejoin()
        except Unreachable as error:
            # Silence is counted from the last good answer; until then it is tried again.
            self._silence = str(error)
        except RangelandError as error:
            self._out = error
        else:
            log.info("Joined again as %s", self._membership.member_id)
            self._turn += 1
            self._standing = HeartbeatStatus.HOLDS
            self._heard = self._clock()
            if self._ended.is_set():  # closed meanwhile, by who could not wait for this
                self._membership.leave()
