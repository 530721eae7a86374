"""The TLS context of a connection, from the PEM files of a job, and the failures that OpenSSL
reports. There is no socket here.

The driver and the executors connect separately, so each of them needs the files. The error for a
missing or unusable file names its field and the host.
"""

from __future__ import annotations

import platform
import ssl
from pathlib import Path

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.diagnosis import TlsFailure
from rangeland.errors import JobFileError

SECTION = "source.security.tls"


def tls_context(tls: TlsSettings, section: str = SECTION) -> ssl.SSLContext:
    """A context for TLS 1.2 or later that verifies the server's certificate and host. Raises
    JobFileError for an unusable PEM file, naming its field in that section of the job file, and
    this host."""
    ca = _pem(section, "ca", tls.ca)
    certificate = _pem(section, "certificate", tls.certificate)
    key = _pem(section, "key", tls.key)
    field = "ca"
    path = ca
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = tls.verify_hostname
        if certificate:
            field, path = ("key", key) if key else ("certificate", certificate)
            # Without a function, OpenSSL would prompt for the password, and wait.
            password = tls.key_password
            context.load_cert_chain(certificate, key, lambda: password or "")
        return context
    except (OSError, ValueError) as error:
        raise _pem_error(section, field, path, error) from error


def openssl_failure(error: ssl.SSLError) -> TlsFailure:
    code = getattr(error, "verify_code", 0)
    message = getattr(error, "verify_message", "")
    return TlsFailure(str(error.reason or error), code, message)


def _pem(section: str, field: str, path: str | None) -> str | None:
    """The file at its path, or in the working directory of this process, where Spark puts files
    that were shipped with --files."""
    if path is None:
        return None
    shipped = Path(path).name
    for name in (path, shipped):
        if Path(name).is_file():
            return name
    raise JobFileError(
        f"there is no file {path} on {platform.node()}",
        why="the driver and every executor connect separately",
        do=f"put it on every host, ship it with --files, or correct {section}.{field}",
        field=field,
        host=platform.node(),
    )


def _pem_error(section: str, field: str, path: str | None, error: Exception) -> JobFileError:
    reason = str(getattr(error, "reason", "") or getattr(error, "strerror", "") or error)
    do = f"correct {section}.{field}: a PEM file is needed"
    if "KEY_VALUES_MISMATCH" in reason:
        do = f"{section}.key must be the key of {section}.certificate"
    elif field != "ca" and _is_locked(path):
        do = f"it is encrypted: check what {section}.key_password refers to"
    return JobFileError(
        f"the TLS file {path} cannot be used on {platform.node()}",
        why=reason,
        do=do,
        field=field,
        host=platform.node(),
    )


def _is_locked(path: str | None) -> bool:
    try:
        return path is not None and b"ENCRYPTED" in Path(path).read_bytes()
    except OSError:
        return False
