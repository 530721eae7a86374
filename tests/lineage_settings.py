"""The settings of the OpenLineage client while a test runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lineage_settings(**variables: str) -> Iterator[None]:
    """Exactly these variables, since the client adds some of its own to the environment."""
    before = {name: value for name, value in os.environ.items() if name.startswith("OPENLINEAGE")}
    _replace(variables)
    try:
        yield
    finally:
        _replace(before)


def _replace(variables: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]
    os.environ.update(variables)
