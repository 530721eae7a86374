"""The topics that RocketMQ makes for itself, which no pattern matches."""

from __future__ import annotations

from typing import Final

SYSTEM_TOPICS: Final = frozenset(
    (
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "SCHEDULE_TOPIC_XXXX_V2",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
        "DefaultHeartBeatSyncerTopic",  # of proxies in cluster mode; they can give it another name
    )
)
SYSTEM_PREFIXES: Final = ("RMQ_SYS_", "rmq_sys_", "%RETRY%", "%DLQ%", "%SYS%")
REPLY_SUFFIX: Final = "_REPLY_TOPIC"


def is_system_topic(topic: str) -> bool:
    """Whether brokers or proxies created the topic for their own use: for transactions, delays,
    retries, traces or the like."""
    return (
        topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES) or topic.endswith(REPLY_SUFFIX)
    )
