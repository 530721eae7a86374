"""The client side of a Kerberos login, with the library of MIT Kerberos or Heimdal.

The package `gssapi` wraps that library. It is imported on use, so it is needed only for GSSAPI. It
requests tickets from the key distribution center that krb5.conf names, and keeps those obtained
with a keytab in memory.
"""

from __future__ import annotations

import zlib
from typing import Any

from rangeland.cluster_settings import KerberosSettings
from rangeland.connection.failures import TokenUnavailable
from rangeland.errors import AccessDenied, MissingRequirement, RemoteProtocolError

FIELD = "source.security.sasl.kerberos"
OPERATOR = "the key distribution center's operator"
# From krb5_err.et: the center does not answer, or its address cannot be resolved now.
_MAY_PASS = {-1765328228, -1765328164}


class KerberosLogin:
    """One login at one broker. The constructor fetches its ticket before anything is sent to the
    broker; otherwise, the connection could not continue with an earlier login. Raises
    TokenUnavailable; AccessDenied if there is no ticket; MissingRequirement without the package."""

    def __init__(self, settings: KerberosSettings, host: str) -> None:
        self._settings = settings
        self._service = f"{settings.service_name}@{host}"
        self._gssapi = _library()
        try:
            self._context = self._begin()
            self.first_token = bytes(self._context.step())
        except self._gssapi.exceptions.GSSError as error:
            raise self._ticket_error(error) from error

    @property
    def who(self) -> str:
        return f"principal {self._settings.principal or 'of the ticket cache'}"

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, challenge: bytes) -> bytes:
        try:
            return bytes(self._context.step(challenge) or b"")
        except self._gssapi.exceptions.GSSError as error:
            raise self._unproved_error(error) from error

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except self._gssapi.exceptions.GSSError as error:
            raise self._unproved_error(error) from error

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._context.wrap(message, False).message)

    def _begin(self) -> Any:
        gssapi = self._gssapi
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
            creds=self._credentials(),
            flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
            usage="initiate",
        )

    def _credentials(self) -> Any:
        gssapi = self._gssapi
        settings = self._settings
        kind = gssapi.NameType.kerberos_principal
        name = None if settings.principal is None else gssapi.Name(settings.principal, kind)
        if settings.keytab is None:
            return gssapi.Credentials(name=name, usage="initiate")
        # A cache of this process, so that a user's own tickets stay unchanged. Each cache has the
        # tickets of only one principal.
        owner = zlib.crc32(f"{settings.principal} {settings.keytab}".encode())
        store = {"client_keytab": f"FILE:{settings.keytab}", "ccache": f"MEMORY:rangeland-{owner}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)

    def _unproved_error(self, error: Any) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"the broker has not proved that it is {self._service}",
            why=_reason(error),
            do="check that host and port are those of the broker, then ask its operator",
        )

    def _ticket_error(self, error: Any) -> AccessDenied | TokenUnavailable:
        if error.min_code in _MAY_PASS or error.min_code - (1 << 32) in _MAY_PASS:
            return TokenUnavailable(
                f"{self.who} got no ticket for {self._service}",
                why=_reason(error),
                do="check that the key distribution center in krb5.conf is up, then run again",
            )
        keytab = self._settings.keytab
        return AccessDenied(
            f"{self.who} got no ticket for {self._service}",
            why=_reason(error),
            do=f"check {FIELD}.principal and {keytab}"
            if keytab
            else "run kinit where the driver "
            f"and the executors run, or name a keytab in {FIELD}.keytab",
            operator=OPERATOR,
            login_is_in_doubt=True,
        )


def _reason(error: Any) -> str:
    """The mechanism's message; the general one that precedes it says nothing."""
    return " ".join(str(error.gen_message()).split())


def _library() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise MissingRequirement(
            "GSSAPI needs the package gssapi, which this Python does not have",
            why=str(error),
            do="run pip install 'rangeland[kerberos]', for the driver's Python and the workers'; "
            "it needs the Kerberos libraries",
        ) from error
    return gssapi
