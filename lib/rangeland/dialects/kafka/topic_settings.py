"""A topic's own settings: its cleanup policy and its retention. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rangeland.dialects.cluster_values import CleanupPolicy
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import error_code_of
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.model import Retention
from rangeland.untrusted import Unreadable, decimal

CLEANUP = "cleanup.policy"
RETENTION = (CLEANUP, "retention.ms", "retention.bytes")


def retention_requests(topics: Sequence[str]) -> list[BrokerRequest]:
    return _settings_requests(topics, RETENTION)


def cleanup_requests(topic: str) -> list[BrokerRequest]:
    return _settings_requests([topic], (CLEANUP,))


def _settings_requests(topics: Sequence[str], keys: tuple[str, ...]) -> list[BrokerRequest]:
    resources = tuple(
        m.ConfigResource(resource_type=m.TOPIC, resource_name=t, configuration_keys=keys)
        for t in topics
    )
    return [BrokerRequest(m.DescribeConfigsRequest(resources=resources))]


def read_cleanup(responses: Sequence[m.DescribeConfigsResponse]) -> CleanupPolicy:
    """The cleanup policy of the topic described by the responses."""
    result = next((r for response in responses for r in response.results), None)
    code = error_code_of(result.error_code if result is not None else 0)
    if code.meaning is not ErrorMeaning.OK:
        why = f"the broker answered {code.name} when asked for its cleanup.policy"
        return CleanupPolicy(None, why)
    configs = result.configs if result is not None else ()
    policy = next((c.value for c in configs if c.name == CLEANUP), None)
    if policy is None:
        return CleanupPolicy(None, "the broker does not say what its cleanup.policy is")
    words = [word.strip() for word in policy.split(",")]
    return CleanupPolicy("compact" in words, f"its cleanup.policy is {policy}")


def read_retention(responses: Sequence[m.DescribeConfigsResponse]) -> dict[str, Retention]:
    """The retention of topics, except those that this client may not describe."""
    return {
        result.resource_name: _retention({c.name: c.value for c in result.configs})
        for response in responses
        for result in response.results
        if error_code_of(result.error_code).meaning is ErrorMeaning.OK
    }


def _retention(settings: Mapping[str, str | None]) -> Retention:
    if "delete" not in (settings.get(CLEANUP) or ""):
        return Retention()
    return Retention(_limit(settings.get("retention.ms")), _limit(settings.get("retention.bytes")))


def _limit(value: str | None) -> int | None:
    """The limit given by a setting; None for -1, which means no limit."""
    try:
        return decimal(value or "", "the setting", 0)
    except Unreadable:
        return None
