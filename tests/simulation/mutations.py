"""Mistakes that the simulation has to find: one safeguard of the product left out at a time.

``python -m tests.simulation.mutations`` says at which seed each is caught, as ``caught`` has it.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.caught import CAUGHT_AT
from tests.simulation.mutating import Change, Mutation, caught_at
from tests.simulation.record_mutations import RECORDS, TRANSACTIONS

PLANS_AND_LEDGER = (
    Mutation(
        "plans may overlap",
        Change(
            "landing.drafts.unfinished_plans:find_overlap",
            "if covered_parts(ranges, coverage_of(other.plan.ranges)):",
            "if False:",
        ),
    ),
    Mutation(
        "a plan is entered whoever came first",
        Change(
            "delta.ledger.ledger_table:Ledger._row_of",
            "if self.entered() != expected:",
            "expected = self.entered()\n    if False:",
        ),
    ),
    Mutation(
        "unfinished plans stay unfinished",
        Change(
            "landing.landing_steps:LandingSteps._land",
            "step = first or step_for_draft",
            "step = step_for_draft",
        ),
    ),
    Mutation(
        "the outcome of the second driver counts",
        Change(
            "landing.target.target_writer:TargetWriter._record",
            "return PreparedOutcome(theirs, is_mine=False)",
            "return PreparedOutcome(mine, is_mine=True)",
        ),
    ),
    Mutation(
        "an entry counts as written after a conflict",
        Change("delta.ledger.ledger_table:Ledger._append", "return False", "return True"),
    ),
    Mutation(
        "an entry whose response was lost counts as another driver's",
        Change(
            "delta.ledger.ledger_table:Ledger._append",
            "if any(key.path == files[0].path for key in self.view.keys):",
            "if False:",
        ),
    ),
    Mutation(
        "a compaction whose response was lost is undone",
        Change(
            "delta.ledger.ledger_table:Ledger.compact",
            "if any(key.path == compacted.path for key in self.view.keys):",
            "if not self.view.keys:",
        ),
    ),
    Mutation(
        "later plans forget the plans that are not in the table",
        Change(
            "delta.ledger.ledger_table:Ledger._row_of",
            "unfinished = tuple(dict.fromkeys([*unfinished, *self.view.without_outcome()]))",
            "unfinished = ()",
        ),
    ),
    Mutation(
        "a plan forgets what had landed before",
        Change("delta.ledger.ledger_table:Ledger._row_of", "covered=covered", "covered={}"),
    ),
    Mutation(
        "what has landed is landed again",
        Change(
            "landing.target.ledger_history:coverage_in",
            "ledger.coverage(without).items()",
            "{}.items()",
        ),
    ),
    Mutation(
        "a run does not look at what has landed",
        Change(
            "planning.plan_builder:_ranges_to_land",
            "uncovered_parts(requested, position.covered)",
            "requested",
        ),
    ),
    Mutation(
        "a reviewed plan is applied whatever has landed since",
        Change(
            "landing.drafts.unfinished_plans:check_still_current",
            "if covered := covered_parts(plan.ranges, position.covered):",
            "if covered := None:",
        ),
        Change(
            "landing.drafts.unfinished_plans:check_still_current",
            "if position.sequence != plan.sequence:",
            "if False:",
        ),
    ),
    Mutation(
        "a reviewed plan is applied whatever is under way",
        Change(
            "landing.drafts.unfinished_plans:check_still_current",
            "if blocking := find_overlap(plan, unfinished):",
            "if blocking := None:",
        ),
    ),
)
TABLE = (
    Mutation(
        "prepared files are not checked before the commit",
        Change("delta.transaction_log.table_commit:_commit", "return not missing", "return True"),
    ),
    Mutation(
        "an overwritten table is landed in",
        Change(
            "landing.target.row_removal:find_removal",
            "found = restored or last_replacement(commits)",
            "found = restored",
        ),
    ),
    Mutation(
        "files that are gone stay in the table",
        Change(
            "landing.execution.committer:PlanCommitter._repair",
            "target.table.gone_files(),",
            "(),",
        ),
    ),
    Mutation(
        "a table that was restored is landed in",
        Change(
            "landing.target.row_removal:find_removal",
            "found = restored or last_replacement(commits)",
            "found = last_replacement(commits)",
        ),
    ),
    Mutation(
        "a repair counts as whole whatever it leaves missing",
        Change(
            "landing.target.row_removal:_last_planned_at_version",
            "if not _is_repair(event) or _has_repaired_all(table, ledger, event):",
            "if True:",
        ),
    ),
    Mutation(
        "what may have landed has landed",
        Change(
            "landing.target.identity_judgement:_judge_history",
            "return LandingJudgement.NOT_LANDED",
            "return LandingJudgement.LANDED",
        ),
        Change(
            "landing.target.identity_judgement:judge_landing",
            "is in the ledger\n        return LandingJudgement.NOT_LANDED",
            "is in the ledger\n        return LandingJudgement.LANDED",
        ),
    ),
    Mutation(
        "a replacement removes rows for what is lost",
        Change(
            "landing.execution.outcome_preparation:OutcomePreparer._prove",
            "check_all_read(plan, reading.receipts)",
            "pass",
        ),
    ),
)
LOSSES = (
    Mutation(
        "what a backfill has landed is not compared with its log",
        Change(
            "landing.drafts.planner:Planner._find_overwritten",
            "for one_epoch in in_earlier_epochs(landed, survey):",
            "for one_epoch in []:",
        ),
    ),
    Mutation(
        "a held partition moves on",
        Change(
            "planning.incarnation:checkpoint_after",
            "if loss.action is Action.HOLD or loss.kind.traits.is_still_to_come:",
            "if loss.kind.traits.is_still_to_come:",
        ),
    ),
    Mutation(
        "the checkpoint passes the end of a log that was cut",
        Change(
            "planning.incarnation:checkpoint_after",
            "if loss.action is Action.HOLD or loss.kind.traits.is_still_to_come:",
            "if loss.action is Action.HOLD:",
        ),
    ),
    Mutation(
        "losses are not recorded",
        Change(
            "landing.target.target_writer:TargetWriter._record",
            "if ledger.prepare_outcome(mine, self._with_columns(losses)):",
            "if ledger.prepare_outcome(mine, []):",
        ),
    ),
    Mutation(
        "every gap is compacted",
        Change(
            "fetch.loss_judgement:judge_cleanup",
            "return reported",
            "return CleanupPolicy(True, '')",
        ),
    ),
    Mutation(
        "a log that was cut and has grown again is whole",
        Change(
            "planning.incarnation:truncation_loss",
            "if end is None or end >= mark.until_offset or mark.epoch is None:",
            "if True:",
        ),
    ),
    Mutation(
        "a topic that was created again is the same",
        Change("planning.incarnation:is_recreated", "return mark_id != log_id", "return False"),
    ),
    Mutation(
        "a high watermark that lags is the end",
        Change(
            "fetch.leader_judgement:proved_end",
            "if not has_epochs:",
            "if True:",
        ),
    ),
)
FILES = (
    Mutation(
        "a task leaves one of its files out",
        Change(
            "delta.parquet_files.data_files:FileWriter.close",
            "return self._done",
            "return self._done[1:]",
        ),
    ),
    Mutation(
        "a task names one of its files twice",
        Change(
            "delta.parquet_files.data_files:FileWriter.close",
            "return self._done",
            "return [*self._done, *self._done[:1]]",
        ),
    ),
    Mutation(
        "the files of earlier parts are left out",
        Change(
            "job_group.shared_plan:SharedRead._receipts_of_all",
            "files = [file for part in parts for file in part.files]",
            "files = []",
        ),
    ),
)
DISPLACED = (
    Mutation(
        "a table without its ledger is landed in",
        Change(
            "landing.target.identity_judgement:judge_identity",
            "return _judge_without_ledger(table, seen)",
            "return IdentityJudgement.SAME",
        ),
    ),
    Mutation(
        "a table that is gone is made again",
        Change(
            "landing.target.identity_judgement:judge_identity",
            "return IdentityJudgement.NO_TABLE if is_gone else IdentityJudgement.SAME",
            "return IdentityJudgement.SAME",
        ),
        # Otherwise the last plan is to be finished, and cannot be committed to no table.
        Change(
            "landing.target.identity_judgement:judge_landing",
            "if seen.table_version is None:\n        return LandingJudgement.NOT_LANDED",
            "if seen.table_version is None:\n        return LandingJudgement.LANDED",
        ),
    ),
    Mutation(
        "another table will do",
        Change(
            "landing.target.identity_judgement:judge_identity",
            "else ledger.table_id == table.table_id",
            "else True",
        ),
    ),
    Mutation(
        "a table that was created again meanwhile is landed in",
        Change(
            "delta.transaction_log.table_commit:check_same_table",
            "if latest is None or latest.table_id != snapshot.table_id:",
            "if False:",
        ),
    ),
    Mutation(
        "commits need no lock",
        Change(
            "delta.transaction_log.delta_kernel:DeltaKernel.commit",
            "with lock_table(where):",
            "if True:",
        ),
    ),
    Mutation(
        "another ledger will do",
        Change(
            "landing.target.identity_judgement:judge_identity",
            "return IdentityJudgement.OTHER_LEDGER",
            "return IdentityJudgement.SAME",
        ),
    ),
)
DAMAGE = (
    Mutation(
        "checksums are not compared",
        Change(
            "dialects.kafka.batch_opening:_open_stored",
            "if crc32c(records[byte_index + CHECKED : end]) != crc:",
            "if False:",
        ),
        Change(
            "dialects.kafka.batch_opening:_open_packed",
            "if crc32c(records[byte_index + CHECKED : end]) != crc:",
            "if False:",
        ),
    ),
    Mutation(
        "what is quarantined is not kept",
        Change(
            "landing.execution.committer:PlanCommitter._commit_quarantine",
            "if not outcome.quarantine_files and not outcome.attempt:",
            "if True:",
        ),
    ),
    Mutation(
        "a damaged batch is skipped with what follows",
        Change(
            "fetch.slice_chunks:LostChunk.until_offset",
            "self.loss.from_offset if self.is_held else self.loss.until_offset",
            "self.loss.until_offset",
        ),
    ),
    Mutation(
        "what was read again from quarantine is read once more",
        Change(
            "landing.special_plans.redrive:_ranges_in_force",
            "ranges=tuple(uncovered_parts(request.ranges, covered))",
            "ranges=request.ranges",
        ),
    ),
)
GROUPS = (
    Mutation(
        "a part is handed in without knowing the others",
        Change(
            "job_group.shared_plan:SharedRead._hand_in",
            "kept = drop_done(results, done)",
            "kept = list(results)",
        ),
    ),
    Mutation(
        "the mirror is ahead of the checkpoint",
        Change(
            "job_group.offset_mirror:offsets_to_commit",
            "mark.until_offset",
            "mark.until_offset + 1",
        ),
    ),
)
MUTATIONS = (
    *(*PLANS_AND_LEDGER, *TABLE, *LOSSES, *RECORDS, *FILES),
    *(*TRANSACTIONS, *DISPLACED, *DAMAGE, *GROUPS),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a name")
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    missed = 0
    for mutation in MUTATIONS:
        if asked.only in mutation.name:
            recorded = [CAUGHT_AT[mutation.name]] if mutation.name in CAUGHT_AT else []
            found = caught_at(mutation, [*recorded, *seeds])
            missed += found is None
            seed, how = found or ("NOT CAUGHT", "")
            print(f'    "{mutation.name}": {seed},  # {how}'[:300], flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
