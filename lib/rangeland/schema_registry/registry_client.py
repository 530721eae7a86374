"""Asks a schema registry, at each of its addresses, until one answers or time is up.

Requests that fail because a server is down, starting, busy or not a registry are retried within
``no_progress_ms``; then ``Unreachable`` is raised. A refused login or a missing permission is
``AccessDenied`` if all addresses refuse. It is raised at once, unless they have accepted the login
before, because then the refusal may pass. An untrusted certificate is an error in the job file. If
all addresses report that something does not exist, as long and as often as ``missing_ids``
requires, that is believed, unless something else shows that it does exist: then a copy is late,
which is a failure like any other.
"""

from __future__ import annotations

import base64
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.http_client import HttpFailed, HttpResponse, http_get
from rangeland.connection.tls import tls_context
from rangeland.decode.payload.schema_ids.schema_catalogue import SubjectVersion
from rangeland.errors import AccessDenied, Bug, JobFileError, Unreachable
from rangeland.schema_registry.missing_ids import CONFIRMATIONS, left_to_confirm_s
from rangeland.schema_registry.registry_responses import (
    MAX_RESPONSE_BYTES,
    UNKNOWN_SCHEMA,
    UNKNOWN_SUBJECT,
    UNKNOWN_VERSION,
    SchemaResponse,
    VersionResponse,
    read_error_code,
    read_schema,
    read_version,
    read_versions,
)
from rangeland.schema_registry.registry_settings import FIELD, RegistrySettings, is_registry_url
from rangeland.untrusted import Unreadable

logger = logging.getLogger(__name__)

OPERATOR: Final = "the registry's operator"
FIRST_RESPONSE_MS: Final = 10_000
"""How long a driver waits for a registry that has never answered: its URL may be wrong."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 8.0
"""The longest pause between attempts, so that a run notices within seconds that the registry is
back."""
MAX_REDIRECTS: Final = 3
"""How many redirects are followed: a proxy and a moved registry need two; more must be a loop."""
MOVED: Final = (301, 302, 303, 307, 308)
ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"
_HEADER: Final = re.compile(r"[\x21-\x7e]+")

Value = TypeVar("Value")

_accepted_logins: set[int] = set()
"""Hashes of those addresses and logins that a registry has accepted in this process."""


@dataclass(frozen=True, slots=True)
class _Failed:
    why: str
    refusal: AccessDenied | None = None


@dataclass(frozen=True, slots=True)
class _NoValue:
    """The result of asking all addresses, none of which had the value."""

    absences: list[str]
    failures: Mapping[str, str]
    refusals: list[AccessDenied]

    @property
    def refusal_error(self) -> AccessDenied | None:
        """The refusal of the first address, if all have refused this client."""
        is_unanimous = len(self.refusals) == len(self.failures) + len(self.absences)
        return self.refusals[0] if self.refusals and is_unanimous else None

    def with_late_copies(self, exists: str) -> _NoValue:
        """Counts copies that lack what is known to exist as late, which is a failure like any
        other."""
        why = f"it reports that this does not exist, although {exists}"
        failures = {**self.failures, **dict.fromkeys(self.absences, why)}
        return replace(self, absences=[], failures=failures)


class Absence(Enum):
    """What it means if all addresses report that something does not exist."""

    BELIEVED_AT_ONCE = "the caller decides what it means"
    BELIEVED_ONCE_CONFIRMED = "it may not exist"
    CONTRADICTED = "something else shows that it exists, so a late copy has answered"


class RegistryClient:
    """Asks a schema registry. Methods raise Unreachable, AccessDenied and JobFileError; None means
    that something does not exist. ``first_response_ms``: how long to wait for the very first
    response, if that is less than ``no_progress_ms``."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        first_response_ms: int | None = None,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not settings.urls or not all(map(is_registry_url, settings.urls)):
            raise JobFileError(
                f"{FIELD}.url is not the URL of a schema registry",
                do="write a URL such as http://registry:8081, without user, password and query",
            )
        self._settings = settings
        self._urls = [url.rstrip("/") for url in settings.urls]
        self._context = tls_context(settings.tls or TlsSettings(), f"{FIELD}.tls")
        self._login = _authorization(settings)
        self._login_hash = hash((settings.urls, *self._login.values()))
        self._first_response_ms = first_response_ms
        self._now = now
        self._pause = pause
        self._has_responded = False
        self._missing_since: float | None = None
        self.requests = 0

    def schema(self, schema_id: int) -> SchemaResponse | None:
        """The schema with this id; None if no address has it at present: what that means is decided
        by ``missing_ids``."""
        path = f"/schemas/ids/{schema_id}"
        what = f"schema id {schema_id}"
        return self._ask(
            path, what, read_schema, {UNKNOWN_SCHEMA}, absence=Absence.BELIEVED_AT_ONCE
        )

    def versions(
        self, schema_id: int, absence: Absence = Absence.CONTRADICTED
    ) -> tuple[SubjectVersion, ...]:
        """The registrations of the id; empty if its subjects were deleted. The default for
        ``absence`` assumes that the registry has just returned the schema."""
        what = f"the subjects of schema id {schema_id}"
        path = f"/schemas/ids/{schema_id}/versions"
        exists = "it has the schema"
        return self._ask(path, what, read_versions, {UNKNOWN_SCHEMA}, exists, absence) or ()

    def referenced_version(self, at: SubjectVersion) -> VersionResponse:
        """A version to which a registered schema refers: no registry has one without the other."""
        exists = "a registered schema refers to it"
        found = self._version(at.subject, str(at.version), exists, Absence.CONTRADICTED)
        if found is None:
            raise Bug(f"the absence of {at} was believed")
        return found

    def latest(
        self, subject: str, absence: Absence = Absence.BELIEVED_ONCE_CONFIRMED
    ) -> VersionResponse | None:
        """The latest version of a subject; None if it does not exist. If the registry has listed
        one of its versions, its absence is a contradiction."""
        return self._version(subject, "latest", "an id is registered there", absence)

    def _version(
        self, subject: str, version: str, exists: str, absence: Absence
    ) -> VersionResponse | None:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        what = f"version {version} of {subject}"
        unknown = {UNKNOWN_SUBJECT, UNKNOWN_VERSION}
        return self._ask(path, what, read_version, unknown, exists, absence)

    # --- asking all addresses -----------------------------------------------------------

    def _ask(
        self,
        path: str,
        what: str,
        read: Callable[[bytes], Value],
        absent: set[int],
        exists: str = "",
        absence: Absence = Absence.BELIEVED_ONCE_CONFIRMED,
    ) -> Value | None:
        """Asks until there is an answer. ``exists``: how the value is known to exist, if its
        absence is a contradiction."""
        started = self._now()
        pause_s = FIRST_PAUSE_S
        confirmed = 0
        while True:
            result = self._ask_all(path, read, absent, started)
            if not isinstance(result, _NoValue):
                return result
            if absence is Absence.CONTRADICTED:
                result = result.with_late_copies(exists)
            if result.failures:
                confirmed = 0
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                is_over = self._left_s(started) < pause_s
                if result.refusal_error is not None and (is_over or not self._was_accepted):
                    raise result.refusal_error
                if is_over:
                    raise _silent_error(what, result.failures, self._now() - started)
            elif absence is Absence.BELIEVED_AT_ONCE or confirmed == CONFIRMATIONS:
                return None
            elif (left_s := self._left_to_confirm_s()) > 0:
                pause_s = min(2 * pause_s, left_s)
            else:
                confirmed += 1
                continue
            logger.info("Asking the schema registry for %s again in %.1f s", what, pause_s)
            self._pause(pause_s)

    def _ask_all(
        self, path: str, read: Callable[[bytes], Value], absent: set[int], started: float
    ) -> Value | _NoValue:
        """Asks all addresses, until one has the value."""
        absences: list[str] = []
        failures: dict[str, str] = {}
        refusals: list[AccessDenied] = []
        for url in list(self._urls):
            left_s = max(1.0, self._left_s(started))
            result = self._ask_one(url, path, read, absent, left_s)
            if isinstance(result, _Failed):
                failures[url] = result.why
                if result.refusal is not None:
                    refusals.append(result.refusal)
                    self._has_responded |= self._was_accepted
                continue
            self._has_responded = True
            _accepted_logins.add(self._login_hash)
            if result is None:
                absences.append(url)
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return result
        return _NoValue(absences, failures, refusals)

    @property
    def _was_accepted(self) -> bool:
        return self._login_hash in _accepted_logins

    def _left_to_confirm_s(self) -> float:
        """Something that is found missing later has been due for just as long."""
        now = self._now()
        if self._missing_since is None:
            self._missing_since = now
        return left_to_confirm_s(now - self._missing_since)

    def _left_s(self, started: float) -> float:
        limit_ms = self._settings.no_progress_ms
        if self._first_response_ms is not None and not self._has_responded:
            limit_ms = min(limit_ms, self._first_response_ms)
        return started + limit_ms / 1000 - self._now()

    # --- asking one address -------------------------------------------------------------

    def _ask_one(
        self,
        url: str,
        path: str,
        read: Callable[[bytes], Value],
        absent: set[int],
        left_s: float,
    ) -> Value | _Failed | None:
        """None if the registry reports that the requested schema or version does not exist."""
        try:
            response = self._response(url, path, left_s)
            if response.status == 200:
                return read(response.body)
        except HttpFailed as error:
            if not error.is_untrusted:
                return _Failed(str(error))
            untrusted = str(error)
        except Unreadable as error:
            # Without the value itself, which may repeat what was sent.
            expected = str(error).partition(", not ")[0]
            return _Failed(f"its response is not a schema registry's: {expected}")
        else:
            return _judge(url, response, absent)
        raise JobFileError(
            f"the certificate of the schema registry {url} is not trusted",
            why=untrusted,
            do=f"name its authority in {FIELD}.tls.ca, or correct {FIELD}.url",
            url=url,
        )

    def _response(self, url: str, path: str, left_s: float) -> HttpResponse:
        """The response after redirects. The login is sent only to the configured host, and never
        unencrypted if the configured URL is encrypted."""
        settings = self._settings
        at = url + path
        for _ in range(MAX_REDIRECTS + 1):
            self.requests += 1
            login = self._login if _is_same_host(url, at) else {}
            response = http_get(
                at,
                {"Accept": ACCEPTED, **login},
                self._context,
                connect_s=settings.connect_ms / 1000,
                request_s=min(settings.request_ms / 1000, left_s),
                max_bytes=MAX_RESPONSE_BYTES,
            )
            if response.status not in MOVED:
                return response
            at = _redirect(at, response.location)
        raise HttpFailed(f"it redirects more than {MAX_REDIRECTS} times")


def _judge(url: str, response: HttpResponse, absent: set[int]) -> _Failed | None:
    code = read_error_code(response.body)
    if response.status == 404 and code in absent:
        return None
    if response.status in (401, 403):
        refusal = _refusal_error(url, response.status)
        return _Failed(refusal.why, refusal)
    if response.status == 404:
        return _Failed(
            "it answered 404, but not as a schema registry does; its URL may need a path, such "
            "as /apis/ccompat/v7 for Apicurio"
        )
    return _Failed(f"it answered {response.status}" + (f" (error code {code})" if code else ""))


def _refusal_error(url: str, status: int) -> AccessDenied:
    needs_login = status == 401
    return AccessDenied(
        f"the schema registry {url} refused this client",
        why=f"it answered {status}"
        + (", a login is needed" if needs_login else ", without permission"),
        do=f"check {FIELD}: username and password, or token"
        if needs_login
        else f"have {OPERATOR} let the user of {FIELD} read its schemas",
        operator=OPERATOR,
        login_is_in_doubt=needs_login,
        url=url,
        status=status,
    )


def _silent_error(what: str, failures: Mapping[str, str], after_s: float) -> Unreachable:
    reasons = "; ".join(f"{url}: {why}" for url, why in failures.items())
    return Unreachable(
        f"the schema registry did not answer for {what}",
        why=f"tried for {after_s:.1f} s: {reasons}",
        do=f"check that the registry is up, and {FIELD}.url, then run again",
        urls=list(failures),
    )


def _redirect(url: str, location: str) -> str:
    try:
        to = urljoin(url, quote(location, safe="%/:?#[]@!$&'()*+,;="))
        old, new = urlsplit(url).scheme, urlsplit(to).scheme
        is_safe = new == "https" or (old == "http" and new == "http")
    except ValueError:
        is_safe = False
    if not location or not is_safe:
        raise HttpFailed("it redirects to a URL that cannot be followed")
    return to


def _is_same_host(url: str, other: str) -> bool:
    """Whether a login for one URL may be sent to the other: the same server, or the same host with
    encryption."""
    a = urlsplit(url)
    b = urlsplit(other)
    is_same_server = (a.scheme, a.port) == (b.scheme, b.port)
    return a.hostname == b.hostname and (
        is_same_server or (a.scheme, b.scheme) == ("http", "https")
    )


def _authorization(settings: RegistrySettings) -> dict[str, str]:
    if settings.token:
        if _HEADER.fullmatch(settings.token) is None:
            raise JobFileError(
                "the token for the schema registry is not valid",
                why="it has characters that a bearer token cannot have",
                do=f"correct what {FIELD}.token refers to",
            )
        return {"Authorization": f"Bearer {settings.token}"}
    if settings.username:
        pair = f"{settings.username}:{settings.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}
