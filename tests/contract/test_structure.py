"""The tree of the library: unique names, a page that knows every module, log lines of one form."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from rangeland.wording import sentence
from tests import check, docs

LIBRARY = docs.ROOT / "lib/rangeland"
T = TypeVar("T", bound=ast.AST)
FAMILY = {"jafka", "kafka", "rocketmq", "zookeeper"}
"""Folders that are parallel: the same name in several of them is the same thing for another log."""
MODULES = sorted(p for p in LIBRARY.rglob("*.py") if p.name != "__main__.py")
PAGES = ("lib/README.md", "lib/design-notes.md", "CONTRIBUTING.md")


def family_of(path: Path) -> tuple[str, str]:
    """What all members of a parallel family have in common, and the member:
    ``("dialects/*", "kafka")``. Outside of the families, the path itself."""
    parts = path.relative_to(LIBRARY).with_suffix("").parts
    for at, part in enumerate(parts):
        if part in FAMILY:
            return "/".join((*parts[:at], "*")), part
    return "/".join(parts), ""


def name_of(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem


def repeated(names: Iterator[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that occur more than once, other than once in each member of one family."""
    owners: dict[str, list[Path]] = defaultdict(list)
    for name, path in names:
        owners[name].append(path)
    found = {}
    for name, paths in owners.items():
        families = [family_of(path) for path in paths]
        if len({family for family, _ in families}) > 1 or len(families) > len(set(families)):
            found[name] = [str(path.relative_to(LIBRARY)) for path in paths]
    return found


def classes() -> Iterator[tuple[str, Path]]:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, path


def test_no_two_modules_share_a_name() -> None:
    names = ((name_of(p), p) for p in MODULES)
    assert repeated((name, path) for name, path in names if name not in FAMILY) == {}


MOST_LINES = 400


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in LIBRARY.rglob("*.py")}
    longer = {str(p.relative_to(LIBRARY)): n for p, n in lines.items() if n > MOST_LINES}
    assert longer == {}


def test_no_two_classes_share_a_name() -> None:
    assert repeated(classes()) == {}


COMMANDS = {"reached"}
"""Functions that are named after a command."""


def functions() -> Iterator[tuple[str, Path]]:
    """Those of modules, without underscore."""
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node.name, path


def is_participle(name: str) -> bool:
    """A single word, ``settled`` or ``judging``; ``merge_surveys`` says what is settled."""
    return bool(re.fullmatch(r"[a-z]+(ed|ing|wn|ept|ost|aid|ound)", name))


def test_no_function_is_a_bare_participle() -> None:
    found = {(name, str(path.relative_to(LIBRARY))) for name, path in functions()}
    assert sorted(x for x in found if is_participle(x[0]) and x[0] not in COMMANDS) == []


NO_PARTICIPLES = {"feed", "nothing", "spawn", "warning"}
"""They end as participles do."""
TELLING = {"entered", "existing", "planned"}
"""Methods that tell of ledgers and progress which of them they are about."""


def methods() -> Iterator[tuple[str, str]]:
    """Those without underscore that are no properties, with their class."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for one in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    marks = map(ast.unparse, one.decorator_list)
                    if not any("property" in mark for mark in marks):
                        yield one.name, f"{path.relative_to(LIBRARY)} {node.name}"  # type: ignore[attr-defined]


def test_no_method_is_a_bare_participle() -> None:
    found = list(methods())
    assert len(found) > 700
    allowed = NO_PARTICIPLES | TELLING
    assert sorted(x for x in found if is_participle(x[0]) and x[0] not in allowed) == []


def test_a_bare_participle_is_found() -> None:
    assert all(map(is_participle, ("settled", "judging", "shown", "said", "kept", "found")))
    assert not any(map(is_participle, ("merge_surveys", "is_settled", "read", "survey", "load")))


def nodes(kind: type[T]) -> Iterator[tuple[T, str]]:
    """All of one kind in the library, with their files."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kind):
                yield node, str(path.relative_to(LIBRARY))


def error_classes() -> set[str]:
    """Python's and the library's, by name."""
    kinds = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
    return derived_from({n for n, kind in kinds.items() if issubclass(kind, BaseException)})


def derived_from(found: set[str]) -> set[str]:
    """These classes and all that derive from them, by name."""
    bases = {node.name: {ast.unparse(b) for b in node.bases} for node, _ in nodes(ast.ClassDef)}
    while more := {name for name in bases.keys() - found if bases[name] & found}:
        found |= more
    return found


OUR_MISTAKES = {"Bug", "LocalProtocolError", "ProofFailed", "UnwritableValue"}
"""Errors about which nobody can do more than report them, as their answers say."""
WORDED_BY_CALLERS = {"ConnectionLost", "UnreadableBytes", "UndecodableEntry", "UndecodableMessage"}
"""Errors that are caught where it is known what was asked of whom, or which log is damaged."""
DAMAGE = ("fetch/response_judgement.py", "BadRecord")
"""The one other error that gets its advice there (``located_damage_error``)."""


def constructed_errors() -> Iterator[tuple[ast.Call, str, str]]:
    """Each place where an error of the library gets its words, with its class and file: the call of
    the class, or of ``super().__init__`` where the class has words of its own."""
    ours, own_words = derived_from({"RangelandError"}), set()
    for node, path in nodes(ast.ClassDef):
        if node.name in ours and (calls := own_wording(node)):
            own_words.add(node.name)
            yield from ((call, node.name, path) for call in calls)
    for call, path in nodes(ast.Call):
        name = ast.unparse(call.func).rpartition(".")[2]
        if name in ours - own_words:
            yield call, name, path


def own_wording(error: ast.ClassDef) -> list[ast.Call]:
    """The calls of ``super().__init__`` in a constructor that takes no advice."""
    return [
        call
        for one in error.body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
        if "do" not in {a.arg for a in (*one.args.args, *one.args.kwonlyargs)}
        for call in ast.walk(one)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__"
    ]


def test_each_error_says_what_to_do() -> None:
    silent, count = [], 0
    for call, name, path in constructed_errors():
        count += 1
        advice = [k.value for k in call.keywords if k.arg == "do"]
        if not advice or ast.unparse(advice[0]) == "''":
            silent.append((path, name, call.lineno))
    assert count > 400
    exempt = OUR_MISTAKES | WORDED_BY_CALLERS
    assert [x for x in silent if x[1] not in exempt and x[:2] != DAMAGE] == []


def returned_types(function: ast.FunctionDef) -> set[str]:
    """The members of the union that it is annotated to return."""
    return {*ast.unparse(function.returns).split(" | ")} if function.returns else set()


def test_a_function_that_returns_an_error_is_named_so() -> None:
    errors = error_classes()
    assert "RangeLost" in errors
    found = []
    for node, path in nodes(ast.FunctionDef):
        if (returned := returned_types(node)) & errors:
            ending = "_error" if returned <= errors | {"None"} else "_or_error"
            found.append((node.name, path, ending))
    assert len(found) > 130
    assert [x for x in found if not x[0].endswith(x[2])] == []


ABOUT_AN_ERROR = {"on_error", "render_error"}
"""They are given an error, or its meaning, and return none."""


def test_a_function_that_is_named_after_an_error_returns_one() -> None:
    errors = error_classes() | {"yaml.YAMLError"}
    found = [
        (node.name, path)
        for node, path in nodes(ast.FunctionDef)
        if node.name.endswith("_error") and not returned_types(node) & errors
    ]
    assert [x for x in found if x[0] not in ABOUT_AN_ERROR] == []


def test_a_function_that_only_raises_is_named_after_what_must_hold() -> None:
    found = [(node.name, path) for node, path in nodes(ast.FunctionDef)]
    assert [x for x in found if x[0].lstrip("_").startswith("refuse_")] == []


PREDICATES = {
    *("is", "are", "has", "have", "can", "hold", "exist", "exists", "fits", "begins", "remain"),
    *("adds", "agree", "answer", "applies", "covers", "follows", "pass", "all", "distinct"),
    *("inside", "once", "owned", "planned", "same", "still", "whole", "within"),
}
"""The words by which the name of a check says what must hold."""


def test_a_check_says_what_must_hold_and_returns_nothing() -> None:
    checks = [x for x in nodes(ast.FunctionDef) if x[0].name.lstrip("_").startswith("check_")]
    assert len(checks) > 70
    wrong = [
        (node.name, path)
        for node, path in checks
        if not PREDICATES & {*node.name.split("_")}
        or node.returns is None
        or ast.unparse(node.returns) != "None"
    ]
    assert wrong == []


def docstrings() -> Iterator[tuple[str, str]]:
    """Each text of a module, class, function or attribute that stands alone, with its place."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield f"{path.relative_to(LIBRARY)}:{node.lineno}", text


def test_each_docstring_can_be_read_without_the_name_before_it() -> None:
    found = dict(docstrings())
    assert len(found) > 3000
    needs_a_name = re.compile(r"(Also|As ``|By|Of|Those|Where|See the (head|docstring|module))\b")
    assert {at: text for at, text in found.items() if needs_a_name.match(text)} == {}


def test_each_docstring_of_a_module_or_class_begins_with_a_noun_or_a_verb() -> None:
    wrong = re.compile(r"(At|By|For|From|In|On|Through|To|Under|Up|With|Without)\b")
    found = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef) else None
            if text is not None and wrong.match(text):
                found[f"{path.relative_to(LIBRARY)} {getattr(node, 'name', '')}"] = text
    assert found == {}


def test_what_is_passed_on_says_what_it_is() -> None:
    """A parameter ``found`` says only where its value comes from."""
    found = [
        f"{path.relative_to(LIBRARY)}:{node.lineno}"
        for path in MODULES
        if {"run.py", "landing", "planning", "queries"} & set(path.relative_to(LIBRARY).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg) and node.arg == "found"
    ]
    assert found == []


def is_code_name(node: ast.AST) -> bool:
    """Whether this is the name of an error code: ``code.name``, ``code_of(x).name``,
    ``result.code_name``."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    is_code = re.search(r"(\b|_)(code|status|code_of)$", ast.unparse(owner))
    return node.attr == "code_name" or (node.attr == "name" and is_code is not None)


def compared_code_names(tree: ast.AST) -> Iterator[int]:
    """Lines that compare or match the name of an error code."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                compared = [node.left, *node.comparators]
            case ast.Match():
                compared = [node.subject]
            case _:
                continue
        if any(is_code_name(part) for one in compared for part in ast.walk(one)):
            yield node.lineno


def test_no_caller_branches_on_the_name_of_an_error_code() -> None:
    found = [
        f"{path.relative_to(LIBRARY)}:{line}"
        for path in MODULES
        for line in compared_code_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "condition",
    [
        'code.name == "A"',
        '"A" != self.pull_code.name',
        "status.name in NAMES",
        'result.code_name.split(":")[0] == "A"',
        "error_code_of(number).name in {'A', 'B'}",
    ],
)
def test_a_branch_on_the_name_of_an_error_code_is_found(condition: str) -> None:
    assert list(compared_code_names(ast.parse(condition))) == [1]


def test_a_match_on_the_name_of_an_error_code_is_found() -> None:
    assert list(compared_code_names(ast.parse("match code.name:\n    case 'A': pass"))) == [1]


def test_a_branch_on_the_meaning_of_an_error_code_or_on_another_name_is_allowed() -> None:
    allowed = "code.meaning is OK or code.group_meaning in OVER or field.name == 'A'"
    assert list(compared_code_names(ast.parse(allowed))) == []


def test_a_repeated_name_is_found_inside_and_outside_of_the_families() -> None:
    kafka, jafka = LIBRARY / "dialects/kafka/a.py", LIBRARY / "dialects/jafka/a.py"
    assert repeated(iter([("A", kafka), ("A", jafka)])) == {}
    assert repeated(iter([("A", kafka), ("A", kafka)])) != {}
    assert repeated(iter([("A", kafka), ("A", LIBRARY / "groups/kafka/a.py")])) != {}
    assert repeated(iter([("A", LIBRARY / "run.py"), ("A", LIBRARY / "api.py")])) != {}


def test_the_map_names_every_package_and_every_module_beside_the_packages() -> None:
    page = docs.page("lib/README.md").partition("\n## The packages\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)
    known = {name for row in rows for name in re.findall(r"`(\w+)/?`", row)}
    folders = {p.name for p in LIBRARY.iterdir() if (p / "__init__.py").exists()}
    beside = {p.stem for p in LIBRARY.glob("*.py") if not p.name.startswith("_")}
    assert known == folders | beside


def listed_files(package: str) -> list[str]:
    """The files in the list of a package, each under the folder whose row is above it."""
    page = docs.page("lib/README.md").partition(f"\n### The files of {package}\n")[2]
    listed, folder = [], ""
    for row in re.findall(r"^\| (.+?) \| .*\|$", page.partition("\n##")[0], re.MULTILINE):
        if row.startswith("**"):
            folder = "".join(re.findall(r"`(\w+/)`", row))
        else:
            listed += [folder + name for name in re.findall(r"`(\w+)`", row)]
    return sorted(listed)


def files_of(package: str) -> list[str]:
    root = LIBRARY / package
    paths = [p.relative_to(root) for p in root.rglob("*.py") if not p.name.startswith("_")]
    return sorted(p.with_suffix("").as_posix() for p in paths)


@pytest.mark.parametrize("package", ["fetch", "landing", "planning", "delta"])
def test_the_map_of_a_package_has_each_of_its_files_once_under_their_folder(package: str) -> None:
    assert listed_files(package) == files_of(package)


def test_the_map_of_dialects_has_the_files_of_all_and_those_that_each_of_them_has() -> None:
    root = LIBRARY / "dialects"
    folders = [path for path in root.iterdir() if (path / "__init__.py").exists()]
    of_all = {p.stem for p in root.glob("*.py") if not p.name.startswith("_")}
    of_each = [{p.stem for p in path.iterdir() if p.name[0] != "_"} for path in folders]
    assert listed_files("dialects") == sorted(of_all | set.intersection(*of_each))


def test_the_map_prints_the_order_that_the_import_contract_enforces() -> None:
    contracts = tomllib.loads(docs.page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["name"] == "Imports go down only")
    page = docs.page("lib/README.md").partition("\n### The order of imports\n")[2]
    printed = page.partition("```text\n")[2].partition("```")[0]
    assert printed.splitlines() == [layer.replace("rangeland.", "") for layer in layers]


@pytest.mark.parametrize("name", PAGES)
def test_a_module_that_a_page_names_is_there(name: str) -> None:
    packages = "|".join(p.name for p in LIBRARY.iterdir() if p.is_dir() and p.name != "__pycache__")
    named = re.findall(rf"`(?:lib/rangeland/)?((?:{packages})/[\w/]*)(?:\.\w+)?`", docs.page(name))
    assert named
    for path in named:
        there = LIBRARY / path
        assert there.is_dir() or any(there.parent.glob(f"{there.name}.*")), f"{name}: {path}"


def section(name: str, heading: str) -> str:
    return docs.page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


PATHS = ("The path of a command", "The path of a batch", "The path of an error")
HOP = re.compile(r"^\| (\d+) \| `([\w/]+)` \| (.+) \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("heading", PATHS)
def test_each_hop_names_what_is_in_its_module(heading: str) -> None:
    way = section("lib/README.md", heading)
    rows = HOP.findall(way)
    assert len(rows) == len(re.findall(r"^\| [^#-]", way, re.MULTILINE))
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
    assert f"{len(rows)} hops in {len({module for _, module, *_ in rows})} files" in way
    for _, module, text, _ in rows:
        path = LIBRARY / f"{module}.py"
        assert path in MODULES, f"no module {module}"
        source = path.read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", text):
            parts = [re.search(rf"\b{part}\b", source) for part in name.split(".")]
            assert all(parts), f"{module} has no {name}"
        # What a hop begins with is made there, and not only called.
        for name in re.findall(r"^`(\w+)`[:,]", text):
            assert re.search(rf"^ *(def|class) {name}\b", source, re.M), f"{module}: {name}"


@pytest.mark.parametrize("heading", PATHS)
def test_each_shape_of_a_hop_is_a_type_of_the_library_or_of_arrow(heading: str) -> None:
    aliases = re.compile(r"^([A-Z]\w+): TypeAlias = ", re.MULTILINE)
    known = {name for name, _ in classes()} | {"RecordBatch"}
    known |= {name for p in MODULES for name in aliases.findall(p.read_text(encoding="utf-8"))}
    shapes = [shape for *_, shape in HOP.findall(section("lib/README.md", heading))]
    named = {name for shape in shapes for name in re.findall(r"`([A-Z]\w+)(?:\.\w+)?`", shape)}
    assert len(named) > 2
    assert named - known == set()


DECISION = re.compile(r"^\| `([\w/]+)(?:\.\w+)?` \| (.+) \| `[\w/]+` \|$", re.MULTILINE)


def test_what_decides_returns_a_shape_that_its_module_names() -> None:
    table = docs.page("lib/README.md").partition("\n| decides | shape | asks |\n")[2]
    table = table.partition("\n\n")[0]
    rows = DECISION.findall(table)
    assert len(rows) == table.count("\n") > 5
    for module, shape in rows:
        source = (LIBRARY / f"{module}.py").read_text(encoding="utf-8")
        names = re.findall(r"`(\w+)`", shape)
        assert names, module
        for name in names:
            assert re.search(rf"\b{name}\b", source), f"{module} has no {name}"


def test_the_ten_changes_name_files_that_exist_in_three_packages_at_most() -> None:
    table = section("CONTRIBUTING.md", "Ten changes, and the files they touch")
    rows = re.findall(r"^\| (?!change|---)(.+?) \| (.+?) \| .+ \|$", table, re.MULTILINE)
    assert len(rows) == 10
    library = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    for change, text in rows:
        named = re.findall(r"`([^`]+)`", text)
        paths = [name for name in named if "/" in name or name.endswith(".py")]
        assert paths, change
        for path in paths:
            assert any(LIBRARY.glob(path.replace("<name>", "*"))), f"{change}: {path}"
        for name in set(named) - set(paths):
            assert re.search(rf"\b{name}\b", library), f"{change}: {name}"
        assert len({path.split("/")[0] for path in paths if "/" in path}) <= 3, change


def test_the_glossary_has_one_line_for_each_word() -> None:
    page = docs.page("lib/README.md").partition("\n## Glossary\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)
    words = [word for row in rows if row != "term" for word in row.split(", ")]
    assert len(words) == len(set(words)) >= 60


def log_texts() -> Iterator[tuple[str, str]]:
    """Each literal message of a call such as ``logger.info``, with its place; and how each
    ``LogLine`` begins."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="logger"), attr=level),
                    args=[ast.Constant(value=str(text)), *_],
                ) if level in ("debug", "info", "warning", "error", "exception"):
                    yield f"{path.relative_to(LIBRARY)}:{node.lineno}", text
                case ast.Call(
                    func=ast.Name(id="LogLine") | ast.Attribute(attr="log_line"),
                    args=[ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]), *_],
                ):
                    yield f"{path.relative_to(LIBRARY)}:{node.lineno}", text


def test_each_log_line_begins_with_a_capital_letter() -> None:
    found = dict(log_texts())
    assert len(found) > 40
    assert sum(at.startswith("fetch/") for at in found) > 5
    assert {
        at: text for at, text in found.items() if not text[0].isupper() and text[0] != "%"
    } == {}


def error_texts() -> Iterator[tuple[str, str]]:
    """What each error says by its own text, up to the first value in it, with its place. One that
    begins with a value is left out: most values are names."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            named = {k.arg: k.value for k in node.keywords if k.arg in ("why", "do")}
            for text in (*(node.args[:1] if named else ()), *named.values()):
                first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
                said = first.value if isinstance(first, ast.Constant) else None
                if isinstance(said, str) and said:
                    yield f"{path.relative_to(LIBRARY)}:{node.lineno}", said


def advice_texts() -> Iterator[tuple[str, str]]:
    """What each error says to do, as far as it is literal: its beginning and its end."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "do":
                        place = f"{path.relative_to(LIBRARY)}:{keyword.value.lineno}"
                        yield from ((place, text) for text in literals(keyword.value))


def literals(text: ast.expr) -> Iterator[str]:
    """The texts that an expression may be, with ``{}`` for each value in them."""
    match text:
        case ast.Constant(value=str(said)):
            yield said
        case ast.JoinedStr(values=parts):
            yield "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in parts)  # type: ignore[misc]
        case ast.IfExp(body=one, orelse=other):
            yield from (*literals(one), *literals(other))
        case ast.BinOp(left=left):
            yield from literals(left)


PROPER = ("Java", "Spark", "Kafka", "ZooKeeper")
"""Names with which an advice may begin."""


def is_advice(text: str) -> bool:
    """Written as part of a sentence: no capital letter at its beginning, no full stop."""
    first = text.split(" ")[0].rstrip(",;:")
    is_capital = first.istitle() and first.isalpha() and first not in PROPER
    return not is_capital and not text.endswith(".")


def test_what_to_do_is_written_as_part_of_a_sentence() -> None:
    """``sentence`` makes one of it; within other messages it stays as it is."""
    found = [(at, text) for at, text in advice_texts() if text]
    assert len(found) > 280
    assert [one for one in found if not is_advice(one[1])] == []


def test_advice_with_a_capital_letter_or_a_full_stop_is_found() -> None:
    assert all(map(is_advice, ("run again", "Spark needs room", "{} is one", "ALTER it")))
    assert not any(map(is_advice, ("Run again", "run again.", "Close: it is over")))


NAMES = ("pip", "rangeland", "spark", "java", "kafka", "jafka", "rocketmq")
"""Names that look like words, which keep their spelling and so cannot begin a message."""


def test_each_message_begins_with_a_capital_letter_or_a_name() -> None:
    found = list(error_texts())
    assert len(found) > 500
    wrong = [
        (at, text)
        for at, text in found
        if (re.match(r"[a-z]+(?![\w./=(-])(?!:[^ ])", text) and not sentence(text)[0].isupper())
        or text.split(" ")[0] in NAMES
    ]
    assert wrong == []


def test_each_module_that_logs_calls_its_logger_so() -> None:
    made = re.compile(r"^(\w+) = logging\.getLogger\(", re.M)
    names = {p: made.findall(p.read_text(encoding="utf-8")) for p in MODULES}
    assert sum(map(bool, names.values())) > 20
    assert {str(p): found for p, found in names.items() if found not in ([], ["logger"])} == {}


def test_the_slow_run_has_the_rings_with_slow_tests() -> None:
    """A suite that is left out is never run, and pytest fails in one that has none."""
    mark = re.compile(r"pytest\.mark\.slow")
    marked = {
        path.relative_to(docs.ROOT / "tests").parts[0]
        for path in (docs.ROOT / "tests").rglob("test_*.py")
        if mark.search(path.read_text(encoding="utf-8"))
    }
    assert sorted(check.SLOW_SUITES) == sorted(marked)
