"""What stands before every request and every answer.

The header has versions of its own, which follow from the message's version: flexible messages
have tagged fields in their headers too. One exception, and it is why this file exists: the
answer to ApiVersions always has the old header, since whoever reads it does not know yet
what the broker speaks. Upstream: RequestHeader.json, ResponseHeader.json.
"""

from __future__ import annotations

from typing import Any

from rangeland.wire.encoding import (
    Int16,
    Int32,
    LegacyString,
    message,
    spec_of,
)

API_VERSIONS_KEY = 18


@message(versions=(1, 2), flexible_from=2)
class RequestHeader:
    """``client_id`` keeps its 16-bit length even where all other strings are compact."""

    api_key: Int16
    api_version: Int16
    correlation_id: Int32
    client_id: LegacyString | None = None


@message(versions=(0, 1), flexible_from=1)
class ResponseHeader:
    correlation_id: Int32


def request_header_version(request: type[Any], version: int) -> int:
    return 2 if spec_of(request).flexible(version) else 1


def response_header_version(request: type[Any], version: int) -> int:
    """The header version of the answer to ``request``."""
    spec = spec_of(request)
    if spec.key == API_VERSIONS_KEY:
        return 0
    return 1 if spec.flexible(version) else 0
