"""The tree of the library: names that occur once, and a page that knows every room and module."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import docs

LIBRARY = docs.ROOT / "lib/rangeland"
FAMILY = {"jafka", "kafka", "rocketmq", "zookeeper"}
"""Folders that are parallel: the same name in several of them is the same thing for another log."""
MODULES = sorted(p for p in LIBRARY.rglob("*.py") if p.name != "__main__.py")
PAGES = ("lib/README.md", "CONTRIBUTING.md")


def parallel(path: Path) -> str:
    """What all members of a parallel family have in common: ``dialects/*`` for
    ``dialects/kafka``; the path itself outside of the families."""
    parts = path.relative_to(LIBRARY).with_suffix("").parts
    for at, part in enumerate(parts):
        if part in FAMILY:
            return "/".join((*parts[:at], "*"))
    return "/".join(parts)


def name_of(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem


def repeated(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Names with more than one owner, each with its owners."""
    owners: dict[str, set[str]] = defaultdict(set)
    for name, owner in names:
        owners[name].add(owner)
    return {name: sorted(found) for name, found in owners.items() if len(found) > 1}


def test_no_two_modules_share_a_name() -> None:
    names = ((name_of(p), parallel(p)) for p in MODULES)
    assert repeated((name, owner) for name, owner in names if name not in FAMILY) == {}


def test_no_two_classes_share_a_name() -> None:
    def names() -> Iterator[tuple[str, str]]:
        for path in MODULES:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node.name, parallel(path)

    assert repeated(names()) == {}


def test_a_class_is_defined_once_in_its_module_and_folder() -> None:
    for path in MODULES:
        found = [
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef)
        ]
        assert len(found) == len(set(found)), path


def test_the_map_names_every_room_and_every_module_beside_the_rooms() -> None:
    page = docs.page("lib/README.md").partition("\n## The rooms\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)
    known = {name for row in rows for name in re.findall(r"`(\w+)/?`", row)}
    folders = {p.name for p in LIBRARY.iterdir() if (p / "__init__.py").exists()}
    beside = {p.stem for p in LIBRARY.glob("*.py") if not p.name.startswith("_")}
    assert known == folders | beside


@pytest.mark.parametrize("name", PAGES)
def test_a_module_that_a_page_names_is_there(name: str) -> None:
    rooms = "|".join(p.name for p in LIBRARY.iterdir() if p.is_dir() and p.name != "__pycache__")
    named = re.findall(rf"`(?:lib/rangeland/)?((?:{rooms})/[\w/]*)(?:\.\w+)?`", docs.page(name))
    assert named
    for path in named:
        there = LIBRARY / path
        assert there.is_dir() or any(there.parent.glob(f"{there.name}.*")), f"{name}: {path}"


def test_the_glossary_has_one_line_for_each_word() -> None:
    page = docs.page("lib/README.md").partition("\n## Glossary\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)
    words = [word for row in rows if row != "term" for word in row.split(", ")]
    assert len(words) == len(set(words)) >= 60
