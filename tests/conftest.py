"""Fixtures that several suites of tests share: real brokers, and names for topics.

Nothing is started or imported from PySpark when this file is loaded. A broker starts with
the first test that asks for it; the one-broker cluster then serves all tests of the
session, in any order, so a test touches only topics whose names came from `topic`. Kill,
pause and restart brokers only of `kafka3`, and leave it whole.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rangeland.testing.kafka import KafkaCluster
from tests.examples import USUAL, draw_the_same_whatever_is_imported, tried

# Commands that tests start leave no JVM behind that writes an archive of its classes.
os.environ["RANGELAND_CLASS_ARCHIVE"] = "off"
# Landings send no events to whatever this machine's OpenLineage client is configured for.
os.environ["OPENLINEAGE_DISABLED"] = "true"

settings.register_profile("rangeland", tried(USUAL))
settings.load_profile("rangeland")
draw_the_same_whatever_is_imported()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One Kafka 4.1 broker for the whole session. Do not harm it."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka3() -> Iterator[KafkaCluster]:
    """Three Kafka 4.1 brokers for one module of tests, to be harmed and healed."""
    with KafkaCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses. The topic itself is not created."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{name[:60]}-{uuid.uuid4().hex[:8]}"
