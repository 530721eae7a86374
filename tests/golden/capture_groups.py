"""The part of the capture that joins groups: a member's life, and groups as others see them.

A member of these groups speaks a protocol of its own, so that what it says and its share are
bytes that can be told apart. The newer kind of group is joined by another client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from rangeland.dialects.kafka import messages as m

if TYPE_CHECKING:
    from tests.golden.capture import Capture

MEMBERS = "golden-members"
SAID, SHARE = b"golden-said", b"golden-share"


def joining(group: str, member_id: str = "") -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="golden",
        protocols=(m.JoinGroupProtocol(name="golden", metadata=SAID),),
    )


def ask_to_join(capture: Capture, version: int, group: str) -> m.JoinGroupResponse:
    """From version 4 on the first response only gives the member its id."""
    asked = f"the first member of {group}"
    case = "first" if version < 4 else "without-id"
    response: m.JoinGroupResponse = capture.ask(joining(group), version, case, asked)
    if case == "without-id":
        again = joining(group, response.member_id)
        response = capture.ask(again, version, "first", f"{asked}, with its id")
    return response


def ask_as_member(capture: Capture, topic: str) -> None:
    joined = {
        version: ask_to_join(capture, version, f"{MEMBERS}-{version}")
        for version in capture.versions(m.JoinGroupRequest)
    }
    first = min(joined)
    group, me = f"{MEMBERS}-{first}", joined[first]
    place: dict[str, Any] = {
        "group_id": group,
        "generation_id": me.generation_id,
        "member_id": me.member_id,
    }
    share = m.SyncGroupAssignment(member_id=me.member_id, assignment=SHARE)
    for version in capture.versions(m.SyncGroupRequest):
        syncing = m.SyncGroupRequest(
            **place, protocol_type="golden", protocol_name="golden", assignments=(share,)
        )
        capture.ask(syncing, version, "leader", f"the share of the leader of {group}")
    stale = place | {"generation_id": me.generation_id + 1}
    for version in capture.versions(m.HeartbeatRequest):
        capture.ask(m.HeartbeatRequest(**place), version, "member", f"a member of {group}")
        asked = "the same of another generation"
        capture.ask(m.HeartbeatRequest(**stale), version, "stale", asked)
    ask_to_commit(capture, topic, group, me)
    for version in capture.versions(m.DescribeGroupsRequest):
        asked = f"{group} and a group that is not there"
        describing = m.DescribeGroupsRequest(groups=(group, "no-such-group"))
        capture.ask(describing, version, "two", asked)
    for version in capture.versions(m.LeaveGroupRequest):
        leaving = joined.get(version, me).member_id
        group = f"{MEMBERS}-{version}"
        request = m.LeaveGroupRequest(group_id=group, member_id=leaving)
        capture.ask(request, version, "member", f"the member of {group}")
        capture.ask(request, version, "gone", "the same once more")


def ask_to_commit(capture: Capture, topic: str, group: str, me: m.JoinGroupResponse) -> None:
    part = m.CommitPartition(partition_index=1, committed_offset=0)
    topics = (m.CommitTopic(name=topic, partitions=(part,)),)
    for version in capture.versions(m.OffsetCommitRequest):
        for case, generation in (("member", me.generation_id), ("stale", me.generation_id + 1)):
            request = m.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=me.member_id,
                topics=topics,
            )
            capture.ask(request, version, case, f"{topic}/1 of generation {generation}")


def ask_newer_groups(capture: Capture, topic: str) -> None:
    """A group whose coordinator assigns by itself, with one consumer of another client."""
    if not capture.versions(m.ConsumerGroupDescribeRequest):
        return
    group = "golden-newer"
    settings = {"group.protocol": "consumer", "group.id": group, "client.id": "other"}
    consumer = Consumer({"bootstrap.servers": f"{capture.host}:{capture.port}", **settings})
    consumer.subscribe([topic])
    for _ in range(300):
        consumer.poll(0.1)
        if len(consumer.assignment()) == 2:
            break
    for version in capture.versions(m.ConsumerGroupDescribeRequest):
        request = m.ConsumerGroupDescribeRequest(group_ids=(group, "no-such-group"))
        capture.ask(request, version, "two", f"{group} and a group that is not there")
    consumer.close()
