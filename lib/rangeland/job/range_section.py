"""What a run lands, how much of it at most, and in which slices: `range`, `limits` and `slices`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator

from rangeland.job.section import FieldConflict, Section
from rangeland.job.value_parsers import FirstRun, From, Size, Until, Whole
from rangeland.model import AtOffset, AtTime, Bound, Bounds, Earliest, FromCheckpoint, Latest
from rangeland.wording import utc_time


class RangeSpec(Section):
    """What to land: where to begin, where to end, and what `checkpoint` means in the first run."""

    from_: From = Field(
        default=Bounds(FromCheckpoint()),
        alias="from",
        json_schema_extra={"default": "checkpoint"},
        description="The first offset to land. A time means the first record at or after it; a "
        "mapping lands only the partitions it lists.",
    )
    until: Until = Field(
        default=Bounds(Latest()),
        json_schema_extra={"default": "latest"},
        description="The first offset not to land: the same values except `checkpoint`. Resolved "
        "once per run.",
    )
    first_run: FirstRun = Field(
        default=Earliest(),
        json_schema_extra={"default": "earliest"},
        description="What `checkpoint` means in the job's first run, which decides where each "
        "partition begins. A partition that appears later is landed from its beginning.",
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> RangeSpec:
        """Refuses what is impossible in any log; what depends on the log shows when the range is
        resolved."""
        for of, lower, upper in self._pairs():
            match lower, upper:
                case AtTime(begin_ms), AtTime(end_ms) if begin_ms > end_ms:
                    begin, end = utc_time(begin_ms), utc_time(end_ms)
                case AtOffset(first), AtOffset(last) if first > last:
                    begin, end = f"offset {first}{of}", f"offset {last}"
                case _:
                    continue
            problem = f"it begins at {begin}, after range.until, {end}; swap them"
            raise FieldConflict(problem, "from", other=("until",))
        return self

    def _pairs(self) -> Iterator[tuple[str, Bound | None, Bound | None]]:
        """The name of each listed partition with its two bounds; then the bounds for all others."""
        for partition in sorted({*self.from_.listed, *self.until.listed}):
            yield f" of {partition}", self.from_.of(partition), self.until.of(partition)
        if not (self.from_.only_listed or self.until.only_listed):
            yield "", self.from_.default, self.until.default


class LimitSpec(Section):
    """The most that one run lands, shared fairly between partitions; the next run continues."""

    max_records: Whole | None = Field(default=None, gt=0, description="Offsets per run.")
    max_bytes: Size | None = Field(
        default=None, description="Bytes of the log per run, as the brokers store them."
    )
    broker_bytes_per_second: Size | None = Field(
        default=None,
        description="How fast all tasks of a run together may read from each broker. A broker's "
        "own quotas are always respected.",
    )


class SliceSpec(Section):
    """How ranges are cut into slices, which tasks read."""

    target_bytes: Size = Field(
        default=128 << 20, description="Bytes of the log per slice, and per task."
    )
    min_slices: Whole = Field(
        default=0,
        ge=0,
        description="At least this many, if there is enough to read; 0 means one per core.",
    )
