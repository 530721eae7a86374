"""What a number of histories has seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Counts:
    histories: int = 0
    runs: int = 0
    steps: int = 0
    landed: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By place and kind."""
    changes: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    """By the rule of the violation that each could have raised."""

    @property
    def fault_places(self) -> Counter[str]:
        return _summed(self.faults, 0)

    @property
    def fault_kinds(self) -> Counter[str]:
        return _summed(self.faults, 1)


def _summed(faults: Mapping[tuple[str, str], int], part: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, number in faults.items():
        found[key[part]] += number
    return found
