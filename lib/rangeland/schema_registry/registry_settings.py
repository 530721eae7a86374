"""The settings of a schema registry, and the age of the records whose schemas are requested, as
picklable values for the driver and the executors.

They include secrets in clear text, since executors cannot look them up; these are kept out of every
``repr``, and are never written to a plan, a ledger or a log.
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
    """Whether a URL has a host, and no part that may contain a secret: neither a user nor a
    query."""
    if not url.isascii() or re.fullmatch(URL_PATTERN, url) is None:
        return False
    try:
        at = urlsplit(url)
        return bool(at.hostname) and at.port != 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings for reaching a schema registry. ``urls`` are addresses of the same registry,
    which are asked in turn. There may be a ``username`` and ``password``, or a bearer ``token``, or
    neither. ``tls`` is used with ``https``."""

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
    """Records that were in their log at ``at_ms`` and are read at ``now_ms``, both by the same
    clock: a registry should have had their schemas for that long."""

    at_ms: int
    now_ms: int

    @property
    def age_ms(self) -> int:
        return self.now_ms - self.at_ms


LONG_AGO: Final = WrittenBefore(0, 1 << 62)
"""The age to give if it is pointless to wait for a late schema, either because it can no longer
come or because nothing depends on it."""
