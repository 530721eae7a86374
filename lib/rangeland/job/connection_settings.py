"""The connection settings of a job's source; the only place where secrets are read.

Here, in the driver, references are replaced by secrets just before they are used; the results are
never written anywhere. No server is asked here: ``cluster_access/cluster_lookup`` finds the brokers
that are registered in a ZooKeeper.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from rangeland.cluster_settings import (
    ClusterSettings,
    KerberosSettings,
    SaslSettings,
    TlsSettings,
    TokenSource,
)
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import JobFileError
from rangeland.job.job_file import Job
from rangeland.job.job_text import display_path
from rangeland.job.registry_section import SchemaRegistry
from rangeland.job.secret_references import look_up
from rangeland.job.source_section import Source
from rangeland.job.source_security import (
    Kerberos,
    Sasl,
    Tls,
    Token,
    ZooKeeperSecurity,
)
from rangeland.model import Address, Partition
from rangeland.planning.bound_resolution import groups_asked, times_asked
from rangeland.planning.incarnation import LogMark
from rangeland.schema_registry.registry_settings import RegistrySettings
from rangeland.survey.survey_request import SurveyRequest
from rangeland.zookeeper.connect_string import read_ensemble
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess, ZooKeeperLogin

SECRET_IS_KEPT = ("SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
"""Mechanisms that prove knowledge of a password without sending it."""


def cluster_of_brokers(job: Job, named_brokers: Sequence[tuple[str, Address]]) -> ClusterSettings:
    """The settings of a cluster with these brokers. If a reference points to a secret that does not
    exist, raises JobFileError, which names the reference."""
    source = job.source
    return ClusterSettings(
        dialect=source.dialect,
        seeds=tuple(address for _, address in named_brokers),
        named_brokers=tuple(named_brokers),
        client_id=source.client_id,
        isolation=source.isolation,
        tls=_tls(job, source.security.tls, "source", "security", "tls"),
        sasl=_login(job),
        **source.timeouts.model_dump(),
        max_answer_bytes=source.max_answer_bytes,
        max_batch_bytes=source.max_batch_bytes,
        rack=source.rack,
    )


def schema_registry_settings(job: Job, registry: SchemaRegistry) -> RegistrySettings:
    """The settings for reaching the schema registry of a job, with the timeouts of its brokers.
    Raises JobFileError if a reference points to a secret that does not exist."""
    timeouts = job.source.timeouts
    return RegistrySettings(
        urls=registry.url,
        username=registry.username or "",
        password=_secret(job, registry.password, "decode", "registry", "password"),
        token=_secret(job, registry.token, "decode", "registry", "token"),
        tls=_tls(job, registry.tls, "decode", "registry", "tls"),
        connect_ms=timeouts.connect_ms,
        request_ms=timeouts.request_ms,
        no_progress_ms=timeouts.no_progress_ms,
    )


def schema_registry_warnings(registry: SchemaRegistry) -> tuple[str, ...]:
    """Warnings about secrets for the schema registry that are sent without encryption."""
    unencrypted = [urlsplit(url) for url in registry.url if not url.lower().startswith("https:")]
    remote = [url for url in unencrypted if not _is_this_host(url.hostname or "")]
    if not remote or not (registry.password or registry.token):
        return ()
    secret = "token" if registry.token else "password"
    return (
        f"the {secret} of decode.registry is sent to {remote[0].netloc} in the clear: use https",
    )


def zookeeper_access(job: Job) -> ZooKeeperAccess:
    """How to reach and log in to the job's ZooKeeper. Raises JobFileError if a reference points to
    a secret that does not exist."""
    source = job.source
    security = source.security.zookeeper or ZooKeeperSecurity()
    section = ("source", "security", "zookeeper")
    login = None
    if (user := security.login) is not None:
        password = _secret(job, user.password, *section, "login", "password")
        login = ZooKeeperLogin(user.username, password, user.scheme == "sasl")
    tls = _tls(job, security.tls, *section, "tls")
    return ZooKeeperAccess(source.zookeeper or "", tls, login, source.timeouts.connect_ms)


def groups_in_zookeeper(job: Job) -> bool:
    """Whether groups are kept in ZooKeeper: always for Jafka, and for Kafka if the job names a
    ZooKeeper, as Kafka's old consumers did. RocketMQ's consumers never look there."""
    capabilities = load_dialect(job.source.dialect).capabilities
    return job.source.zookeeper is not None and capabilities.is_in_zookeeper


def request_for_topics(
    job: Job, known: Iterable[str] = (), times_ms: Iterable[int] = ()
) -> SurveyRequest:
    """The request for a survey of the job's logs, whatever its range. ``known`` are topics that may
    not exist any more."""
    return SurveyRequest(
        topics=job.source.topics,
        topic_pattern=job.source.topic_pattern,
        partitions=job.source.partitions,
        times_ms=tuple(times_ms),
        known=frozenset(known),
    )


def request_for_range(
    job: Job, known: Iterable[str] = (), checkpoint: Mapping[Partition, LogMark] | None = None
) -> SurveyRequest:
    """The request for a survey that can resolve the job's range. ``known`` are topics that the job
    has landed before, up to the ``checkpoint``."""
    return replace(
        request_for_topics(job, known, times_asked(job.request)),
        groups=tuple(groups_asked(job.request)),
        bounds=(job.request.from_bounds, job.request.until_bounds),
        marks=tuple((p, mark.until_offset) for p, mark in (checkpoint or {}).items()),
        checkpoint=dict(checkpoint or {}),
    )


def plaintext_secret_warnings(job: Job) -> tuple[str, ...]:
    """Warnings about secrets of this job that are sent without encryption."""
    registry = job.decode.registry
    at_registry = schema_registry_warnings(registry) if registry else ()
    return (*_exposed_login(job), *_exposed_in_zookeeper(job.source), *at_registry)


def _exposed_in_zookeeper(source: Source) -> tuple[str, ...]:
    security = source.security.zookeeper
    if (
        security is None
        or security.tls
        or security.login is None
        or security.login.scheme == "sasl"
    ):
        return ()
    servers = read_ensemble(source.zookeeper or "").servers
    if all(_is_this_host(server.host) for server in servers):
        return ()
    return (
        "the password of source.security.zookeeper.login is sent in the clear: set "
        "source.security.zookeeper.tls",
    )


def _exposed_login(job: Job) -> tuple[str, ...]:
    sasl = job.source.security.sasl
    tls = job.source.security.tls
    if sasl is None or tls is True or isinstance(tls, Tls) or sasl.mechanism in SECRET_IS_KEPT:
        return ()
    addresses = job.source.addresses
    if addresses and all(_is_this_host(address.host) for address in addresses):
        return ()
    secret = "token" if sasl.mechanism == "OAUTHBEARER" else "password"
    return (
        f"the {secret} of source.security.sasl is sent to the brokers in the clear: "
        f"{sasl.mechanism} without source.security.tls",
    )


def login_packages(job: Job) -> tuple[str, ...]:
    """The Python packages needed for the login, wherever a connection is made."""
    sasl = job.source.security.sasl
    if sasl is None:
        return ()
    packages = {"SCRAM-SHA-256": ("scramp",), "SCRAM-SHA-512": ("scramp",), "GSSAPI": ("gssapi",)}
    return packages.get(sasl.mechanism, ())


def tls_files(job: Job) -> dict[str, Path]:
    """The PEM files that connections need, keyed by the field that names them."""
    registry = job.decode.registry
    zookeeper = job.source.security.zookeeper
    sections = {
        "source.security.tls": job.source.security.tls,
        "source.security.zookeeper.tls": zookeeper.tls if zookeeper else False,
        "decode.registry.tls": registry.tls if registry else False,
    }
    return {
        f"{name}.{field}": Path(os.path.abspath(path))
        for name, tls in sections.items()
        if not isinstance(tls, bool)
        for field, path in (("ca", tls.ca), ("certificate", tls.certificate), ("key", tls.key))
        if path
    }


def _is_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _secret(job: Job, reference: str | None, *path: str) -> str:
    """The secret to which a field refers; empty if it refers to none. An error names the field and
    its place in the job file."""
    if not reference:
        return ""
    try:
        return look_up(reference)
    except JobFileError as error:
        field = display_path(path)
        named = error.with_words(what=f"{field}: {error.what}").with_facts(field=field)
        raise job.placed_error(named, path) from error


def _login(job: Job) -> SaslSettings | None:
    section = ("source", "security")
    security = job.source.security
    if security.acl is not None:
        secret = _secret(job, security.acl.secret_key, *section, "acl", "secret_key")
        return SaslSettings("ACL", security.acl.access_key, secret)
    if security.sasl is None:
        return None
    sasl = security.sasl
    return SaslSettings(
        mechanism=sasl.mechanism,
        username=sasl.username or "",
        password=_secret(job, sasl.password, *section, "sasl", "password"),
        token=None if sasl.token is None else _token(job, sasl.token),
        extensions=tuple(sasl.extensions.items()),
        is_delegated=sasl.delegation_token,
        kerberos=_kerberos(sasl),
    )


def _kerberos(sasl: Sasl) -> KerberosSettings | None:
    if sasl.mechanism != "GSSAPI":
        return None
    kerberos = sasl.kerberos or Kerberos()
    return KerberosSettings(kerberos.service_name, kerberos.principal, _path(kerberos.keytab))


def _token(job: Job, token: Token) -> TokenSource:
    path = ("source", "security", "sasl", "token", "client_secret")
    return TokenSource(
        command=token.command,
        file=_path(token.file),
        function=token.callable,
        endpoint=token.endpoint,
        client_id=token.client_id or "",
        client_secret=_secret(job, token.client_secret, *path),
        scope=token.scope or "",
        ca=_path(token.ca),
    )


def _path(path: str | None) -> str | None:
    """The absolute path. A relative path starts in the working directory of the command, and must
    mean the same on executors."""
    return None if path is None else os.path.abspath(path)


def _tls(job: Job, tls: Tls | bool, *section: str) -> TlsSettings | None:
    if isinstance(tls, bool):
        return TlsSettings() if tls else None
    key_password = None
    if tls.key_password is not None:
        key_password = _secret(job, tls.key_password, *section, "key_password")
    return TlsSettings(
        ca=_path(tls.ca),
        certificate=_path(tls.certificate),
        key=_path(tls.key),
        key_password=key_password,
        verify_hostname=tls.verify_hostname,
    )
