"""Names of tables in catalogs, quoted for SQL.

A job file names a table as ``my-catalog.sales.orders-2024``, perhaps with its own backticks; SQL
accepts a hyphen, a leading digit or a reserved word only inside backticks. All SQL that names a
table of a catalog uses these functions: every part is quoted, whether it needs to be or not.
"""

from __future__ import annotations

import re

LEDGER_SUFFIX = "__rangeland"
QUARANTINE_SUFFIX = "__quarantine"

_PART = re.compile(r"`(?:[^`]|``)*`(?=\.|$)|[^.]+")


def parts_of(name: str) -> list[str]:
    """The parts between the dots, without the backticks around them."""
    return [_plain(part) for part in _PART.findall(name)]


def quote_name(name: str, suffix: str = "") -> str:
    """The name with each part in backticks; the suffix is added to the last part."""
    *outer, last = parts_of(name)
    return ".".join(f"`{part.replace('`', '``')}`" for part in (*outer, last + suffix))


def quoted_path(path: str) -> str:
    """A path as a table name, in the form that SQL expects after the format."""
    return f"`{path.replace('`', '``')}`"


def literal(text: str) -> str:
    """The text as a string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _plain(part: str) -> str:
    if len(part) > 1 and part[0] == part[-1] == "`":
        return part[1:-1].replace("``", "`")
    return part
