"""What a command prints when a signal ends it."""

from __future__ import annotations

import logging
import signal

import pytest
from py4j.clientserver import ClientServerConnection
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
        stream = None
        is_connected = True

        def send_command(self, command: str) -> str:
            signal.raise_signal(signal.SIGINT)
            return "never"

    monkeypatch.setattr(client, "_get_connection", Connection)
    # What a shell starts in its background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with StopSignals():
        with pytest.raises(KeyboardInterrupt):
            client.send_command("c\n")
        # py4j shuts down connections whose other end may be gone, and logs that by a logger of its
        # own.
        ClientServerConnection.shutdown_socket(Connection(), 1, 2)
    assert caplog.records == []
    with pytest.raises(KeyboardInterrupt):  # and without it:
        client.send_command("c\n")
    ClientServerConnection.shutdown_socket(Connection(), 1, 2)
    assert "KeyboardInterrupt while sending command" in caplog.text
    assert "Exception occurred while shutting down connection" in caplog.text
    assert not logging.getLogger().filters
