"""Reads and commits the offsets of a group, in one round for each master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rangeland.dialects.error_meaning import GroupMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS, error_code_of
from rangeland.dialects.rocketmq.pulls_in_flight import number_of
from rangeland.errors import RangelandError
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.masters import (
    MasterBrokers,
    indexes_by_broker,
    masters_error,
    queue_of,
)
from rangeland.model import Partition


def read_offsets(
    masters: MasterBrokers, group: str, queues: Sequence[Partition]
) -> dict[Partition, int | None]:
    responses = masters.ask_each([g.query_offset(group, queue) for queue in queues])
    offsets: dict[Partition, int | None] = {}
    for queue, (response, code) in zip(queues, responses, strict=True):
        has_offset = response.code == SUCCESS
        if not has_offset and code.group_meaning is not GroupMeaning.NO_OFFSET:
            raise masters_error(
                code, response.remark, group, f"its offset of {queue} was asked for"
            )
        offsets[queue] = number_of(response, "offset") if has_offset else None
    return offsets


def write_offsets(
    masters: MasterBrokers, group: str, offsets: Mapping[Partition, int], me: str
) -> None:
    """Creates the group if there is none. ``me`` must not be the client id of a member with
    another connection."""
    requests = [g.update_offset(group, queue, offset) for queue, offset in sorted(offsets.items())]
    requests, later = _firsts(requests)
    responses = _write(masters, group, requests)
    pairs = zip(requests, responses, strict=True)
    if refused := [r for r, response in pairs if _lacks_group(response)]:
        # A broker creates an unknown group when a client unregisters, so that nobody has to join.
        for broker, indexes in indexes_by_broker(refused).items():
            masters.ask(broker, queue_of(refused[indexes[0]]).topic, g.unregister(me, group))
        responses = _write(masters, group, refused)
    for response in (*responses, *_write(masters, group, later)):
        if _lacks_group(response):
            raise _not_written_error(response, group)


def _firsts(
    requests: Sequence[m.RemotingRequest],
) -> tuple[list[m.RemotingRequest], list[m.RemotingRequest]]:
    """One request for each broker and topic, to be answered before the others are sent. A broker
    of 5.5.0 loses one of two concurrent offsets that are the first of a group and topic:
    ``ConsumerOffsetManager.commitOffset`` creates their map without a lock."""
    queues = [queue_of(request) for request in requests]
    first = {(queue.broker, queue.topic): n for n, queue in reversed([*enumerate(queues)])}
    indexes = set(first.values())
    return (
        [request for n, request in enumerate(requests) if n in indexes],
        [request for n, request in enumerate(requests) if n not in indexes],
    )


def _write(
    masters: MasterBrokers, group: str, requests: Sequence[m.RemotingRequest]
) -> list[m.RemotingResponse]:
    """The responses: success, or that there is no such group."""
    responses = [response for response, _ in masters.ask_each(requests)]
    for response in responses:
        if response.code != SUCCESS and not _lacks_group(response):
            raise _not_written_error(response, group)
    return responses


def _lacks_group(response: m.RemotingResponse) -> bool:
    return error_code_of(response.code).group_meaning is GroupMeaning.NO_SUCH_GROUP


def _not_written_error(response: m.RemotingResponse, group: str) -> RangelandError:
    when = f"its offset of {queue_of(response.request)} was written"
    return masters_error(error_code_of(response.code), response.remark, group, when)
