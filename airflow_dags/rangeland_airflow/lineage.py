"""The task as the parent of what its command reports to OpenLineage. Airflow's provider, which
knows the task's identifiers, need not be installed."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

_MACROS = {
    "OPENLINEAGE_PARENT_ID": "lineage_parent_id",
    "OPENLINEAGE_ROOT_PARENT_ID": "lineage_root_parent_id",
}
"""The variables, and the macros of the provider that know their values."""


def parent_variables(task_instance: Any) -> dict[str, str]:
    """The environment variables that name the task and its DAG run, as far as they are known. Never
    raises: a task must not fail because of them."""
    try:
        from airflow.providers.openlineage.plugins import macros
    except ImportError:
        return {}
    except Exception as error:  # Providers raise this if Airflow is too old for them.
        logger.warning("OpenLineage events of the command will have no parent: %r", error)
        return {}
    variables = {}
    for variable, macro in _MACROS.items():
        try:
            variables[variable] = getattr(macros, macro)(task_instance)
        except Exception as error:  # The other one is still of use.
            logger.warning("The command will not have the variable %s: %r", variable, error)
    return variables
