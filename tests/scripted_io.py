"""A ``GroupIO`` with scripted responses: requests must come in that order.

The clock advances only during pauses. A response is a message, an error to raise, or a function
of the request; each is listed with the kind of request that it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import CODES
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.model import Address

SEEDS = (Address("seed-a", 1), Address("seed-b", 2))
NUMBER = {code.name: code.number for code in CODES}

Response = Any | Callable[[Any], Any]


@dataclass
class ScriptedIO:
    """``asked`` is what came, and where it went. ``seeds`` are two."""

    script: list[tuple[type[Any], Response]] = field(default_factory=list)
    seeds: tuple[Address, ...] = SEEDS
    asked: list[tuple[Address, BrokerRequest]] = field(default_factory=list)
    clock_ms: int = 0
    is_closed: bool = False

    def then(self, *script: tuple[type[Any], Response]) -> None:
        self.script += script

    def ask(self, address: Address, question: BrokerRequest) -> Any:
        self.asked.append((address, question))
        assert self.script, f"nobody expected {question.message}"
        kind, response = self.script.pop(0)
        assert type(question.message) is kind
        if isinstance(response, Exception):
            raise response
        return response(question.message) if callable(response) else response

    def ask_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self.ask(address, question) for question in questions]

    def pause(self, pause_ms: int) -> None:
        self.clock_ms += pause_ms

    def now_ms(self) -> int:
        return self.clock_ms

    def close(self) -> None:
        self.is_closed = True

    def requests(self, kind: type[Any]) -> list[Any]:
        return [question.message for _, question in self.asked if type(question.message) is kind]


# --- responses ----------------------------------------------------------------------------

LOST = Unreachable("could not connect", why="refused")


def found(host: str = "home", code: str = "NONE") -> tuple[type[Any], Any]:
    response = m.FindCoordinatorResponse(error_code=NUMBER[code], host=host, port=9)
    return m.FindCoordinatorRequest, response


def joined(
    code: str = "NONE",
    member_id: str = "me",
    generation: int = 1,
    leader: str = "another",
    members: dict[str, bytes] | None = None,
    protocol: str = "range",
) -> tuple[type[Any], Any]:
    response = m.JoinGroupResponse(
        error_code=NUMBER[code],
        generation_id=generation,
        protocol_name=protocol,
        leader=leader,
        member_id=member_id,
        members=tuple(
            m.JoinGroupMember(member_id=member, metadata=said)
            for member, said in (members or {}).items()
        ),
    )
    return m.JoinGroupRequest, response


def synced(assignment: bytes = b"", code: str = "NONE") -> tuple[type[Any], Any]:
    response = m.SyncGroupResponse(error_code=NUMBER[code], assignment=assignment)
    return m.SyncGroupRequest, response


def beaten(code: str = "NONE") -> tuple[type[Any], Any]:
    return m.HeartbeatRequest, m.HeartbeatResponse(error_code=NUMBER[code])


def left(code: str = "NONE") -> tuple[type[Any], Any]:
    return m.LeaveGroupRequest, m.LeaveGroupResponse(error_code=NUMBER[code])


def committed(*codes: str) -> tuple[type[Any], Any]:
    parts = tuple(
        m.CommittedPartition(partition_index=index, error_code=NUMBER[code])
        for index, code in enumerate(codes or ("NONE",))
    )
    topic = m.CommittedTopic(name="orders", partitions=parts)
    return m.OffsetCommitRequest, m.OffsetCommitResponse(topics=(topic,))


def fetched(*offsets: int, code: str = "NONE", whole: str = "NONE") -> tuple[type[Any], Any]:
    parts = tuple(
        m.OffsetFetchPartitionResponse(
            partition_index=index, committed_offset=offset, error_code=NUMBER[code]
        )
        for index, offset in enumerate(offsets)
    )
    topic = m.OffsetFetchTopicResponse(name="orders", partitions=parts)
    response = m.OffsetFetchResponse(topics=(topic,), error_code=NUMBER[whole])
    return m.OffsetFetchRequest, response


def described(
    *members: m.DescribedMember,
    state: str = "Stable",
    code: str = "NONE",
    protocol_type: str = "consumer",
) -> tuple[type[Any], Any]:
    group = m.DescribedGroup(
        error_code=NUMBER[code],
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range",
        members=members,
    )
    return m.DescribeGroupsRequest, m.DescribeGroupsResponse(groups=(group,))


def a_member(
    member_id: str, said: bytes = b"", holds: bytes = b"", client_id: str = "rangeland"
) -> m.DescribedMember:
    return m.DescribedMember(
        member_id=member_id,
        client_id=client_id,
        client_host="/10.0.0.7",
        member_metadata=said,
        member_assignment=holds,
    )


def newer(*members: m.ConsumerMember, code: str = "NONE") -> tuple[type[Any], Any]:
    group = m.ConsumerGroup(
        error_code=NUMBER[code],
        group_id="g",
        group_state="Stable" if members else "Empty",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="uniform",
        members=members,
    )
    response = m.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(group,))
    return m.ConsumerGroupDescribeRequest, response
