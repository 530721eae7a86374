"""How to reach a cluster, as picklable values: what driver and executors both need.

Secrets are in here in the clear, since executors cannot look them up; they are kept out of
every ``repr``. A settings object is never written to a plan, a ledger or a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangeland.model import Address, Isolation
from rangeland.planning.policy import Policy


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files by path; None means the system's authorities and no client certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class SaslSettings:
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """``seeds`` are asked first; where the cluster does not name its brokers itself,
    ``members`` has them by name."""

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
    policy: Policy = field(default_factory=Policy)
    members: tuple[tuple[str, Address], ...] = ()
