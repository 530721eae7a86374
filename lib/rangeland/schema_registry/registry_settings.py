"""The settings of a schema registry, and the age of the records whose schemas it is asked for, as
picklable values for the driver and the executors.

Secrets are included unencrypted, since executors cannot look them up; they are kept out of every
``repr``, and never written to a plan, a ledger or a log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from rangeland.cluster_settings import TlsSettings

FIELD: Final = "decode.registry"
"""The section of the job file, for messages."""
URL_PATTERN: Final = r"https?://[^\s/@?#%\\]+(/[^\s@?#\\]*)?"


def is_registry_url(url: str) -> bool:
    """Whether a URL has a host, and no part that may hold a secret: neither user nor query."""
    if not url.isascii() or re.fullmatch(URL_PATTERN, url) is None:
        return False
    try:
        at = urlsplit(url)
        return bool(at.hostname) and at.port != 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings with which a schema registry is reached. ``urls`` are addresses of the same
    registry, asked in turn. ``username`` and ``password``, or a bearer ``token``, or neither.
    ``tls`` is used with ``https``."""

    urls: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls: TlsSettings | None = None
    connect_ms: int = 5_000
    request_ms: int = 30_000
    no_progress_ms: int = 120_000


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """Records that were in their log at ``at_ms``, and are read at ``now_ms`` by the same clock: a
    registry should have had their schemas for that long."""

    at_ms: int
    now_ms: int

    @property
    def age_ms(self) -> int:
        return self.now_ms - self.at_ms


LONG_AGO: Final = WrittenBefore(0, 1 << 62)
"""The age to give where waiting for a late schema is pointless: it can no longer come, or nothing
depends on it."""
