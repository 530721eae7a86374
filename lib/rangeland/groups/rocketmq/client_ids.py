"""The ids that clients of a group go by, and how a driver's shows whose it is.

Upstream's ids are ``<ip>@<process>#<time>``, and groups share by the order of these texts. A
driver's is ``<host>@<process>#rangeland.<job>#<unique>``: another driver of the same job knows
it by that, and a person too.
"""

from __future__ import annotations

import re
from typing import Final

_DRIVER: Final = re.compile(r"[^#]*@\d+#rangeland\.([^#]+)#[^#]+")


def client_id(host: str, process: int, job: str, unique: str) -> str:
    return f"{host.replace('#', '')}@{process}#rangeland.{job}#{unique}"


def job_of(client: str) -> str:
    """The job that a driver runs, empty for whoever is no driver."""
    found = _DRIVER.fullmatch(client)
    return found.group(1) if found else ""
