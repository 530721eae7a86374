"""A run's lease in its job's group: taken before a plan is entered, released at the end.

A lease keeps other members away from the partitions, decides which of several drivers reads what,
and is used to mirror the checkpoint. Exactly-once landing does not depend on it: if the group
backend is unavailable, a run issues a warning and continues alone. Only a live consumer in the
group ends a run, before a plan is entered.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_settings import ClusterSettings
from rangeland.deadline import Deadline
from rangeland.dialects.cluster_values import GroupState, GroupView
from rangeland.errors import RangelandError, RemoteProtocolError, Unreachable
from rangeland.groups.backend import Fenced, GroupBackend, JoinRequest
from rangeland.job import Group, Job
from rangeland.job_group.heartbeat_thread import HeartbeatThread
from rangeland.job_group.offset_mirror import (
    MirroredOffsets,
    mirror,
    moved_each_time_error,
    notices,
)
from rangeland.model import Partition
from rangeland.planning.slice_assignment import SliceOwners
from rangeland.wording import count_noun

ABSENT = GroupView(GroupState.ABSENT)
POLL_S = 0.5
TRIES = 3
"""Each failure requires a rebalance between reading the checkpoint and the commit or, for a driver
that is not a member, another driver's landing: three in a row are no accident."""
GRACE_S = 5
"""The time that the remaining members have to rebalance after a session timeout."""
Report = Callable[[str], None]
CheckpointNow = Callable[[], Mapping[Partition, int]]
"""Returns the current checkpoint."""
EarlierMarks = Callable[[], Collection[tuple[Partition, int]]]
"""Returns where the latest landings began and ended."""


class GroupLease:
    """One run's lease. Without a heartbeat thread the run is not a member of the group."""

    def __init__(
        self,
        backend: GroupBackend,
        group: str,
        partitions: Collection[Partition],
        heartbeat: HeartbeatThread | None,
        warn: Report,
        step: Report,
    ) -> None:
        self.backend = backend
        self.partitions = frozenset(partitions)
        """All partitions that the members share. Partitions created later are left to the next
        run."""
        self.group = group
        self._heartbeat = heartbeat
        self._warn = warn
        self._step = step
        self._has_warned = False
        self._consumers: set[str] = set()

    # --- sharing ------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._heartbeat.member_id if self._heartbeat is not None else "alone"

    @property
    def is_member(self) -> bool:
        """Whether this driver is a member, and the group can be relied on; warns the first time
        that it cannot."""
        if self._heartbeat is None:
            return False
        error = self._heartbeat.membership_error
        if error is not None and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"the lease in group {self.group} is lost: {error} Landing continues; other "
                "drivers may read the same offsets, which are still landed only once"
            )
        return error is None

    @property
    def must_stop(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.must_stop

    def hold_assignment(self) -> AbstractContextManager[None]:
        """A context in which the partitions stay assigned, as in ``HeartbeatThread``."""
        return nullcontext() if self._heartbeat is None else self._heartbeat.hold_assignment()

    def join_rebalance(self) -> None:
        """Takes part in a rebalance, if there is one."""
        if self._heartbeat is not None:
            self._heartbeat.join_rebalance()

    def slice_owners(self, partitions: Collection[Partition]) -> SliceOwners:
        """The owners of slices. A driver that is not, or no longer, a member owns all of
        ``partitions``."""
        me = self.member_id
        if self._heartbeat is None or not self.is_member:
            return SliceOwners.alone(me, partitions)
        try:
            view = self._heartbeat.exclusively(lambda: self.backend.view(self.group))
        except RangelandError:
            view = ABSENT  # the heartbeat thread decides whether the lease is lost
        drivers = [holder for holder in view.members if holder.is_ours]
        self._note_consumers(view, frozenset(partitions))
        members = tuple(driver.member_id for driver in drivers)
        return SliceOwners(
            me,
            self._heartbeat.owned,
            # Other consumers do not read for the job: the first driver reads their partitions.
            {p: driver.member_id for driver in drivers for p in driver.partitions},
            members,
            view.state is GroupState.STABLE and me in members and not self.must_stop,
        )

    def _note_consumers(self, view: GroupView, partitions: frozenset[Partition]) -> None:
        """Warns of a consumer that has joined after this run began, which cannot be prevented."""
        for holder in view.members:
            shared = sorted(holder.partitions & partitions)
            if holder.is_ours or not shared or holder.member_id in self._consumers:
                continue
            self._consumers.add(holder.member_id)
            more = f" and {len(shared) - 1} more" if shared[1:] else ""
            self._warn(
                f"{holder.client_id or holder.member_id} has joined the group {self.group} and "
                f"reads {shared[0]}{more} as its member; this run still lands them. Give one of "
                "the two its own group"
            )

    # --- mirroring ----------------------------------------------------------------------

    def mirror(
        self, checkpoint_now: CheckpointNow, earlier: EarlierMarks, *, to_the_end: bool
    ) -> None:
        """Commits the checkpoint of this driver's partitions to the group and reads it back.
        With ``to_the_end`` it waits until the other drivers have committed theirs, or have died and
        left their partitions to this one. Failures are warnings: the next run repairs them."""
        self._step(f"mirroring the checkpoint to the group {self.group}")
        mirror_again = partial(self._mirror_newest, checkpoint_now, earlier)
        try:
            checkpoint = mirror_again()
            if to_the_end:
                self._wait_for_others(checkpoint, mirror_again)
        except RangelandError as error:
            self._warn(
                f"the checkpoint is not mirrored to group {self.group}, {self.backend.name}: "
                f"{error} The next run or `rangeland mirror` repairs that"
            )

    def _mirror_newest(
        self, checkpoint_now: CheckpointNow, earlier: EarlierMarks
    ) -> dict[Partition, int]:
        """Mirrors the checkpoint and returns it. It is read in the generation in which it is
        committed: whoever had the partitions before may have landed and mirrored more. A driver
        that is not a member has no generation, and looks whether that has happened."""
        for tries_left in reversed(range(TRIES)):
            generation = self._join_generation()
            checkpoint = self._of_the_group(checkpoint_now())
            if not checkpoint:
                return checkpoint
            try:
                mirrored = self._commit(checkpoint, generation)
            except Fenced:
                if not tries_left:
                    raise
                continue
            is_member = generation is not None and self._reliable_heartbeat is not None
            if not (mirrored.changed or mirrored.differing):
                return checkpoint
            if is_member or self._of_the_group(checkpoint_now()) == checkpoint:
                self._warn_of(mirrored, earlier)
                return checkpoint
        raise moved_each_time_error(self.group, TRIES)

    def _warn_of(self, mirrored: MirroredOffsets, earlier: EarlierMarks) -> None:
        earlier_marks = earlier() if mirrored.differed_before else ()
        for text in notices(self.group, mirrored, earlier_marks):
            self._warn(text)

    def _wait_for_others(
        self,
        checkpoint: dict[Partition, int],
        mirror_again: Callable[[], dict[Partition, int]],
    ) -> None:
        """Waits until others have mirrored their partitions, or have left them to this driver."""
        missing = self._not_mirrored(checkpoint)
        if not missing:
            return
        count = count_noun(len(missing), "partition")
        self._step(f"waiting until other drivers have mirrored {count}")
        deadline = Deadline(self._patience_s)
        while missing:
            if deadline.has_passed:
                self._warn(
                    f"the checkpoint of {missing[0]} is not mirrored: another driver owns it. The "
                    "next run repairs that"
                )
                return
            time.sleep(POLL_S)
            checkpoint = mirror_again()
            missing = self._not_mirrored(checkpoint)

    def _of_the_group(self, checkpoint: Mapping[Partition, int]) -> dict[Partition, int]:
        return {p: offset for p, offset in checkpoint.items() if p in self.partitions}

    @property
    def _reliable_heartbeat(self) -> HeartbeatThread | None:
        """The heartbeat thread, or None once the group cannot be relied on."""
        heartbeat = self._heartbeat
        return heartbeat if heartbeat is not None and heartbeat.membership_error is None else None

    @property
    def _patience_s(self) -> float:
        return 0.0 if self._heartbeat is None else self._heartbeat.session_s + GRACE_S

    def _not_mirrored(self, checkpoint: Mapping[Partition, int]) -> list[Partition]:
        """Other drivers' partitions whose group offsets have not reached the checkpoint yet."""
        heartbeat = self._reliable_heartbeat
        if not checkpoint or heartbeat is None:
            return []
        foreign = tuple(p for p in checkpoint if p not in heartbeat.owned)
        offsets = heartbeat.exclusively(lambda: self.backend.offsets(self.group, foreign))
        return [p for p in foreign if (at := offsets.get(p)) is None or at < checkpoint[p]]

    def _join_generation(self) -> int | None:
        """The generation of this driver after taking part in a rebalance, if there is one; None if
        it is not a member."""
        heartbeat = self._reliable_heartbeat
        if heartbeat is None:
            return None
        heartbeat.join_rebalance()
        return heartbeat.generation

    def _commit(
        self, checkpoint: Mapping[Partition, int], generation: int | None
    ) -> MirroredOffsets:
        heartbeat = self._reliable_heartbeat
        if heartbeat is None:
            return mirror(
                self.backend, self.group, checkpoint, lambda o: self.backend.commit(self.group, o)
            )

        def mirror_owned() -> MirroredOffsets:
            heartbeat.check_generation_is(generation)
            owned = {p: offset for p, offset in checkpoint.items() if p in heartbeat.owned}
            return mirror(self.backend, self.group, owned, heartbeat.commit)

        # If a partition has changed hands, its new owner mirrors it.
        return heartbeat.exclusively(mirror_owned).of(heartbeat.owned)


@contextmanager
def hold_lease(
    job: Job,
    settings: ClusterSettings,
    partitions: Sequence[Partition],
    warn: Report,
    step: Report,
) -> Iterator[GroupLease | None]:
    """The lease of a run in its job's group until the end of the block; None without a group or
    while its backend is unavailable. Raises Conflict if a consumer that is not a driver of this
    job holds partitions, and AccessDenied or JobFileError if the backend refuses the group."""
    if job.group is None:
        yield None
        return
    step(f"joining the group {job.group.id}")
    try:
        backend = open_backend(job, settings)
    except Unreachable as error:
        warn(_alone(job.group, error))
        yield None
        return
    try:
        heartbeat = _join(job, job.group, backend, partitions, warn)
        try:
            yield GroupLease(backend, job.group.id, partitions, heartbeat, warn, step)
        finally:
            if heartbeat is not None:
                heartbeat.close()
    finally:
        backend.close()


def _join(
    job: Job, group: Group, backend: GroupBackend, partitions: Sequence[Partition], warn: Report
) -> HeartbeatThread | None:
    joining = JoinRequest(
        group=group.id,
        job=job.name,
        partitions=tuple(sorted(partitions)),
        assignment=group.assignment,
        client_id=job.source.client_id,
        host=platform.node(),
        session_ms=group.session_ms,
        rebalance_ms=group.rebalance_ms,
    )
    try:
        return HeartbeatThread(backend.join(joining))
    except (Unreachable, RemoteProtocolError) as error:
        # RemoteProtocolError: the brokers are too old for this kind of group.
        warn(_alone(group, error))
        return None


def _alone(group: Group, error: RangelandError) -> str:
    return (
        f"the group {group.id} was not joined: {error} Landing continues without it, and still "
        "lands each record once"
    )
