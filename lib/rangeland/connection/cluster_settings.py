"""How to reach a cluster, as picklable values for the driver and the executors.

Secrets are included unencrypted, since executors cannot look them up; they are kept out of
every ``repr``. A settings object is never written to a plan, a ledger or a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.decode.payload.row_format import RowFormat
from rangeland.model import Address, Isolation, QuarantinedBytes, Survey, VersionSupport
from rangeland.planning.policy import Policy
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files by path; None means the system's authorities and no client certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where a bearer token comes from, for each login; exactly one of the first four is given.
    The token endpoint is used with the client credentials grant of OAuth 2."""

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
    """Who a client is for Kerberos. Without ``keytab``, the tickets of the process's ticket cache
    are used."""

    service_name: str = "kafka"
    principal: str | None = None
    keytab: str | None = None


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """``username`` and ``password``, a ``token`` with ``extensions`` for OAUTHBEARER, or
    ``kerberos`` for GSSAPI. ``is_delegated``: name and password are a Kafka delegation token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    is_delegated: bool = False
    kerberos: KerberosSettings | None = None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """``seeds`` are asked first; ``members`` are the brokers by name, where the cluster does not
    list them itself. ``rack``: the rack of this client. ``rates``: the bytes per second that one
    task may read from a broker, if limited. ``tags``: only messages with one of these are read,
    all if empty. ``version_support``: what is known of
    it by broker, which saves asking again."""

    dialect: str
    seeds: tuple[Address, ...]
    client_id: str = "rangeland"
    isolation: Isolation = Isolation.READ_COMMITTED
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    connect_ms: int = 5_000
    request_ms: int = 30_000
    survey_ms: int = 30_000
    no_progress_ms: int = 120_000
    max_answer_bytes: int = 256 << 20
    max_batch_bytes: int = MAX_BATCH_BYTES
    policy: Policy = field(default_factory=Policy)
    members: tuple[tuple[str, Address], ...] = ()
    rack: str = ""
    rates: tuple[tuple[Address, int], ...] = ()
    quarantined_bytes: Mapping[int, QuarantinedBytes] = field(default_factory=dict, repr=False)
    """Quarantined batches to read instead of a log, by slice; then no broker is asked."""
    tags: tuple[str, ...] = ()
    version_support: tuple[tuple[Address, VersionSupport], ...] = ()
    compacted: tuple[str, ...] = ()
    """Topics, or patterns, whose logs may have gaps by compaction, whatever brokers report."""
    asks_registry: bool = False
    """Whether ZooKeeper may know the cleanup policy of topics, where brokers do not report it."""
    rows: RowFormat | None = None
    """How keys and values become typed columns; None leaves them as bytes."""
    left_out: Mapping[int, Mapping[int, str]] = field(default_factory=dict, repr=False)
    """Records without a row because the transform fails on them, by slice and offset, with the
    reason."""
    registered_cleanup: tuple[tuple[str, str], ...] | None = None
    """What ZooKeeper reported, by topic; None if it could not be asked."""

    @property
    def columns(self) -> LogColumns:
        """What the log's own columns are called in rows that are read."""
        return PLAIN_COLUMNS if self.rows is None else self.rows.columns

    def knowing(self, survey: Survey) -> ClusterSettings:
        """The same, with what a survey has found out about the brokers."""
        return replace(self, version_support=tuple(survey.version_support.items()))
