"""The headers of requests and responses.

Headers have versions of their own, which follow from the version of the message: flexible messages
also have tagged fields in their headers. The exception is the response to ApiVersions, which always
has the old header, because its reader does not know yet which versions the broker supports.
"""

from __future__ import annotations

from typing import Any

from rangeland.wire.declarations import *

API_VERSIONS_KEY = 18


@message(versions=(1, 2), flexible_from=2)
class RequestHeader:
    """``client_id`` has a 16-bit length even when all other strings are compact."""

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
    """The header version of the response to ``request``."""
    spec = spec_of(request)
    if spec.key == API_VERSIONS_KEY:
        return 0
    return 1 if spec.flexible(version) else 0
