"""Histories that are built around one safeguard of the product each.

What they need seldom meets by chance. Their details are drawn, so that they try many variants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.displaced import DISPLACEMENTS
from tests.simulation.happenings import HOUR_MS, PAUSES_MS, Happening, Setup
from tests.simulation.operations import COMMANDS
from tests.simulation.world import Fault

Guided = tuple[Setup, list[Happening]]
ENDS = (
    ("delta.commit", "crash"),
    ("delta.commit", "lost"),
    ("store.close", "crash"),
    ("store.close", "refused"),
    ("net.send", "crash"),
    ("task.end", "crash"),
)


def guided(rng: random.Random, setup: Setup) -> Guided:
    """One of them, with the job that it needs."""
    return rng.choice(KINDS)(rng, setup)


def _done(rng: random.Random, *drivers: tuple[str, tuple[Fault, ...]]) -> Happening:
    """Drivers that run side by side, each with its faults."""
    commands, faults = zip(*drivers, strict=True)
    return Happening("run", rng.getrandbits(32), faults, commands)


def _failure(rng: random.Random) -> Fault:
    """Ends a driver, or one of its steps, somewhere in its run."""
    tag, kind = rng.choice(ENDS)
    return Fault(tag, rng.randint(1, 6), kind)


def _happened(rng: random.Random, kind: str) -> Happening:
    return Happening(kind, rng.getrandbits(32))


def _with_policy(setup: Setup, **actions: str) -> Setup:
    return replace(setup, policy=tuple((kind, actions.get(kind, a)) for kind, a in setup.policy))


def _contested(rng: random.Random, setup: Setup) -> Guided:
    """Two drivers read the same plan. The one whose outcome counts never commits it."""
    dies = Fault("delta.commit", 3, "crash")
    waits = Fault("delta.commit", rng.choice((1, 2)), "pause", rng.choice(PAUSES_MS))
    kinds = rng.choice((("run", "run"), ("backfill", "backfill"), ("backfill", "run")))
    both = ((kinds[0], (dies,)), (kinds[1], (waits,)))
    return setup, [_happened(rng, "produce"), _done(rng, *both), _done(rng, ("run", ()))]


def _reviewed(rng: random.Random, setup: Setup) -> Guided:
    """A plan is applied after another one has landed the same offsets, or while it is landing
    them."""
    between = rng.choice(("run", "backfill", "backfill", "backfill-start", "backfill-end"))
    happenings = [_happened(rng, "produce")]
    if rng.random() < 0.5:
        happenings += [_done(rng, ("run", ())), _happened(rng, "produce")]
    happenings.append(_done(rng, ("plan", ())))
    if rng.random() < 0.5:
        stops = Fault("delta.commit", rng.choice((2, 3)), "pause", HOUR_MS)
        waits = Fault("delta.load", 1, "pause", 1_000)
        happenings.append(_done(rng, (between, (stops,)), ("apply", (waits,))))
    else:
        dies = Fault("delta.commit", rng.choice((2, 3)), "crash")
        happenings.append(_done(rng, (between, rng.choice(((), (dies,))))))
        happenings.append(_done(rng, ("apply", ())))
    return replace(setup, max_records=None), [*happenings, _done(rng, ("run", ()))]


def _cut_while_read(rng: random.Random, setup: Setup) -> Guided:
    """The log loses its end between a plan and its reading, and gets other records later."""
    tag, most = rng.choice((("delta.commit", 2), ("task.start", 2), ("store.open", 2)))
    cut = Fault(tag, rng.randint(1, most), "act:truncate", rng.getrandbits(32))
    happenings = [_happened(rng, "produce"), _done(rng, ("run", (cut,)))]
    happenings += [_happened(rng, "produce"), _done(rng, ("run", ()))]
    return _with_policy(setup, truncated=rng.choice(("skip", "skip", "hold"))), happenings


def _replaced_with_less(rng: random.Random, setup: Setup) -> Guided:
    """Some of what has landed is damaged or gone when it is to be landed again."""
    harm = rng.choice(("damage", "damage", "lose"))
    again = rng.choice(("replace", "replace", "replace-end"))
    happenings = [_happened(rng, "produce"), _done(rng, ("run", ())), _happened(rng, harm)]
    happenings.append(_done(rng, (again, rng.choice(((), (_failure(rng),))))))
    policy = {"corrupt": rng.choice(("skip", "quarantine", "hold")), "missing": "skip"}
    return replace(_with_policy(setup, **policy), compacts=False), happenings


def _quarantined(rng: random.Random, setup: Setup) -> Guided:
    """Damaged bytes are kept, and landed later, from the log or by another command."""
    happenings = [_happened(rng, "produce"), _happened(rng, "damage")]
    happenings.append(_done(rng, ("run", rng.choice(((), (_failure(rng),))))))
    for _ in range(rng.randint(1, 3)):
        happenings.append(_happened(rng, rng.choice(("mend", "mend", "damage", "vacuum"))))
        command = rng.choice(("reread", "reread", "redrive", "replace", "run"))
        happenings.append(_done(rng, (command, rng.choice(((), (_failure(rng),))))))
    return _with_policy(setup, corrupt="quarantine"), happenings


def _handed_in(rng: random.Random, setup: Setup) -> Guided:
    """One driver of a group loses its lease while it reads; another one reads some of its slices,
    hands them in, and fails at the others."""
    stops = Fault(rng.choice(("task.end", "store.close")), rng.choice((1, 2)), "pause", HOUR_MS)
    first = rng.randint(2, 8)
    fails = tuple(Fault("store.open", first + i, "refused") for i in range(4))
    both = [("run", (stops,)), ("run", fails)]
    rng.shuffle(both)
    setup = replace(setup, has_group=True, partitions=3, slice_bytes=rng.choice((100, 300)))
    return replace(setup, max_records=None), [_happened(rng, "produce"), _done(rng, *both)]


def _lagging(rng: random.Random, setup: Setup) -> Guided:
    """A new leader's high watermark lags for long while a plan is read."""
    tag, most = rng.choice((("delta.commit", 2), ("task.start", 2), ("net.send", 30)))
    lags = Fault(tag, rng.randint(1, most), "act:lag", rng.getrandbits(32))
    happenings = [_happened(rng, "produce"), _done(rng, ("run", (lags,))), _done(rng, ("run", ()))]
    return setup, happenings


def _taken_away(rng: random.Random, setup: Setup) -> Guided:
    """Table or ledger go, or become others, before a command or in the middle of it."""
    kind, command = rng.choice(DISPLACEMENTS), rng.choice(COMMANDS)
    tag, most = rng.choice((("net.send", 30), ("store.close", 3), ("task.end", 2)))
    meanwhile = Fault(tag, rng.randint(1, most), f"act:{kind}", rng.getrandbits(32))
    happenings = [
        _happened(rng, "produce"),
        _done(rng, (rng.choice(("run", "run", "backfill")), ())),
    ]
    happenings.append(_happened(rng, rng.choice(("produce", "produce", "overwrite", "delete"))))
    if rng.random() < 0.5:
        happenings += [_happened(rng, kind), _done(rng, (command, ()))]
    else:
        happenings.append(_done(rng, (command, (meanwhile,))))
    return setup, [*happenings, _done(rng, (rng.choice(COMMANDS), ()))]


KINDS: tuple[Callable[[random.Random, Setup], Guided], ...] = (
    _contested,
    _reviewed,
    _cut_while_read,
    _replaced_with_less,
    _quarantined,
    _handed_in,
    _lagging,
    _taken_away,
)
