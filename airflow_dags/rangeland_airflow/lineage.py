"""The task as the parent of what its command reports to OpenLineage. Airflow's provider, which
knows the task's identifiers, need not be installed."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)


def parent_variables(task_instance: Any) -> dict[str, str]:
    """The environment variables that name the task and its DAG run, or none. Never raises: a task
    must not fail because of them."""
    try:
        from airflow.providers.openlineage.plugins import macros
    except ImportError:
        return {}
    try:
        return {
            "OPENLINEAGE_PARENT_ID": macros.lineage_parent_id(task_instance),
            "OPENLINEAGE_ROOT_PARENT_ID": macros.lineage_root_parent_id(task_instance),
        }
    except Exception as error:
        logger.warning("OpenLineage events of the command will have no parent: %r", error)
        return {}
