"""Turns record bytes into Arrow: one decoder for each log format, all of them in the compiled
kernel.

An installation without a kernel raises MissingRequirement. Tests compare the kernel with slow,
obvious decoders (``tests/reference``).
"""

from __future__ import annotations

from functools import cache

from rangeland.decode.jafka.kernel import JafkaKernel
from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.native.native_library import load_library
from rangeland.decode.rocketmq.kernel import RocketmqKernel
from rangeland.errors import MissingRequirement


@cache
def kafka_decoder() -> KafkaKernel:
    """The decoder of Kafka's records."""
    return KafkaKernel(load_library())


@cache
def jafka_decoder() -> JafkaKernel:
    """The decoder of Jafka's message sets."""
    return JafkaKernel(load_library())


@cache
def rocketmq_decoder() -> RocketmqKernel:
    """The decoder of RocketMQ's stored messages."""
    return RocketmqKernel(load_library())


def kernel_error() -> MissingRequirement | None:
    """The error that says why records cannot be decoded in this process; None if they can."""
    try:
        load_library()
    except MissingRequirement as error:
        return error
    return None
