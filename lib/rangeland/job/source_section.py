"""Where a job's records come from: the `source` section of a job file, and its security.

A secret is only ever a reference (``${env:NAME}``, ``${file:PATH}``); it is looked up when a
connection needs it and has no place in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from rangeland.dialects.dialect import dialect_names, load_dialect
from rangeland.job.section import MisplacedKey, Section
from rangeland.job.value_parsers import (
    Milliseconds,
    SecretRef,
    Server,
    Size,
    Topic,
    Which,
    parse_member,
)
from rangeland.model import Address, Cluster, Isolation
from rangeland.patterns import check_pattern, matches
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


class Tls(Section):
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


class Token(Section):
    """Where the token of OAUTHBEARER comes from: one of command, file, callable, endpoint. It is
    had anew for each login, wherever a connection is made: on the driver and on executors."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [n]} for n in ("command", "file", "callable", "endpoint")]
        }
    )

    command: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["/opt/bin/kafka-token", "--audience", "kafka"]]},
        description="A program and its arguments, run without a shell; its stdout is the token. "
        "It has `timeouts.request_ms`. If it ends with 75, the run is tried again later.",
    )
    file: str | None = Field(
        default=None,
        description="A file that holds the token and that somebody else keeps fresh.",
    )
    callable: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        json_schema_extra={"examples": ["my_module:kafka_token"]},
        description="A Python function without arguments that returns the token.",
    )
    endpoint: str | None = Field(
        default=None,
        repr=False,
        pattern=r"^https?://[^\s/@?#]+[^\s@]*$",
        json_schema_extra={"examples": ["https://login.example/oauth2/token"]},
        description="The token endpoint of an OAuth 2 server, asked for client credentials. "
        "`http` only to this host itself.",
    )
    client_id: str | None = Field(default=None, description="This client, to the endpoint.")
    client_secret: SecretRef | None = Field(
        default=None, description="Sent to the endpoint; looked up in the driver."
    )
    scope: str | None = Field(default=None, description="What the endpoint is asked for.")
    ca: str | None = Field(
        default=None,
        description="PEM file with the authorities to trust for the endpoint; without it the "
        "system's hold.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Token:
        origins = ("command", "file", "callable", "endpoint")
        given = [name for name in origins if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("exactly one of command, file, callable and endpoint")
        for name in ("client_id", "client_secret"):
            if self.endpoint and getattr(self, name) is None:
                raise MisplacedKey("a value, since there is an endpoint", name)
        for name in ("client_id", "client_secret", "scope", "ca"):
            if not self.endpoint and getattr(self, name) is not None:
                raise MisplacedKey("nothing, since there is no endpoint", name)
        safe = r"https:.*|http://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/].*)?"
        if self.endpoint and re.fullmatch(safe, self.endpoint) is None:
            raise MisplacedKey("https, since a secret is sent there", "endpoint")
        return self


class Sasl(Section):
    """Who this client is: name and password, or a token."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": ["username", "password"]}, {"required": ["token"]}]
        }
    )

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        default="PLAIN",
        description="How it is proved. PLAIN sends the password as it is and OAUTHBEARER the "
        "token: never without TLS. SCRAM sends no password, and the broker must know it too.",
    )
    username: str | None = Field(
        default=None,
        description="The name that the broker's access rules know. Not with OAUTHBEARER.",
    )
    password: SecretRef | None = Field(
        default=None, description="Looked up when a run begins. Not with OAUTHBEARER."
    )
    token: Token | None = Field(default=None, description="With OAUTHBEARER only.")
    extensions: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra={"title": "name: text", "examples": [{"logicalCluster": "lkc-1"}]},
        description="What the broker wants to know beside the token. With OAUTHBEARER only.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Sasl:
        bears = self.mechanism == "OAUTHBEARER"
        needed = ("token",) if bears else ("username", "password")
        others = ("username", "password") if bears else ("token", "extensions")
        for name in needed:
            if not getattr(self, name):
                raise MisplacedKey(f"a value, since the mechanism is {self.mechanism}", name)
        for name in others:
            if getattr(self, name):
                raise MisplacedKey(f"nothing, since the mechanism is {self.mechanism}", name)
        if "\0" in (self.username or ""):
            raise MisplacedKey("a name without NUL", "username")
        for name, text in self.extensions.items():  # RFC 7628 3.1
            if not re.fullmatch(r"[A-Za-z]+", name) or name.lower() == "auth":
                raise MisplacedKey("names of letters, and not auth", "extensions", name)
            if not re.fullmatch(r"[\x20-\x7e\t\r\n]*", text):
                raise MisplacedKey("printable ASCII", "extensions", name)
        return self


class Acl(Section):
    """A key pair that requests are signed with, for RocketMQ."""

    access_key: str = Field(description="The name that the broker's access rules know.")
    secret_key: SecretRef = Field(description="Signs requests; it is never sent.")


class Security(Section):
    """How brokers are spoken to, and as whom."""

    tls: Tls | bool = Field(
        default=False,
        description="`true`, or a section that says which certificates.",
    )
    sasl: Sasl | None = Field(
        default=None, description="A name and password, or a token, for Kafka's brokers."
    )
    acl: Acl | None = Field(default=None, description="A pair of keys: RocketMQ's way.")


class Timeouts(Section):
    """How long to wait for brokers, in milliseconds."""

    connect_ms: Milliseconds = Field(default=5_000, description="For a connection.")
    request_ms: Milliseconds = Field(default=30_000, description="For the answer to one request.")
    survey_ms: Milliseconds = Field(
        default=30_000,
        description="For all leaders and offsets to be known. Where no server has ever "
        "answered, it ends after 10 seconds.",
    )
    no_progress_ms: Milliseconds = Field(
        default=120_000,
        description="For the next record of a slice. It must outlast a leader election.",
    )


class Source(Section):
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
        "of `topics`. It has the syntax of RE2: no lookaround and no back references, which can "
        "take forever. Each run looks again; internal topics never match.",
    )
    partitions: dict[str, Annotated[tuple[Which, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        min_length=1,
        json_schema_extra={"title": "topic: [partition]", "examples": [{"orders": [0, 1]}]},
        description="Only these partitions of these topics; all of topics that are not named. "
        "Of Jafka's and RocketMQ's, `0` is that of each broker and `1-0` that of broker 1.",
    )
    compacted: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["accounts", "state-.*"]]},
        description="Of Kafka: topics, or patterns that match a whole name, whose logs may have "
        "gaps because they are or were compacted. Only needed where brokers do not say so: they "
        "are older than 0.11, they do not let this client read the topic's configuration "
        "(DESCRIBE_CONFIGS), or `cleanup.policy` has been changed since. Gaps in other topics "
        "are `policy.missing`.",
    )
    isolation: Isolation = Field(
        default=Isolation.READ_COMMITTED,
        description="Whether records of open and rolled back transactions are left out.",
    )
    security: Security = Security()
    tags: tuple[str, ...] = Field(
        default=(),
        json_schema_extra={"examples": [["A", "B"]]},
        description="Of RocketMQ: only messages with one of these tags are landed. The others "
        "are counted as filtered.",
    )
    cluster: str = Field(
        default="",
        json_schema_extra={"examples": ["orders-eu"]},
        description="A name for the cluster, for good. Offsets that were landed from one cluster "
        "are never taken for those of another. Kafka has had an id of its own for that since "
        "0.10.1; others are known by the addresses of their brokers and servers, one of which has "
        "to stay from run to run unless they are named here.",
    )
    client_id: str = Field(
        default="rangeland", description="The name under which brokers see these requests."
    )
    max_answer_bytes: Size = Field(
        default=256 << 20,
        le=(1 << 31) - 1,
        description="The largest answer that is taken from a broker. Raise it for a topic with "
        "batches larger than that.",
    )
    max_batch_bytes: Size = Field(
        default=MAX_BATCH_BYTES,
        ge=1 << 20,
        le=1 << 30,
        description="What one batch or message may take in memory: the bytes it unpacks to, and a "
        "few more for each record and header. A larger one counts as corrupt. Raise it for a topic "
        "with batches larger than that.",
    )
    rack: str = Field(
        default="",
        description="The rack or zone that this job runs in. Kafka's leaders then name a replica "
        "in the same rack, if there is one, and it is read in their place.",
    )
    timeouts: Timeouts = Timeouts()

    @property
    def names_brokers(self) -> bool:
        """The servers are enough to find and to name all that is read."""
        if load_dialect(self.dialect).capabilities.has_metadata:
            return bool(self.servers)
        return bool(self.servers) and all(name.isdecimal() for name, _ in self.members)

    def called(self, cluster: Cluster | None) -> Cluster | None:
        """The cluster as it is known to this job: by the name that it gives it, and by the
        registry, too."""
        if cluster is None:
            return None
        found = replace(cluster, id=self.cluster or cluster.id)
        hosts, slash, path = (self.zookeeper or "").partition("/")
        servers = tuple(f"{host}{slash}{path}" for host in hosts.split(",") if host)
        return replace(found, addresses=(*servers, *found.addresses))

    @property
    def where(self) -> str:
        """Whom to ask, for a person."""
        named = self.names_brokers or not self.zookeeper
        return ", ".join(self.servers) if named else f"the registry at {self.zookeeper}"

    def reads(self, topic: str) -> bool:
        """True for a topic that this job asks for."""
        if self.topic_pattern:
            return matches(self.topic_pattern, topic)
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

    @field_validator("zookeeper")
    @classmethod
    def _registry(cls, zookeeper: str | None) -> str | None:
        if "@" in (zookeeper or ""):  # what stands before it is not repeated
            raise ValueError("host:port without user or password")
        return zookeeper

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            check_pattern(pattern or "")
        except ValueError as error:
            raise ValueError(f"a regular expression of RE2 ({error})") from None
        return pattern

    @field_validator("compacted")
    @classmethod
    def _compacted(cls, compacted: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in compacted:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"a topic or a regular expression: {pattern}: {error}") from None
        return compacted

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            # Brokers take a list of tags apart by bars, and properties end with those bytes.
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
            raise ValueError("either topics (at least one) or topic_pattern")
        if not self.servers and not self.zookeeper:
            raise ValueError("at least one of servers as host:port")
        if self.security.sasl and self.security.acl:
            raise MisplacedKey("either sasl or acl", "security", "acl")
        capabilities = load_dialect(self.dialect).capabilities
        given = {
            ("security", "acl"): self.security.acl,
            ("tags",): self.tags,
            ("compacted",): self.compacted,
            ("security", "sasl"): self.security.sasl,
            ("security", "tls"): self.security.tls,
        }
        for path, value in given.items():
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
        return tuple(address for _, address in self.members)

    @property
    def members(self) -> tuple[tuple[str, Address], ...]:
        """The servers by name, for dialects whose brokers have partitions of their own."""
        return tuple(parse_member(server) for server in self.servers)


def _dialects_with(key: str) -> str:
    names = [n for n in dialect_names() if key in load_dialect(n).capabilities.source_keys]
    return f"the dialect {' or '.join(names)}"
