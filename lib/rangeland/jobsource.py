"""Where a job's records come from: the `source` section of a job file, and its security.

A secret is only ever a reference (``${env:NAME}``, ``${file:PATH}``); it is looked up when a
connection needs it and has no place in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from rangeland.jobparts import Misplaced, Part
from rangeland.model import Address, Isolation
from rangeland.words import SecretRef, Server, Topic, Which, Whole, parse_member


class Tls(Part):
    """TLS towards brokers; `true` for a connection that only needs the system's authorities."""

    ca: str | None = Field(
        default=None,
        description="PEM file with the authorities to trust; without it the system's hold.",
    )
    certificate: str | None = Field(
        default=None, description="PEM file with this client's certificate, for mutual TLS."
    )
    key: str | None = Field(
        default=None, description="PEM file with the key of that certificate, if it is not in it."
    )
    key_password: SecretRef | None = Field(
        default=None, description="Opens the key, if it is encrypted."
    )
    verify_hostname: bool = Field(
        default=True, description="Whether the broker's certificate must name its host."
    )


class Sasl(Part):
    """Who this client is. PLAIN should only be used over TLS."""

    mechanism: Literal["PLAIN"] = Field(
        default="PLAIN", description="How the name is proved. PLAIN sends the password as it is."
    )
    username: str = Field(description="The name that the broker's access rules know.")
    password: SecretRef = Field(description="Looked up when a connection is made.")


class Acl(Part):
    """A key pair that requests are signed with, for RocketMQ."""

    access_key: str = Field(description="The name that the broker's access rules know.")
    secret_key: SecretRef = Field(description="Signs requests; it is never sent.")


class Security(Part):
    """How brokers are spoken to, and as whom."""

    tls: Tls | bool = Field(
        default=False,
        description="`true`, or a section that says which certificates.",
    )
    sasl: Sasl | None = Field(
        default=None, description="A name and password for the brokers: Kafka's way."
    )
    acl: Acl | None = Field(default=None, description="A pair of keys: RocketMQ's way.")


class Timeouts(Part):
    """How long to wait for brokers, in milliseconds."""

    connect_ms: Whole = Field(default=5_000, gt=0, description="For a connection.")
    request_ms: Whole = Field(default=30_000, gt=0, description="For the answer to one request.")
    survey_ms: Whole = Field(
        default=30_000, gt=0, description="For all leaders and offsets to be known."
    )
    no_progress_ms: Whole = Field(
        default=120_000,
        gt=0,
        description="For the next record of a slice. It must outlast a leader election.",
    )


class Source(Part):
    """Where records come from: a dialect, its servers, topics."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["topics"]}, {"required": ["topic_pattern"]}],
            "anyOf": [{"required": ["servers"]}, {"required": ["zookeeper"]}],
        }
    )

    dialect: Literal["kafka", "jafka", "rocketmq"] = Field(
        default="kafka",
        description="The protocol of the brokers. One that this version does not speak is "
        "refused by `check`.",
    )
    servers: tuple[Server, ...] = Field(
        default=(),
        description="Some of the cluster's brokers; the others are found through them. For "
        "RocketMQ its name servers. Jafka's are all listed, as `id:host:port`, or `zookeeper` "
        "says who they are.",
    )
    zookeeper: str | None = Field(
        default=None,
        json_schema_extra={"examples": ["zk-1:2181,zk-2:2181/jafka"]},
        description="host:port/path, where brokers are registered: Jafka's, and Kafka's before "
        "KRaft in place of `servers`. Jafka's groups live there, too.",
    )
    topics: tuple[Topic, ...] = Field(default=(), description="Topics by name.")
    topic_pattern: str | None = Field(
        default=None,
        json_schema_extra={"format": "regex", "examples": ["events-.*"]},
        description="Topics by a regular expression that must match the whole name, in place "
        "of `topics`. Each run looks again; internal topics never match.",
    )
    partitions: dict[str, tuple[Which, ...]] = Field(
        default_factory=dict,
        json_schema_extra={"title": "topic: [partition]", "examples": [{"orders": [0, 1]}]},
        description="Only these partitions of these topics; all of topics that are not named. "
        "Of Jafka's, `0` is that of each broker and `1-0` that of broker 1.",
    )
    isolation: Isolation = Field(
        default=Isolation.READ_COMMITTED,
        description="Whether records of open and rolled back transactions are left out.",
    )
    security: Security = Security()
    client_id: str = Field(
        default="rangeland", description="The name under which brokers see these requests."
    )
    timeouts: Timeouts = Timeouts()

    @property
    def names_brokers(self) -> bool:
        """The servers are enough to find and to name all that is read."""
        if self.dialect != "jafka":
            return bool(self.servers)
        return bool(self.servers) and all(name.isdecimal() for name, _ in self.members)

    @property
    def where(self) -> str:
        """Whom to ask, for a person."""
        named = self.names_brokers or not self.zookeeper
        return ", ".join(self.servers) if named else f"the registry at {self.zookeeper}"

    def reads(self, topic: str) -> bool:
        """True for a topic that this job asks for."""
        if self.topic_pattern:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if "@" in server:  # what stands before it is not repeated: it may be a password
                raise ValueError("host:port without user or password; see source.security")
            try:
                parse_member(server)
            except ValueError as error:
                raise ValueError(f"host:port, not {server!r}") from error
        return servers

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"a regular expression ({error})") from error
        return pattern

    @field_validator("topics")
    @classmethod
    def _topic_names(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if not re.fullmatch(r"[A-Za-z0-9._%|-]{1,249}", topic) or topic in (".", ".."):
                raise ValueError(f"topic names of letters, digits, '.', '_', '-', not {topic!r}")
        return tuple(dict.fromkeys(topics))

    @model_validator(mode="after")
    def _whole(self) -> Source:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("either topics (at least one) or topic_pattern")
        if not self.servers and not self.zookeeper:
            raise ValueError("at least one of servers as host:port")
        if self.security.sasl and self.security.acl:
            raise Misplaced("either sasl or acl", "security", "acl")
        if self.security.acl and self.dialect != "rocketmq":
            raise Misplaced("acl with the dialect rocketmq only", "security", "acl")
        if self.dialect == "jafka" and self.topic_pattern and not self.zookeeper:
            raise Misplaced("topics by name: only zookeeper knows all of them", "topic_pattern")
        unknown = [t for t in self.partitions if self.topics and t not in self.topics]
        if unknown:
            expected = f"partitions of topics that are listed, not of {unknown[0]!r}"
            raise Misplaced(expected, "partitions", unknown[0])
        return self

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(address for _, address in self.members)

    @property
    def members(self) -> tuple[tuple[str, Address], ...]:
        """The servers by name, for dialects whose brokers have partitions of their own."""
        return tuple(parse_member(server) for server in self.servers)
