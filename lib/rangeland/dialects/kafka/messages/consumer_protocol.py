"""What consumers tell each other through the coordinator, which only passes the bytes on.

A version stands before each of them, and whoever knows only older ones reads as far as it
understands. Upstream: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, and
the layout of StickyAssignor's user data, as of Kafka 4.1. No kind of request has these.
"""

from __future__ import annotations

from rangeland.wire.encoding import Array, Bytes, Int16, Int32, String, message, since, struct

PROTOCOL_TYPE = "consumer"


@struct
class TopicPartitions:
    topic: String
    partitions: Array[Int32]


@message(versions=(0, 0))
class ConsumerProtocolHeader:
    """Before a subscription and before an assignment."""

    version: Int16


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    """Source: ConsumerProtocolSubscription.json. ``owned_partitions`` are those that the
    member still holds, of the generation ``generation_id``."""

    topics: Array[String]
    user_data: Bytes | None = None
    owned_partitions: Array[TopicPartitions] = since(1, default=(), ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: String | None = since(3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    """Source: ConsumerProtocolAssignment.json. The same layout in all versions."""

    assigned_partitions: Array[TopicPartitions]
    user_data: Bytes | None = None


@message(versions=(0, 2))
class StickyUserData:
    """The user data of a subscription. Versions 0 and 1 are those of Kafka's StickyAssignor;
    no version stands before them. In 2, which is ours, ``owner`` follows: others read up to
    it, and leave the rest."""

    previous_assignment: Array[TopicPartitions]
    generation: Int32 = since(1, default=-1)
    owner: String = since(2, default="")
