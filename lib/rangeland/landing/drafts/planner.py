"""Makes the draft of a command's next plan.

Each kind of plan has its own draft: for new offsets, rows that the table has lost, quarantined
batches, or a range that is landed again. Drafts are made from the cluster, the ledger and sometimes
the table. Nothing is written here: plans are entered elsewhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from rangeland.clock import wall_ms
from rangeland.cluster_access.cluster_lookup import look_up_cleanup, look_up_read_settings
from rangeland.dialects.dialect import load_dialect
from rangeland.fetch.read_settings import ReadSettings
from rangeland.job.connection_settings import plaintext_secret_warnings
from rangeland.landing.audit.verification import holes_of_job
from rangeland.landing.drafts.held_partitions import find_damage
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.redrive import (
    draft_from_log,
    draft_from_quarantine,
    quarantined_ranges,
)
from rangeland.landing.special_plans.replacement import (
    check_rows_can_be_replaced,
    check_whole_slices,
)
from rangeland.landing.target.ledger_history import landed_clusters, landed_reads
from rangeland.logging_setup import partition_fields
from rangeland.loss import DecidedLoss, Loss
from rangeland.model import Cluster, Isolation, Range, Survey
from rangeland.planning.coverage import Coverage
from rangeland.planning.exact_ranges import (
    draft_exact_ranges,
    draft_ranges_in_log,
    permanent_failures,
)
from rangeland.planning.incarnation import LogMark
from rangeland.planning.job_position import JobPosition
from rangeland.planning.lagging_ends import RESURVEY_POLL_S, must_survey_again
from rangeland.planning.loss_errors import FailingLosses, failing_error, range_lost_error
from rangeland.planning.overwrite_check import find_overwritten, in_earlier_epochs, marks_of_landed
from rangeland.planning.plan import Plan, with_own_application
from rangeland.planning.plan_builder import PlanTerms, draft_new
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.read_options import (
    LandedRead,
    ReadOptions,
    check_checkpoint_is_of_cluster,
    check_checkpoint_options_are_same,
    check_landed_options_are_same,
    with_known_addresses,
)
from rangeland.results import ReadFilter
from rangeland.schema_registry.registry_settings import LONG_AGO
from rangeland.spark.deferred_session import parallelism_of

logger = logging.getLogger(__name__)


class Planner:
    """Makes drafts for one command."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context

    def check_still_there(self, plan: Plan) -> None:
        """Surveys the logs of a plan that is not entered yet. Raises RangeLost for offsets that are
        lost for good if the policy is to fail: reading would fail later."""
        marks = {r.partition: LogMark(r.from_offset, r.topic_id) for r in plan.ranges}
        survey = self._context.surveys.of_plan(marks)
        policy = self._context.job.request.policy
        _check_losses_are_allowed(permanent_failures(plan.ranges, survey, policy))

    # --- drafts -----------------------------------------------------------------------

    def draft(self) -> PlanDraft:
        """A plan of the command's kind, for table and logs as they are now. If there are losses for
        which the policy is to fail, raises RangeLost or Unreachable: one error that names all of
        them."""
        context = self._context
        position = context.target.history.position(context.job.application)
        match context.kind:
            case PlanKind.HOLES:
                draft = self._draft_holes(position)
            case PlanKind.REDRIVE:
                draft = draft_from_quarantine(context, position, now_ms=wall_ms())
            case PlanKind.REREAD:
                draft = self._draft_from_log(position)
            case PlanKind.REPLACE:
                draft = self._draft_new(_to_land_again(position))
            case PlanKind.RUN | PlanKind.BACKFILL:
                draft = self._draft_new(position)
            case _:
                assert_never(context.kind)
        _check_losses_are_allowed(draft.failing)
        plan = with_own_application(draft.plan)
        _log_made(plan)
        notes = (*draft.notes, *plaintext_secret_warnings(context.job))
        return replace(draft, plan=plan, notes=notes)

    def _draft_new(self, position: JobPosition) -> PlanDraft:
        """A draft with the offsets of the job's range that the table lacks. The logs are surveyed
        again as long as ``must_survey_again`` says so."""
        began_at = time.monotonic()
        while True:
            survey = self._context.surveys.for_plan(position)
            self._check_checkpoint_still_applies(position, survey)
            draft = self._draft_by(survey, position)
            waited_s = time.monotonic() - began_at
            if not must_survey_again(draft, position.checkpoint, survey, waited_s):
                return draft
            time.sleep(RESURVEY_POLL_S)

    def _draft_by(self, survey: Survey, position: JobPosition) -> PlanDraft:
        """A draft from one survey. It is made again if landed offsets now have other records."""
        terms = self._terms()
        damaged = self._find_damage(position, survey)
        draft = draft_new(terms, survey, position, damaged)
        landed = self._require_same_options(draft.already_landed, survey)
        if losses := self._find_overwritten(landed, survey, position):
            draft = draft_new(terms, survey, position, damaged, overwritten=losses)
        if draft.plan.replaces and draft.failing is None:
            self._check_lands_all_it_replaces(draft.plan)
        return draft

    def _draft_holes(self, position: JobPosition) -> PlanDraft:
        """A draft with the rows that the table has lost. If an election has since put other records
        at their offsets, those are landed, provided that a policy allows the run to continue
        without the lost ones."""
        context = self._context
        survey = context.surveys.new(position)
        context.progress.step(f"reading the offsets in {context.job.sink.table}")
        holes = holes_of_job(context.spark, context.target, context.job, context.warn)
        landed = self._require_same_options(holes.ranges, survey)
        losses = self._find_overwritten(landed, survey, position)
        draft = draft_exact_ranges(self._terms(), survey, position, list(holes.ranges), losses)
        plan = replace(draft.plan, repairs_all=holes.are_all_in(draft.plan.ranges))
        return replace(draft, plan=plan, leaves_more=holes.leaves_more)

    def _draft_from_log(self, position: JobPosition) -> PlanDraft:
        """A draft that reads quarantined batches from the log again."""
        quarantined = quarantined_ranges(self._context)
        survey = self._context.surveys.new(position) if quarantined else Survey(wall_ms(), {})

        def draft_ranges(ranges: list[Range], read_filter: ReadFilter) -> PlanDraft:
            isolation, tags = read_filter
            self._require_same_options(ranges, survey, read_filter)
            terms = replace(self._terms(), isolation=isolation, tags=tags)
            return draft_ranges_in_log(terms, survey, position, ranges)

        if quarantined:
            self._context.progress.step("reading quarantined offsets from the log")
        return draft_from_log(quarantined, self._look_up_settings(survey), draft_ranges)

    def _find_damage(self, position: JobPosition, survey: Survey) -> list[DecidedLoss]:
        if not self._context.kind.traits.moves_checkpoint:
            return []
        history = self._context.target.history
        return find_damage(history, self._look_up_settings(survey), position, survey)

    def _look_up_settings(self, survey: Survey) -> ReadSettings:
        # Records that are held or in quarantine were judged before.
        job = self._context.job
        settings = look_up_read_settings(job).with_versions_of(survey)
        settings = replace(settings, row_format=self._context.row_format, written=LONG_AGO)
        return look_up_cleanup(job, settings, {partition.topic for partition in survey.logs})

    def _terms(self) -> PlanTerms:
        """The job's requirements for each plan of this kind."""
        job = self._context.job
        slicing = job.slicing
        if slicing.min_slices == 0:
            # By default every core gets work if there are enough bytes.
            slicing = replace(slicing, min_slices=parallelism_of(self._context.spark))
        return PlanTerms(
            job=job.name,
            application=job.application,
            dialect=job.source.dialect,
            isolation=job.source.isolation,
            tags=job.source.tags,
            request=job.request,
            limits=job.run_limits,
            slicing=slicing,
            kind=self._context.kind,
            schema_json=self._context.schema_to_merge(),
        )

    # --- read options -----------------------------------------------------------

    def _options(
        self, isolation: Isolation, tags: Sequence[str], cluster: Cluster | None
    ) -> ReadOptions:
        capabilities = load_dialect(self._context.job.source.dialect).capabilities
        effective = isolation if capabilities.has_transactions else None
        return ReadOptions(effective, frozenset(tags), cluster)

    def _check_checkpoint_still_applies(self, position: JobPosition, survey: Survey) -> None:
        """Raises Conflict for a checkpoint of another cluster or, if the plan moves the checkpoint,
        for one that was reached with other read options."""
        source = self._context.job.source
        table = self._context.job.sink.table
        cluster = self._with_all_addresses(survey.cluster, [position.cluster])
        if cluster is not None:
            check_checkpoint_is_of_cluster(table, position, survey, cluster)
        if position.read_filter is not None and self._context.kind.traits.moves_checkpoint:
            options = self._options(source.isolation, source.tags, None)
            landed = self._options(*position.read_filter, None)
            check_checkpoint_options_are_same(table, landed, options)

    def _require_same_options(
        self, ranges: Sequence[Range], survey: Survey, read_filter: ReadFilter | None = None
    ) -> list[LandedRead]:
        """How these ranges were landed, as far as that is known. Raises Conflict if any of them was
        landed with other read options."""
        job = self._context.job
        landed = landed_reads(self._context.target.ledger.view, ranges, self._options)
        if landed:
            isolation, tags = read_filter or (job.source.isolation, job.source.tags)
            clusters = [read.options.cluster for read in landed]
            cluster = self._with_all_addresses(survey.cluster, clusters)
            options = self._options(isolation, tags, cluster)
            check_landed_options_are_same(job.sink.table, landed, options)
        return landed

    def _find_overwritten(
        self, landed: Sequence[LandedRead], survey: Survey, position: JobPosition
    ) -> list[Loss]:
        """The losses among offsets landed in earlier leader epochs. Takes a survey for each
        epoch."""
        losses: list[Loss] = []
        for one_epoch in in_earlier_epochs(landed, survey):
            comparison = self._context.surveys.compare(marks_of_landed(one_epoch))
            losses += find_overwritten(one_epoch, comparison, position.covered)
        return losses

    def _with_all_addresses(
        self, cluster: Cluster | None, earlier: Sequence[Cluster | None]
    ) -> Cluster | None:
        """The cluster with all addresses it has ever had, if its present ones are not among
        ``earlier``. Reads all landings only in that case."""
        if cluster is None or not any(one is not None and cluster.is_other(one) for one in earlier):
            return cluster
        return with_known_addresses(cluster, landed_clusters(self._context.target.ledger.view))

    def _check_lands_all_it_replaces(self, plan: Plan) -> None:
        """Refuses a replacement that would remove more rows than it lands."""
        check_rows_can_be_replaced(self._context.spark, self._context.target.table)
        if plan.losses:
            raise range_lost_error(list(plan.losses))
        check_whole_slices(self._context.target.history, plan.ranges)


def _to_land_again(position: JobPosition) -> JobPosition:
    return replace(position, covered=Coverage(), landed_again=position.covered)


def _check_losses_are_allowed(failing: FailingLosses | None) -> None:
    if failing is not None:
        raise failing_error(failing)


def _log_made(plan: Plan) -> None:
    logger.info(
        "Made plan %s: %d ranges, %d slices, %d offsets",
        plan.id,
        len(plan.ranges),
        len(plan.slices),
        plan.width,
    )
    for r in plan.ranges:
        fields = partition_fields(r.partition, r.from_offset)
        logger.debug("Planned %s in plan %s", r, plan.id, extra=fields)
