"""The ids of a group's clients; a driver's id names its job.

Upstream's ids are ``<ip>@<process>#<time>``, and groups assign queues in the order of these
texts. A driver's is ``<host>@<process>#rangeland.<job>#<unique>``, so that other drivers of the
job, and people, recognise it.
"""

from __future__ import annotations

import re
from typing import Final

_DRIVER: Final = re.compile(r"[^#]*@\d+#rangeland\.([^#]+)#[^#]+")


def client_id(host: str, process: int, job: str, unique: str) -> str:
    return f"{host.replace('#', '')}@{process}#rangeland.{job}#{unique}"


def job_of(client: str) -> str:
    """The job of a driver; empty for other clients."""
    match = _DRIVER.fullmatch(client)
    return match.group(1) if match else ""
