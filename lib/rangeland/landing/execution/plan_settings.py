"""Looks up the settings for reading a plan: those of its job as it is now, applied to the plan.

The brokers registered in ZooKeeper may change, so they are looked up for each reading, and again
before the final check of its logs.
"""

from __future__ import annotations

from dataclasses import replace

from rangeland.clock import wall_ms
from rangeland.cluster_access.cluster_lookup import look_up_cleanup, look_up_read_settings
from rangeland.fetch.read_settings import ReadSettings
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.redrive import HOLD_ALL, KEEP, settings_of
from rangeland.planning.plan import Plan
from rangeland.schema_registry.registry_settings import WrittenBefore


def look_up_plan_settings(context: LandingContext, plan: Plan) -> ReadSettings:
    """The settings of tasks that read a plan. Looks up the brokers and the cleanup policies of its
    logs, or the bytes in quarantine that it reads instead."""
    if plan.kind.traits.reads_log:
        topics = (s.partition.topic for s in plan.slices)
        return look_up_cleanup(context.job, look_up_log_settings(context, plan), topics)
    settings = settings_of(context, plan)
    return settings if context.transform is None else replace(settings, policy=KEEP)


def look_up_log_settings(context: LandingContext, plan: Plan) -> ReadSettings:
    """The settings for asking brokers about the logs of a plan. Looks up the brokers."""
    settings = look_up_read_settings(context.job).with_versions_of(context.surveys.last)
    return replace(
        settings.with_filter(plan.isolation, plan.tags),
        policy=HOLD_ALL if plan.kind.traits.holds_all else settings.policy,
        row_format=context.row_format,
        # All records of the plan were in the log when it was made.
        written=WrittenBefore(plan.made_at_ms, wall_ms()),
    )
