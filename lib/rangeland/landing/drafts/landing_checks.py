"""Refuses to land in a table that disagrees with its ledger, or that cannot take a draft."""

from __future__ import annotations

from functools import partial

from rangeland.cluster_access.registry_lookup import schema_ids_in
from rangeland.landing.audit.removed_and_unknown_rows import check_rows_are_known, check_rows_remain
from rangeland.landing.drafts.schema_refusal import check_schemas_are_readable, naming_schemas
from rangeland.landing.landing_context import LandingContext
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import WriteMode


def check_table_and_ledger_agree(context: LandingContext) -> None:
    """Raises Conflict if table and ledger disagree: nothing may land then."""
    target = context.target
    target.identity.check_table_and_ledger_agree()
    if context.kind.traits.write_mode is not WriteMode.REPAIR:
        check_rows_remain(context.spark, target, context.job, context.progress, context.warn)


def check_draft_can_land(context: LandingContext, draft: PlanDraft) -> None:
    """Raises Conflict for rows that are in no ledger, and TableRefused for schemas that do not
    fit."""
    traits = context.kind.traits
    if traits.resolves_bounds and traits.write_mode is not WriteMode.REPLACE:
        check_rows_are_known(context.spark, context.target, draft.plan.ranges)
        ids_in = partial(schema_ids_in, context.job, survey=context.surveys.last)
        policy = context.job.request.policy
        check_schemas_are_readable(context.row_format, policy, draft.plan.slices, ids_in)


def check_table_can_take_rows(context: LandingContext) -> None:
    """Raises TableRefused if the table cannot take the columns of the rows to land."""
    with naming_schemas(context.target.history, context.row_format):
        context.target.table.schema.layout(context.row_schema)
