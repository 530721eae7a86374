"""A Fetch response that names the new leader, with its address and epoch (KIP-951)."""

from __future__ import annotations

import pytest

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.requests import read_records
from rangeland.model import Address, Isolation, Leader

LEADER = Leader(Address("b2", 9092), 7)
ENDPOINTS = (m.NodeEndpoint(node_id=2, host="b2", port=9092),)


@pytest.mark.parametrize(
    ("named", "endpoints", "hint"),
    [
        (
            m.LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
            ENDPOINTS,
            Leader(Address("b2", 9092), 7),
        ),
        (m.LeaderIdAndEpoch(leader_id=3, leader_epoch=7), ENDPOINTS, None),
        (m.LeaderIdAndEpoch(leader_id=2, leader_epoch=7), (), None),
        (m.LeaderIdAndEpoch(), ENDPOINTS, None),
        (None, ENDPOINTS, None),
    ],
)
def test_the_new_leader_is_read_where_its_address_and_epoch_are_known(
    named: m.LeaderIdAndEpoch | None, endpoints: tuple[m.NodeEndpoint, ...], hint: Leader | None
) -> None:
    part = m.FetchedPartitionData(
        partition_index=0, error_code=6, high_watermark=-1, current_leader=named
    )
    response = m.FetchResponse(
        responses=(m.FetchedTopic(topic="t", partitions=(part,)),), node_endpoints=endpoints
    )
    (read,) = read_records([response], [], Isolation.READ_COMMITTED).partitions
    assert (read.meaning, read.leader_hint) == (ErrorMeaning.FIND_LEADER, hint)
