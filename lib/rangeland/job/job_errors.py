"""What is wrong with a job file, said in its own terms: one error for all that is wrong.

Pydantic says it in terms of Python: here each of its problems gets the place in the file, the
path of the field as it is written there, and what was expected instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pydantic import ValidationError

from rangeland.errors import JobFileError
from rangeland.job.located_values import JobText, shown
from rangeland.job.section import MisplacedKey


def refuse(text: JobText, error: ValidationError) -> NoReturn:
    """All mistakes of a job file in one error, each with its place and what was expected."""
    mistakes = []
    problems = error.errors(include_url=False, include_context=True, include_input=False)
    paths = [_path(problem) for problem in problems]
    for path, problem in zip(paths, problems, strict=True):
        # A mapping under `tls` with a mistake in it is not also "no boolean".
        if problem["type"] == "bool_type" and any(p[: len(path)] == path != p for p in paths):
            continue
        mistakes.append((text.where(path), shown(path) or "the job", _expected(problem)))
    place, field, expected = mistakes[0]
    raise JobFileError(
        f"{place}: {field}: {expected}",
        why="; ".join(f"{p}: {f}: {e}" for p, f, e in mistakes[1:]),
        do="correct the job file" if len(mistakes) == 1 else "correct all of these",
        file=text.file_of(paths[0]),
        line=text.line_of(paths[0]),
        field=field,
        mistakes=[{"where": p, "field": f, "expected": e} for p, f, e in mistakes],
    )


def _path(problem: Any) -> tuple[str | int, ...]:
    """A field's path as the job file has it: without the names of a union's members."""
    loc: tuple[str | int, ...] = problem["loc"]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, MisplacedKey):
        return (*loc, *cause.field)
    if loc[:3] == ("source", "security", "tls") and loc[3:4] in (("Tls",), ("bool",)):
        return (*loc[:3], *loc[4:])
    return loc


def _expected(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this field is needed"
        case "value_error":
            return f"expected {problem['ctx']['error']}"
        case "tuple_type":
            return "expected a list, such as [orders]"
        case "model_type" | "dict_type":
            return "expected fields, such as {name: value}"
        case "too_short":
            return "expected at least one; leave the field out for all"
        case "string_pattern_mismatch":
            return "expected a name of lower-case letters, digits, '.', '_' and '-'"
        case _:
            return f"expected {problem['msg'].removeprefix('Input should be ')}"
