"""Diagnoses failed connections: names each mistake, and the field of the job file that fixes it.

Pure functions. The owner of the socket reports a failure. Here it becomes a JobFileError or, if the
other side has to change something, AccessDenied (both exit 78), or None if a broker that is down
would look the same. A broker's certificate and its TLS alerts are certain evidence. A connection
that is closed without a response is not: the port may require TLS or a login, or the broker may be
too old to be asked for its versions, shutting down or busy. So callers try once more, in another
way, before they call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.failures import NotABroker
from rangeland.errors import (
    BROKER_OPERATOR,
    AccessDenied,
    JobFileError,
    RangelandError,
    RemoteProtocolError,
)
from rangeland.model import Address

# Verification codes of OpenSSL, from x509_vfy.h.
_ANOTHER_NAME = (62, 63, 64)
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_NOT_YET, _EXPIRED = 9, 10

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
_NO_VERSION = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER", "NO_CIPHERS")
_PEER_FAILURE = ("INTERNAL_ERROR", "USER_CANCELLED", "USER_CANCELED")
"""Alerts about the peer itself: a broker that is starting, a load balancer without a backend."""
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")
_REFUSES_CERTIFICATE = (
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "ACCESS_DENIED",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """How error messages name the other side: its fields in the job file, and who runs it."""

    tls: str = "source.security.tls"
    servers: str = "source.servers"
    operator: str = BROKER_OPERATOR


BROKER = Peer()


@dataclass(frozen=True, slots=True)
class TlsFailure:
    """A failure that OpenSSL reported. ``verify_code`` is 0 unless the certificate was refused."""

    reason: str
    verify_code: int = 0
    verify_message: str = ""


def tls_error(
    address: Address, failure: TlsFailure, tls: TlsSettings, peer: Peer = BROKER
) -> JobFileError | AccessDenied | None:
    """The mistake that caused a TLS failure; None if the cause is not certain."""
    if failure.verify_code:
        return _certificate_error(address, failure, tls, peer)

    def says(*words: str) -> bool:
        return any(word in failure.reason for word in words)

    if says(*_PEER_FAILURE):
        return None
    if says(*_NOT_TLS):
        return plain_port_error(address, peer)
    if says(*_NO_VERSION):
        return _denial_error(
            address,
            f"{address} and this client have no TLS version in common",
            f"this client supports TLS 1.2 and 1.3; {address.host} answered {failure.reason}",
            f"ask {peer.operator} to allow TLS 1.2 or 1.3",
            peer,
        )
    if tls.certificate is None and says(*_WANTS_CERTIFICATE):
        return _setting_error(
            address,
            f"{address} wants a client certificate, but the job has none",
            f"it answered {failure.reason}",
            f"set {peer.tls}.certificate and key, or use a port that does not ask for one",
        )
    if tls.certificate is not None and says(*_REFUSES_CERTIFICATE):
        return _denial_error(
            address,
            f"{address} refuses this client's certificate",
            f"it answered {failure.reason} to {tls.certificate}",
            f"set {peer.tls}.certificate to one that is valid and signed by an authority that "
            f"{address.host} trusts",
            peer,
            login_is_in_doubt=True,
        )
    if says("ALERT"):
        return _denial_error(
            address,
            f"{address} aborted the TLS handshake",
            f"it answered {failure.reason}",
            f"check {peer.tls} with {peer.operator}: whether a client certificate is required, and "
            "which TLS versions and ciphers are allowed",
            peer,
            login_is_in_doubt=True,
        )
    return None


def _certificate_error(
    address: Address, failure: TlsFailure, tls: TlsSettings, peer: Peer
) -> JobFileError | AccessDenied:
    what, why = f"the certificate of {address}", failure.verify_message
    if failure.verify_code in _ANOTHER_NAME:
        is_broker = peer == BROKER
        others = " (other brokers are named by their advertised.listeners)" if is_broker else ""
        return _setting_error(
            address,
            f"{what} is for another host",
            why,
            f"name it in {peer.servers} as its certificate does{others}, or have the certificate "
            "reissued for this name; "
            f"{peer.tls}.verify_hostname: false accepts any name",
        )
    if failure.verify_code in _UNKNOWN_AUTHORITY:
        do = (
            f"set {peer.tls}.ca to the PEM file of that authority"
            if tls.ca is None
            else f"{tls.ca} is not that authority: correct {peer.tls}.ca"
        )
        return _setting_error(
            address,
            f"{what} is from an authority that is not trusted",
            why,
            do,
        )
    if failure.verify_code == _EXPIRED:
        do = f"ask {peer.operator} to renew it, or correct this host's clock"
        return _denial_error(address, f"{what} has expired", why, do, peer)
    if failure.verify_code == _NOT_YET:
        do = "correct the clock of this host, or of the issuer"
        return _denial_error(address, f"{what} is not valid yet", why, do, peer)
    do = f"check {peer.tls}.ca and the certificate"
    return _setting_error(address, f"{what} is not accepted", why, do)


def tls_port_error(address: Address, peer: Peer = BROKER) -> JobFileError:
    return _setting_error(
        address,
        f"{address} speaks TLS, but the job does not",
        "it answered a plain connection with TLS",
        f"set {peer.tls}, or use a port without TLS",
    )


def plain_port_error(address: Address, peer: Peer = BROKER) -> JobFileError:
    return _setting_error(
        address,
        f"{address} does not speak TLS, but the job does",
        "it does not answer the TLS handshake with TLS",
        f"remove {peer.tls}, or use a port with TLS",
    )


def http_port_error(address: Address) -> NotABroker:
    return NotABroker(
        f"{address} is an HTTP port, not a broker",
        why="it speaks HTTP: its response begins with HTTP/",
        do="correct host and port in source.servers",
        broker=str(address),
    )


def not_a_broker_error(
    address: Address, error: RemoteProtocolError, tls: TlsSettings | None
) -> RangelandError:
    """The error if the peer has not answered as a broker before, and now answers with something
    else."""
    first = error.first_bytes
    if tls is None and first[:2] in (b"\x15\x03", b"\x16\x03"):
        return tls_port_error(address)
    if first == b"HTTP":
        return http_port_error(address)
    return NotABroker(
        f"{address} does not answer like a broker",
        why="; ".join(part for part in (error.what, error.why) if part),
        do="check host, port and source.security",
        broker=str(address),
    )


def missing_login_error(address: Address, mechanisms: Sequence[str]) -> JobFileError:
    return _setting_error(
        address,
        f"{address} requires a login, but the job has none",
        "it closed the connection at the first request, twice, and offers SASL "
        f"{', '.join(sorted(mechanisms)) or 'without naming a mechanism'}",
        "set source.security.sasl, or use a port that does not require a login",
    )


def host_name_error(address: Address) -> JobFileError:
    return _setting_error(
        address,
        f"{address.host} is not a valid host name",
        "a part of it is empty or too long, or has characters that host names cannot have",
        "correct source.servers; if it is not listed there, a broker advertises this name: ask its "
        "operator to correct advertised.listeners",
    )


SILENT_CLOSE = (
    "the port may require TLS (source.security.tls) or SASL (source.security.sasl), belong to "
    "another service, or to a broker that is shutting down: check host and port in "
    "source.servers, then run again"
)
"""What to do about a peer that closes every connection without a response."""


def _setting_error(address: Address, what: str, why: str, do: str) -> JobFileError:
    return JobFileError(what, why=why, do=do, broker=str(address))


def _denial_error(
    address: Address, what: str, why: str, do: str, peer: Peer, *, login_is_in_doubt: bool = False
) -> AccessDenied:
    return AccessDenied(
        what,
        why=why,
        do=do,
        operator=peer.operator,
        login_is_in_doubt=login_is_in_doubt,
        broker=str(address),
    )
