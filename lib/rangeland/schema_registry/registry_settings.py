"""How to reach a schema registry, as a picklable value for the driver and the executors.

Secrets are included unencrypted, since executors cannot look them up; they are kept out of every
``repr``, and never written to a plan, a ledger or a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangeland.connection.cluster_settings import TlsSettings


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """``urls`` are addresses of the same registry, asked in turn. ``username`` and ``password``, or
    a bearer ``token``, or neither. ``tls`` is used with ``https``."""

    urls: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls: TlsSettings | None = None
    connect_ms: int = 5_000
    request_ms: int = 30_000
    no_progress_ms: int = 120_000
