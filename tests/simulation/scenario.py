"""What happens in one history, drawn from a seed: a job, changes of the cluster, runs and faults.

Most histories are short, with one to three operations after the first records are produced, so
that many seeds take little time; one in ``LONG_EVERY`` is long, and some are ``guided``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.simulation.displaced import DISPLACEMENTS
from tests.simulation.guided import guided
from tests.simulation.happenings import PAUSES_MS, Happening, Scenario, Setup
from tests.simulation.kafka import AGES
from tests.simulation.operations import COMMANDS
from tests.simulation.table_faults import TABLE_ACTS
from tests.simulation.world import Fault

CLUSTER_ACTS = (
    "produce",
    "elect",
    "expire",
    "compact",
    "down",
    "slow",
    "truncate",
    "lose",
    "vacuum",
    "damage",
    "mend",
)
RARE_ACTS = ("recreate",)
FAULTS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("delta.commit", 5, ("crash", "lost", "refused", "lost-then-tried-again", "pause", "act")),
    ("delta.create", 2, ("crash", "lost", "refused")),
    ("delta.load", 12, ("crash", "refused", "pause", "act")),
    ("delta.history", 2, ("crash", "refused")),
    ("store.open", 6, ("crash", "refused", "act", "executor-lost", "pause")),
    ("store.close", 6, ("crash", "refused", "act", "executor-lost", "pause")),
    ("store.read", 6, ("crash", "refused", "pause")),
    ("store.list", 4, ("crash", "refused", "act")),
    ("spark.read", 2, ("crash", "act", "pause")),
    ("spark.write", 1, ("crash", "refused", "lost", "act", "pause")),
    ("net.connect", 8, ("refused", "act", "crash")),
    ("net.send", 30, ("refused", "act", "act", "crash", "pause", "executor-lost")),
    ("net.receive", 30, ("refused", "silence", "act", "act", "executor-lost")),
    ("group", 12, ("crash", "refused", "pause", "act")),
    ("sleep", 4, ("act", "crash")),
    ("task.start", 3, ("speculate", "executor-lost", "act")),
    ("task.end", 3, ("result-lost", "act", "crash")),
)
"""Where a fault may strike, how often that point passes at most, and what may happen there."""
HARMS = ("restore", "overwrite", "delete", "lose-file")
POLICIES = ("expired", "recreated", "truncated", "vanished", "missing", "corrupt")
ACTIONS = ("fail", "skip", "hold")
OTHERS = {3: "rocketmq", 7: "jafka"}
"""The dialects other than Kafka, by the seeds that play on them."""
LONG_EVERY = 50
GUIDED_EVERY = 10
TRANSACTIONAL_EVERY = 10
OPENING = (
    *(*("begin",) * 4, *("extend",) * 2, "commit", "abort", "abort"),
    *("produce", "produce", "trim", "expire", "elect", "truncate"),
)
"""What happens before transactional logs are read."""
MEANWHILE = (
    *(*("commit",) * 3, *("abort",) * 3, "begin", "extend"),
    *("produce", "trim", "expire", "elect", "lag", "truncate"),
)
READING = (("delta.commit", 3), ("task.start", 2), ("net.send", 30), ("net.receive", 30))
"""Where that strikes, and how often these points pass at most."""
JOBS = 800
"""How many setups short histories have; a multiple of the dialects' period."""
PREPARING = ("run", "run", "run", "backfill")
"""What short histories begin with."""
BEFORE_READING = ("lose", "lose", "damage", "damage", "elect", "elect", "compact", "expire", "slow")
"""What happens to a log before anything of it is read."""
OVERTAKEN = (
    ("backfill-end", "backfill-start", "run"),
    ("backfill-end", "backfill-start", "run"),
    ("backfill-start", "backfill-end", "backfill"),
    ("run", "backfill"),
    ("backfill", "run"),
)
"""Drivers side by side, of which the first one stops."""


def scenario(seed: int, age: str | None = None) -> Scenario:
    """``age``: plays it on brokers of that age or dialect."""
    if seed % LONG_EVERY == LONG_EVERY - 1:
        return long_scenario(seed, age)
    if seed % GUIDED_EVERY == GUIDED_EVERY - 1:
        return guided_scenario(seed, age)
    if seed % TRANSACTIONAL_EVERY == 3 and age not in OTHERS.values():
        return transactional_scenario(seed, age)
    rng = random.Random(f"short {seed}")
    happenings = [Happening("produce", rng.getrandbits(32))]
    drawn = rng.random()
    if drawn < 0.45:
        happenings.append(_side_by_side(rng, (rng.choice(PREPARING),), most=0))
        change = _change(rng)
        happenings.append(Happening(change, rng.getrandbits(32)))
        if rng.random() < (0.4 if change in ("truncate", "recreate") else 0.03):
            happenings += _harmed(rng)
    elif drawn < 0.6:
        happenings.append(Happening(rng.choice(BEFORE_READING), rng.getrandbits(32)))
    elif drawn < 0.64:
        happenings.append(_overtaken(rng))
    for _ in range(rng.choice((1, 1, 1, 2))):
        commands = tuple(rng.choice(COMMANDS) for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 2))))
        happenings.append(_side_by_side(rng, commands, most=2))
    return Scenario(seed, _on(_short_setup(seed), seed, age), tuple(happenings), is_short=True)


def guided_scenario(seed: int, age: str | None = None) -> Scenario:
    """One that is built around one safeguard of the product: what it needs seldom meets by
    chance."""
    rng = random.Random(f"guided {seed}")
    setup, happenings = guided(rng, _short_setup(seed))
    return Scenario(seed, replace(setup, age=age or setup.age), tuple(happenings), is_short=True)


def transactional_scenario(seed: int, age: str | None = None) -> Scenario:
    """Transactions begin, grow and end, before and while their log is read."""
    rng = random.Random(f"transactions {seed}")
    setup = replace(_short_setup(seed), transactions=True, reads_uncommitted=rng.random() < 0.2)
    setup = replace(setup, age=age or setup.age)
    happenings = [Happening("produce", rng.getrandbits(32))]
    for _ in range(rng.choice((1, 1, 2, 3))):
        for _ in range(rng.randint(1, 8)):
            happenings.append(Happening(rng.choice(OPENING), rng.getrandbits(32)))
        commands = tuple(rng.choice(COMMANDS) for _ in range(rng.choice((1, 1, 1, 1, 2))))
        faults = tuple(tuple(_meanwhile(rng)) for _ in commands)
        happenings.append(Happening("run", rng.getrandbits(32), faults, commands))
    return Scenario(seed, setup, tuple(happenings), is_short=True)


def _meanwhile(rng: random.Random) -> Iterator[Fault]:
    """What happens to a log while it is read, or to who reads it."""
    for _ in range(rng.choice((0, 1, 1, 2))):
        tag, most = rng.choice(READING)
        kind = f"act:{rng.choice(MEANWHILE)}"
        yield Fault(tag, 1 + int(most * rng.random() ** 2), kind, rng.getrandbits(32))
    if rng.random() < 0.2:
        yield _early_fault(rng)


def long_scenario(seed: int, age: str | None = None) -> Scenario:
    rng = random.Random(seed)
    setup = _setup(rng)
    happenings = [Happening("produce", rng.getrandbits(32))]
    for _ in range(rng.randint(2, 7)):
        happenings.append(_happening(rng))
        if happenings[-1].kind in HARMS and rng.random() < 0.7:
            happenings.append(_driver(rng, rng.choice(("missing", "missing", "run", "verify"))))
    return Scenario(seed, _on(setup, seed, age), tuple(happenings))


def _short_setup(seed: int) -> Setup:
    """One of ``JOBS``, so that few job files have to be read."""
    rng = random.Random(f"job {seed % JOBS}")
    return replace(
        _setup(rng),
        partitions=rng.choice((1, 1, 1, 2)),
        slice_bytes=rng.choice((300, 1000, 100_000, 100_000)),
        max_records=rng.choice((None, None, None, 5, 12)),
        has_group=rng.random() < 0.15,
    )


def _on(setup: Setup, seed: int, age: str | None) -> Setup:
    age = age or OTHERS.get(seed % 8)
    return setup if age is None else replace(setup, age=age)


def _setup(rng: random.Random) -> Setup:
    return Setup(
        age=rng.choice(list(AGES)),
        partitions=rng.choice((1, 1, 2, 3)),
        compacts=rng.random() < 0.3,
        transactions=rng.random() < 0.4,
        per_response=rng.choice((1, 2, 3, 100)),
        is_local=rng.random() < 0.5,
        policy=tuple((kind, rng.choice(_actions(kind))) for kind in POLICIES),
        max_records=rng.choice((None, None, 5, 12)),
        slice_bytes=rng.choice((300, 1000, 100_000)),
        has_group=rng.random() < 0.3,
    )


def _driver(rng: random.Random, command: str) -> Happening:
    return Happening("run", rng.getrandbits(32), (_faults(rng),), (command,))


def _actions(kind: str) -> tuple[str, ...]:
    return (*ACTIONS, "quarantine", "quarantine") if kind == "corrupt" else ACTIONS


def _happening(rng: random.Random) -> Happening:
    drawn = rng.random()
    if drawn < 0.5:
        arg, drivers = rng.getrandbits(32), rng.choice((1, 1, 1, 2, 2, 3))
        commands = tuple(rng.choice(COMMANDS) for _ in range(drivers))
        return Happening("run", arg, tuple(_faults(rng) for _ in commands), commands)
    if drawn < 0.65:
        return Happening("produce", rng.getrandbits(32))
    kind = rng.choice(DISPLACEMENTS) if drawn > 0.96 else _act(rng)
    return Happening(kind, rng.getrandbits(32))


def _act(rng: random.Random) -> str:
    drawn = rng.random()
    if drawn < 0.14:
        return rng.choice((*TABLE_ACTS, *("other-table",) * 4))
    return rng.choice(RARE_ACTS if drawn < 0.2 else CLUSTER_ACTS)


def _change(rng: random.Random) -> str:
    """Between two runs of a short history."""
    drawn = rng.random()
    if drawn < 0.5:
        return rng.choice(("produce", "truncate", *RARE_ACTS))
    if drawn < 0.75:
        return rng.choice(TABLE_ACTS)
    return rng.choice(DISPLACEMENTS if drawn < 0.85 else CLUSTER_ACTS)


def _side_by_side(rng: random.Random, commands: tuple[str, ...], most: int) -> Happening:
    """Drivers with one to ``most`` faults each."""
    arg = rng.getrandbits(32)
    faults = tuple(
        tuple(_early_fault(rng) for _ in range(rng.randint(min(1, most), most))) for _ in commands
    )
    return Happening("run", arg, faults, commands)


def _harmed(rng: random.Random) -> Iterator[Happening]:
    """What the log has now is landed, perhaps, before rows are taken out of the table."""
    if rng.random() < 0.5:
        yield _side_by_side(rng, ("run",), most=0)
    yield Happening(rng.choice(HARMS), rng.getrandbits(32))


def _overtaken(rng: random.Random) -> Happening:
    """One driver stops for an hour somewhere between its plan and its commit; others go on."""
    pause = Fault("delta.commit", rng.choice((2, 3)), "pause", max(PAUSES_MS))
    first, *others = rng.choice(OVERTAKEN)
    faults = ((pause,), *(() for _ in others))
    return Happening("run", rng.getrandbits(32), faults, (first, *others))


def _early_fault(rng: random.Random) -> Fault:
    """Low numbers are drawn more often: the run of a short history passes each point less often."""
    tag, most, kinds = rng.choice(FAULTS)
    kind, arg = _kind_and_arg(rng, kinds)
    return Fault(tag, 1 + int(most * rng.random() ** 2), kind, arg)


def _faults(rng: random.Random) -> tuple[Fault, ...]:
    found = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        tag, most, kinds = rng.choice(FAULTS)
        kind, arg = _kind_and_arg(rng, kinds)
        found.append(Fault(tag, rng.randint(1, most), kind, arg))
    return tuple(found)


def _kind_and_arg(rng: random.Random, kinds: Sequence[str]) -> tuple[str, int]:
    kind, arg = rng.choice(kinds), rng.getrandbits(32)
    if kind == "act":
        return f"act:{_act(rng)}", arg
    return kind, rng.choice(PAUSES_MS) if kind == "pause" else arg
