"""Kafka's messages as declarations, one file per subject.

A request declares its response; ``REQUESTS`` lists all requests. Names and layouts are those of the
message definitions that ship with Kafka 4.1: ``FetchRequest`` is FetchRequest.json. Older versions,
which 4.1 has dropped, are kept for brokers 0.8 to 3. Times are in milliseconds, sizes in bytes.

Everything can be imported from here.
"""

from __future__ import annotations

from typing import Any, Final

from rangeland.dialects.kafka.messages.cluster import *
from rangeland.dialects.kafka.messages.configs import *
from rangeland.dialects.kafka.messages.consumer_protocol import *
from rangeland.dialects.kafka.messages.fetch_records import *
from rangeland.dialects.kafka.messages.group_membership import *
from rangeland.dialects.kafka.messages.headers import *
from rangeland.dialects.kafka.messages.leader_epochs import *
from rangeland.dialects.kafka.messages.list_offsets import *
from rangeland.dialects.kafka.messages.producers import *
from rangeland.dialects.kafka.messages.sasl import *
from rangeland.wire.declarations import requests_in

REQUESTS: Final[tuple[type[Any], ...]] = requests_in(globals())
"""Every declared request, by key."""
