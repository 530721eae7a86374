"""A job's source as the settings that connections need; the one place where secrets are read.

A reference becomes its secret here, in the driver, just before it is used. Nothing that
this gives is written anywhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rangeland.errors import JobFileError
from rangeland.fetch.settings import ClusterSettings, SaslSettings, TlsSettings
from rangeland.fetch.survey import Wanted
from rangeland.job import Job, Tls
from rangeland.planning.bounds import groups_asked, times_asked


def cluster_settings(job: Job) -> ClusterSettings:
    """Raises JobFileError for a secret whose reference leads nowhere, naming the reference."""
    source = job.source
    sasl = source.security.sasl
    return ClusterSettings(
        dialect=source.dialect,
        seeds=source.addresses,
        client_id=source.client_id,
        isolation=source.isolation,
        tls=_tls(source.security.tls),
        sasl=None
        if sasl is None
        else SaslSettings(sasl.mechanism, sasl.username, look_up(sasl.password)),
        connect_ms=source.timeouts.connect_ms,
        request_ms=source.timeouts.request_ms,
        survey_ms=source.timeouts.survey_ms,
        no_progress_ms=source.timeouts.no_progress_ms,
        policy=job.policies,
    )


def wanted_of(job: Job) -> Wanted:
    """What a survey must look at to resolve the job's range."""
    source = job.source
    return Wanted(
        topics=source.topics,
        topic_pattern=source.topic_pattern,
        partitions=source.partitions,
        times_ms=tuple(times_asked(job.request)),
        groups=tuple(groups_asked(job.request)),
    )


def _tls(tls: Tls | bool) -> TlsSettings | None:
    if isinstance(tls, bool):
        return TlsSettings() if tls else None
    return TlsSettings(
        ca=tls.ca,
        certificate=tls.certificate,
        key=tls.key,
        key_password=None if tls.key_password is None else look_up(tls.key_password),
        verify_hostname=tls.verify_hostname,
    )


def look_up(reference: str) -> str:
    """The secret behind ``${env:NAME}`` or ``${file:PATH}``, without a trailing newline."""
    found = re.fullmatch(r"\$\{(env|file):([^}]+)\}", reference)
    if found is None:
        raise JobFileError("a secret must be a reference", do="write ${env:NAME} or ${file:PATH}")
    kind, name = found.groups()
    if kind == "env":
        if name in os.environ:
            return os.environ[name]
        raise JobFileError(f"the environment has no {name}", do=f"set it, or correct {reference}")
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        # Not the error's own text: of a decoding error that could be part of the secret.
        raise JobFileError(
            f"the secret file {name} cannot be read",
            why=type(error).__name__,
            do=f"make it readable, or correct {reference}",
        ) from None
