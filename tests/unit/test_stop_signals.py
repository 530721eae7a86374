"""What a command prints when a signal ends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayClient

from rangeland.cli.stop_signals import StopSignals


def interrupted(command: str) -> str:
    raise KeyboardInterrupt


def test_a_call_of_the_jvm_that_a_signal_interrupts_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = GatewayClient()
    connection = SimpleNamespace(send_command=interrupted, socket=None)
    monkeypatch.setattr(client, "_get_connection", lambda: connection)
    with StopSignals(), pytest.raises(KeyboardInterrupt):
        client.send_command("c\n")
    assert caplog.records == []
    with pytest.raises(KeyboardInterrupt):  # what it would print otherwise
        client.send_command("c\n")
    assert "KeyboardInterrupt while sending command" in caplog.text
