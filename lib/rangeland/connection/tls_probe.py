"""Connects over TLS to servers that are not brokers, and finds out why that fails."""

from __future__ import annotations

import socket
import ssl

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.diagnosis import TlsFailure
from rangeland.connection.tls import openssl_failure, tls_context
from rangeland.model import Address

PROBE_S = 2.0
"""A probe only improves the message of an error that has already occurred, so it must be short."""
# The first byte of a record of TLS: an alert, or a handshake.
_TLS_RECORDS = (0x15, 0x16)


def connect_with_tls(
    at: tuple[str, int], host: str, context: ssl.SSLContext, timeout_s: float
) -> ssl.SSLSocket:
    """A socket after the TLS handshake. ``host``: the name that the certificate must have. Raises
    OSError."""
    plain = socket.create_connection(at, timeout_s)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def tls_failure(
    server: Address, tls: TlsSettings, section: str, question: bytes
) -> TlsFailure | None:
    """The failure that OpenSSL reports for a connection, up to the response to a question: a server
    may not say earlier that it requires a certificate. None if there is no failure or no
    response."""
    context, at = tls_context(tls, section), (server.host, server.port)
    try:
        with connect_with_tls(at, server.host, context, PROBE_S) as tls_socket:
            tls_socket.sendall(question)
            tls_socket.recv(1)
    except ssl.SSLError as error:
        return openssl_failure(error)
    except ConnectionError as error:
        return TlsFailure(str(error))
    except (OSError, ValueError):
        return None
    return None


def answers_in_clear(server: Address, question: bytes) -> bool:
    """Whether a server answers a question without TLS. Nothing else is sent."""
    try:
        with socket.create_connection((server.host, server.port), PROBE_S) as plain:
            plain.sendall(question)
            response = plain.recv(1)
            return bool(response) and response[0] not in _TLS_RECORDS
    except (OSError, ValueError):
        return False
