"""The wrapper of confluent-kafka: the error when it is missing, and whose mistake an error is."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from rangeland.errors import Conflict, RangelandError, Unreachable, UsageError
from rangeland.testing.client_library import join_servers, library, our_errors
from rangeland.testing.producer import produce


def test_a_missing_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UsageError, match=r"pip install 'rangeland\[demo\]'"):
        library()


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Unreachable),
        (KafkaError._TIMED_OUT, Unreachable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Unreachable),
        (KafkaError.OFFSET_NOT_AVAILABLE, Unreachable),
        (KafkaError.TOPIC_ALREADY_EXISTS, Conflict),
        (KafkaError.INVALID_REPLICATION_FACTOR, UsageError),
    ],
)
def test_what_passes_is_distinguished_from_what_does_not(
    code: int, ours: type[RangelandError]
) -> None:
    with (
        pytest.raises(RangelandError, match="Nothing was done") as caught,
        our_errors("Nothing was done"),
    ):
        raise KafkaException(KafkaError(code))
    assert type(caught.value) is ours
    assert caught.value.facts["code"] == code


def test_servers_may_be_a_list_or_one_string() -> None:
    assert join_servers(["a:1", "b:2"]) == join_servers("a:1,b:2") == "a:1,b:2"


def test_an_unknown_codec_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no codec lzo.*gzip, snappy, lz4, zstd"):
        produce("127.0.0.1:1", "t", [], codec="lzo")
