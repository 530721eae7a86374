"""The pages of the project as values: their code blocks, and the commands in them.

Only reading and cutting: what must hold of them is in ``tests/unit/test_docs.py`` and, for
queries, ``tests/spark/test_docs_sql.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "lib/README.md",
    "lib/design-notes.md",
    "lib/scale.md",
    "jobs/README.md",
    "configs/README.md",
    "configs/moving-from-spark.md",
    "configs/typed-tables.md",
    "airflow_dags/README.md",
    "tests/README.md",
    "CONTRIBUTING.md",
)
SHELL = ("sh", "bash", "console")
TO_COMPLETE = "<!-- to complete -->"


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line`` is that of its first line of text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One program with its arguments, as a shell would start it."""

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where} {' '.join(self.words)[:70]}"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[Block]:
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page(name).splitlines(), 1):
        fence = re.match(r"^\s*```(\S*)\s*$", line)
        if fence and opened is None:
            opened, lines = (number + 1, fence[1]), []
        elif fence and opened is not None:
            found.append(Block(name, *opened, "\n".join(lines) + "\n"))
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise AssertionError(f"{name}:{opened[0]}: the block has no end")
    return found


def prose(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a page that are in no block, numbered from 1."""
    inside = False
    for number, line in enumerate(page(name).splitlines(), 1):
        if re.match(r"^\s*```", line):
            inside = not inside
        elif not inside:
            yield number, line


def commands(block: Block) -> list[Command]:
    """All commands of a block: each line, cut at pipes and ``&&``. In a ``console`` block only
    lines after a ``$`` are typed."""
    found = []
    for number, line in _lines(block):
        for words in _cut(line):
            while words and re.match(r"^[A-Za-z_]\w*=", words[0]):
                words = words[1:]
            if words:
                found.append(Command(f"{block.page}:{number}", tuple(words)))
    return found


def _lines(block: Block) -> Iterator[tuple[int, str]]:
    whole, start = "", block.line
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not whole:
            start = number
            if block.language == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        yield start, whole + line
        whole = ""


def _cut(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    cut: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            cut.append([])
        else:
            cut[-1].append(word)
    return [words for words in cut if words]
