"""The lease that a command holds in its job's group while it lands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.errors import RangelandError
from rangeland.job_group.lease import GroupLease, hold_lease
from rangeland.job_group.offset_mirror import EARLIER, offsets_to_commit
from rangeland.job_group.shared_plan import SharedRead
from rangeland.landing.execution.shared_reader_interface import SharedReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.ledger_history import recent_checkpoints
from rangeland.model import Partition


class RunLease:
    """The lease of a command in its job's group, if it needs one. Backfills do not: they move no
    checkpoint, and may run at the same time as runs. While there is no lease, nothing is shared or
    mirrored."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._lease: GroupLease | None = None
        self.is_needed = context.job.group is not None and context.kind.traits.moves_checkpoint

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A context in which the lease is held, if one is needed."""
        if not self.is_needed:
            yield
            return
        context = self._context
        job = self._context.job
        survey = context.surveys.early()
        cluster = look_up_cluster(job).with_versions_of(survey)
        partitions = list(survey.logs)
        step = context.progress.step
        with hold_lease(job, cluster, partitions, context.warn, step) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def shared_reader(self) -> SharedReader | None:
        """The reader for plans that the group's drivers read together, while this driver is one of
        its members."""
        lease = self._lease
        if lease is None or not lease.is_member:
            return None
        progress = self._context.progress
        return lambda work: SharedRead(work, lease, progress).read()

    def mirror(self, *, to_the_end: bool = False) -> None:
        """Mirrors what has landed so far. A failure is a warning: the rows are safe."""
        if self._lease is None:
            return
        context = self._context
        offsets = partial(checkpoint_offsets, context)
        earlier = partial(_recent_checkpoints, context)
        try:
            self._lease.mirror(offsets, earlier, to_the_end=to_the_end)
        except RangelandError as error:
            context.warn(f"the checkpoint is not mirrored: {error}")


def _recent_checkpoints(context: LandingContext) -> set[tuple[Partition, int]]:
    """The marks at which a group's offsets may be if no other client has moved them."""
    return recent_checkpoints(context.target.ledger.view, context.job.application, EARLIER)


def checkpoint_offsets(context: LandingContext) -> dict[Partition, int]:
    """The offsets up to which logs have landed, as a group commits them. Reads the table again."""
    context.target.ledger.refresh()
    position = context.target.history.position(context.job.application)
    return offsets_to_commit(position.checkpoint, context.surveys.last.logs)
