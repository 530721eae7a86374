"""Samples, medians and ratios: the arithmetic of the benchmark, and nothing else.

Sides are measured in turn, so the samples of one round belong together: the spread of a
ratio is that of the rounds' own ratios, its middle the ratio of the medians.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one side took than another; 2 means half as fast."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f}x ({self.low:.2f}-{self.high:.2f})"


def ratio(base: Sequence[float], ours: Sequence[float]) -> Ratio:
    """``base`` over ``ours``; both hold one sample per round, in the same order."""
    pairs = [b / o for b, o in zip(base, ours, strict=True)]
    return Ratio(median(base) / median(ours), min(pairs), max(pairs))


def ratios(samples: Mapping[str, Sequence[float]], ours: str) -> dict[str, Ratio]:
    """Every other side over ``ours``."""
    return {name: ratio(taken, samples[ours]) for name, taken in samples.items() if name != ours}


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range, for a table."""
    middle, low, high = median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def medians(rounds: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The median of each name over rounds that have the same names."""
    taken: dict[str, list[float]] = {}
    for found in rounds:
        for name, value in found.items():
            taken.setdefault(name, []).append(value)
    return {name: median(values) for name, values in taken.items()}


def load_average() -> float:
    """Of the last minute, our own work included."""
    return round(os.getloadavg()[0], 2)
