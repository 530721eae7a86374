"""What a command prints when a signal ends it."""

from __future__ import annotations

import logging
import signal

import pytest
from py4j.java_gateway import GatewayClient

from rangeland.cli.stop_signals import StopSignals


def test_calls_of_the_jvm_that_end_because_of_a_signal_print_no_traceback(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    client = GatewayClient()

    class Connection:
        socket = None

        def send_command(self, command: str) -> str:
            signal.raise_signal(signal.SIGINT)
            return "never"

    monkeypatch.setattr(client, "_get_connection", Connection)
    # What a shell starts in its background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with StopSignals(), pytest.raises(KeyboardInterrupt):
        client.send_command("c\n")
    assert caplog.records == []
    with pytest.raises(KeyboardInterrupt):  # and without it:
        client.send_command("c\n")
    assert "KeyboardInterrupt while sending command" in caplog.text
    assert not logging.getLogger().filters
