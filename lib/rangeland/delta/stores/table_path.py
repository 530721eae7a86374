"""The path or URI of a table, parsed. Nothing else in the library parses one.

Hadoop's rules apply, because Spark and Delta follow them: a scheme ends at the first colon before
any slash, an authority follows ``//``, and the rest is the path. There are no escapes: ``#``, ``?``
and ``%20`` are ordinary characters of a name. The forms that Arrow and the operating system need
are derived here. Pure.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class TablePath:
    """A folder on a store. ``scheme`` is empty for a path on the default store, which is the local
    disk unless Spark is configured otherwise."""

    scheme: str
    authority: str
    path: str

    @staticmethod
    def parse(text: str) -> TablePath:
        head, colon, rest = text.partition(":")
        scheme = head.lower() if colon and "/" not in head else ""
        rest = rest if scheme else text
        authority = ""
        if rest.startswith("//") and len(rest) > 2:
            authority, slash, path = rest[2:].partition("/")
            rest = slash + path
        return TablePath(scheme, authority, _normal(rest))

    def __str__(self) -> str:
        """The path in the form that Hadoop, Spark and Delta use."""
        scheme = f"{self.scheme}:" if self.scheme else ""
        return f"{scheme}//{self.authority}{self.path}" if self.authority else scheme + self.path

    @property
    def is_local(self) -> bool:
        return self.scheme in ("", "file")

    @property
    def local(self) -> Path | None:
        """The folder on the local disk; None for other stores."""
        return Path(self.path) if self.is_local else None

    @property
    def uri(self) -> str:
        """The path as a URI, with special characters escaped as Spark does it: ``=``, as in
        partition names, is not escaped."""
        return f"{self.scheme or 'file'}://{self.authority}{quote(self.path, safe='/=')}"

    @property
    def key(self) -> str:
        """Bucket and path, the form that object stores use."""
        return f"{self.authority}{self.path}".rstrip("/")

    def child(self, name: str) -> TablePath:
        """The folder or file ``name`` inside it; the name may contain slashes."""
        return TablePath(self.scheme, self.authority, f"{self.path.rstrip('/')}/{name}")


def _normal(path: str) -> str:
    """The path without empty parts, ``.``, ``..`` or a trailing slash."""
    if not path:
        return ""
    normal = posixpath.normpath(path)
    return normal[1:] if normal.startswith("//") else normal
