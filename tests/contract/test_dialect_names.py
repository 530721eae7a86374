"""No dialect is named outside its folders: callers ask for a capability, or call a method."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rangeland
from rangeland.dialects.dialect import dialect_names

ROOT = Path(rangeland.__file__).parent
NAMES = tuple(dialect_names())
OF_A_DIALECT = ("dialects", "decode", "testing", *(f"groups/{name}" for name in NAMES))
"""A folder per dialect or log format, and the servers that tests start."""
ALLOWED = {
    ("job/source_section.py", "dialect"): "the words of the job file",
    ("cluster_settings.py", "service_name"): "the usual name of a principal",
    ("job/source_security.py", "command"): "the example of a token command",
    ("job/source_security.py", "service_name"): "the usual name of a principal",
    ("zookeeper/broker_registry.py", "parse_kafka_topic"): "a format of registry nodes",
    ("zookeeper/broker_registry.py", "_jafka_broker"): "a format of registry nodes",
    ("zookeeper/broker_registry.py", "_kafka_broker"): "a format of registry nodes",
}
"""By file and the name of what is defined there."""


def modules() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(f"{folder}/" for folder in OF_A_DIALECT)):
            yield name


def is_named(node: ast.AST) -> bool:
    """A constant that is a dialect's name, an import out of its folder, or a definition or use
    of something that is called after it. Text in sentences is not code."""
    match node:
        case ast.Constant(value=str(text)):
            return text in NAMES or any(f"dialects.{name}" in text for name in NAMES)
        case ast.ImportFrom(module=module, names=names):
            parts = f"{module}.{'.'.join(alias.name for alias in names)}".lower().split(".")
            return bool(set(parts) & set(NAMES))
        case ast.Import(names=names):
            return any(set(alias.name.split(".")) & set(NAMES) for alias in names)
        case ast.FunctionDef(name=called) | ast.ClassDef(name=called) | ast.arg(arg=called):
            return any(name in called.lower() for name in NAMES)
        case _:
            return False


def is_allowed(module: str, node: ast.AST) -> bool:
    match node:
        case ast.AnnAssign(target=ast.Name(id=called)) | ast.FunctionDef(name=called):
            return (module, called) in ALLOWED
        case _:
            return False


def named_in(module: str, node: ast.AST) -> Iterator[str]:
    if is_allowed(module, node):
        return
    if is_named(node):
        yield f"{module}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)[:60]}"
    for child in ast.iter_child_nodes(node):
        yield from named_in(module, child)


@pytest.mark.parametrize("module", list(modules()))
def test_no_dialect_is_named_outside_of_its_folders(module: str) -> None:
    assert not list(named_in(module, ast.parse((ROOT / module).read_text())))


def test_a_comparison_with_a_name_is_found() -> None:
    code = "if source.dialect == 'kafka':\n    from rangeland.dialects.jafka import requests\n"
    assert len(list(named_in("run.py", ast.parse(code)))) == 2


@pytest.mark.parametrize(("module", "called"), ALLOWED)
def test_every_exception_is_still_needed(module: str, called: str) -> None:
    found = [
        node
        for node in ast.walk(ast.parse((ROOT / module).read_text()))
        if is_allowed(module, node) and called in ast.unparse(node).split(":")[0].split("(")[0]
    ]
    assert any(is_named(inner) for node in found for inner in ast.walk(node))
