"""Carries out a scenario: changes the cluster, runs the product, and checks after every step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import (
    AccessDenied,
    BadRecord,
    Bug,
    Conflict,
    JobFileError,
    LocalProtocolError,
    MissingRequirement,
    ProofFailed,
    RangelandError,
    RangeLost,
    TableRefused,
    Unreachable,
)
from rangeland.job import Job
from rangeland.query_results import VerifyResult
from rangeland.results import AdoptResult, RunResult
from tests.simulation.answers import check_answer
from tests.simulation.byte_judge import ByteJudge
from tests.simulation.clusters import BROKERS
from tests.simulation.delta import DeltaLog, Tables
from tests.simulation.dialects import TABLE, TOPIC, cluster_of, job_of
from tests.simulation.displaced import DISPLACEMENTS, Displacement
from tests.simulation.files import MemoryStore
from tests.simulation.group_model import Groups
from tests.simulation.happenings import Happening, Scenario
from tests.simulation.invariants import Judge
from tests.simulation.logs import Log, fill
from tests.simulation.operations import MAY_END_WITH, NAMED, Operations
from tests.simulation.replaced import Stage
from tests.simulation.scenario import POLICIES
from tests.simulation.spark import SimulatedSpark
from tests.simulation.table_faults import TABLE_ACTS, TableFaults
from tests.simulation.tally import Counts
from tests.simulation.transactions import TRANSACTION_ACTS, change_transactions, end_transactions
from tests.simulation.world import Crash, Fault, Process, Violation, World

MOST_RUNS = 40
PER_SEGMENT = 6
SKEWS_MS = (0, 0, 0, 0, -1_000, 3_000, -86_400_000, 86_400_000)
VERIFIED_EVERY = 4
"""Of so many short histories one ends with ``verify``, and a run that finds nothing to do."""
NEVER = (
    *(Bug, ProofFailed, LocalProtocolError, Conflict, TableRefused),
    *(JobFileError, AccessDenied, MissingRequirement),
)
"""Errors that nothing in these histories justifies."""
ADOPTION_FAULTS = (
    *(("delta.commit", "crash"), ("delta.commit", "lost"), ("delta.commit", "refused")),
    *(("delta.load", "crash"), ("store.close", "crash"), ("spark.read", "crash")),
)
"""What happens to a person's adoption, who then tries again."""
SKIP_ALL = tuple((kind, "skip") for kind in POLICIES)


class History:
    """One scenario at work."""

    def __init__(self, scenario: Scenario, stage: Stage, counts: Counts) -> None:
        self.scenario = scenario
        self.counts = counts
        setup = scenario.setup
        self.world = stage.world = World(scenario.seed)
        self.tables = stage.tables = Tables(self.world, needs_lock=setup.is_local)
        self.groups = stage.groups = Groups(self.world)
        self.store = stage.store = MemoryStore(self.world, self.tables.logs)
        self.cluster = stage.cluster = cluster_of(setup, self.world)
        self.cluster.shows_aborted = setup.reads_uncommitted
        self.cluster.per_segment = PER_SEGMENT if self.cluster.has_segments else 0
        self.world.act = self.act
        self.cluster.create(TOPIC, setup.partitions, compacts=setup.compacts)
        self.operations = Operations()
        key = TablePath.parse(TABLE).key
        self.table_faults = TableFaults(self.world, self.tables, self.store, key)
        self.displaced = Displacement(self.world, self.tables, self.store, key)
        judge = ByteJudge if self.cluster.offsets_are_bytes else Judge
        self.judge = judge(self.cluster, self.tables, self.store, self.table_faults, key)

    # --- events -------------------------------------------------------------------------

    def play(self) -> None:
        """Raises Violation where an invariant does not hold."""
        for happening in self.scenario.happenings:
            self.world.now_ms += 1000
            self.world.log(f"--- {happening}")
            if happening.kind == "run":
                self._run_with_faults(happening)
            else:
                self.act(happening.kind, happening.arg)
        self._finish()
        self.counts.histories += 1
        self.counts.checks.update(self.judge.checks)
        self.counts.steps += self.world.steps

    def act(self, kind: str, arg: int) -> None:
        """A change of the cluster, if it can happen there."""
        if kind not in self.cluster.refuses:
            self.world.log(f"act: {kind}")
            self.counts.changes[kind] += 1
            self._act(kind, arg)

    def _act(self, kind: str, arg: int) -> None:
        rng = random.Random(arg)
        logs = self.cluster.topics[TOPIC].logs
        for log in logs:
            log.time_out(self.world.now_ms)
        if kind in TRANSACTION_ACTS:
            is_old = self.cluster.forgets_producers
            change_transactions(rng.choice(logs), kind, rng, self.world.now_ms, is_old=is_old)
        elif kind in TABLE_ACTS:
            if not self.displaced.is_open:  # a table without rows may be landed in without a ledger
                self.table_faults.act(kind, rng)
        elif kind in DISPLACEMENTS:
            self.displaced.act(kind)
        elif kind != "vacuum":
            self._change(kind, arg, rng)
        elif not self.displaced.is_open and not self.tables.is_locked(self.judge.table):
            self.table_faults.vacuum()

    def _change(self, kind: str, arg: int, rng: random.Random) -> None:
        topic = self.cluster.topics[TOPIC]
        log = rng.choice(topic.logs)
        now = self.world.now_ms
        match kind:
            case "produce":
                for one in topic.logs:
                    fill(one, rng, now, transactions=self.scenario.setup.transactions)
            case "elect":
                self.cluster.elect(log, rng)
            case "lag":
                self.cluster.lag(log, rng)
            case "expire" if log.entries:
                self.cluster.expire(log, rng)
            case "compact" | "lose":
                self._drop(log, rng, "compacted" if topic.compacts else "missing", kind)
            case "down" | "slow" | "damage" | "mend":
                self._break(log, kind, rng)
            case "truncate" if log.entries:
                log.truncate(rng.randint(1, min(3, len(log.entries))))
                self.cluster.elect(log, rng, clean=False)
                if self.cluster.shows_rewriting and rng.random() < 0.7:
                    fill(log, rng, now, transactions=False)
            case "recreate" if self.cluster.has_topic_ids:
                self.cluster.recreate(TOPIC)
                self.act("produce", arg)

    def _break(self, log: Log, kind: str, rng: random.Random) -> None:
        """Something that passes."""
        now = self.world.now_ms
        match kind:
            case "down":
                node = rng.randint(1, BROKERS)
                self.cluster.down[node] = now + rng.choice((200, 5_000, 300_000))
            case "slow":
                log.is_slow_until_ms = now + rng.choice((500, 20_000, 600_000))
                log.was_slow = True
            case "damage":
                log.damage(rng)
            case "mend":
                log.mend()

    def _drop(self, log: Log, rng: random.Random, reason: str, kind: str) -> None:
        """Compaction only works on topics that compact; a segment is lost from others."""
        if (reason == "compacted") != (kind == "compact"):
            return
        stable = min((one.first for one in log.opened), default=log.end)
        plain = [i for i, e in enumerate(log.entries) if e.producer_id < 0 and e.base < stable]
        if not plain:
            return
        index = rng.choice(plain)
        entry = log.entries[index]
        is_thinned = kind == "compact" and self.cluster.cleans_records and rng.random() < 0.5
        if not is_thinned:
            log.drop(index, reason)
        elif entry is not log.entries[-1] and not entry.intact and len(entry.records) > 1:
            offsets = [offset for offset, _ in entry.records]
            log.thin(index, rng.sample(offsets, rng.randint(1, len(offsets) - 1)))

    # --- runs ---------------------------------------------------------------------------

    def _job(self, policy: tuple[tuple[str, str], ...] | None = None) -> Job:
        setup = self.scenario.setup
        return job_of(setup, policy or setup.policy)

    def _commands(self, happening: Happening) -> list[str]:
        known = self.cluster.commands
        return [c if known is None or c in known else "run" for c in happening.commands]

    def _run_with_faults(self, happening: Happening) -> None:
        clocks = random.Random(happening.arg)
        drivers = [
            (Process(f"{command} {number}", list(faults), clocks.choice(SKEWS_MS)), command)
            for number, (command, faults) in enumerate(
                zip(self._commands(happening), happening.faults, strict=True)
            )
        ]
        was_troubled, was_harmed = self._is_troubled(), self._is_harmed()
        held_back = {command for _, command in drivers if self._is_held_back(command)}
        was_away, had_both = self.displaced.is_open, self.judge.has_both()
        moves = self.displaced.moves
        was_undone = set() if was_away else self.judge.undone()
        was_torn = self.judge.torn() if "verify" in happening.commands else set()
        log, landed = self._log_and_landed()
        results = self._carry_out(drivers, self._job())
        left = sum(len(process.faults) for process, _ in drivers)
        struck = left < sum(map(len, happening.faults))
        is_alone = len(drivers) == 1
        had_both = had_both and self.judge.has_both()
        is_harmed = was_harmed or self._is_harmed() or not had_both
        for (_, command), found in zip(drivers, results, strict=True):
            if isinstance(found, RangelandError):
                allowed = MAY_END_WITH.get(command, ())
                allowed += (Conflict,) if is_harmed or not is_alone else ()
                is_troubled = struck or was_troubled or is_harmed or not is_alone
                allowed += () if had_both else (TableRefused,)
                allowed += (Unreachable,) if command in held_back else ()
                if was_troubled and self.cluster.dialect == "rocketmq":
                    # A name server forgets a broker that is down, and all that only it has.
                    allowed += (JobFileError,)
                self._check_error(found, is_troubled=is_troubled, allowed=allowed)
                is_same = log in (None, self._log_and_landed()[0])
                if is_alone and is_same and not was_away and moves == self.displaced.moves:
                    self._check_answer(found, landed)
            elif isinstance(found, RunResult):
                self._check_refused(found, command, happening.commands, was_away, was_undone)
            elif isinstance(found, VerifyResult) and not (was_away or moves < self.displaced.moves):
                # Rows may be taken out after it has read the table.
                is_steady = is_alone and self.judge.torn() == was_torn
                self.judge.check_verify(found, is_alone=is_steady)
        self._check()

    def _log_and_landed(self) -> tuple[DeltaLog | None, dict[str, int]]:
        table = self.judge.table
        return self.tables.logs.get(table), self.tables.landed(table)

    def _check_answer(self, error: RangelandError, before: dict[str, int]) -> None:
        self.judge.checks["answer"] += 1
        check_answer(error, self.judge.ledger(), before, self._log_and_landed()[1])

    def _check_refused(
        self,
        found: RunResult,
        command: str,
        commands: Sequence[str],
        was_away: bool,
        was_undone: set[tuple[str, int, int]],
    ) -> None:
        """Nothing lands in a table that its ledger does not belong to, or on top of rows that are
        missing."""
        self.judge.checks["undone"] += 1
        if was_away and self.displaced.is_open:
            raise Violation("displaced", f"{command} has ended with {found.state}")
        if self.displaced.is_open or was_away or "missing" in commands:
            return
        if left := was_undone & self.judge.undone():
            raise Violation("undone", f"{command} ended with {found.state}, {left} is missing")

    def _check(self) -> None:
        if self.displaced.is_open:
            self.judge.checks["displaced"] += 1
            self.displaced.check()
        else:
            self.judge.check()
            self.judge.check_mirror(self.groups.offsets())

    def _is_harmed(self) -> bool:
        return self.displaced.is_open or self.judge.is_harmed()

    def _carry_out(self, drivers: Sequence[tuple[Process, str]], job: Job) -> list[Any]:
        def work(command: str) -> Any:
            spark = SimulatedSpark(
                self.world, self.tables, self.store, is_local=self.scenario.setup.is_local
            )
            return self.operations.carry_out(command, job, spark, self._somewhere())

        self.counts.operations.update(command for _, command in drivers)
        found = self.world.run([(process, partial(work, kind)) for process, kind in drivers])
        for _, fault in self.world.struck:
            self.counts.faults[fault.tag, fault.kind.partition(":")[0]] += 1
        self.world.struck.clear()
        return [self._ended(process, one) for (process, _), one in zip(drivers, found, strict=True)]

    def _somewhere(self) -> dict[int, int]:
        """An offset of each partition."""
        logs = self.cluster.topics[TOPIC].logs
        return {log.number: self.world.random.randint(log.start, log.end) for log in logs}

    def _ended(self, process: Process, found: Any) -> Any:
        self.counts.runs += 1
        name = type(found).__name__
        if isinstance(found, RunResult):
            name = found.state
        self.counts.ends[name] += 1
        text = found if isinstance(found, Exception) else ""
        self.world.log(f"{process.name} ended: {name} {text}")
        if isinstance(found, BaseException) and not isinstance(found, RangelandError | Crash):
            raise found
        return found

    def _is_troubled(self) -> bool:
        """Whether something in the cluster may pass, so that a run may end for now."""
        cluster, now = self.cluster, self.world.now_ms
        logs = cluster.topics[TOPIC].logs
        is_short = any(log.end < log.highest for log in logs)
        return (
            (is_short and not cluster.has_epochs)
            or any(until > now for until in cluster.down.values())
            or any(until > now for until, _ in cluster.stale.values())
            or any(log.lags and log.lags[1] > now for log in logs)
            or any(log.is_slow_until_ms > now for log in logs)
        )

    def _is_held_back(self, command: str) -> bool:
        """Whether an open transaction may keep a driver from what it is to read: offsets that were
        named, or that were planned when the end was there that was truncated since. Epochs show
        which of them are new."""
        logs = [log for log in self.cluster.topics[TOPIC].logs if not log.shows_aborted]
        is_silent = not self.cluster.has_epochs
        return any(
            command in NAMED or ((is_silent or one.aborts is not None) and one.first < log.stable)
            for log in logs
            for one in log.opened
        )

    def _check_error(
        self,
        error: RangelandError,
        *,
        is_troubled: bool,
        allowed: tuple[type[RangelandError], ...] = (),
    ) -> None:
        self.judge.checks["error"] += 1
        if type(error) in allowed:
            return
        if isinstance(error, NEVER):
            raise Violation("error", f"{type(error).__name__}: {error}") from error
        if isinstance(error, RangeLost):
            self.judge.check_loss(error)
        elif isinstance(error, BadRecord):
            self.judge.check_damage(error)
        elif not is_troubled:
            raise Violation("error", f"without any trouble, {type(error).__name__}: {error}")

    # --- the end ------------------------------------------------------------------------

    def _finish(self) -> None:
        """Once faults stop, everything is landed."""
        self.judge.checks["ends"] += 1
        self._heal()
        self._repair()
        policy = None
        is_brief = self.scenario.is_short and self.scenario.seed % VERIFIED_EVERY > 0
        if is_brief and not self.judge.left_out(self.cluster.topics[TOPIC].logs):
            return
        for _ in range(MOST_RUNS):
            (found,) = self._carry_out([(Process("last"), "run")], self._job(policy))
            if isinstance(found, RangelandError):
                self._check_error(found, is_troubled=False)
                policy = SKIP_ALL
                continue
            self.judge.check()
            logs = self.cluster.topics[TOPIC].logs
            if self.scenario.is_short and not self.judge.left_out(logs):
                return
            if found.state != "landed":
                if policy == SKIP_ALL:
                    # A plan that was unfinished may have landed what was damaged when it was read.
                    if self.judge.has_quarantine() and self.judge.left_out(logs):
                        self._repeat("reread")
                    self.judge.check_everything(logs)
                    return
                policy = SKIP_ALL
        raise Violation("ends", f"not everything has landed after {MOST_RUNS} runs")

    def _repair(self) -> None:
        """What others have taken out of the table is landed again, and so is what was damaged.
        Short histories do not ask for what will find nothing to do."""
        is_harmed, is_short = self.judge.is_harmed(), self.scenario.is_short
        if is_harmed:
            self._repeat("missing")
            self._adopt_if_advised()
        if self.judge.has_ledger() and (not is_short or self.judge.has_quarantine()):
            self._repeat("reread")
        if is_short and not is_harmed and self.scenario.seed % VERIFIED_EVERY:
            return
        if not self.judge.has_ledger():
            return  # its first run has failed before it made one
        (found,) = self._carry_out([(Process("proof"), "verify")], self._job())
        if isinstance(found, RangelandError):
            raise found
        self.judge.check_verify(found, is_alone=True)
        is_known = self.cluster.incarnations == 1
        logs = self.cluster.topics[TOPIC].logs
        if is_known and (left := self.judge.not_repaired(found, logs)):
            raise Violation("ends", f"not repaired: {left}")

    def _adopt_if_advised(self) -> None:
        """What cannot be landed again is given up by a person who looks at what a run would do and
        reads why it is refused."""
        (found,) = self._carry_out([(Process("person"), "plan")], self._job(SKIP_ALL))
        if not (isinstance(found, Conflict) and "`rangeland adopt " in found.do):
            if left := self.judge.undone():
                raise Violation("undone", f"plan ended with {found}, {left} is missing")
            return
        draws = random.Random(self.scenario.seed)
        tag, kind = draws.choice(ADOPTION_FAULTS)
        for faults in ([Fault(tag, draws.randint(1, 4), kind)], []):
            (found,) = self._carry_out([(Process("person", faults), "adopt")], self._job())
            if isinstance(found, AdoptResult):
                return
        raise found

    def _repeat(self, command: str) -> None:
        for _ in range(MOST_RUNS):
            (found,) = self._carry_out([(Process("repair"), command)], self._job(SKIP_ALL))
            if isinstance(found, RangelandError):
                self._check_error(found, is_troubled=self.judge.is_harmed())
                continue
            self.judge.check()
            if found.state == "nothing":
                return
        raise Violation("ends", f"{command} has not ended after {MOST_RUNS} times")

    def _heal(self) -> None:
        self.world.log("--- all is well from now on")
        self.world.now_ms += 3_600_000
        self.cluster.down.clear()
        self.cluster.stale.clear()
        if self.displaced.is_open:
            self.displaced.bring_back()
        for log in self.cluster.topics[TOPIC].logs:
            log.lags, log.is_slow_until_ms = None, 0
            log.mend()
            end_transactions(log, self.world.now_ms)
            # Kafka before 2.1 does not say that records which were planned no longer exist: a
            # plan is finished once there are others at their offsets.
            is_silent = self.cluster.shows_rewriting and not self.cluster.has_epochs
            while is_silent and log.end < log.highest:
                log.append(5, self.world.now_ms)


def play(scenario: Scenario, stage: Stage, counts: Counts, *, is_traced: bool = False) -> History:
    """Raises Violation, or what the product should not have raised."""
    history = History(scenario, stage, counts)
    history.world.is_traced = is_traced
    try:
        history.play()
    except BaseException as error:
        error.__dict__["trace"] = history.world.trace
        raise
    return history
