"""Where a table is: the one place in which the text of a path or URI is taken apart.

Hadoop's rules hold, since Spark and Delta follow them: a scheme ends at the first colon before
any slash, an authority follows ``//``, and all the rest is the path as it is. Nothing in it is
escaped: ``#``, ``?`` and ``%20`` are characters of a folder's name like any other. What speaks
another language (Arrow's URIs, the operating system) is translated to here. Pure.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class TablePath:
    """A folder on some store. ``scheme`` is empty for a path of the default store, which is
    this machine's disk unless Spark was told otherwise."""

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
        """As Hadoop, Spark and Delta take it."""
        scheme = f"{self.scheme}:" if self.scheme else ""
        return f"{scheme}//{self.authority}{self.path}" if self.authority else scheme + self.path

    @property
    def is_local(self) -> bool:
        return self.scheme in ("", "file")

    @property
    def local(self) -> Path | None:
        """The folder on this machine; None on other stores."""
        return Path(self.path) if self.is_local else None

    @property
    def uri(self) -> str:
        """With all that a URI takes for something else escaped."""
        return f"{self.scheme or 'file'}://{self.authority}{quote(self.path)}"

    @property
    def key(self) -> str:
        """Bucket and path, as object stores name what they hold."""
        return f"{self.authority}{self.path}".rstrip("/")

    def child(self, name: str) -> TablePath:
        """The folder or file ``name`` in it, which may have slashes of its own."""
        return TablePath(self.scheme, self.authority, f"{self.path.rstrip('/')}/{name}")


def _normal(path: str) -> str:
    """Without empty steps, ``.`` and a slash at the end, and with ``..`` taken."""
    if not path:
        return ""
    found = posixpath.normpath(path)
    return found[1:] if found.startswith("//") else found
