"""Adapts requests to older versions of themselves.

The declarations already leave out most of what older versions lack. This module deals with fields
that would have the wrong effect. A metadata request for a topic by name creates the topic if the
broker is configured to do so, and only from version 4 on can this be turned off; before that, all
topics are requested, and the caller picks its own. Brokers without transactions have no isolation
level, since everything in their logs is committed. ListOffsets version 0 returns the offsets of
segments, as many as are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from rangeland.dialects.kafka.messages import (
    READ_UNCOMMITTED,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
)

FIRST_METADATA_WITHOUT_MAKING: Final = 4
FIRST_FETCH_WITH_ISOLATION: Final = 4
FIRST_OFFSETS_WITH_ISOLATION: Final = 2
MAX_SEGMENTS: Final = 1 << 20
"""More segments than any log has: the broker returns the beginnings of all of them."""


def fit_request(request: Any, version: int) -> Any:
    """The request as it may be sent in ``version``; it may be unchanged."""
    fit = _FITS.get(type(request))
    return request if fit is None else fit(request, version)


def _metadata(request: MetadataRequest, version: int) -> MetadataRequest:
    if version == 0:
        return replace(request, topics=())  # all topics; later versions use None for this
    if version < FIRST_METADATA_WITHOUT_MAKING and request.topics:
        return replace(request, topics=None)
    return request


def _fetch(request: FetchRequest, version: int) -> FetchRequest:
    if version < FIRST_FETCH_WITH_ISOLATION and request.isolation_level:
        return replace(request, isolation_level=READ_UNCOMMITTED)
    return request


def _offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsRequest:
    if version < FIRST_OFFSETS_WITH_ISOLATION and request.isolation_level:
        request = replace(request, isolation_level=READ_UNCOMMITTED)
    return request if version > 0 else _of_segments(request)


def _of_segments(request: ListOffsetsRequest) -> ListOffsetsRequest:
    """The request for the offsets of all segments."""
    topics = tuple(
        replace(
            topic,
            partitions=tuple(replace(p, max_num_offsets=MAX_SEGMENTS) for p in topic.partitions),
        )
        for topic in request.topics
    )
    return replace(request, topics=topics)


_FITS: Final[Mapping[type[Any], Callable[[Any, int], Any]]] = {
    MetadataRequest: _metadata,
    FetchRequest: _fetch,
    ListOffsetsRequest: _offsets,
}
