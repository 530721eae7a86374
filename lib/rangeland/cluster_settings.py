"""How to reach a cluster, as picklable values for the driver and the executors.

Secrets are included unencrypted, since executors cannot look them up; they are kept out of
every ``repr``. A settings object is never written to a plan, a ledger or a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rangeland.model import Address, Isolation, Survey
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The paths of PEM files; None means the system's authorities, and no client certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of a bearer token for each login; exactly one of the first four is given. The
    token endpoint is used with the client credentials grant of OAuth 2."""

    command: tuple[str, ...] = field(default=(), repr=False)
    file: str | None = None
    function: str | None = None
    endpoint: str | None = field(default=None, repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The identity of a client for Kerberos. Without ``keytab``, the tickets of the process's
    ticket cache are used."""

    service_name: str = "kafka"
    principal: str | None = None
    keytab: str | None = None


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The credentials of a login: ``username`` and ``password``, a ``token`` with ``extensions``
    for OAUTHBEARER, or ``kerberos`` for GSSAPI. ``is_delegated``: name and password are a Kafka
    delegation token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    is_delegated: bool = False
    kerberos: KerberosSettings | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The addresses of a cluster, the login, and the timeouts and limits of connections to it."""

    dialect: str
    seeds: tuple[Address, ...]
    """The servers that are asked first."""
    client_id: str = "rangeland"
    isolation: Isolation = Isolation.READ_COMMITTED
    """Determines which offset brokers report as the end of a log, and which records they send."""
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    connect_ms: int = 5_000
    request_ms: int = 30_000
    survey_ms: int = 30_000
    no_progress_ms: int = 120_000
    max_answer_bytes: int = 256 << 20
    max_batch_bytes: int = MAX_BATCH_BYTES
    named_brokers: tuple[tuple[str, Address], ...] = ()
    """The brokers by name, if the cluster does not list them itself."""
    rack: str = ""
    """The rack of this client."""
    reports_versions: tuple[tuple[Address, bool], ...] = ()
    """Whether each broker reports its versions, if known; this saves asking again."""

    def with_versions_of(self, survey: Survey) -> ClusterSettings:
        """These settings with the broker versions that a survey has found."""
        return replace(self, reports_versions=tuple(survey.reports_versions.items()))
