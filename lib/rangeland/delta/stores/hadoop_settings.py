"""Reads Hadoop's settings, so that they can be translated for Arrow's file systems. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rangeland.errors import TableRefused

Lookup = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """Reads the Hadoop settings of a session. ``lookup`` reads a setting; ``password`` reads one
    that may also be in a Hadoop credential store; ``below`` returns all settings whose names begin
    with a prefix, by full name."""

    lookup: Lookup
    password: Lookup
    below: Callable[[str], Mapping[str, str]]

    def text(self, *names: str) -> str:
        """The first of these that is set, without surrounding blanks; empty if none is."""
        return _first(self.lookup, names)

    def secret(self, *names: str) -> str:
        """The first of these that is set; each is a key, a token or a password."""
        return _first(self.password, names)

    def flag(self, *names: str, default: bool) -> bool:
        text = self.text(*names).lower()
        return text == "true" if text in ("true", "false") else default


def _first(lookup: Lookup, names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := (lookup(name) or "").strip())), "")


def untranslatable_error(uri: str, name: str, value: str = "", *, do: str) -> TableRefused:
    """The error for a setting that executors cannot follow. ``value`` is shown, so never pass a
    secret."""
    setting = f"{name} = {value}" if value else name
    return TableRefused(
        f"executors cannot write to {uri} as {setting} requires",
        why="they use Arrow's client for the store, not Hadoop's, and Arrow has no such setting",
        do=do,
        setting=name,
    )
