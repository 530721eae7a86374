"""The patterns for those fields of a job file that are text, and what a field with a pattern
expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

JOB_NAME: Final = r"^[a-z0-9][a-z0-9._-]*$"
MESSAGE_NAME: Final = r"^\w+(\.\w+)*$"
FUNCTION_NAME: Final = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
HTTP_URL: Final = r"^https?://(\[[^\]\s]+\]|[^\s/@?#%:\[\]]+)(:[0-9]{1,5})?([/?#][^\s@]*)?$"
SERVICE_NAME: Final = r"^[^\s@/]+$"
ZOOKEEPER_USER: Final = r"^[^:\x00]+$"

EXPECTED: Final[Mapping[str, str]] = {
    JOB_NAME: "a name of lower-case letters, digits, '.', '_' and '-'",
    MESSAGE_NAME: "the full name of a message, such as shop.v1.Order",
    FUNCTION_NAME: "a module and a function in it, such as my_module:kafka_token",
    HTTP_URL: "a URL without a user, such as https://login.example/oauth2/token",
    SERVICE_NAME: "a name without spaces, '@' and '/', such as kafka",
    ZOOKEEPER_USER: "a name without ':'",
}
