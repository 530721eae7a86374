"""Turns the problems that pydantic finds in a job file into mistakes in the file's own terms.

Pydantic reports problems in terms of Python. Here each gets its position in the file, the path of
the field as it is written there, the expectation, and for a misspelt field the one that was
probably meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rangeland.errors import JobFileError
from rangeland.job.job_text import FieldPath, JobText, display_path
from rangeland.job.section import FieldConflict, MisplacedKey
from rangeland.job.text_patterns import EXPECTED
from rangeland.wording import count_noun

MIN_SIMILARITY: Final = 0.7


@dataclass(frozen=True, slots=True)
class JobFileMistake:
    path: FieldPath
    expected: str
    suggestion: FieldPath | None = None
    """The field that was probably meant, if this one is unknown."""
    other: FieldPath | None = None
    """The other field, if the mistake is in what two of them say together."""

    def text(self) -> str:
        if self.suggestion is None:
            return self.expected
        return f"{self.expected}; did you mean {display_path(self.suggestion)}?"


def mistakes_of(
    model: type[BaseModel], text: JobText, error: ValidationError
) -> list[JobFileMistake]:
    """All mistakes of a job file, in the order of its lines."""
    return sorted(_mistakes(model, error), key=lambda m: text.line_of(m.path) or math.inf)


def job_file_error(text: JobText, mistakes: Sequence[JobFileMistake]) -> JobFileError:
    """One error for all mistakes of a job file."""
    shown = [(text.where(m.path), display_path(m.path) or "the job", m.text()) for m in mistakes]
    place, field, expected = shown[0]
    rest = "; ".join(": ".join(parts) for parts in shown[1:])
    return JobFileError(
        f"{place}: {field}: {expected}",
        why=f"{count_noun(len(shown) - 1, 'more mistake')}: {rest}" if rest else "",
        do="correct all of these" if rest else "correct the job file",
        file=text.file_of(mistakes[0].path),
        line=text.line_of(mistakes[0].path),
        field=field,
        mistakes=[{"where": p, "field": f, "expected": e} for p, f, e in shown],
    )


def _mistakes(model: type[BaseModel], error: ValidationError) -> list[JobFileMistake]:
    problems = error.errors(include_url=False, include_context=True, include_input=False)
    paths = [_path(problem) for problem in problems]
    fields = list(fields_of(model))
    mistakes = []
    for path, problem in zip(paths, problems, strict=True):
        # A mapping under `tls` with a mistake in it is not also "not a boolean".
        if problem["type"] == "bool_type" and any(p[: len(path)] == path != p for p in paths):
            continue
        unknown = problem["type"] == "extra_forbidden"
        meant = suggestion(path, fields) if unknown else None
        other = _other_path(problem)
        mistakes.append(JobFileMistake(path, _expectation(problem), meant, other))
    # A misspelt field is reported once, not also as the field that is missing.
    misspelt = {mistake.suggestion for mistake in mistakes}
    return [mistake for mistake in mistakes if mistake.path not in misspelt]


def _path(problem: Any) -> FieldPath:
    """A field's path as the job file has it: without the names of a union's members."""
    loc: FieldPath = problem["loc"]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, MisplacedKey):
        return (*loc, *cause.field)
    for index, name in enumerate(loc):
        if name == "tls" and loc[index + 1 : index + 2] in (("Tls",), ("bool",)):
            return (*loc[: index + 1], *loc[index + 2 :])
    return loc


def _other_path(problem: Any) -> FieldPath | None:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, FieldConflict) and cause.other:
        return (*problem["loc"], *cause.other)
    return None


def _expectation(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this field is required"
        case "value_error":
            cause = problem["ctx"]["error"]
            return f"{cause.lead if isinstance(cause, MisplacedKey) else 'expected '}{cause}"
        case "tuple_type":
            return "expected a list, such as [orders]"
        case "model_type" | "dict_type":
            return "expected fields, such as {name: value}"
        case "too_short":
            return "expected at least one; omit the field for all"
        case "string_pattern_mismatch":
            return f"expected {EXPECTED[problem['ctx']['pattern']]}"
        case _:
            return f"expected {problem['msg'].removeprefix('Input should be ')}"


def fields_of(model: type[BaseModel], prefix: FieldPath = ()) -> Iterator[FieldPath]:
    """All fields of a job file, each by its path."""
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        yield path
        members = () if get_origin(field.annotation) is dict else get_args(field.annotation)
        for kind in (field.annotation, *members):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields_of(kind, path)


def suggestion(path: FieldPath, fields: list[FieldPath]) -> FieldPath | None:
    """A field of the same section with a similar name, or one with the same name: in a subsection,
    or in the only other section that has it."""
    *section, name = path
    siblings = [str(field[-1]) for field in fields if list(field[:-1]) == section]
    similar = get_close_matches(str(name), siblings, n=1, cutoff=MIN_SIMILARITY)
    if similar:
        return (*section, similar[0])
    elsewhere = [field for field in fields if field[-1] == name]
    below = [field for field in elsewhere if section and list(field[: len(section)]) == section]
    if below:
        return below[0]
    return elsewhere[0] if len(elsewhere) == 1 else None
