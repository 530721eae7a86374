"""The wrapper of confluent-kafka: the error when it is missing, and whose mistake an error is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from rangeland.errors import Conflict, RangelandError, Unreachable, UsageError
from rangeland.testing import producer
from rangeland.testing.__main__ import main
from rangeland.testing.client_library import join_servers, library, our_errors
from rangeland.testing.producer import Record, produce, spread


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


def test_a_record_that_the_client_does_not_take_is_an_error_of_ours() -> None:
    too_large = Record(b"x" * (65 << 20))
    with pytest.raises(UsageError, match=r"to the topic t.*MSG_SIZE_TOO_LARGE"):
        produce("127.0.0.1:1", "t", [too_large])
    with pytest.raises(UsageError, match=r"to the topic t.*MSG_SIZE_TOO_LARGE"):
        spread("127.0.0.1:1", "t", [(b"k", too_large.value or b"")], 1)


def test_an_unknown_topic_or_partition_is_not_blamed_on_the_brokers_alone() -> None:
    for code in (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        with pytest.raises(Unreachable) as caught, our_errors("Nothing was done"):
            raise KafkaException(KafkaError(code))
        assert "check that the topic and its partition exist" in caught.value.do


def test_writing_ends_with_the_first_records_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """While brokers are down the queue empties by timeouts alone, a minute each time."""

    class FullQueue:
        taken = 0

        def __init__(self, settings: dict[str, Any]) -> None:
            self._report = settings["on_delivery"]

        def produce(self, *_: object) -> None:
            self.taken += 1
            if self.taken > 3:
                raise BufferError

        def poll(self, timeout_s: float) -> None:
            self._report(KafkaError(KafkaError._MSG_TIMED_OUT), None)

    monkeypatch.setattr(producer, "producer", lambda bootstrap, settings: FullQueue(settings))
    with pytest.raises(Unreachable, match="_MSG_TIMED_OUT"):
        spread("127.0.0.1:1", "t", [(b"k", b"v")] * 9, 1)


def test_a_file_of_lines_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    assert main(["produce", "127.0.0.1:1", "t", str(tmp_path / "none")]) == 64
    assert "No such file" in capsys.readouterr().err
