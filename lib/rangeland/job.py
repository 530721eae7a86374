"""What a job is: the pydantic models of a job file, and their meaning as values.

Unknown keys are errors. Words and sizes become values here and nowhere else: ``8GiB`` is
bytes, ``2026-01-01T00:00Z`` is an instant, ``earliest`` is a bound. A secret is only ever a
reference (``${env:NAME}``, ``${file:PATH}``); it is looked up when a connection needs it
and has no place in a plan, the ledger or a message.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from rangeland.errors import JobFileError
from rangeland.jobfile import JobText, dotted, override, parse_job_text, put, read_job_text
from rangeland.model import (
    Address,
    AtOffset,
    AtTime,
    Bound,
    Bounds,
    Earliest,
    FromCheckpoint,
    GroupOffset,
    Isolation,
    Latest,
    Partition,
)
from rangeland.planning.bounds import Request
from rangeland.planning.limits import Limits
from rangeland.planning.plan import parse_address
from rangeland.planning.policy import Action, Policy
from rangeland.planning.slices import Slicing

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_size(value: object) -> object:
    """``128MiB`` as bytes; a plain number is bytes already."""
    if isinstance(value, bool) or not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if not found or found[2].upper() not in UNITS:
        raise ValueError("a size such as 128MiB, 8GiB or a number of bytes")
    return int(float(found[1]) * UNITS[found[2].upper()])


# Strict: `true` is no number, though Python holds it for 1.
Whole = Annotated[int, Field(strict=True)]
Size = Annotated[Whole, BeforeValidator(parse_size), Field(gt=0)]


def parse_secret(value: object) -> object:
    """Only a reference to a secret may stand in a job file."""
    if isinstance(value, str) and re.fullmatch(r"\$\{(env|file):[^}]+\}", value):
        return value
    raise ValueError("a reference such as ${env:NAME} or ${file:PATH}, never the secret itself")


SecretRef = Annotated[str, BeforeValidator(parse_secret)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Tls(_Part):
    """TLS towards brokers. ``ca`` is a PEM file; without it the system's authorities hold."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: SecretRef | None = None
    verify_hostname: bool = True


class Sasl(_Part):
    """Who this client is. PLAIN should only be used over TLS."""

    mechanism: Literal["PLAIN"] = "PLAIN"
    username: str
    password: SecretRef


class Security(_Part):
    tls: Tls | bool = False
    sasl: Sasl | None = None


class Timeouts(_Part):
    """All in ms. ``no_progress_ms`` must outlast a leader election."""

    connect_ms: Whole = Field(default=5_000, gt=0)
    request_ms: Whole = Field(default=30_000, gt=0)
    survey_ms: Whole = Field(default=30_000, gt=0)
    no_progress_ms: Whole = Field(default=120_000, gt=0)


class Source(_Part):
    """Where records come from: a dialect, its servers, topics."""

    dialect: Literal["kafka", "jafka", "rocketmq"] = "kafka"
    servers: tuple[str, ...] = ()
    zookeeper: str | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: dict[str, tuple[Annotated[Whole, Field(ge=0)], ...]] = Field(default_factory=dict)
    isolation: Isolation = Isolation.READ_COMMITTED
    security: Security = Security()
    client_id: str = "rangeland"
    timeouts: Timeouts = Timeouts()

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if "@" in server:  # what stands before it is not repeated: it may be a password
                raise ValueError("host:port without user or password; see source.security")
            try:
                parse_address(server)
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
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
                raise ValueError(f"topic names of letters, digits, '.', '_', '-', not {topic!r}")
        return tuple(dict.fromkeys(topics))

    @model_validator(mode="after")
    def _whole(self) -> Source:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("either topics (at least one) or topic_pattern")
        if not self.servers and not self.zookeeper:
            raise ValueError("at least one of servers as host:port")
        unknown = [t for t in self.partitions if self.topics and t not in self.topics]
        if unknown:
            raise ValueError(f"partitions of topics that are listed, not of {unknown[0]!r}")
        return self

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(parse_address(server) for server in self.servers)


WORDS: dict[str, Bound] = {
    "checkpoint": FromCheckpoint(),
    "earliest": Earliest(),
    "latest": Latest(),
}
EXPECTED_BOUND = (
    "checkpoint, earliest, latest, an ISO time, group:<id>, or {topic: {partition: offset}}"
)


def parse_time_ms(text: str) -> int:
    """An ISO 8601 time as ms since 1970; without a zone it is UTC. Raises ValueError, also
    for a time before 1970."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Integer arithmetic: a float would lose milliseconds.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    time_ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if time_ms < 0:
        # The wire keeps negative times for meanings of its own, such as "latest".
        raise ValueError(f"{text.strip()} is before 1970")
    return time_ms


def parse_bound(value: object) -> Bound:
    """One bound in the words of a job file. Raises ValueError saying what was expected."""
    if isinstance(value, bool):
        raise ValueError(EXPECTED_BOUND)
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"an offset that is not negative, not {value}")
        return AtOffset(value)
    if isinstance(value, str):
        word = value.strip()
        if word in WORDS:
            return WORDS[word]
        if word.startswith("group:") and len(word) > len("group:"):
            return GroupOffset(word.removeprefix("group:"))
        if re.match(r"\d{4}-\d\d-\d\d", word):
            try:
                return AtTime(parse_time_ms(word))
            except ValueError as error:
                raise ValueError(f"an ISO time such as 2026-01-31T06:00:00Z ({error})") from error
    raise ValueError(f"{EXPECTED_BOUND}, not {value!r}")


def parse_bounds(value: object) -> Bounds:
    """One side of a range: a word for all partitions, or a mapping that lists them."""
    if isinstance(value, Bounds):
        return value
    if not isinstance(value, dict):
        if isinstance(value, int):
            raise ValueError(f"{EXPECTED_BOUND}; a bare offset needs its topic and partition")
        return Bounds(parse_bound(value))
    listed: dict[Partition, Bound] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"{{partition: offset}} for topic {topic!r}")
        for number, bound in partitions.items():
            if not str(number).isdecimal():
                raise ValueError(f"partition numbers for topic {topic!r}, not {number!r}")
            listed[Partition(str(topic), int(number))] = parse_bound(bound)
    if not listed:
        raise ValueError("at least one topic and partition")
    return Bounds(Earliest(), listed, only_listed=True)


def _parse_until(value: object) -> Bounds:
    bounds = parse_bounds(value)
    if any(isinstance(b, FromCheckpoint) for b in (bounds.default, *bounds.listed.values())):
        raise ValueError("latest, a time or an offset: a range cannot end at the checkpoint")
    return bounds


def _parse_first(value: object) -> Bound:
    bound = parse_bound(value)
    if isinstance(bound, FromCheckpoint | AtOffset):
        raise ValueError("earliest, latest, an ISO time or group:<id>")
    return bound


BoundsField = Annotated[Any, BeforeValidator(parse_bounds)]


class RangeSpec(_Part):
    """What to land: where to begin, where to end, and what ``checkpoint`` means at first."""

    from_: BoundsField = Field(default=Bounds(FromCheckpoint()), alias="from")
    until: Annotated[Any, BeforeValidator(_parse_until)] = Bounds(Latest())
    first_run: Annotated[Any, BeforeValidator(_parse_first)] = Earliest()


class LimitSpec(_Part):
    max_records: Whole | None = Field(default=None, gt=0)
    max_bytes: Size | None = None


class SliceSpec(_Part):
    target_bytes: Size = 128 << 20
    min_slices: Whole = Field(default=0, ge=0)


class PolicySpec(_Part):
    """One action per kind of loss: fail, skip (and record) or hold."""

    expired: Literal["fail", "skip", "hold"] = "fail"
    recreated: Literal["fail", "skip", "hold"] = "fail"
    truncated: Literal["fail", "skip", "hold"] = "fail"
    vanished: Literal["fail", "skip", "hold"] = "fail"
    corrupt: Literal["fail", "skip"] = "fail"


class Sink(_Part):
    """Where records land. ``table`` is a path or URI, or ``catalog.schema.table``."""

    table: str = Field(min_length=1)
    partition_by: tuple[str, ...] = ()
    compression: Literal["zstd", "snappy", "none"] = "zstd"
    target_file_bytes: Size = 256 << 20
    transform: str | None = None

    @field_validator("transform")
    @classmethod
    def _dotted_function(cls, transform: str | None) -> str | None:
        if transform is not None and not re.fullmatch(r"[\w.]+:[\w.]+", transform):
            raise ValueError("module:function")
        return transform

    @property
    def is_catalog_name(self) -> bool:
        return re.fullmatch(r"[\w`-]+(\.[\w`-]+){1,2}", self.table) is not None


class Group(_Part):
    id: str = Field(min_length=1)


class Job(_Part):
    """One job file, checked. ``job`` names the checkpoint: renaming it starts anew."""

    job: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    source: Source
    range: RangeSpec = RangeSpec()
    limits: LimitSpec = LimitSpec()
    slices: SliceSpec = SliceSpec()
    policy: PolicySpec = PolicySpec()
    sink: Sink
    group: Group | None = None

    @model_validator(mode="after")
    def _listed_topics(self) -> Job:
        for side in (self.range.from_, self.range.until):
            for partition in side.listed:
                if self.source.topics and partition.topic not in self.source.topics:
                    raise ValueError(f"ranges of topics of this job, not of {partition.topic!r}")
        return self

    @staticmethod
    def load(path: str | Path, overrides: list[str] | None = None) -> Job:
        """The job of a file, with ``a.b=c`` overrides laid over it. Raises JobFileError."""
        return Job.of(override(read_job_text(Path(path)), overrides or []))

    @staticmethod
    def parse(text: str, name: str = "job") -> Job:
        """The job of a YAML text; ``name`` stands for the file in messages."""
        return Job.of(parse_job_text(text, name))

    @staticmethod
    def of(text: JobText) -> Job:
        try:
            return Job.model_validate(text.values)
        except ValidationError as error:
            _refuse(text, error)

    # --- the same as values -----------------------------------------------------------

    @property
    def application(self) -> str:
        """Delta's application id of this job's sequence of landings."""
        return f"rangeland/{self.job}"

    @property
    def request(self) -> Request:
        return Request(self.range.from_, self.range.until, self.range.first_run, self.policies)

    @property
    def policies(self) -> Policy:
        return Policy(**{name: Action(value) for name, value in self.policy.model_dump().items()})

    @property
    def run_limits(self) -> Limits:
        return Limits(self.limits.max_records, self.limits.max_bytes)

    @property
    def slicing(self) -> Slicing:
        return Slicing(self.slices.target_bytes, self.slices.min_slices)


def _refuse(text: JobText, error: ValidationError) -> NoReturn:
    """All mistakes of a job file in one error, each with its place and what was expected."""
    mistakes = []
    problems = error.errors(include_url=False, include_context=True, include_input=False)
    paths = [_path(problem["loc"]) for problem in problems]
    for path, problem in zip(paths, problems, strict=True):
        # A mapping under `tls` with a mistake in it is not also "no boolean".
        if problem["type"] == "bool_type" and any(p[: len(path)] == path != p for p in paths):
            continue
        mistakes.append((text.where(path), dotted(path) or "the job", _expected(problem)))
    place, field, expected = mistakes[0]
    raise JobFileError(
        f"{place}: {field}: {expected}",
        why="; ".join(f"{p}: {f}: {e}" for p, f, e in mistakes[1:]),
        do="correct the job file" if len(mistakes) == 1 else "correct all of these",
        file=text.name,
        line=text.line_of(paths[0]),
        field=field,
        mistakes=[{"where": p, "field": f, "expected": e} for p, f, e in mistakes],
    )


def _path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """A field's path as the job file has it: without the names of a union's members."""
    if loc[:3] == ("source", "security", "tls") and loc[3:4] in (("Tls",), ("bool",)):
        return (*loc[:3], *loc[4:])
    return loc


def _expected(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this field is needed"
        case "value_error":
            return f"expected {problem['ctx']['error']}"
        case "string_pattern_mismatch":
            return "expected a name of lower-case letters, digits, '.', '_' and '-'"
        case _:
            return f"expected {problem['msg'].removeprefix('Input should be ')}"


__all__ = ["Job", "JobFileError", "Sink", "Source", "parse_bounds", "parse_time_ms", "put"]
