"""What the pages say can be typed: commands and flags exist, files are there, code is right."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

import rangeland
from rangeland import errors
from rangeland.cli import command_line
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.job.job_schema import job_schema
from rangeland.job.job_text import parse_job_text
from rangeland.loss import Action, LossKind
from rangeland.monitoring.run_metrics import HELP
from tests import docs
from tests.docs import Block, Command

BLOCKS = [block for name in docs.PAGES for block in docs.blocks(name)]
COMMANDS = [c for block in BLOCKS if block.language in docs.SHELL for c in docs.commands(block)]
ORDINARY = {
    "cat", "cd", "cp", "curl", "export", "jq", "ls", "source", "tail", "kafka-dump-log.sh",
}  # fmt: skip
"""Programs that are not ours: what they take is not looked at."""

RANGELAND: Any = typer.main.get_command(command_line.app)


def parse_rangeland(arguments: tuple[str, ...]) -> None:
    """Raises what the command line itself would raise for a command or flag it does not know."""
    name, *others = arguments
    if name.startswith("-"):
        RANGELAND.make_context("rangeland", list(arguments))
        return
    assert name in RANGELAND.commands, f"there is no command {name}"
    RANGELAND.commands[name].make_context(name, others)


def parse_module(arguments: tuple[str, ...]) -> None:
    module, rest = arguments[0], list(arguments[1:])
    known: dict[str, Callable[[list[str]], Any]] = {
        "rangeland": lambda a: parse_rangeland(tuple(a)),
        "rangeland.testing": _parse_testing,
        "rangeland.job.reference_page": lambda a: _only(a, {"configs"}),
        "tests.check": lambda a: _only(a, {"--quick"}),
        "tests.bench": lambda a: _only(a, set()),
        "pytest": parse_pytest,
        "venv": lambda a: _only(a, {".venv", "airflow"}),
        "pip": lambda a: _only(a[:1], {"install"}),
    }
    assert module in known, f"python -m {module} is not known here"
    assert importlib.util.find_spec(module.split(".")[0]) is not None
    known[module](rest)


def _parse_testing(arguments: list[str]) -> None:
    from rangeland.testing import __main__ as testing

    parser = testing._parser()
    parser.exit_on_error = False
    try:
        parser.parse_args(arguments)
    except (SystemExit, argparse.ArgumentError) as error:
        raise AssertionError(f"python -m rangeland.testing {arguments}") from error


def _only(arguments: list[str], known: set[str]) -> None:
    assert set(arguments) <= known, arguments


def parse_pytest(arguments: list[str]) -> None:
    paths = [a for a in arguments if a.startswith("tests/")]
    assert all((docs.ROOT / path).exists() for path in paths), paths
    others = [a for a in arguments if a not in paths]
    assert others in ([], ["-q"], ["-m", "slow"]), others


def look_at(command: Command) -> None:
    """Raises for a program, command, flag or script that is not known."""
    program, *arguments = command.words
    name = Path(program).name
    if name == "rangeland":
        parse_rangeland(tuple(arguments))
    elif name in ("python", "python3"):
        assert arguments[0] == "-m", command
        parse_module(tuple(arguments[1:]))
    elif name == "pip":
        assert arguments[0] == "install", command
    elif name == "pytest":
        parse_pytest(arguments)
    elif name == "spark-submit":
        scripts = [a for a in arguments if a.endswith(".py")]
        assert scripts, command
        assert all((docs.ROOT / script).is_file() for script in scripts), scripts
    else:
        assert name in ORDINARY, f"{command}: {name} is not known here"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_that_is_written_down_is_known(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        look_at(command)
    except BaseException as error:
        if type(error).__name__ == "Exit":  # --help and --version end where they are read
            return
        raise AssertionError(f"{command}: {error}") from error


CHEAP = [
    c for c in COMMANDS
    if Path(c.words[0]).name == "rangeland"
    and (c.words[1] == "schema" or set(c.words) & {"--help", "--version"})
]  # fmt: skip


@pytest.mark.parametrize("command", CHEAP, ids=str)
def test_a_command_that_costs_nothing_is_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.main(command.words[1:]) == 0


def test_there_are_commands_and_cheap_ones_among_them() -> None:
    assert len(COMMANDS) > 25
    assert {command.words[1] for command in CHEAP} >= {"schema", "backfill"}


@pytest.mark.parametrize(
    "wrong",
    ["rangeland lunch", "rangeland run", "rangeland run a.yaml --nope", "rangeland run a --from",
     "python -m rangeland.nothing", "python -m rangeland.testing kafka --nope", "fly me",
     "pytest tests/nowhere", "spark-submit jobs/nowhere.py", "python -m tests.check --fast"],
)  # fmt: skip
def test_a_command_that_is_not_there_is_noticed(wrong: str) -> None:
    block = Block("page", 1, "sh", f"A=b {wrong} | tail -n 1  # a remark\n")
    first, second = docs.commands(block)
    assert (" ".join(first.words), second.words) == (wrong, ("tail", "-n", "1"))
    with pytest.raises(BaseException):  # noqa: B017, PT011 - typer's own, or an assertion
        look_at(first)


def test_a_console_block_has_answers_among_its_commands() -> None:
    block = Block("page", 7, "console", "$ rangeland \\\n  --help\nUsage: rangeland\n$ ls\n")
    assert [(c.where, c.words) for c in docs.commands(block)] == [
        ("page:7", ("rangeland", "--help")),
        ("page:10", ("ls",)),
    ]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_no_command_hides_in_a_block_of_another_language(block: Block) -> None:
    assert block.language in (*docs.SHELL, "", "yaml", "python", "sql", "text", "json"), block
    if block.language not in docs.SHELL:
        assert not re.search(r"^\s*(\$ )?(\S*/)?(rangeland|pytest|pip) ", block.text, re.MULTILINE)


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_command_in_a_sentence_is_known_or_marked(name: str) -> None:
    """What is not there yet is only named on a line that says so."""
    known = set(RANGELAND.commands)
    for number, line in docs.prose(name):
        for words in re.findall(r"`(?:python -m )?rangeland ([a-z]+)[^`]*`", line):
            there = words in known or docs.TO_COMPLETE in line
            assert there, f"{name}:{number}: rangeland {words}"


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_link_leads_to_a_file(name: str) -> None:
    folder = (docs.ROOT / name).parent
    for _, line in docs.prose(name):
        for target in re.findall(r"\]\(([^)]+)\)", line):
            path, _, heading = target.partition("#")
            there = folder / path if path else docs.ROOT / name
            assert there.exists(), f"{name}: {target}"
            if heading:
                text = there.read_text(encoding="utf-8")
                titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
                assert heading in {_anchor(t) for t in titles}, f"{name}: {target}"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=str)
def test_a_job_file_that_is_shown_is_right(block: Block) -> None:
    """A whole one is a job; a part of one has fields and words that exist."""
    values = parse_job_text(re.sub(r"^extends:.*\n", "", block.text), str(block)).values
    jsonschema.Draft7Validator(job_schema()).validate(values)
    if {"job", "source", "sink"} <= set(values):
        Job.parse(block.text)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=str)
def test_python_that_is_shown_uses_names_that_exist(block: Block) -> None:
    tree = ast.parse(block.text)
    used = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "rangeland"
    ]
    assert used
    assert set(used) <= set(rangeland.__all__)


# --- README.md: what others rely on -----------------------------------------------------


def test_the_first_two_blocks_of_the_readme_set_up_the_demo_and_the_tests() -> None:
    demo, check = [b.text for b in docs.blocks("README.md") if b.language == "sh"]
    assert demo.count("\n") == check.count("\n") == 1
    assert demo.endswith(".venv/bin/rangeland demo\n")
    assert check.endswith(".venv/bin/python -m tests.check\n")


# --- jobs/README.md: the runbook --------------------------------------------------------

RUNBOOK = "jobs/README.md"
ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, RangelandError) and kind is not RangelandError
}


def _sections() -> dict[str, str]:
    """Of the runbook's part about errors, by the class in the heading."""
    part = docs.page(RUNBOOK).partition("\n## Errors\n")[2].partition("\n## ")[0]
    found = re.split(r"^### (\w+)\n", part, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_the_runbook_lists_every_metric() -> None:
    part = docs.page(RUNBOOK).partition("\n## Metrics\n")[2].partition("\n## ")[0]
    table = "".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", table)) == HELP.keys()


def test_alert_rules_are_about_metrics_that_are_written() -> None:
    rules = yaml.safe_load((docs.ROOT / "jobs/prometheus_rules.yaml").read_text())
    (group,) = rules["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) == 3
    for rule in group["rules"]:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
        (metric,) = re.findall(r"rangeland_\w+", rule["expr"])
        assert metric in HELP
        assert all(LossKind(kind) for kind in re.findall(r'kind!="(\w+)"', rule["expr"]))
        actions = "|".join(re.findall(r'action=~"([\w|]+)"', rule["expr"]))
        assert all(Action(action) for action in actions.split("|") if action)


def test_the_alert_about_lost_data_fires_for_losses_of_unknown_width() -> None:
    rules = yaml.safe_load((docs.ROOT / "jobs/prometheus_rules.yaml").read_text())
    (rule,) = (r for r in rules["groups"][0]["rules"] if r["labels"]["severity"] == "critical")
    assert re.findall(r"rangeland_\w+", rule["expr"]) == ["rangeland_run_losses"]


def test_alert_rules_fit_runs_and_backfills_and_name_the_whole_partition() -> None:
    """``land_hourly`` only makes backfills. With Jafka and RocketMQ a broker is part of it."""
    rules = yaml.safe_load((docs.ROOT / "jobs/prometheus_rules.yaml").read_text())["groups"][0]
    texts = {rule["alert"]: str(rule) for rule in rules["rules"]}
    assert not [alert for alert, text in texts.items() if 'command="' in text]
    assert "$labels.command" in texts["RangelandNotRun"]
    assert "$labels.broker" in texts["RangelandLosingData"]


def test_the_runbook_has_a_heading_for_every_error() -> None:
    assert set(_sections()) == set(ERRORS)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_the_runbook_says_of_an_error_what_the_error_says_of_itself(name: str) -> None:
    """The three answers and the exit code, then what one sees and what to do."""
    kind, text = ERRORS[name], " ".join(_sections()[name].split())
    assert f"Exit {kind.exit_code}." in text
    assert f"**Is my data safe?** {kind.data[0].upper()}{kind.data[1:]}." in text
    assert f"**May I retry?** {kind.retry[0].upper()}{kind.retry[1:]}." in text
    assert f"**Who acts?** {kind.acts[0].upper()}{kind.acts[1:]}." in text
    assert "```text" in _sections()[name]
    assert re.search(r"^1\. ", _sections()[name], re.MULTILINE)


def test_the_runbook_has_every_exit_code() -> None:
    table = docs.page(RUNBOOK).partition("\n## Errors\n")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} >= {
        kind.exit_code for kind in ERRORS.values()
    }


def test_what_is_in_the_job_folder_is_in_the_runbook() -> None:
    for script in sorted((docs.ROOT / "jobs").glob("*.py")):
        assert f"`{script.name}`" in docs.page(RUNBOOK), script.name
