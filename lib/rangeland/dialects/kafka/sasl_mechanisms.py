"""Authentication by SASL PLAIN, SCRAM, OAUTHBEARER and GSSAPI, as requests and responses.

Pure, except for the nonce of SCRAM, which `scramp` generates. That package is imported only when it
is used, so only SCRAM needs it. The broker is verified too: its SCRAM signature must be correct,
and its number of iterations within limits.

Brokers before 1.0 accept tokens in bare frames and close the connection if they refuse one. A
broker that is shutting down may do the same: that error is a ``LoginClosed``, and is not believed
the first time. Upstream: SaslServerAuthenticator.java; RFC 4616 (PLAIN), 5802 and 7677 (SCRAM),
7628 (tokens), 4752 (GSSAPI); ScramExtensions.java (delegation tokens). No error contains a password
or a token.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    error_code_of,
)
from rangeland.dialects.protocol_session import (
    BrokerRequest,
    Credentials,
    LoginClosed,
    NoCommonVersion,
    PeerClosed,
)
from rangeland.errors import (
    BROKER_OPERATOR,
    AccessDenied,
    JobFileError,
    LocalProtocolError,
    MissingRequirement,
    RemoteProtocolError,
)
from rangeland.untrusted import JsonFields, Unreadable

MIN_ITERATIONS: Final = 4096
"""The minimum according to RFC 7677, and in Kafka."""
MAX_ITERATIONS: Final = 1_000_000
"""About half a second on one core. Kafka itself stores no more than 16,384."""

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_DELEGATED: Final = ",tokenauth=true"
_NO_LAYER: Final = 1
"""A security layer of RFC 4752: messages after the login are neither signed nor encrypted by
SASL."""

Login = Generator[BrokerRequest, Any, int | None]
Authentication = Generator[BrokerRequest, Any, m.SaslAuthenticateResponse]


def login(credentials: Credentials) -> Login:
    """Returns the number of milliseconds after which the login must be repeated; 0 or None: never.
    Raises JobFileError if the broker refuses the mechanism, AccessDenied if it refuses the
    credentials, RemoteProtocolError if it does not prove that it knows the password, and
    MissingRequirement if the package that SCRAM needs is not installed."""
    mechanism = credentials.mechanism
    handshake = yield BrokerRequest(m.SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code:
        raise _no_mechanism_error(mechanism, handshake)
    mechanisms: dict[str, Callable[[Credentials], Authentication]] = {
        "PLAIN": _plain,
        "OAUTHBEARER": _bearer,
        **dict.fromkeys(SCRAM, _scram),
        "GSSAPI": _gssapi,
    }
    if mechanism not in mechanisms:
        raise JobFileError(
            f"the SASL mechanism {mechanism} is not supported",
            do=f"use one of: {', '.join(mechanisms)}",
        )
    response: m.SaslAuthenticateResponse = yield from mechanisms[mechanism](credentials)
    return response.session_lifetime_ms


def mechanisms_requests() -> list[BrokerRequest]:
    """Asks for the listener's mechanisms, without identifying the client. A listener without SASL
    answers ILLEGAL_SASL_STATE. A listener with SASL lists its mechanisms, whether or not PLAIN is
    among them."""
    return [BrokerRequest(m.SaslHandshakeRequest(mechanism="PLAIN"))]


def read_mechanisms(responses: Sequence[m.SaslHandshakeResponse]) -> tuple[str, ...] | None:
    (response,) = responses
    lists_them = response.error_code in (0, UNSUPPORTED_SASL_MECHANISM.number)
    return tuple(response.mechanisms) if lists_them else None


@dataclass
class _Exchange:
    """Exchanges tokens with the broker, in a form that it supports. These are for messages: ``who``
    is logging in, ``refused`` is what a refusal concerns, ``remedy`` is what to do, and ``reason``
    is what the broker said before it refused. ``secret`` never appears in a message."""

    who: str
    refused: str
    remedy: str
    secret: str = ""
    reason: str = ""
    is_bare: bool = False
    step: int = 0

    def send(self, token: bytes) -> Authentication:
        """Sends a token and returns the response. Raises AccessDenied if the broker refuses it, and
        LoginClosed if a broker before 1.0 closes the connection instead."""
        response = yield from self._send(token)
        if response.error_code:
            raise self.refusal_error(response)
        return response

    def _send(self, token: bytes) -> Authentication:
        self.step += 1
        if not self.is_bare:
            try:
                response: m.SaslAuthenticateResponse
                response = yield BrokerRequest(m.SaslAuthenticateRequest(auth_bytes=token))
                return response
            except NoCommonVersion:
                self.is_bare = True  # a broker before 1.0 does not know the request
        try:
            response = yield BrokerRequest(m.BareToken(token))
            return response
        except PeerClosed as error:
            raise LoginClosed(
                f"the broker closed the connection while {self.who} logged in",
                step=self.step,
                why="brokers before 1.0 close the connection to refuse a login",
                do="check source.security.sasl: the name and where its password comes from",
                operator=BROKER_OPERATOR,
                login_is_in_doubt=True,
            ) from error

    def refusal_error(self, response: m.SaslAuthenticateResponse) -> AccessDenied:
        texts = [self._without_secret(text or "") for text in (self.reason, response.error_message)]
        why = "; ".join(dict.fromkeys(text for text in texts if text))
        return _refused_login_error(
            f"the broker refused {self.refused}",
            why=why or error_code_of(response.error_code).name,
            do=self.remedy,
            code=response.error_code,
        )

    def _without_secret(self, text: str) -> str:
        return text.replace(self.secret, "...") if self.secret else text


def _exchange_of_user(credentials: Credentials) -> _Exchange:
    user = f"user {credentials.username}"
    remedy = "check source.security.sasl: the user name, where its password comes from, and that "
    remedy += f"the user exists for {credentials.mechanism}"
    return _Exchange(user, user, remedy, credentials.password)


def _plain(credentials: Credentials) -> Authentication:
    token = f"\0{credentials.username}\0{credentials.password}".encode()
    return _exchange_of_user(credentials).send(token)


def _scram(credentials: Credentials) -> Authentication:
    """Logs in with SCRAM, and checks that the broker knows the password as well."""
    exchange = _exchange_of_user(credentials)
    scramp = _library()
    try:
        client = scramp.ScramClient([credentials.mechanism], credentials.username, "")
        # Kafka uses a password's bytes as they are; the library would normalize them (RFC 4013).
        client.password = credentials.password.encode()
        first = client.get_client_first()
        if credentials.is_delegated:
            first += _DELEGATED
            client.client_first_bare += _DELEGATED
    except scramp.ScramException as error:
        raise JobFileError(
            f"the name of {exchange.who} cannot be used with SCRAM",
            why=str(error),
            do="correct source.security.sasl.username",
        ) from None
    response = yield from exchange.send(first.encode())
    challenge = _text(response.auth_bytes)
    _check_iterations_are_accepted(challenge)
    _call_scramp(scramp, lambda: client.set_server_first(challenge))
    proof: str = _call_scramp(scramp, client.get_client_final)
    response = yield from exchange.send(proof.encode())
    final = _text(response.auth_bytes)
    if final.startswith("e="):
        exchange.reason = final
        raise exchange.refusal_error(response)
    _call_scramp(scramp, lambda: client.set_server_final(final))
    return response


def _library() -> Any:
    """The package scramp. Raises MissingRequirement."""
    try:
        import scramp
    except ImportError as error:
        raise MissingRequirement(
            "SCRAM needs the package scramp, which this Python does not have",
            why=str(error),
            do="run pip install scramp, for the driver's Python and the workers'",
        ) from error
    return scramp


def _call_scramp(scramp: Any, step: Callable[[], Any]) -> Any:
    """Runs a step of the library, which verifies the broker's last message."""
    try:
        return step()
    except (scramp.ScramException, ValueError, KeyError, IndexError) as error:
        raise RemoteProtocolError(
            "the broker's side of the SCRAM login is wrong, so it may be another server",
            why=str(error),
            do="check that host and port belong to the broker, then ask its operator",
        ) from None


def _check_iterations_are_accepted(challenge: str) -> None:
    """Raises RemoteProtocolError if the number of iterations is unacceptable, before it is used."""
    numbers = [part[2:] for part in challenge.split(",") if part.startswith("i=")]
    number = numbers[0] if numbers else ""
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    if is_number and MIN_ITERATIONS <= int(number) <= MAX_ITERATIONS:
        return
    raise RemoteProtocolError(
        "the broker asks for a number of SCRAM iterations that is not accepted",
        why=f"it asks for {number[:20] or 'none'}, but {MIN_ITERATIONS} to {MAX_ITERATIONS} are "
        "accepted",
        do="create the user's SCRAM credentials again, with 4096 to 16384 iterations",
    )


def _bearer(credentials: Credentials) -> Authentication:
    """Logs in with a token and its extensions."""
    remedy = "check source.security.sasl.token: its audience, scope and expiry"
    exchange = _Exchange("the bearer of the token", "the token", remedy, credentials.token)
    pairs = [("auth", f"Bearer {credentials.token}"), *credentials.extensions]
    fields = "".join(f"{key}={value}\x01" for key, value in pairs)
    response = yield from exchange.send(f"n,,\x01{fields}\x01".encode())
    if not response.auth_bytes:
        return response
    # A refusal takes two steps: first the reason as JSON, then, after an acknowledgement, the
    # error.
    exchange.reason = _status(_text(response.auth_bytes))
    with suppress(LoginClosed):  # a broker before 1.0 closes the connection
        response = yield from exchange.send(b"\x01")
    raise exchange.refusal_error(replace(response, error_code=SASL_AUTHENTICATION_FAILED.number))


def _gssapi(credentials: Credentials) -> Authentication:
    """Logs in with Kerberos. Raises RemoteProtocolError if the broker insists on signing or
    encrypting what follows."""
    kerberos = credentials.kerberos
    if kerberos is None:
        raise LocalProtocolError("a login with GSSAPI has no Kerberos context")
    remedy = "check source.security.sasl.kerberos, and the broker's log: its keytab must have the "
    remedy += "principal SERVICE_NAME/HOST for the host in source.servers"
    exchange = _Exchange(kerberos.who, kerberos.who, remedy)
    response = yield from exchange.send(kerberos.first_token)
    while not kerberos.is_complete:
        response = yield from exchange.send(kerberos.step(bytes(response.auth_bytes)))
    layers = kerberos.unwrap(bytes(response.auth_bytes))
    if len(layers) != 4 or not layers[0] & _NO_LAYER:
        raise RemoteProtocolError(
            "the broker requires SASL to sign or encrypt everything after the login",
            why=f"it offers the layers {layers[:1].hex()}, and Kafka's own clients use none",
            do="check that host and port belong to a Kafka broker",
        )
    response = yield from exchange.send(kerberos.wrap(bytes([_NO_LAYER, 0, 0, 0])))
    return response


def _text(data: Any) -> str:
    return bytes(data).decode("utf-8", errors="replace")


def _no_mechanism_error(mechanism: str, handshake: m.SaslHandshakeResponse) -> JobFileError:
    if handshake.error_code == ILLEGAL_SASL_STATE.number:
        return JobFileError(
            "the port does not accept SASL",
            why=f"it answered {error_code_of(handshake.error_code).name} to {mechanism}",
            do="remove source.security.sasl, or use the brokers' port for SASL",
            code=handshake.error_code,
        )
    offer = ", ".join(sorted(handshake.mechanisms)) or "nothing"
    return JobFileError(
        f"the broker does not offer SASL {mechanism}",
        why=f"it offers {offer}"
        if handshake.error_code == UNSUPPORTED_SASL_MECHANISM.number
        else f"it answered {error_code_of(handshake.error_code).name} and offers {offer}",
        do="set source.security.sasl.mechanism to one that it offers",
        code=handshake.error_code,
        offered=list(handshake.mechanisms),
    )


def _refused_login_error(what: str, *, why: str, do: str, **facts: Any) -> AccessDenied:
    return AccessDenied(
        what, why=why, do=do, operator=BROKER_OPERATOR, login_is_in_doubt=True, **facts
    )


def _status(reason: str) -> str:
    """The reason in words: ``{"status":"invalid_token","scope":"x"}`` is ``status invalid_token,
    scope x``."""
    try:
        fields = JsonFields.parse(reason)
        return ", ".join(f"{key} {fields.word(key)}" for key in fields)[:300]
    except Unreadable:
        return reason[:200]
