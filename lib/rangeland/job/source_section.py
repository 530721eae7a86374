"""The `source` section of a job file: where a job's records come from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from rangeland.dialects.dialect import dialect_names, load_dialect
from rangeland.job.section import FieldConflict, MisplacedKey, Section, UnneededKey
from rangeland.job.source_security import Security
from rangeland.job.value_parsers import (
    Milliseconds,
    PartitionName,
    Server,
    Size,
    Topic,
    parse_named_broker,
)
from rangeland.model import Address, Cluster, Isolation
from rangeland.patterns import check_pattern_is_valid, matches
from rangeland.untrusted import MAX_PORT, is_quotable
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

_ID = re.compile(r"[0-9]+:(?=.*:)")
"""The id in `id:host:port`."""


class Timeouts(Section):
    """How long to wait for brokers, in milliseconds."""

    connect_ms: Milliseconds = Field(
        default=5_000, description="How long to wait for a connection to open."
    )
    request_ms: Milliseconds = Field(
        default=30_000, description="How long to wait for the response to one request."
    )
    survey_ms: Milliseconds = Field(
        default=30_000,
        description="How long to look for all leaders and offsets. If no server has ever "
        "answered, the search ends after 10 seconds.",
    )
    no_progress_ms: Milliseconds = Field(
        default=120_000,
        description="How long to wait for the next record of a slice. It must be longer than a "
        "leader election takes.",
    )


class Source(Section):
    """The source of records: a dialect, its servers, and topics."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["topics"]}, {"required": ["topic_pattern"]}],
            "anyOf": [{"required": ["servers"]}, {"required": ["zookeeper"]}],
        }
    )

    dialect: Literal["kafka", "jafka", "rocketmq"] = Field(
        default="kafka",
        description="The protocol of the brokers.",
    )
    servers: tuple[Server, ...] = Field(
        default=(),
        description="Some of the cluster's brokers; the others are found through them. For "
        "RocketMQ, its name servers. For Jafka, all brokers as `id:host:port`, unless `zookeeper` "
        "is given.",
    )
    zookeeper: str | None = Field(
        default=None,
        json_schema_extra={"examples": ["zk-1:2181,zk-2:2181/jafka"]},
        description="host:port/path of the ZooKeeper where brokers are registered: for Jafka, "
        "or, instead of `servers`, for Kafka before KRaft. Groups of Jafka and Kafka are then "
        "kept there, too.",
    )
    topics: tuple[Topic, ...] = Field(default=(), description="Topics by name.")
    topic_pattern: str | None = Field(
        default=None,
        json_schema_extra={"format": "regex", "examples": ["events-.*"]},
        description="Instead of `topics`: a regular expression that must match the whole name. "
        "It has RE2's syntax, without lookaround and back references, which could take forever "
        "to match. Each run evaluates it again; internal topics never match.",
    )
    partitions: dict[str, Annotated[tuple[PartitionName, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        min_length=1,
        json_schema_extra={"title": "topic: [partition]", "examples": [{"orders": [0, 1]}]},
        description="Only these partitions of these topics; topics that are not listed are read "
        "whole. For Jafka and RocketMQ, `0` means partition 0 of each broker and `1-0` that of "
        "broker 1.",
    )
    compacted: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["accounts", "state-.*"]]},
        description="For Kafka: topics, or patterns that match whole names, whose logs may have "
        "gaps because they are or were compacted. Only needed if brokers do not report it: they "
        "are older than 0.11, they do not let this client read the topic's configuration "
        "(DESCRIBE_CONFIGS), or `cleanup.policy` has changed since. `policy.missing` applies to "
        "gaps in other topics.",
    )
    isolation: Isolation = Field(
        default=Isolation.READ_COMMITTED,
        description="Whether to leave out records of open and aborted transactions.",
    )
    security: Security = Security()
    tags: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["A", "B"]]},
        description="For RocketMQ: land only messages with one of these tags. The others are "
        "counted as filtered.",
    )
    cluster: str = Field(
        default="",
        json_schema_extra={"examples": ["orders-eu"]},
        description="A permanent name for the cluster. Offsets landed from one cluster are never "
        "mistaken for those of another. Kafka clusters have an id for this since 0.10.1; others "
        "are recognised by the addresses of their brokers and servers, one of which must stay the "
        "same from run to run unless this name is given.",
    )
    client_id: str = Field(
        default="rangeland",
        description="The client id in requests, for the brokers' logs, metrics and quotas.",
    )
    max_answer_bytes: Size = Field(
        default=256 << 20,
        le=(1 << 31) - 1,
        description="The largest response accepted from a broker. Raise it for a topic with larger "
        "batches.",
    )
    max_batch_bytes: Size = Field(
        default=MAX_BATCH_BYTES,
        ge=1 << 20,
        le=1 << 30,
        description="The most memory that one batch or message may take: its uncompressed bytes, "
        "plus a few bytes for each record and header. A larger one counts as corrupt. Raise it "
        "for a topic with larger batches.",
    )
    rack: str = Field(
        default="",
        description="For Kafka: the rack or zone that this job runs in. If a partition has a "
        "replica in the same rack, it is read instead of the leader.",
    )
    timeouts: Timeouts = Timeouts()

    @property
    def names_brokers(self) -> bool:
        """Whether the servers are enough to find and name all brokers."""
        if load_dialect(self.dialect).capabilities.has_metadata:
            return bool(self.servers)
        return bool(self.servers) and all(name.isdecimal() for name, _ in self.named_brokers)

    def name_cluster(self, cluster: Cluster | None) -> Cluster | None:
        """The cluster under the name that the job gives it, with the registry's addresses."""
        if cluster is None:
            return None
        renamed = replace(cluster, id=self.cluster or cluster.id)
        hosts, slash, path = (self.zookeeper or "").partition("/")
        servers = tuple(f"{host}{slash}{path}" for host in hosts.split(",") if host)
        return replace(renamed, addresses=(*servers, *renamed.addresses))

    @property
    def where(self) -> str:
        """The servers to ask, for messages."""
        uses_servers = self.names_brokers or not self.zookeeper
        return ", ".join(self.servers) if uses_servers else f"the registry at {self.zookeeper}"

    def reads(self, topic: str) -> bool:
        """Whether the job reads this topic."""
        if self.topic_pattern:
            return matches(self.topic_pattern, topic)
        return topic in self.topics

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if "@" in server:  # The part before it is not repeated: it may be a password.
                raise ValueError("host:port without user or password; see source.security")
            try:
                parse_named_broker(server)
            except ValueError:
                raise ValueError(_expected_server(server)) from None
        return servers

    @field_validator("zookeeper")
    @classmethod
    def _registry(cls, zookeeper: str | None) -> str | None:
        if "@" in (zookeeper or ""):  # The part before it is not repeated.
            raise ValueError("host:port without user or password")
        if re.search(r"//|[?#]", zookeeper or ""):
            raise ValueError("host:port,host:port/path, not a URL (not repeated here)")
        return zookeeper

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            check_pattern_is_valid(pattern or "")
        except ValueError as error:
            raise ValueError(f"an RE2 regular expression ({error})") from None
        return pattern

    @field_validator("compacted")
    @classmethod
    def _compacted(cls, compacted: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in compacted:
            try:
                check_pattern_is_valid(pattern)
            except ValueError as error:
                raise ValueError(f"a topic or an RE2 regular expression: {error}") from None
        return compacted

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            # Brokers split a list of tags at vertical bars, and properties end with those bytes.
            if tag in ("", "*") or tag != tag.strip() or re.search(r"\|\||[\x01\x02]", tag):
                raise ValueError(f"tags of messages, without '||' and outer spaces, not {tag!r}")
        return tuple(dict.fromkeys(tags))

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
            if self.topics:
                raise FieldConflict("there are both topics and topic_pattern; remove one")
            raise ValueError("either topics (at least one) or topic_pattern")
        if not self.servers and not self.zookeeper:
            raise ValueError("at least one of servers as host:port")
        if self.security.sasl and self.security.acl:
            raise MisplacedKey("either sasl or acl", "security", "acl")
        if self.security.zookeeper and not self.zookeeper:
            raise UnneededKey("there is no source.zookeeper", "security", "zookeeper")
        capabilities = load_dialect(self.dialect).capabilities
        if not self.servers and not capabilities.is_in_zookeeper:
            raise FieldConflict(f"{self.dialect} needs servers: its brokers are not in ZooKeeper")
        if capabilities.has_metadata and any(_ID.match(server) for server in self.servers):
            raise MisplacedKey(f"host:port: servers of {self.dialect} have no ids", "servers")
        options = {
            ("security", "acl"): self.security.acl,
            ("tags",): self.tags,
            ("compacted",): self.compacted,
            ("rack",): self.rack,
            ("security", "sasl"): self.security.sasl,
            ("security", "tls"): self.security.tls,
        }
        for path, value in options.items():
            if value and path[-1] not in capabilities.source_keys:
                raise MisplacedKey(f"{path[-1]} with {_dialects_with(path[-1])} only", *path)
        if not capabilities.has_metadata and self.topic_pattern and not self.zookeeper:
            raise MisplacedKey("topics by name: only zookeeper knows all of them", "topic_pattern")
        unknown = [t for t in self.partitions if self.topics and t not in self.topics]
        if unknown:
            expected = f"partitions of topics that are listed, not of {unknown[0]!r}"
            raise MisplacedKey(expected, "partitions", unknown[0])
        return self

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(address for _, address in self.named_brokers)

    @property
    def named_brokers(self) -> tuple[tuple[str, Address], ...]:
        """The servers by name, for dialects in which each broker numbers its own partitions."""
        return tuple(parse_named_broker(server) for server in self.servers)


def _expected_server(server: str) -> str:
    port = re.search(r":([0-9]+)$", server)
    if port and is_quotable(server) and int(port[1][:6]) > MAX_PORT:
        return f"host:port, not {server!r}: a port is at most {MAX_PORT}"
    if is_quotable(server):
        return f"host:port, not {server!r}"
    return "host:port, not a URL or the like (not repeated here: it may contain a secret)"


def _dialects_with(key: str) -> str:
    names = [n for n in dialect_names() if key in load_dialect(n).capabilities.source_keys]
    return f"the dialect {' or '.join(names)}"
