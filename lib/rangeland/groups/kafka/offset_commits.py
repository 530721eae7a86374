"""Requests that commit and fetch a group's offsets, and their responses.

Pure. On the wire, -1 means that there is no offset; this value does not leave the module. The error
codes of partitions are reduced to one, since brokers repeat an error of the group for each
partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import error_code_of
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import Unreachable
from rangeland.grouping import group_by
from rangeland.model import Partition


def commit_request(
    group: str,
    offsets: Mapping[Partition, int],
    generation: int = m.NO_GENERATION,
    member_id: str = m.UNKNOWN_MEMBER,
) -> BrokerRequest:
    """The request that commits ``offsets``, the next ones to be read. By default the sender is not
    a member."""
    topics: dict[str, list[m.CommitPartition]] = {}
    for partition, offset in sorted(offsets.items()):
        part = m.CommitPartition(partition_index=partition.number, committed_offset=offset)
        topics.setdefault(partition.topic, []).append(part)
    request = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=tuple(m.CommitTopic(name=t, partitions=tuple(p)) for t, p in topics.items()),
    )
    return BrokerRequest(request)


def code_of_commit(response: m.OffsetCommitResponse) -> int:
    return _deciding(part.error_code for topic in response.topics for part in topic.partitions)


def group_offsets_request(group: str, partitions: Sequence[Partition]) -> BrokerRequest:
    """The request for a group's offsets. Those that an open transaction may still change are
    reported as a retriable error."""
    request = m.OffsetFetchRequest(
        group_id=group,
        topics=tuple(
            m.OffsetFetchTopic(name=topic, partition_indexes=tuple(p.number for p in listed))
            for topic, listed in group_by(partitions, lambda p: p.topic).items()
        ),
        require_stable=True,
    )
    return BrokerRequest(request)


def code_of_group_offsets(response: m.OffsetFetchResponse, asked: Collection[Partition]) -> int:
    """The deciding error code of a response. Raises Unreachable if the response leaves out one of
    the ``asked`` partitions: if there is no offset, brokers answer -1."""
    parts = (part.error_code for topic in response.topics for part in topic.partitions)
    code = response.error_code or _deciding(parts)
    if not code and (left_out := set(asked) - read_group_offsets(response).keys()):
        raise Unreachable(
            f"the coordinator did not say whether the group has an offset of {min(left_out)}",
            why="its response leaves out the partition",
            do="try again in a moment",
        )
    return code


def read_group_offsets(response: m.OffsetFetchResponse) -> dict[Partition, int | None]:
    """The committed offsets of a group; None for a partition without one."""
    return {
        Partition(topic.name, part.partition_index): (
            part.committed_offset if part.committed_offset >= 0 else None
        )
        for topic in response.topics
        for part in topic.partitions
    }


def _deciding(codes: Iterable[int]) -> int:
    """The first error that is not retriable, otherwise the first error, otherwise 0."""
    failed = [code for code in codes if error_code_of(code).meaning is not ErrorMeaning.OK]
    lasting = [code for code in failed if not error_code_of(code).meaning.is_retriable]
    return next(iter(lasting or failed), 0)
