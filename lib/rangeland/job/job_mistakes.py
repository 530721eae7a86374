"""Turns the problems that pydantic finds in a job file into mistakes described in the file's own
terms.

Pydantic reports problems in terms of Python. Here each of them gets its position in the file, the
path of the field as it is written there, what was expected, and for a misspelt field the one that
was probably meant.
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
from rangeland.job.mistake_texts import KAFKA_NAMES, expectation
from rangeland.job.section import FieldConflict, MisplacedKey
from rangeland.wording import count_noun

MIN_SIMILARITY: Final = 0.7


@dataclass(frozen=True, slots=True)
class JobFileMistake:
    path: FieldPath
    expected: str
    suggestion: FieldPath | None = None
    """The field that was probably meant, if this one is unknown."""
    other: FieldPath | None = None
    """The other field, if the mistake lies in the combination of two fields."""

    def text(self) -> str:
        if self.suggestion is None:
            return self.expected
        if display_path(self.suggestion) == display_path(self.path):  # The name contains a dot.
            *section, name = self.suggestion
            return f"{self.expected}; write {name} in the section {display_path(tuple(section))}"
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
    origin = "option" if text.option_of(mistakes[0].path) else "job file"
    rest = "; ".join(": ".join(parts) for parts in shown[1:])
    return JobFileError(
        f"{place}: {field}: {expected}",
        why=f"{count_noun(len(shown) - 1, 'more mistake')}: {rest}" if rest else "",
        do="correct all of these" if rest else f"correct the {origin}",
        file=text.file_of(mistakes[0].path),
        line=text.line_of(mistakes[0].path),
        field=field,
        mistakes=[{"where": p, "field": f, "expected": e} for p, f, e in shown],
    )


def _mistakes(model: type[BaseModel], error: ValidationError) -> list[JobFileMistake]:
    problems = error.errors(include_url=False, include_context=True)
    paths = [_path(problem) for problem in problems]
    fields = list(fields_of(model))
    mistakes = []
    for path, problem in zip(paths, problems, strict=True):
        # A mapping under `tls` that contains a mistake is not also reported as "not a boolean".
        if problem["type"] == "bool_type" and any(p[: len(path)] == path != p for p in paths):
            continue
        expected = expectation(path, problem)
        meant = None
        if problem["type"] == "extra_forbidden":
            meant = suggestion(path, fields)
            expected += "" if meant else _fields_beside(path, fields)
        mistakes.append(JobFileMistake(path, expected, meant, _other_path(problem)))
    # A misspelt field is reported once, and not a second time as a missing field.
    misspelt = {mistake.suggestion for mistake in mistakes}
    # Neither of the types that `tls` may have is reported without the other.
    return [m for m in dict.fromkeys(mistakes) if m.path not in misspelt]


def _path(problem: Any) -> FieldPath:
    """A field's path as it appears in the job file: without the names of a union's members."""
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


def fields_of(model: type[BaseModel], prefix: FieldPath = ()) -> Iterator[FieldPath]:
    """All fields of a job file, each as a path."""
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        yield path
        members = () if get_origin(field.annotation) is dict else get_args(field.annotation)
        for kind in (field.annotation, *members):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields_of(kind, path)


def _fields_beside(path: FieldPath, fields: Sequence[FieldPath]) -> str:
    """The fields in an unknown field's section; empty for the job itself, which has too many
    sections."""
    section = path[:-1]
    names = [str(field[-1]) for field in fields if field[:-1] == section]
    return f"; {display_path(section)} has {', '.join(names)}" if section and names else ""


def suggestion(path: FieldPath, fields: list[FieldPath]) -> FieldPath | None:
    """The field that Kafka's clients call by this name; or a field of the same section with a
    similar name; or one with the same name in a subsection, or in the only other section that has
    it."""
    *section, name = path
    if str(name) in KAFKA_NAMES:
        return KAFKA_NAMES[str(name)]
    siblings = [str(field[-1]) for field in fields if list(field[:-1]) == section]
    similar = get_close_matches(str(name), siblings, n=1, cutoff=MIN_SIMILARITY)
    if similar:
        return (*section, similar[0])
    elsewhere = [field for field in fields if field[-1] == name]
    below = [field for field in elsewhere if section and list(field[: len(section)]) == section]
    if below:
        return below[0]
    return elsewhere[0] if len(elsewhere) == 1 else None
