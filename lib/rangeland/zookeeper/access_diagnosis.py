"""Finds out why a ZooKeeper cannot be used: detects mistakes in a job, and names the field that
corrects each.

A server that closes connections without a response may just be restarting. So each server is asked
once more, in a way that tells a restart from a mistake.
"""

from __future__ import annotations

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.diagnosis import Peer, plain_port_error, tls_error, tls_port_error
from rangeland.connection.socket_stream import speaks_tls
from rangeland.connection.tls_probe import answers_in_clear, tls_failure
from rangeland.errors import AccessDenied, JobFileError, Unreachable
from rangeland.model import Address
from rangeland.zookeeper.connect_string import ConnectString
from rangeland.zookeeper.zookeeper_access import SECTION, ZooKeeperAccess

OPERATOR = "ZooKeeper's operator"
PEER = Peer(f"{SECTION}.tls", "source.zookeeper", OPERATOR)
# One of its four-letter words: every server answers it, even if only to say that the word is not
# allowed.
_QUESTION = b"ruok"


def ensemble_tls_error(
    ensemble: ConnectString, tls: TlsSettings | None
) -> JobFileError | AccessDenied | None:
    """The mistake about TLS that makes all servers unusable; None if there may be another cause for
    any of them."""
    errors = [_server_tls_error(server, tls) for server in ensemble.servers]
    return errors[0] if None not in errors else None


def _server_tls_error(
    server: Address, tls: TlsSettings | None
) -> JobFileError | AccessDenied | None:
    if tls is None:
        return tls_port_error(server, PEER) if speaks_tls(server) else None
    failure = tls_failure(server, tls, PEER.tls, _QUESTION)
    if failure is None:
        return None
    error = tls_error(server, failure, tls, PEER)
    if error is None and answers_in_clear(server, _QUESTION):
        return plain_port_error(server, PEER)
    return error


def login_error(name: str, access: ZooKeeperAccess) -> JobFileError | AccessDenied:
    """The error for a rejected login."""
    login = access.login
    if login is None:
        return JobFileError(
            f"{name} requires a login, but the job has none",
            why="it closed the session because of that",
            do=f"set {SECTION}.login",
        )
    kind = "SASL (DIGEST-MD5)" if login.uses_sasl else "the scheme digest"
    return AccessDenied(
        f"{name} rejects the login of {login.username}",
        why=f"it answered that the login with {kind} has failed",
        do=f"check username and what password refers to in {SECTION}.login, and whether this "
        "ZooKeeper accepts that kind of login",
        operator=OPERATOR,
        login_is_in_doubt=True,
    )


def endless_login_error(name: str) -> Unreachable:
    """The error for a login that never ends: a server without SASL answers each step with
    nothing."""
    return Unreachable(
        f"the login at {name} did not finish",
        why="the server is slow, or does not support SASL",
        do=f"check with {OPERATOR} that it does, or remove {SECTION}.login.scheme",
    )


def hidden_access_list_error(path: str, name: str, access: ZooKeeperAccess) -> AccessDenied:
    """The error for an access list that is shown without its digests."""
    login = access.login
    client = "a client without a login" if login is None else f"user {login.username}"
    return AccessDenied(
        f"{client} may not read the whole access list of {path} in {name}",
        why="digests in it are only shown to users who may change it",
        do=f"ask {OPERATOR} for the permission ADMIN there",
        operator=OPERATOR,
        login_is_in_doubt=login is None or not login.uses_sasl,
    )


def missing_rights_error(what: str, name: str, access: ZooKeeperAccess) -> AccessDenied:
    login = access.login
    if login is None:
        client = "a client without a login"
        do = f"set {SECTION}.login, or ask {OPERATOR}"
    else:
        client = f"user {login.username}"
        do = f"ask {OPERATOR}"
    is_known = login is not None and login.uses_sasl
    may_be_password = login is not None and not is_known
    return AccessDenied(
        f"{client} may not {what} {name}",
        why="the access list of the node does not allow it"
        + ("; ZooKeeper does not say whether the password is right" if may_be_password else ""),
        do=(f"check {SECTION}.login, or " if may_be_password else "")
        + f"{do} for read and write access there",
        operator=OPERATOR,
        login_is_in_doubt=not is_known,
    )
