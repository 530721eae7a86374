"""What ``mirror`` returns, and which groups it leaves alone."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import RenderableType

from rangeland.cli.command_line import main
from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.errors import Conflict, JobFileError
from rangeland.job import Job
from rangeland.job_group import mirror_command
from rangeland.job_group.mirror_command import check_group_is_empty, group_of, push_offsets
from rangeland.job_group.offset_mirror import MirroredOffsets
from rangeland.model import AbsentPartitions, Address, Leader, LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.progress_events import NoProgress
from rangeland.query_results import (
    GroupStatus,
    MirroredPartition,
    MirrorResult,
    PartitionStatus,
    Status,
)
from rangeland.render.group_view import group_lines, render_mirror
from rangeland.render.status_view import render_status
from rangeland.render.text_drawing import console_for
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups

P0, P1 = Partition("orders", 0), Partition("orders", 1)
RESULT = MirrorResult(
    job="hourly",
    group="g",
    backend="the coordinator of group g at h:9092",
    state="mirrored",
    partitions=(MirroredPartition(P0, 15, 9, 15, 1_020), MirroredPartition(P1, 7, None, 7, 7)),
    seconds=0.5,
)


def rendered(*renderables: RenderableType) -> str:
    stream = io.StringIO()
    for renderable in renderables:
        console_for(stream).print(renderable)
    return stream.getvalue()


def test_the_response_has_what_the_group_had_and_has() -> None:
    document = json.loads(json.dumps(RESULT.to_json()))
    assert (document["group"], document["state"]) == ("g", "mirrored")
    assert document["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "broker": None,
        "checkpoint": 15,
        "group_before": 9,
        "group_after": 15,
        "end": 1_020,
        "lag": 1_005,
    }


def test_the_picture_shows_both_offsets_and_the_lag() -> None:
    text = rendered(render_mirror(RESULT))
    first = next(line for line in text.splitlines() if line.startswith("orders/0"))
    assert first.split() == ["orders/0", "15", "9", "15", "1,020", "1,005"]
    assert "2 offsets written" in text
    nothing = MirrorResult("hourly", "g", "h", "nothing-landed", (), 0.1)
    assert "nothing has landed yet" in rendered(render_mirror(nothing))


def test_a_group_with_members_is_left_alone_and_they_are_named() -> None:
    consumer = GroupMember("c-1", "billing", "/10.0.0.7", frozenset({P0}))
    with pytest.raises(Conflict, match=r"billing at /10\.0\.0\.7") as caught:
        check_group_is_empty("g", GroupView(GroupState.STABLE, (consumer,)))
    assert "stop it" in caught.value.do
    with pytest.raises(Conflict, match="a run of this job is under way"):
        check_group_is_empty("g", GroupView(GroupState.STABLE, (GroupMember("m-1", is_ours=True),)))
    check_group_is_empty("g", GroupView(GroupState.EMPTY))


# --- runs of the job meanwhile ------------------------------------------------------------------

JOB = Job.parse(
    "{job: hourly, source: {servers: [h:1], topics: [orders]}, sink: {table: t}, group: {id: g}}"
)


class LandingMeanwhile:
    """A group, and a table in which a run of the job lands and which it mirrors: after each look at
    the checkpoint, as long as there are checkpoints left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *checkpoints: int) -> None:
        self.groups = InMemoryGroups()
        self.offsets = self.groups.group("g").offsets
        self.offsets[P0] = 1
        self.checkpoints = list(checkpoints)
        self.reads = 0
        backend = InMemoryGroupBackend(self.groups, "mirror")
        monkeypatch.setattr(mirror_command, "open_backend", lambda job, cluster: backend)

    def read_checkpoint(self) -> dict[Partition, int]:
        self.reads += 1
        current = self.checkpoints[0]
        if self.checkpoints[1:]:
            del self.checkpoints[0]
            self.offsets[P0] = self.checkpoints[0]
        return {P0: current}

    def push(self) -> MirroredOffsets:
        mirrored, _ = push_offsets(JOB, cast(Any, None), self.read_checkpoint)
        return mirrored


def test_a_run_that_lands_meanwhile_is_not_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LandingMeanwhile(monkeypatch, 5, 9)
    mirrored = table.push()
    assert table.offsets == {P0: 9}
    assert (mirrored.checkpoint, mirrored.before, mirrored.after) == ({P0: 9}, {P0: 9}, {P0: 9})
    assert table.reads == 3


def test_the_checkpoint_is_read_again_only_after_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LandingMeanwhile(monkeypatch, 5)
    assert table.push().before == {P0: 1}
    assert table.reads == 2
    assert table.push().changed == ()
    assert table.reads == 3


def test_a_checkpoint_that_moves_each_time_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LandingMeanwhile(monkeypatch, *range(5, 20))
    with pytest.raises(Conflict, match="the checkpoint moved during each of 3 attempts") as caught:
        table.push()
    assert "they mirror the checkpoint themselves" in caught.value.do
    assert table.reads == 4


def test_offsets_of_a_run_that_has_landed_meanwhile_are_not_those_of_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = LandingMeanwhile(monkeypatch, 5, 9)
    backend = mirror_command.open_backend(JOB, cast(Any, None))
    commit = backend.commit

    def commit_and_lose(group: str, offsets: dict[Partition, int]) -> None:
        commit(group, offsets)
        table.offsets[P0] = 9  # the run mirrors in this moment

    monkeypatch.setattr(backend, "commit", commit_and_lose)
    table.offsets[P0] = 1
    assert table.push().after == {P0: 9}
    monkeypatch.setattr(table, "checkpoints", [5])
    with pytest.raises(Conflict, match="another client commits to it"):
        table.push()


def landed_up_to(monkeypatch: pytest.MonkeyPatch, survey: Survey, position: Any) -> list[bool]:
    """Lets the command find a table with what ``position`` returns, and this survey. Returns when
    the ledger was refreshed."""
    refreshed: list[bool] = []
    target = SimpleNamespace(
        ledger=SimpleNamespace(refresh=lambda: refreshed.append(True)),
        identity=SimpleNamespace(check_table_and_ledger_agree=lambda: None),
        history=SimpleNamespace(position=position),
    )
    monkeypatch.setattr(mirror_command, "open_target", lambda *_: target)
    monkeypatch.setattr(mirror_command, "check_rows_remain", lambda *_: None)
    monkeypatch.setattr(mirror_command, "survey_of", lambda *_, **__: survey)
    return refreshed


def log_of(partition: Partition, topic_id: str | None = None) -> LogState:
    return LogState(partition, Leader(Address("h", 1), topic_id=topic_id), 0, 20, None)


def test_the_command_reads_ledger_and_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LandingMeanwhile(monkeypatch, 5, 7, 9)

    def position(application: str) -> Any:
        marks = {p: LogMark(offset, None) for p, offset in table.read_checkpoint().items()}
        return JobPosition(marks)

    survey = Survey(taken_at_ms=0, logs={P0: log_of(P0)})
    refreshed = landed_up_to(monkeypatch, survey, position)
    found = mirror_command.push(JOB, cast(Any, None), NoProgress())
    assert table.offsets == {P0: 9}
    assert (len(refreshed), table.reads) == (3, 4)
    assert [(p.checkpoint, p.after) for p in found.partitions] == [(9, 9)]
    assert found.left_out == ()


# --- partitions that are left out ---------------------------------------------------------------


def push_marks(
    monkeypatch: pytest.MonkeyPatch, marks: dict[Partition, LogMark], survey: Survey
) -> tuple[MirrorResult, dict[Partition, int]]:
    """The result of the command, and the group's offsets, where these marks have landed."""
    table = LandingMeanwhile(monkeypatch, 5)
    landed_up_to(monkeypatch, survey, lambda application: JobPosition(marks))
    return mirror_command.push(JOB, cast(Any, None), NoProgress()), table.offsets


def test_where_every_topic_was_created_again_it_does_not_say_that_nothing_has_landed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    survey = Survey(taken_at_ms=0, logs={P0: log_of(P0, "new")})
    found, offsets = push_marks(monkeypatch, {P0: LogMark(5, "old")}, survey)
    assert (found.state, found.partitions, offsets) == ("unchanged", (), {P0: 1})
    (left_out,) = found.left_out
    assert (left_out.partition, left_out.checkpoint) == (P0, 5)
    assert "its id was old" in left_out.why
    text = rendered(render_mirror(found))
    assert "no offset is committed to group g" in text
    assert "left out: orders/0 at 5: the topic was deleted and created again" in text
    assert "nothing has landed" not in text
    entry = json.loads(json.dumps(found.to_json()))["left_out"][0]
    assert entry.keys() == {"topic", "partition", "broker", "checkpoint", "why"}


def test_partitions_that_cannot_be_looked_at_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    p2, p3 = Partition("orders", 2), Partition("orders", 3)
    absent = AbsentPartitions(frozenset({p2}), unreachable={P1: "it has no leader"})
    survey = Survey(taken_at_ms=0, logs={P0: log_of(P0)}, absent=absent)
    marks = {p: LogMark(5) for p in (P0, P1, p2, p3)}
    found, offsets = push_marks(monkeypatch, marks, survey)
    assert (found.state, offsets) == ("mirrored", {P0: 5})
    assert [(p.partition, p.why) for p in found.left_out] == [
        (P1, "it has no leader"),
        (p2, "the job no longer reads it"),
        (p3, "the cluster does not show it"),
    ]
    text = rendered(render_mirror(found))
    assert "group g is at the checkpoint of what could be looked at" in text
    assert "orders/1 at 5: it has no leader" in text


def test_a_job_without_a_group_is_told_what_to_add() -> None:
    source = {"servers": ["h:1"], "topics": ["orders"]}
    job = Job.parse(json.dumps({"job": "hourly", "source": source, "sink": {"table": "t"}}))
    with pytest.raises(JobFileError) as caught:
        group_of(job)
    assert "group: {id: NAME}" in caught.value.do


def test_the_command_says_so_before_spark_is_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("{job: hourly, source: {servers: [h:1], topics: [orders]}, sink: {table: t}}")
    assert main(["mirror", str(path), "--json"]) == 78
    sys.stdout.flush()
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (said["error"], said["exit"]) == ("JobFileError", 78)
    assert "has no group" in said["message"]


def test_status_shows_the_members_or_why_they_are_not_to_be_seen() -> None:
    members = (
        GroupMember("m-1", "rangeland", "h1", frozenset({P0, P1}), True),
        GroupMember("c-9", "billing", "h2"),
    )
    lines = rendered(*group_lines(GroupStatus("g", "the coordinator", "stable", members)))
    assert "group g: stable, 2 members, kept by the coordinator" in lines
    assert "m-1 at h1: 2 partitions\n" in lines
    assert "c-9 at h2: 0 partitions, not a driver of this job" in lines
    assert "unavailable: it is away" in rendered(*group_lines(GroupStatus("g", why="it is away")))
    assert group_lines(None) == []


def test_status_has_a_column_for_age_and_owner_where_they_are_known() -> None:
    partitions = (
        PartitionStatus(P0, 15, 10, 20, 12, lag_ms=90_000, owner="rangeland-host-4711-" + "x" * 40),
        PartitionStatus(P1, 20, 10, 20, 20),
    )
    group = GroupStatus("g", "the coordinator", "stable")
    lines = rendered(render_status(Status("o", "t", 1, 1, partitions, group=group))).splitlines()
    head = next(line for line in lines if "checkpoint" in line)
    assert head.split()[-3:] == ["age", "group", "owner"]
    first = next(line for line in lines if line.startswith("orders/0"))
    assert "1 min 30 s" in first
    assert "..." in first  # an owner's name may be long
    assert all(len(line) <= 100 for line in lines)
    bare = rendered(render_status(Status("o", "t", 1, 1, partitions[1:])))
    assert "owner" not in bare
    assert "age" not in bare
