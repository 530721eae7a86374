"""Leaves safeguards of the product out, to see whether the simulation finds that.

A mutation replaces pieces of the source of functions. If such a piece is no longer there, the
mutation is out of date and fails.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tests.simulation.replaced import simulated
from tests.simulation.scenario import scenario
from tests.simulation.shrinking import failure_of
from tests.simulation.tally import Counts


@dataclass(frozen=True)
class Change:
    """``where`` is module:function or module:Class.method, without the package's name."""

    where: str
    old: str
    new: str


class Mutation:
    def __init__(self, name: str, *changes: Change) -> None:
        self.name = name
        self.changes = changes


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    with ExitStack() as stack:
        for where in dict.fromkeys(change.where for change in mutation.changes):
            mine = [change for change in mutation.changes if change.where == where]
            stack.enter_context(_changed(where, mine))
        yield


@contextmanager
def _changed(where: str, changes: Sequence[Change]) -> Iterator[None]:
    module_name, _, path = where.partition(":")
    module: Any = importlib.import_module(f"rangeland.{module_name}")
    *parents, name = path.split(".")
    owner = module
    for parent in parents:
        owner = getattr(owner, parent)
    before = inspect.getattr_static(owner, name)
    function = before.fget if isinstance(before, property) else getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        found = source.count(change.old)
        if found != 1:
            raise LookupError(
                f"{where} has {change.old!r} {found} times: the mutation is out of date, give it "
                "the present text"
            )
        source = source.replace(change.old, change.new)
    made: dict[str, Any] = {}
    text = "from __future__ import annotations\n" + source
    exec(compile(text, where, "exec"), vars(module), made)
    if isinstance(before, FunctionType):
        made[name].__defaults__ = before.__defaults__
    holders = [owner] if parents else _holders(before, name)
    for holder in holders:
        setattr(holder, name, made[name])
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, name, before)


def _holders(function: object, name: str) -> list[Any]:
    """The modules that have the function under its name."""
    modules = [m for key, m in sys.modules.items() if key.startswith("rangeland.")]
    return [module for module in modules if getattr(module, name, None) is function]


def caught_at(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first of these seeds at which it is found, and how it shows; None if it is not found."""
    with simulated() as stage, applied(mutation):
        for seed in seeds:
            found = failure_of(scenario(seed), stage, Counts())
            if found is not None:
                return seed, f"{type(found).__name__}: {found}"
    return None
