"""The messages that consumers exchange through the coordinator, which does not read them.

Each begins with a version; a reader that knows only older versions ignores the rest. None of them
is a request.
"""

from __future__ import annotations

from rangeland.wire.declarations import *

PROTOCOL_TYPE = "consumer"


@struct
class TopicPartitions:
    topic: String
    partitions: Array[Int32]


@message(versions=(0, 0))
class ConsumerProtocolHeader:
    """Precedes a subscription and an assignment."""

    version: Int16


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    """``owned_partitions`` are the partitions that the member still owns from the generation
    ``generation_id``."""

    topics: Array[String]
    user_data: Bytes | None = None
    owned_partitions: Array[TopicPartitions] = since(1, default=(), ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: String | None = since(3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    """The same layout in all versions."""

    assigned_partitions: Array[TopicPartitions]
    user_data: Bytes | None = None


@message(versions=(0, 2))
class StickyUserData:
    """The user data of a subscription, which does not say what version it has. Versions 0 and 1 are
    those of Kafka's StickyAssignor. Version 2 is ours and adds ``owner``, which other readers
    ignore."""

    previous_assignment: Array[TopicPartitions]
    generation: Int32 = since(1, default=-1)
    owner: String = since(2, default="")
