"""A run's place in its job's group: claimed before anything is entered, given back at the end.

A claim keeps others away from the partitions, says who of several drivers reads what, and
is what the checkpoint is mirrored through. None of it is needed to land each record once:
where the home cannot be asked a run warns and goes on alone. What does end a run is a live
consumer in its group, and that is seen before a plan is entered.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.errors import RangelandError, RemoteProtocolError, Unreachable
from rangeland.groups.backend import Fenced, GroupBackend, GroupView, JoinRequest
from rangeland.groups.backend_choice import open_home
from rangeland.groups.heartbeat import HeartbeatThread
from rangeland.groups.offset_mirror import MirrorOutcome, mirror, told
from rangeland.job import Group, Job
from rangeland.model import Partition
from rangeland.planning.slice_assignment import SliceOwners

log = logging.getLogger(__name__)

ABSENT = GroupView("absent")
POLL_SECONDS = 0.5
TRIES = 3
GRACE_SECONDS = 5
"""Beyond a session, for a rebalance of those that are left."""
Tell = Callable[[str], None]


class GroupLease:
    """One run's place in a group. Without a keeper the run is no member of it."""

    def __init__(
        self,
        home: GroupBackend,
        group: str,
        partitions: Collection[Partition],
        keeper: HeartbeatThread | None,
        warn: Tell,
        step: Tell,
    ) -> None:
        self.home = home
        self.partitions = frozenset(partitions)
        """All that the members share. What appears later is the next run's to claim."""
        self.group = group
        self._keeper = keeper
        self._warn = warn
        self._step = step
        self._said_gone = False
        self._strangers: set[str] = set()

    # --- sharing ------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._keeper.member_id if self._keeper is not None else "alone"

    @property
    def is_member(self) -> bool:
        """False once the group is not to be relied on; says so, once."""
        if self._keeper is None:
            return False
        why = self._keeper.gone
        if why is not None and not self._said_gone:
            self._said_gone = True
            self._warn(
                f"the place in group {self.group} is lost: {why} Landing goes on; other drivers "
                "may read the same, and it is landed once"
            )
        return why is None

    @property
    def must_stop(self) -> bool:
        return self._keeper is not None and self._keeper.must_stop

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While partitions are held that nobody else may be given; see ``Keeper.reading``."""
        if self._keeper is None:
            yield
            return
        with self._keeper.reading():
            yield

    def settle(self) -> None:
        """Takes part in a rebalance, if there is one."""
        if self._keeper is not None:
            self._keeper.settle()

    def seats(self, partitions: Collection[Partition]) -> SliceOwners:
        """Who owns what. A driver without a group, or with one that is gone, owns all of
        ``partitions``."""
        me = self.member_id
        if self._keeper is None or not self.is_member:
            return SliceOwners(me, frozenset(partitions), {}, (me,))
        try:
            view = self._keeper.asked(lambda: self.home.view(self.group))
        except RangelandError:
            view = ABSENT  # whether it lasts is the keeper's to say
        drivers = [holder for holder in view.members if holder.is_ours]
        self._note_strangers(view, frozenset(partitions))
        members = tuple(driver.member_id for driver in drivers)
        return SliceOwners(
            me,
            self._keeper.owned,
            # A stranger reads for itself: what it holds is read here by the first driver.
            {p: driver.member_id for driver in drivers for p in driver.partitions},
            members,
            view.state == "stable" and me in members and not self.must_stop,
        )

    def _note_strangers(self, view: GroupView, partitions: frozenset[Partition]) -> None:
        """A consumer that joined after this run did. It cannot be kept out; it is named."""
        for holder in view.members:
            held = sorted(holder.partitions & partitions)
            if holder.is_ours or not held or holder.member_id in self._strangers:
                continue
            self._strangers.add(holder.member_id)
            more = f" and {len(held) - 1} more" if held[1:] else ""
            self._warn(
                f"{holder.client_id or holder.member_id} has joined the group {self.group} and "
                f"reads {held[0]}{more} with it; this run lands them all the same. Give one of "
                "them a group of its own"
            )

    # --- mirroring ----------------------------------------------------------------------

    def mirror(
        self,
        look: Callable[[], Mapping[Partition, int]],
        earlier: Callable[[], Collection[tuple[Partition, int]]],
        *,
        to_the_end: bool,
    ) -> None:
        """Pushes the checkpoint of the partitions that are this driver's, and reads it back.
        ``look`` gives the checkpoint as it is now, ``earlier`` where the latest landings have
        begun and ended. ``to_the_end``: waits until other drivers have pushed theirs, or are
        dead and theirs is this one's to push. What goes wrong is a warning: the next run
        repairs it."""
        self._step(f"mirroring the checkpoint to the group {self.group}")
        deadline = None
        tries = TRIES
        try:
            checkpoint = self._of_the_group(look())
            while checkpoint:
                try:
                    found = self._mirror(checkpoint)
                except Fenced:
                    # Others may have landed while this driver was out.
                    tries -= 1
                    if not tries:
                        raise
                    checkpoint = self._of_the_group(look())
                    continue
                if found.changed or found.differing:
                    known = earlier() if found.stood_elsewhere else ()
                    self._tell(told(self.group, found, known))
                others = self._behind(checkpoint) if to_the_end else []
                if not others:
                    return
                if deadline is None:
                    deadline = time.monotonic() + self._patience_s
                    count = f"{len(others)} partition{'s' if len(others) > 1 else ''}"
                    self._step(f"waiting until other drivers have mirrored {count}")
                if time.monotonic() > deadline:
                    self._tell(
                        [
                            f"the checkpoint of {others[0]} is not mirrored: it is another "
                            "driver's to do. The next run repairs that"
                        ]
                    )
                    return
                time.sleep(POLL_SECONDS)
        except RangelandError as error:
            self._tell(
                [
                    f"the checkpoint is not mirrored to group {self.group}, {self.home.name}: "
                    f"{error} The next run repairs that, or `rangeland mirror`"
                ]
            )

    def _of_the_group(self, checkpoint: Mapping[Partition, int]) -> dict[Partition, int]:
        return {p: offset for p, offset in checkpoint.items() if p in self.partitions}

    def _tell(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._warn(text)

    @property
    def _patience_s(self) -> float:
        return 0.0 if self._keeper is None else self._keeper.session_s + GRACE_SECONDS

    def _behind(self, checkpoint: Mapping[Partition, int]) -> list[Partition]:
        """Partitions of other drivers whose offsets are not at the checkpoint yet."""
        if self._keeper is None or self._keeper.gone is not None:
            return []
        theirs = tuple(p for p in checkpoint if p not in self._keeper.owned)
        offsets = self._keeper.asked(lambda: self.home.offsets(self.group, theirs))
        stand = {p: -1 if (at := offsets.get(p)) is None else at for p in theirs}
        return [p for p in theirs if stand[p] < checkpoint[p]]

    def _mirror(self, checkpoint: Mapping[Partition, int]) -> MirrorOutcome:
        keeper = self._keeper
        if keeper is None or keeper.gone is not None:
            return mirror(
                self.home, self.group, checkpoint, lambda o: self.home.commit(self.group, o)
            )
        keeper.settle()
        mine = {p: offset for p, offset in checkpoint.items() if p in keeper.owned}
        found = keeper.asked(lambda: mirror(self.home, self.group, mine, keeper.commit))
        # What has found another owner meanwhile is that one's to mirror.
        return found.of(keeper.owned)


@contextmanager
def claimed(
    job: Job,
    settings: ClusterSettings,
    partitions: Sequence[Partition],
    warn: Tell,
    step: Tell,
) -> Iterator[GroupLease | None]:
    """The place of a run in its job's group until the end of the block; None without a group
    or without its home. Raises Conflict where a consumer that is no driver of this job holds
    partitions, and JobFileError where the home refuses the group."""
    if job.group is None:
        yield None
        return
    step(f"joining the group {job.group.id}")
    try:
        home = open_home(job, settings)
    except Unreachable as error:
        warn(_alone(job.group, error))
        yield None
        return
    try:
        keeper = _join(job, job.group, home, partitions, warn)
        try:
            yield GroupLease(home, job.group.id, partitions, keeper, warn, step)
        finally:
            if keeper is not None:
                keeper.close()
                log.info("Left group %s", job.group.id)
    finally:
        home.close()


def _join(
    job: Job, group: Group, home: GroupBackend, partitions: Sequence[Partition], warn: Tell
) -> HeartbeatThread | None:
    joining = JoinRequest(
        group=group.id,
        job=job.job,
        partitions=tuple(sorted(partitions)),
        assignment=group.assignment,
        client_id=job.source.client_id,
        host=platform.node(),
        session_ms=group.session_ms,
        rebalance_ms=group.rebalance_ms,
    )
    try:
        membership = home.join(joining)
        name = (group.id, membership.member_id, membership.generation)
        log.info(
            "Joined group %s as %s, generation %d: %d partitions", *name, len(membership.owned)
        )
        return HeartbeatThread(membership, group.session_ms)
    except (Unreachable, RemoteProtocolError) as error:
        # The second: brokers that are too old to keep groups in this way.
        warn(_alone(group, error))
        return None


def _alone(group: Group, error: RangelandError) -> str:
    return (
        f"the group {group.id} is not joined: {error} Landing goes on without it, and lands each "
        "record once all the same"
    )
