"""Finds a group's coordinator through the seeds, asks it, and finds it again when it has moved.

A coordinator that is moving or not ready is asked again after a pause, until the caller's
patience is over; then it is ``Unreachable``. Callers judge all other codes, and
``coordinator_error`` turns unexpected ones into errors. All I/O goes through the ``GroupIO``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import error_code_of
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import RangelandError, Unreachable
from rangeland.groups import backend
from rangeland.groups.backend import GroupIO
from rangeland.model import Address

_REMEDIES: Final = {
    "GROUP_AUTHORIZATION_FAILED": "grant the user of source.security READ on the group {group}",
    "TOPIC_AUTHORIZATION_FAILED": "grant the user of source.security READ on the topics",
    "INVALID_SESSION_TIMEOUT": "keep the session between the brokers' group.min.session.timeout.ms"
    " and group.max.session.timeout.ms",
    "INVALID_GROUP_ID": "use another group.id",
}


def coordinator_request(group: str) -> BrokerRequest:
    return BrokerRequest(m.FindCoordinatorRequest(key=group))


class CoordinatorClient:
    """The known coordinators of groups. Not thread-safe."""

    def __init__(self, io: GroupIO) -> None:
        self.io = io
        self._addresses: dict[str, Address] = {}

    def of(self, group: str) -> Address | None:
        """The coordinator that was asked last."""
        return self._addresses.get(group)

    def ask(
        self,
        group: str,
        request: BrokerRequest,
        code_of: Callable[[Any], int],
        patience_ms: int,
    ) -> tuple[Any, ErrorCode]:
        """The response and its code, which is never retriable. Raises Unreachable after
        ``patience_ms`` with only retriable codes."""
        return backend.ask_until_ready(
            self.io, patience_ms, lambda: self._ask_once(group, request, code_of)
        )

    def _ask_once(
        self, group: str, request: BrokerRequest, code_of: Callable[[Any], int]
    ) -> tuple[Any, ErrorCode]:
        try:
            address = self._find(group)
            response = self.io.ask(address, request)
        except Unreachable:
            self._addresses.pop(group, None)
            raise
        code = error_code_of(code_of(response))
        if not code.meaning.is_retriable:
            return response, code
        if code.meaning is ErrorMeaning.FIND_LEADER:
            self._addresses.pop(group, None)
        who = f"the coordinator of group {group} at {address}"
        raise backend.not_ready_error(who, code, group=group, broker=str(address))

    def _find(self, group: str) -> Address:
        """The known coordinator, or the one that the first seed with a response names. Raises
        Unreachable if none answers."""
        if group not in self._addresses:
            self._addresses[group] = self._look_up(group)
        return self._addresses[group]

    def _look_up(self, group: str) -> Address:
        failures: dict[str, str] = {}
        for seed in self.io.seeds:
            try:
                response = self.io.ask(seed, coordinator_request(group))
            except Unreachable as error:
                failures[str(seed)] = error.why or error.what
                continue
            code = error_code_of(response.error_code)
            if code.meaning is ErrorMeaning.OK:
                return Address(response.host, response.port)
            if not code.meaning.is_retriable:
                raise coordinator_error(code, group, "the coordinator was asked for")
            failures[str(seed)] = code.describe()
        raise Unreachable(
            f"the coordinator of group {group} could not be found",
            why="; ".join(f"{seed}: {why}" for seed, why in failures.items()),
            do="try again in a moment",
            group=group,
            tried=failures,
        )


def coordinator_error(code: ErrorCode, group: str, when: str) -> RangelandError:
    """See ``backend.group_error``."""
    failed = f"the coordinator of group {group} has failed"
    return backend.group_error(code, group, when, failed=failed, remedies=_REMEDIES)
