"""What must hold after every step, by comparing table and ledger with what really happened.

Rows, plans and outcomes are read from the models' files directly: nothing of the product is asked
whether the product is right.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rangeland.errors import BadRecord, RangeLost
from rangeland.loss import LossKind
from rangeland.model import Partition, Range
from rangeland.query_results import VerifyResult
from tests.simulation.clusters import SimulatedCluster
from tests.simulation.delta import Tables
from tests.simulation.files import MemoryStore
from tests.simulation.logs import Log
from tests.simulation.sql import Row, rows_of
from tests.simulation.table_faults import Place, TableFaults, place_of
from tests.simulation.world import Violation

JOB = "rangeland/orders"
NO_ROW = ("compacted", "control", "aborted", "filtered")
EVIDENCE = {
    "expired": {"expired"},
    "recreated": {"recreated"},
    "truncated": {"truncated"},
    "vanished": {"recreated"},
    "missing": {"missing", "truncated", "expired"},
    "corrupt": {"corrupt", "missing", "compacted"},
}
"""What must have happened to an offset that is called lost."""
PASSED = {(verdict, "skip") for verdict in ("expired", "missing", "corrupt")}
"""The losses of offsets that a log has passed: what is written there later, after a truncation, is
not landed, as where rows are."""


@dataclass(frozen=True)
class Landed:
    """One range of an outcome that is in the table."""

    application: str
    sequence: int
    topic: str
    number: int
    topic_id: str | None
    from_offset: int
    until_offset: int
    counts: dict[str, int]

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.number

    @property
    def offsets(self) -> range:
        return range(self.from_offset, self.until_offset)

    @property
    def kind(self) -> str:
        """Of its plan: empty for a run."""
        return self.application.removeprefix(JOB).strip("/").partition("/")[0]


@dataclass
class LedgerRows:
    plans: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)


class Judge:
    def __init__(
        self,
        cluster: SimulatedCluster,
        tables: Tables,
        store: MemoryStore,
        faults: TableFaults,
        table: str,
    ) -> None:
        self._truth = cluster.truth
        self._shows_rewriting = cluster.shows_rewriting
        self._knows_epochs = cluster.has_epochs
        self._evidence = dict(EVIDENCE)
        if not cluster.has_topic_ids:  # then the product names both as possible
            self._evidence["recreated"] = {"recreated", "truncated"}
        self._tables = tables
        self._store = store
        self._faults = faults
        self.table = table
        self.checks: Counter[str] = Counter()
        self._ledger = f"{self.table}/_rangeland/ledger"
        self._quarantine = f"{self.table}/_rangeland/quarantine"
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._rows: dict[str, list[Row]] = {}
        self._numbers: dict[tuple[object, ...], dict[int, int]] = {}
        """By incarnation and loss: how many records each offset had had when it was first seen."""

    # --- what is there ------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Topic, partition, offset and value of all rows of the table."""
        version = self._tables.newest(self.table)
        found: list[Row] = []
        for path in version.files if version else ():
            full = f"{self.table}/{path}"
            if path in self._faults.dead:
                continue
            if full not in self._rows:
                self._rows[full] = self._read(full)
            found += self._rows[full]
        return found

    def _read(self, path: str) -> list[Row]:
        if path not in self._store.files:
            raise Violation("files", f"the table names {path}, which is gone")
        return rows_of(self._store, path)

    def torn(self) -> set[Place]:
        """The rows that something else has taken out of the table, and nothing has put back."""
        taken = self._faults.taken
        return set(taken) - set(map(place_of, self.rows())) if taken else set()

    def undone(self) -> set[tuple[str, int, int]]:
        """Offsets that are missing because all rows were replaced or the table was restored, and
        that nothing has landed again."""
        torn = self.torn() & self._faults.undone if self._faults.undone else set()
        return {(topic, n, at) for topic, n, _, at in torn} - self._landed_as_missing()

    def has_ledger(self) -> bool:
        return self._ledger in self._tables.logs

    def has_both(self) -> bool:
        return self.has_ledger() and self.table in self._tables.logs

    def is_harmed(self) -> bool:
        version = self._tables.newest(self.table)
        return bool(self.torn() or (version and self._faults.dead & set(version.files)))

    def ledger(self) -> LedgerRows:
        found = LedgerRows()
        version = self._tables.newest(self._ledger)
        for path in version.files if version else ():
            self.checks["compacted"] += path.startswith("compacted-")
            if f"{self._ledger}/{path}" not in self._store.files:
                raise Violation("files", f"the ledger names {path}, which is gone")
            if path not in self._events:
                self._events[path] = self._store.files[f"{self._ledger}/{path}"].rows
            for row in self._events[path]:
                key = (row["application"], row["sequence"])
                if row["event"] == "plan":
                    if key in found.plans:
                        raise Violation("ledger", f"plan {key} is in the ledger twice")
                    found.plans[key] = row
                elif row["event"] == "outcome":
                    old = found.outcomes.get(key)
                    if old is None or (old["attempt"] or 0) < (row["attempt"] or 0):
                        found.outcomes[key] = row
                elif row["event"] == "loss":
                    found.losses.append(row)
        # Of the attempts at an outcome only the last counts.
        attempts = {key: row["attempt"] or 0 for key, row in found.outcomes.items()}
        found.losses = [
            row
            for row in found.losses
            if not row["plan"]
            or (row["attempt"] or 0) == attempts.get((row["application"], row["sequence"]))
        ]
        return found

    # --- invariants ---------------------------------------------------------------------

    def check(self) -> None:
        rows = self.rows()
        self._check_rows(rows)
        ledger = self.ledger()
        transactions = self._tables.landed(self.table)
        landed = self._landings(ledger, transactions)
        self.checks.update({"order": len(transactions), "files": 1, "twice": len(rows)})
        for application, sequence in transactions.items():
            is_landing = application.startswith("rangeland/")
            if is_landing and (application, sequence) not in ledger.outcomes:
                raise Violation("order", f"{application} {sequence} landed without an outcome")
        self._check_replacements(ledger)
        self._check_files(ledger, transactions)
        self._check_landed(rows, landed, ledger.losses)
        self._check_brought_back(rows, ledger.losses, landed)
        self._check_losses(ledger.losses)
        self._check_quarantine(ledger.losses, transactions)
        self._check_checkpoint(landed, ledger, transactions.get(JOB, 0))

    def _check_replacements(self, ledger: LedgerRows) -> None:
        """What has replaced rows counts as landed, whoever has given it up."""
        for commit in self._tables.logs[self.table].commits if self.has_both() else ():
            if commit.metadata.parameters.get("mode") != "Overwrite":
                continue
            for key in commit.metadata.transactions.items():
                self.checks["given up"] += 1
                if key not in ledger.outcomes or not ledger.outcomes[key]["ranges"]:
                    raise Violation("given up", f"{key} has replaced rows")

    def _check_files(self, ledger: LedgerRows, transactions: Mapping[str, int]) -> None:
        """The table has exactly the files that the ledger calls landed."""
        wanted = {
            file["path"]
            for (application, sequence), row in ledger.outcomes.items()
            if transactions.get(application, 0) >= sequence
            for file in row["files"]
        }
        version = self._tables.newest(self.table)
        there = {x for x in (version.files if version else ()) if not x.startswith("spark-")}
        # What is lost is removed from the table by the commit that lands its rows again.
        lacking = {x for x in wanted - there if f"{self.table}/{x}" in self._store.files}
        if there - wanted or lacking - self._tables.excused:
            raise Violation("files", f"the table differs from its ledger: {there ^ wanted}")

    def _landings(self, ledger: LedgerRows, transactions: Mapping[str, int]) -> list[Landed]:
        """In the order in which their plans were entered."""
        order = sorted(ledger.outcomes, key=lambda key: ledger.plans[key]["entered"])
        return [
            one
            for key in order
            if transactions.get(key[0], 0) >= key[1]
            for one in _landed(ledger.outcomes[key])
        ]

    def _check_rows(self, rows: Sequence[Row]) -> None:
        seen: set[bytes] = set()
        for topic, number, offset, value in rows:
            if value in seen:
                raise Violation("twice", f"{value!r} is in the table twice")
            seen.add(value)
            named = value.decode().split("/")
            log = self._truth.logs[topic, number, int(named[2])]
            if value in log.hidden:
                raise Violation("row", f"{value!r} is not visible, and has a row")
            if named[:2] != [topic, str(number)] or int(named[3]) != offset:
                raise Violation("row", f"{topic}/{number} {offset} has the value {value!r}")

    def _check_landed(
        self,
        rows: Sequence[Row],
        landed: Sequence[Landed],
        losses: Sequence[dict[str, Any]],
    ) -> None:
        """Each offset of a landed range has a row, or a class with a reason."""
        there, torn = _by_key(map(place_of, rows)), _by_key(self.torn())
        replaced = {one.key for one in landed if one.kind == "replace"}
        promised: Counter[tuple[str, int]] = Counter()
        kept_again: dict[tuple[tuple[str, int], str | None], set[int]] = {}
        self.checks["replaced"] += sum(one.kind == "replace" for one in landed)
        self.checks.update({"counts": len(landed), "evidence": len(landed), "rows": len(there)})
        for one in landed:
            width = one.until_offset - one.from_offset
            self.checks["missing"] += width
            if sum(one.counts.values()) != width:
                raise Violation("counts", f"{one} has {one.counts}, which do not add up")
            if one.kind == "replace" and one.counts["lost"] + one.counts["quarantined"]:
                raise Violation("replaced", f"{one} has removed rows for what could not be read")
            if one.kind == "missing" and one.counts["quarantined"]:
                kept_again.setdefault((one.key, one.topic_id), set()).update(one.offsets)
            if not self._lands_again(one, kept_again):
                promised[one.key] += one.counts["landed"]
            logs = self._logs(one)
            mine = {log.incarnation for log in logs}
            has_rows, had_rows = (
                {o for i, o in x.get(one.key, ()) if i in mine and o in one.offsets}
                for x in (there, torn)
            )
            counted = self._check_range(one, logs, has_rows, had_rows, losses)
            # Where topics have no ids, rows of two incarnations cannot be told apart; and what has
            # replaced the rows may have come from another log.
            is_sure = len(logs) == 1 and one.key not in replaced
            if is_sure and any(one.counts[name] > counted[name] for name in NO_ROW):
                raise Violation("evidence", f"{one} has {one.counts}, and really {counted}")
        for key, places in there.items():
            self._check_count(key, len(places), len(torn.get(key, ())), promised[key], replaced)

    def _check_brought_back(
        self,
        rows: Sequence[Row],
        losses: Sequence[dict[str, Any]],
        landed: Sequence[Landed],
    ) -> None:
        """Where others have taken a row out, and the table has a row again, it is of the same
        record; or there is a loss which says that the log has lost that one."""
        if not self._faults.taken or not self._knows_epochs:
            return
        self.checks["brought back"] += 1
        replaced = {one.key for one in landed if one.kind == "replace"}
        for row in rows:
            then = self._faults.taken.get(place_of(row))
            if then is None or row[3] in then or row[:2] in replaced:
                continue
            if not any(
                x["verdict"] == "truncated" and x["from_offset"] <= row[2] < x["until_offset"]
                for x in losses
                if (x["topic"], x["partition"]) == row[:2]
            ):
                raise Violation("brought back", f"{row[3]!r} is in the place of {then}")

    def _lands_again(
        self, one: Landed, kept_again: Mapping[tuple[tuple[str, int], str | None], set[int]]
    ) -> bool:
        """What was missing, or was put in quarantine when it was to be landed again, has been
        promised by an earlier landing."""
        if one.kind in ("reread", "redrive"):
            return kept_again.get((one.key, one.topic_id), set()).issuperset(one.offsets)
        return one.kind == "missing"

    def _check_count(
        self,
        key: tuple[str, int],
        rows: int,
        torn: int,
        promised: int,
        replaced: Collection[tuple[str, int]],
    ) -> None:
        """A replacement lands offsets for a second time, so only the fewest are known then."""
        if rows + torn == promised or (key in replaced and rows + torn < promised):
            return
        raise Violation("rows", f"{key} has {rows} rows, {torn} are torn, {promised} were landed")

    def _check_range(
        self,
        one: Landed,
        logs: Sequence[Log],
        has_rows: set[int],
        had_rows: set[int],
        losses: Sequence[dict[str, Any]],
    ) -> dict[str, int]:
        lost: dict[int, dict[str, Any]] = {}
        for loss in losses:
            if (loss["application"], loss["sequence"]) != (one.application, one.sequence):
                continue
            if (loss["topic"], loss["partition"]) != (one.topic, one.number):
                continue
            if loss["plan"] and loss["action"] in ("skip", "quarantine"):
                lost |= dict.fromkeys(range(loss["from_offset"], loss["until_offset"]), loss)
        counted = dict.fromkeys(NO_ROW, 0)
        for offset in range(one.from_offset, one.until_offset):
            if offset in has_rows:
                continue
            reasons = {r for log in logs for r in log.reasons.get(offset, ())}
            if offset in lost:
                self._check_evidence(lost[offset], offset, reasons)
                self._check_damaged(lost[offset], logs)
                continue
            known = [name for name in NO_ROW if name in reasons]
            if not known and offset not in had_rows:
                raise Violation("missing", f"offset {offset} of {one}, which is {reasons}")
            for name in known:
                counted[name] += 1
        return counted

    def _logs(self, one: Landed) -> list[Log]:
        incarnation = self._truth.ids.get(one.topic_id or "")
        found = self._truth.of(one.topic, one.number)
        return [log for log in found if incarnation in (None, log.incarnation)]

    def _check_evidence(self, loss: dict[str, Any], offset: int, reasons: Iterable[str]) -> None:
        if self._evidence[loss["verdict"]].isdisjoint(reasons):
            raise Violation(
                "evidence", f"{offset} is called {loss['verdict']}, and is really {reasons}"
            )

    def check_mirror(self, offsets: Mapping[Partition, int]) -> None:
        """The group's offsets are never ahead of a checkpoint that has landed."""
        self.checks["mirror"] += len(offsets)
        ledger, last = self.ledger(), self._tables.landed(self.table).get(JOB, 0)
        most: dict[tuple[str, int], int] = {}
        for (application, sequence), plan in ledger.plans.items():
            if application == JOB and sequence <= last:
                for mark in json.loads(plan["document"])["checkpoint"]:
                    key = (mark["topic"], mark["partition"])
                    most[key] = max(most.get(key, 0), mark["until_offset"])
        for partition, offset in offsets.items():
            if offset > most.get((partition.topic, partition.number), 0):
                raise Violation("mirror", f"the group is at {offset} of {partition}: {most}")

    def _check_damaged(self, loss: dict[str, Any], logs: Sequence[Log]) -> None:
        """Where a damaged entry begins and ends is not known, so a gap beside it belongs to it,
        also where only the gap is in the range that was asked for."""
        if loss["verdict"] != "corrupt":
            return
        for log in logs:
            after = loss["until_offset"]
            while log.reasons.get(after, set()) & {"missing", "compacted"}:
                after += 1
            span = range(loss["from_offset"], after + 1)
            if any("corrupt" in log.reasons.get(offset, ()) for offset in span):
                return
        raise Violation("evidence", f"{loss['from_offset']} is called corrupt, nothing there is")

    def _check_checkpoint(
        self, landed: Sequence[Landed], ledger: LedgerRows, sequence: int
    ) -> None:
        """Nothing below the checkpoint was left out."""
        plan = ledger.plans.get((JOB, sequence))
        if plan is None:
            if sequence:
                raise Violation("order", f"{JOB} {sequence} landed without a plan")
            return
        checkpoint = json.loads(plan["document"])["checkpoint"]
        held: dict[tuple[str, int], int] = {}
        for loss in ledger.losses:
            if loss["action"] == "hold" and loss["plan"] and loss["sequence"] == sequence:
                key, at = (loss["topic"], loss["partition"]), loss["from_offset"]
                held[key] = min(at, held.get(key, at))
        for mark in checkpoint:
            key = (mark["topic"], mark["partition"])
            until = min(mark["until_offset"], held.get(key, mark["until_offset"]))
            self._check_covered(key, mark.get("topic_id"), until, landed, ledger)

    def _check_covered(
        self,
        key: tuple[str, int],
        topic_id: str | None,
        until: int,
        landed: Sequence[Landed],
        ledger: LedgerRows,
    ) -> None:
        mine = [x for x in landed if (x.topic, x.number) == key and x.topic_id in (None, topic_id)]
        covered = {o for x in mine for o in range(x.from_offset, x.until_offset)}
        lost = {
            o
            for loss in ledger.losses
            if (loss["topic"], loss["partition"]) == key and loss["action"] == "skip"
            for o in range(loss["from_offset"], loss["until_offset"])
        }
        self.checks["covered"] += 1
        # What the log had before the job's first run of it was never promised.
        first = min((x.from_offset for x in mine if x.application == JOB), default=until)
        left_out = [o for o in range(first, until) if o not in covered and o not in lost]
        if left_out:
            raise Violation("covered", f"{left_out} of {key} are below the checkpoint {until}")

    # --- what the product says ------------------------------------------------------------

    def check_verify(self, found: VerifyResult, *, is_alone: bool) -> None:
        """``verify`` says what is true. Beside other drivers it may see the table before they had
        repaired it."""
        self.checks["verify"] += 1
        audit = found.audit
        if audit.duplicates or audit.unknown_rows:
            raise Violation("verify", f"it finds {audit.duplicates} and {audit.unknown_rows}")
        holes = {place for r in audit.holes for place in _places(r)}
        places = self.torn() if is_alone else set(self._faults.taken)
        torn = {(topic, number, offset) for topic, number, _, offset in places}
        known = self._landed_as_missing()
        if holes - torn or (is_alone and torn - known - holes):
            raise Violation("verify", f"its holes are {audit.holes}, and really {sorted(torn)}")

    def _landed_as_missing(self) -> set[tuple[str, int, int]]:
        """Offsets that were landed again, where they may have turned out to be lost."""
        landed = self._landings(self.ledger(), self._tables.landed(self.table))
        return {
            (one.topic, one.number, offset)
            for one in landed
            if one.kind in ("missing", "replace")
            for offset in one.offsets
        }

    def check_damage(self, error: BadRecord) -> None:
        """What ends a run as a bad record was really damaged."""
        self.checks["evidence"] += 1
        logs = self._truth.logs.values()
        if not any("corrupt" in found for log in logs for found in log.reasons.values()):
            raise Violation("evidence", f"nothing was damaged: {error}")

    # --- losses and the end ---------------------------------------------------------------

    def _check_quarantine(
        self, losses: Sequence[dict[str, Any]], transactions: Mapping[str, int]
    ) -> None:
        """What has landed as quarantined has its bytes there."""
        names = ("application", "sequence", "topic", "partition", "from_offset", "until_offset")
        promised = {
            tuple(loss[name] for name in names)
            for loss in losses
            if loss["plan"] and loss["action"] == "quarantine"
            if transactions.get(loss["application"], 0) >= loss["sequence"]
        }
        if not promised:
            return
        self.checks["quarantine"] += 1
        version = self._tables.newest(self._quarantine)
        paths = [f"{self._quarantine}/{path}" for path in (version.files if version else ())]
        rows = (row for path in paths for row in self._store.files[path].rows)
        if left := promised - {tuple(row[name] for name in names) for row in rows}:
            raise Violation("quarantine", f"has no bytes of {min(left)}")

    def _check_losses(self, losses: Sequence[dict[str, Any]]) -> None:
        """What the ledger calls lost has happened to that log, whatever the policy does."""
        for loss in losses:
            logs = self._truth.of(loss["topic"], loss["partition"])
            for log in logs if loss["verdict"] == "truncated" else ():
                name = (log.incarnation, *_name_of(loss))
                if name not in self._numbers:
                    self._numbers[name] = {at: len(x) for at, x in log.written.items()}
            seen = {r for log in logs for found in log.reasons.values() for r in found}
            known = self._evidence.get(loss["verdict"])
            if known is not None and loss["verdict"] == "truncated" and not loss["plan"]:
                known = known | {"recreated"}  # what was asked for is beyond the end of the new log
            if known is not None and known.isdisjoint(seen):
                raise Violation("evidence", f"{loss} is recorded, and really {seen}")

    def check_loss(self, error: RangeLost) -> None:
        """What ends a run as lost was really lost."""
        self.checks["evidence"] += 1
        losses = error.facts.get("losses", [])
        # What cannot be read now may be named beside what is lost, not instead of it.
        lost = [loss for loss in losses if loss["verdict"] != LossKind.UNREACHABLE]
        if losses and not lost:
            raise Violation("evidence", f"nothing is lost, and yet: {error}")
        for loss in lost:
            logs = self._truth.of(loss["topic"], loss["partition"])
            seen = {r for log in logs for found in log.reasons.values() for r in found}
            known = self._evidence[loss["verdict"]]
            if loss["verdict"] == "truncated" and loss["until_offset"] > logs[-1].end:
                known = known | {"recreated"}  # an offset of the old log was asked for
            if known.isdisjoint(seen):
                raise Violation("evidence", f"{error}, and really {seen}")

    def not_repaired(self, found: VerifyResult, logs: Sequence[Log]) -> tuple[object, ...]:
        """Offsets that the log does not reach stay missing, with the files that had them: its end
        alone is no evidence that they are gone for good."""
        ends = {log.number: log.end for log in logs}
        holes = [r for r in found.audit.holes if r.from_offset < ends[r.partition.number]]
        is_short = len(holes) < len(found.audit.holes)
        return (*holes, *(() if is_short else found.gone_files))

    def has_quarantine(self) -> bool:
        return any(loss["action"] == "quarantine" for loss in self.ledger().losses)

    def check_everything(self, logs: Iterable[Log]) -> None:
        """Every record that the logs have now has its row, or has the offset of a landed record
        that was truncated, and a loss says so."""
        if left := self.left_out(logs):
            raise Violation("left out", f"{left[0]} has never been landed")

    def left_out(self, logs: Iterable[Log]) -> list[bytes]:
        """The values of those that have neither."""
        self.checks["left out"] += 1
        found: list[bytes] = []
        rows = self.rows()
        values = {row[3] for row in rows}
        still_there = {row[:3] for row in rows}
        ledger = self.ledger()
        losses, settled = ledger.losses, self._settled(ledger)
        for log in logs:
            truncated = self._damaged(log, losses)
            # Brokers before 2.1 show the epoch of a log in its last batch alone, if they send it.
            is_silent = log.was_slow and not self._knows_epochs
            if is_silent or not self._shows_rewriting:
                truncated |= {o for o, reasons in log.reasons.items() if "truncated" in reasons}
            # Of offsets that two topics of that name have had, and one still has rows, it is
            # unknown whose rows others have taken out: a person has to adopt the table.
            is_shared = len(self._truth.of(log.topic, log.number)) > 1
            taken = self.torn() if is_shared else set()
            taken = {place for place in taken if (*place[:2], place[3]) in still_there}
            for entry in log.entries:
                for offset, value in entry.records:
                    place = (log.topic, log.number, log.incarnation, offset)
                    if value in values or offset in truncated or place in taken:
                        continue
                    if not self._is_truncated(log, offset, value, losses, settled):
                        found.append(value)
        return found

    def _is_truncated(
        self,
        log: Log,
        offset: int,
        value: bytes,
        losses: Iterable[dict[str, Any]],
        settled: Collection[Place],
    ) -> bool:
        """A loss is about the records that the log had had when it was recorded. Later ones have
        the offset of one that counts as landed, or are to be landed."""
        for loss in losses:
            if (loss["topic"], loss["partition"]) != (log.topic, log.number):
                continue
            if (loss["verdict"], loss["action"]) != ("truncated", "skip"):
                continue
            if not loss["from_offset"] <= offset < loss["until_offset"]:
                continue
            known = self._numbers.get((log.incarnation, *_name_of(loss)), {})
            is_later = int(value.rpartition(b"/")[2]) >= known.get(offset, 0)
            if not is_later or (log.topic, log.number, log.incarnation, offset) in settled:
                return True
        return False

    def _settled(self, ledger: LedgerRows) -> set[Place]:
        """Places of which a landing knows what was there, or that something was."""
        found: set[Place] = set()
        for one in self._landings(ledger, self._tables.landed(self.table)):
            lost = {
                offset
                for loss in ledger.losses
                if (loss["application"], loss["sequence"]) == (one.application, one.sequence)
                if loss["plan"] and (loss["topic"], loss["partition"]) == one.key
                if (loss["verdict"], loss["action"]) not in PASSED
                for offset in range(loss["from_offset"], loss["until_offset"])
            }
            for log in self._logs(one):
                found |= {(*one.key, log.incarnation, o) for o in one.offsets if o not in lost}
        return found

    def _damaged(self, log: Log, losses: Sequence[dict[str, Any]]) -> set[int]:
        """Offsets that were skipped while their bytes were damaged. Those in quarantine have been
        read again."""
        return {
            offset
            for loss in losses
            if (loss["topic"], loss["partition"]) == (log.topic, log.number)
            if (loss["verdict"], loss["action"]) == ("corrupt", "skip")
            for offset in range(loss["from_offset"], loss["until_offset"])
            if "corrupt" in log.reasons.get(offset, ())
        }


def _by_key(places: Iterable[Place]) -> dict[tuple[str, int], set[tuple[int, int]]]:
    found: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for topic, number, incarnation, offset in places:
        found.setdefault((topic, number), set()).add((incarnation, offset))
    return found


def _name_of(loss: Mapping[str, Any]) -> tuple[object, ...]:
    names = ("application", "sequence", "topic", "partition", "from_offset", "until_offset")
    return tuple(loss[name] for name in names)


def _places(r: Range) -> Iterator[tuple[str, int, int]]:
    for offset in range(r.from_offset, r.until_offset):
        yield r.partition.topic, r.partition.number, offset


def _landed(row: dict[str, Any]) -> list[Landed]:
    names = ("landed", "control", "aborted", "compacted", "filtered", "quarantined", "lost")
    return [
        Landed(
            row["application"],
            row["sequence"],
            one["topic"],
            one["partition"],
            one["topic_id"],
            one["from_offset"],
            one["until_offset"],
            {name: one[name] or 0 for name in names},
        )
        for one in row["ranges"]
    ]
