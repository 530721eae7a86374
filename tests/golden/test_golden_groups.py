"""What real coordinators answered to members, and to those who asked about them."""

from __future__ import annotations

from rangeland.dialects.kafka.error_codes import error_code_of
from tests.golden.capture_groups import SAID, SHARE
from tests.golden.test_golden_kafka import Golden, of


@of("JoinGroup", "without-id")
def test_a_first_join_is_answered_with_an_id(stored: Golden) -> None:
    response = stored.read()
    assert error_code_of(response.error_code).name == "MEMBER_ID_REQUIRED"
    assert response.member_id.startswith("golden-")
    assert response.generation_id == -1


@of("JoinGroup", "first")
def test_the_only_member_leads_and_is_told_what_it_said(stored: Golden) -> None:
    response = stored.read()
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "golden")
    assert response.leader == response.member_id
    ((member_id, said),) = [(member.member_id, member.metadata) for member in response.members]
    assert (member_id, said) == (response.member_id, SAID)
    assert response.protocol_type == ("golden" if stored.version >= 7 else None)


@of("SyncGroup")
def test_a_share_is_what_the_leader_sent(stored: Golden) -> None:
    assert (stored.read().error_code, stored.read().assignment) == (0, SHARE)


@of("Heartbeat", "member")
def test_a_member_s_heartbeat_is_well(stored: Golden) -> None:
    assert stored.read().error_code == 0


@of("Heartbeat", "stale")
def test_a_heartbeat_of_another_generation_is_refused(stored: Golden) -> None:
    assert error_code_of(stored.read().error_code).name == "ILLEGAL_GENERATION"


@of("OffsetCommit")
def test_a_commit_of_another_generation_is_refused_for_each_partition(stored: Golden) -> None:
    (topic,) = stored.read().topics
    (part,) = topic.partitions
    # Version 0 goes to ZooKeeper, which knows no generations.
    fenced = stored.case == "stale" and stored.version > 0
    assert (topic.name, part.partition_index) == (stored.expected["topic"], 1)
    assert error_code_of(part.error_code).name == ("ILLEGAL_GENERATION" if fenced else "NONE")


@of("DescribeGroups")
def test_a_group_shows_its_member_with_what_it_said_and_holds(stored: Golden) -> None:
    group, missing = stored.read().groups
    (member,) = group.members
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "golden",
        "golden",
    )
    assert (member.client_id, member.client_host) == ("golden", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SAID, SHARE)
    assert (missing.group_state, missing.members) == ("Dead", ())
    code = "GROUP_ID_NOT_FOUND" if stored.version >= 6 else "NONE"
    assert error_code_of(missing.error_code).name == code


@of("ConsumerGroupDescribe")
def test_a_group_of_the_newer_kind_shows_who_holds_what(stored: Golden) -> None:
    group, missing = stored.read().groups
    (member,) = group.members
    ((topic, numbers),) = [
        (held.topic_name, held.partitions) for held in member.assignment.topic_partitions
    ]
    assert (topic, sorted(numbers)) == (stored.expected["topic"], [0, 1])
    assert (member.client_id, member.member_type) == ("other", 1 if stored.version >= 1 else -1)
    assert error_code_of(missing.error_code).name == "GROUP_ID_NOT_FOUND"


@of("LeaveGroup")
def test_who_has_left_cannot_leave_again(stored: Golden) -> None:
    code = "UNKNOWN_MEMBER_ID" if stored.case == "gone" else "NONE"
    assert error_code_of(stored.read().error_code).name == code
