"""Secrets in a job file: references, ``${env:NAME}`` or ``${file:PATH}``, never the secrets
themselves.

They are checked where the file is read, and looked up where the settings of a connection are made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, WithJsonSchema

from rangeland.errors import JobFileError
from rangeland.job.value_parsers import Schema

MAX_SECRET_BYTES = 1 << 16
_REFERENCE = r"\$\{(env|file):[^}]+\}"


def parse_secret(value: object) -> object:
    """The reference to a secret; a job file must not contain the secret itself. Raises
    ValueError."""
    if isinstance(value, str) and re.fullmatch(_REFERENCE, value):
        return value
    raise ValueError("a reference such as ${env:NAME} or ${file:PATH}, never the secret itself")


SECRET: Schema = {
    "title": "reference to a secret",
    "type": "string",
    "pattern": rf"^{_REFERENCE}$",
    "examples": ["${env:KAFKA_PASSWORD}", "${file:/run/secrets/kafka}"],
}
SecretRef = Annotated[str, BeforeValidator(parse_secret), WithJsonSchema(SECRET)]


def secret_references(section: BaseModel) -> list[str]:
    """The references in a section and in the sections below it, each once, in order."""
    found: dict[str, None] = {}

    def search(value: object) -> None:
        if isinstance(value, str) and re.fullmatch(_REFERENCE, value):
            found[value] = None
        elif isinstance(value, Mapping):
            for inner in value.values():
                search(inner)

    search(section.model_dump())
    return list(found)


def look_up(reference: str) -> str:
    """The secret behind ``${env:NAME}`` or ``${file:PATH}``, without a trailing newline. An error
    names the reference; neither it nor its causes contain any part of the secret."""
    if re.fullmatch(_REFERENCE, reference) is None:
        raise JobFileError("a secret must be a reference", do="write ${env:NAME} or ${file:PATH}")
    kind, _, name = reference[2:-1].partition(":")
    if kind == "file":
        return _secret_in(name, reference)
    if name not in os.environ:
        raise JobFileError(
            f"the environment variable {name} is not set", do=f"set it, or correct {reference}"
        )
    secret = os.environ[name]
    if not secret.isascii() and any("\ud800" <= letter <= "\udfff" for letter in secret):
        raise JobFileError(
            f"the secret in the environment variable {name} is not UTF-8",
            do=f"set it in UTF-8, or correct {reference}",
        )
    return secret


def _secret_in(path: str, reference: str) -> str:
    text, reason = None, "it is not UTF-8"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        if len(content) > MAX_SECRET_BYTES:
            reason = f"it has more than {MAX_SECRET_BYTES} bytes"
        else:
            text = content.decode("utf-8")
    except UnicodeDecodeError:
        pass  # Raised below, because this exception contains the secret.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
    if text is None:
        raise JobFileError(
            f"the secret file {path} cannot be read",
            why=reason,
            do=f"make it readable, or correct {reference}",
        )
    return text.rstrip("\r\n")
