"""Commits a job's checkpoint to its group now, as a run does after landing.

This is for groups that a run could not reach, or whose offsets another client has moved since. It
is refused for a group with live members: a running consumer would not notice, and would continue
from its own position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_access.job_survey import survey_of
from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.cluster_values import GroupView
from rangeland.errors import Conflict, JobFileError
from rangeland.groups.backend import GroupBackend
from rangeland.job import Group, Job
from rangeland.job.connection_settings import request_for_range
from rangeland.job_group.offset_mirror import (
    MirroredOffsets,
    mirror,
    moved_each_time_error,
    offsets_to_commit,
    why_left_out,
)
from rangeland.landing.audit.removed_and_unknown_rows import check_rows_remain
from rangeland.landing.target.landing_target import open_target
from rangeland.model import LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.progress_events import Progress
from rangeland.query_results import (
    LeftOutPartition,
    MirroredPartition,
    MirrorResult,
    MirrorState,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 3
"""Each failure requires that the job lands between two readings of its checkpoint."""


def group_of(job: Job) -> Group:
    """The group of a job. Raises JobFileError if it has none."""
    if job.group is None:
        raise JobFileError(
            f"the job {job.name} has no group to mirror its checkpoint to",
            do="add group: {id: NAME} to the job file",
        )
    return job.group


def push(job: Job, spark: SparkSession, progress: Progress) -> MirrorResult:
    """Commits the job's checkpoint to its group. Raises Conflict if the group has live members,
    Unreachable if its backend is unavailable, and JobFileError for a job without a group."""
    started = time.monotonic()
    group = group_of(job)
    progress.step(f"looking at the table {job.sink.table}")
    target = open_target(spark, job)
    target.identity.check_table_and_ledger_agree()
    check_rows_remain(spark, target, job, progress, progress.warn)
    position = target.history.position(job.application)
    progress.step("asking for leaders and offsets")
    cluster = look_up_cluster(job)
    known = position.landed_topics(job.source.partitions)
    survey = survey_of(job, request_for_range(job, known), settings=cluster)
    cluster = cluster.with_versions_of(survey)
    logs = survey.logs
    marks: Mapping[Partition, LogMark] = {}

    def checkpoint_now() -> dict[Partition, int]:
        nonlocal marks
        target.ledger.refresh()
        marks = target.history.position(job.application).checkpoint
        return offsets_to_commit(marks, logs)

    progress.step(f"mirroring the checkpoint to the group {group.id}")
    mirrored, backend = push_offsets(job, cluster, checkpoint_now)
    state: MirrorState = "mirrored" if mirrored.changed else "unchanged"
    return MirrorResult(
        job=job.name,
        group=group.id,
        backend=backend,
        state=state if marks else "nothing-landed",
        partitions=_mirrored_partitions(mirrored, logs),
        seconds=time.monotonic() - started,
        left_out=_left_out_partitions(marks, mirrored, survey),
    )


def push_offsets(
    job: Job, cluster: ClusterSettings, checkpoint_now: Callable[[], dict[Partition, int]]
) -> tuple[MirroredOffsets, str]:
    """Commits the current checkpoint to the job's group. Returns what changed, and the name of the
    group's backend. Raises as ``push`` does."""
    backend = open_backend(job, cluster)
    try:
        return _push(backend, group_of(job).id, checkpoint_now), backend.name
    finally:
        backend.close()


def _push(
    backend: GroupBackend, group: str, checkpoint_now: Callable[[], dict[Partition, int]]
) -> MirroredOffsets:
    """Commits the checkpoint, and commits it again if it has moved meanwhile: otherwise, the
    offsets of a run that has landed and mirrored in between would be set back. Raises Conflict if
    it moves each time."""
    before: dict[Partition, int | None] = {}
    checkpoint = checkpoint_now()
    for _ in range(TRIES):
        check_group_is_empty(group, backend.view(group))
        mirrored = mirror(backend, group, checkpoint, lambda o: backend.commit(group, o))
        before = {**mirrored.before, **before}
        is_written = bool(mirrored.changed or mirrored.differing)
        newest = checkpoint_now() if is_written else checkpoint
        if newest == checkpoint:
            _check_group_has_checkpoint(group, mirrored)
            return replace(mirrored, before=before)
        checkpoint = newest
    raise moved_each_time_error(group, TRIES)


def _check_group_has_checkpoint(group: str, mirrored: MirroredOffsets) -> None:
    """Raises Conflict if the group does not have the offsets that were committed."""
    if mirrored.differing:
        p = mirrored.differing[0]
        raise Conflict(
            f"the group {group} is at {mirrored.after.get(p)} of {p} after the checkpoint "
            f"{mirrored.checkpoint[p]} was committed",
            why="another client commits to it",
            do="find that client, give the job its own group, or try again",
        )


def check_group_is_empty(group: str, view: GroupView) -> None:
    """Raises Conflict naming the live members."""
    if not view.members:
        return
    members = [
        f"{m.client_id or m.member_id}{f' at {m.host}' if m.host else ''}" for m in view.members
    ]
    is_run = all(member.is_ours for member in view.members)
    raise Conflict(
        f"the group {group} has live members: {', '.join(members[:5])}",
        why="a run of this job is under way" if is_run else "a consumer is using it",
        do="wait for it to end: it mirrors the checkpoint itself"
        if is_run
        else "stop it, or give the job another group",
        members=[member.member_id for member in view.members],
    )


def _mirrored_partitions(
    mirrored: MirroredOffsets, logs: Mapping[Partition, LogState]
) -> tuple[MirroredPartition, ...]:
    before, after = mirrored.before, mirrored.after
    return tuple(
        MirroredPartition(p, offset, before.get(p), after.get(p), logs[p].end_offset)
        for p, offset in mirrored.checkpoint.items()
    )


def _left_out_partitions(
    marks: Mapping[Partition, LogMark], mirrored: MirroredOffsets, survey: Survey
) -> tuple[LeftOutPartition, ...]:
    return tuple(
        LeftOutPartition(p, mark.until_offset, why_left_out(p, mark, survey))
        for p, mark in sorted(marks.items())
        if p not in mirrored.checkpoint
    )
