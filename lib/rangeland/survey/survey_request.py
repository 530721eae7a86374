"""A request for a survey, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rangeland.model import Bounds, Partition
from rangeland.planning.incarnation import LogMark
from rangeland.planning.retention_risk import ReadSpeed


@dataclass(frozen=True, slots=True)
class SurveyRequest:
    """Exactly one of ``topics`` and ``topic_pattern`` is given."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """Anchored; it never matches internal topics."""
    partitions: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    """The only partitions of a topic to survey: numbers, or ``broker-number`` if partitions are
    numbered per broker."""
    times_ms: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    """Topics of which partitions that are read were landed before; if one no longer exists, the
    job file is not to blame."""
    bounds: tuple[Bounds, ...] = ()
    """The ends of the range. Their offsets are checked if not every offset is valid, or if a
    transaction may delay them."""
    marks: tuple[tuple[Partition, int], ...] = ()
    """The offsets at which landings ended."""
    checkpoint: Mapping[Partition, LogMark] = field(default_factory=dict)
    """The offsets at which the job's last run ended."""
    known_epochs: Mapping[Partition, int] = field(default_factory=dict)
    """Later leader epochs than those of the checkpoint, in which the logs were read since."""
    landed: frozenset[Partition] = frozenset()
    """The partitions that were landed before, including those without a checkpoint, as far as the
    job's list of partitions has them. Some may be of topics that the job does not read."""
    speed: ReadSpeed | None = None
    """The expected reading speed, to find out what may expire before it is read."""
    tolerates_missing_leaders: bool = False
    """Whether partitions without a leader at the deadline are left out."""
