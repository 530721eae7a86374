"""A broker that says that what its client knows of the cluster is out of date."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.kafka import messages as m
from rangeland.errors import Unreachable
from rangeland.fetch.fetch_steps import FindLeaders
from rangeland.fetch.leader_lookup import look_up_leaders
from rangeland.model import Address, Partition
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.survey_attempt import SurveyAttempt
from rangeland.survey.survey_request import SurveyRequest
from rangeland.wire.encoding import encode
from tests.unit.test_connection import Reply, framed, peer, settings_of, young

P = Partition("t", 0)
NEW = Address("new", 9092)


def metadata(response: m.MetadataResponse) -> Reply:
    """The reply with this response to whatever is asked after the versions."""
    return young(lambda request: framed(request[4:8] + b"\0" + encode(response, 13)))


OUTDATED = metadata(m.MetadataResponse(brokers=(), topics=(), error_code=129))
CURRENT = metadata(
    m.MetadataResponse(
        brokers=(m.MetadataBroker(node_id=7, host=NEW.host, port=NEW.port),),
        topics=(
            m.MetadataTopic(
                error_code=0,
                name="t",
                partitions=(
                    m.MetadataPartition(
                        error_code=0,
                        partition_index=0,
                        leader_id=7,
                        replica_nodes=(7,),
                        isr_nodes=(7,),
                    ),
                ),
            ),
        ),
    )
)


def test_a_reader_whose_brokers_are_outdated_asks_the_jobs_servers() -> None:
    with peer(OUTDATED) as known, peer(OUTDATED) as stale, peer(CURRENT) as server:
        settings = replace(settings_of(stale), seeds=(stale, server))
        with ConnectionPool(settings) as brokers:
            found = look_up_leaders(brokers, FindLeaders((P,), (known, known)))
            assert found.leaders[P].address == NEW
            assert brokers.requests == 3


def test_a_survey_asks_the_jobs_server_again_on_a_new_connection() -> None:
    with peer(OUTDATED, CURRENT) as server, ConnectionPool(settings_of(server)) as brokers:
        attempt = SurveyAttempt(brokers, SurveyRequest(("t",)))
        attempt.find_leaders()
        assert attempt.partitions.leaders[P].address == NEW
        assert (attempt.answered_by, brokers.requests) == (server, 2)


def test_servers_that_are_outdated_as_well_are_unreachable_for_now() -> None:
    with peer(OUTDATED) as server, ConnectionPool(settings_of(server)) as brokers:
        with pytest.raises(Unreachable, match="REBOOTSTRAP_REQUIRED"):
            ask_metadata(brokers, ["t"], [server])
        assert brokers.requests == 2
