"""What a connection that failed means, in words: each mistake with the field that mends it.

Pure. Whoever has the socket says what was seen; here it becomes an error of the job file
(exit 78), or None where it may as well be a broker that is down. A broker's certificate and
its alerts are beyond doubt. A connection that is closed without a word is not, so callers
ask once more, in another way, before they come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.connection.cluster_settings import TlsSettings
from rangeland.errors import JobFileError
from rangeland.model import Address

# OpenSSL's numbers, of x509_vfy.h.
_ANOTHER_NAME = (62, 63, 64)
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_NOT_YET, _EXPIRED = 9, 10

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
_NO_VERSION = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER", "NO_CIPHERS")
_ITS_OWN_TROUBLE = ("INTERNAL_ERROR", "USER_CANCELLED", "USER_CANCELED")
"""Alerts about the peer itself: a broker that is starting, a load balancer without one."""
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
class TlsFailure:
    """What OpenSSL said. ``verify_code`` is 0 where the certificate was not what failed."""

    reason: str
    verify_code: int = 0
    verify_message: str = ""


def tls_mistake(address: Address, failed: TlsFailure, tls: TlsSettings) -> JobFileError | None:
    """None where nothing can be said for sure."""
    if failed.verify_code:
        return _bad_certificate(address, failed, tls)

    def says(*words: str) -> bool:
        return any(word in failed.reason for word in words)

    if says(*_ITS_OWN_TROUBLE):
        return None
    if says(*_NOT_TLS):
        return plain_port(address)
    if says(*_NO_VERSION):
        return _mistake(
            address,
            f"{address} and this client share no version of TLS",
            f"TLS 1.2 is the oldest that is spoken here; {address.host} says {failed.reason}",
            "have the brokers' operator allow TLS 1.2 or 1.3",
        )
    if tls.certificate is None and says(*_WANTS_CERTIFICATE):
        return _mistake(
            address,
            f"{address} wants a client certificate and was given none",
            f"it answered {failed.reason}",
            "set source.security.tls.certificate and key, or use a port that wants none",
        )
    if tls.certificate is not None and says(*_REFUSES_CERTIFICATE):
        return _mistake(
            address,
            f"{address} refuses this client's certificate",
            f"it answered {failed.reason} to {tls.certificate}",
            "give one in source.security.tls.certificate that is still valid and that an "
            "authority has signed which the brokers trust",
        )
    if says("ALERT"):
        return _mistake(
            address,
            f"{address} breaks the TLS handshake off",
            f"it answered {failed.reason}",
            "check source.security.tls with the brokers' operator: whether a client certificate is "
            "wanted, and which versions and ciphers of TLS",
        )
    return None


def _bad_certificate(address: Address, failed: TlsFailure, tls: TlsSettings) -> JobFileError:
    why = failed.verify_message
    if failed.verify_code in _ANOTHER_NAME:
        return _mistake(
            address,
            f"the certificate of {address} is for another host",
            why,
            "name the broker in source.servers as its certificate does (further brokers name "
            "themselves: their advertised.listeners), or have the certificate name it; "
            "source.security.tls.verify_hostname: false takes any",
        )
    if failed.verify_code in _UNKNOWN_AUTHORITY:
        given = (
            "give the authority's PEM file as source.security.tls.ca"
            if tls.ca is None
            else f"{tls.ca} is not that authority: correct source.security.tls.ca"
        )
        return _mistake(
            address,
            f"the certificate of {address} is from an authority that is not trusted",
            why,
            given,
        )
    if failed.verify_code == _EXPIRED:
        what, do = "has expired", "have the brokers' operator renew it, or set this host's clock"
    elif failed.verify_code == _NOT_YET:
        what, do = "is not valid yet", "set this host's clock, or that of the certificate's maker"
    else:
        what, do = "is not accepted", "check source.security.tls.ca and the certificate"
    return _mistake(address, f"the certificate of {address} {what}", why, do)


def tls_port(address: Address) -> JobFileError:
    return _mistake(
        address,
        f"{address} speaks TLS, and the job does not",
        "it answered in TLS to a plain connection",
        "set source.security.tls, or use the brokers' plain port",
    )


def plain_port(address: Address) -> JobFileError:
    return _mistake(
        address,
        f"{address} does not speak TLS, and the job does",
        "it does not answer to a TLS greeting as TLS does",
        "remove source.security.tls, or use the brokers' TLS port",
    )


def wants_login(address: Address, offered: Sequence[str]) -> JobFileError:
    return _mistake(
        address,
        f"{address} requires a login, and the job has none",
        "it closed the connection at the first request, twice, and offers SASL "
        f"{', '.join(sorted(offered)) or 'without naming a mechanism'}",
        "set source.security.sasl, or use a port that does not require a login",
    )


def no_host(address: Address) -> JobFileError:
    return _mistake(
        address,
        f"{address.host} is no name that a host can have",
        "a part of it is empty, too long, or has characters that names have not",
        "correct source.servers; if it is not there, a broker gives itself this name: have its "
        "operator correct advertised.listeners",
    )


SILENT_CLOSE = (
    "It may be a port that wants TLS (source.security.tls) or SASL (source.security.sasl), a "
    "port of something else, or a broker that is going down: check host and port in "
    "source.servers, then run again"
)
"""What to do about a peer that closes whatever it is asked."""


def _mistake(address: Address, what: str, why: str, do: str) -> JobFileError:
    return JobFileError(what, why=why, do=do, broker=str(address))
