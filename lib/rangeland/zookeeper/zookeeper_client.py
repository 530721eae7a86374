"""The ZooKeeper client: one session, its requests, and its end.

Only this module and ``kazoo_connection`` import kazoo. Its exceptions become Unreachable or
AccessDenied; a missing node or a transaction that was not applied is a value, not an error; kazoo's
last log message becomes the *why* of an Unreachable.

Each call has a deadline. If the connection is lost, the call waits until it is back and is sent
again. So a transaction may have been applied even though its second attempt is refused: callers
must be able to tell. ``session`` shows that a session has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.zookeeper.access_diagnosis import (
    endless_login_error,
    ensemble_tls_error,
    hidden_access_list_error,
    login_error,
    missing_rights_error,
)
from rangeland.zookeeper.connect_string import read_ensemble
from rangeland.zookeeper.kazoo_connection import (
    KazooHandler,
    LastKazooMessage,
    credentials,
)
from rangeland.zookeeper.znodes import (
    AccessList,
    AccessRule,
    Check,
    Create,
    Delete,
    Operation,
    Reason,
    Refused,
    Write,
    Znode,
)
from rangeland.zookeeper.zookeeper_access import ZooKeeperAccess

CLOSE_TIMEOUT_S = 2.0
# How many requests are in flight at once: thousands are fine, hundreds of thousands are not.
_AT_ONCE = 1000
# What servers show instead of a digest to users who may not change the access list.
_HIDDEN_DIGEST = ":x"
_PASSING = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)

logger = logging.getLogger(__name__)
logging.getLogger("kazoo").addHandler(logging.NullHandler())


_REASONS: dict[type[KazooException], Reason] = {
    NoNodeError: Reason.ABSENT,
    NodeExistsError: Reason.EXISTS,
    BadVersionError: Reason.CHANGED,
    NotEmptyError: Reason.NOT_EMPTY,
}
_ADD: dict[type[Operation], Callable[[Any, Any], None]] = {
    Create: lambda t, o: t.create(
        o.path, o.content, acl=_kazoo_acls(o.access_list), ephemeral=o.ephemeral
    ),
    Write: lambda t, o: t.set_data(o.path, o.content),
    Check: lambda t, o: t.check(o.path, o.version),
    Delete: lambda t, o: t.delete(o.path, o.version),
}


class ZooKeeper:
    """A client, opened by ``connect``. It reconnects by itself; if its session ends, a new one
    begins. Thread-safe."""

    def __init__(self, access: ZooKeeperAccess, session_ms: int) -> None:
        self.ensemble = read_ensemble(access.servers)
        self._access = access
        self._timeout_s = access.connect_ms / 1000
        self._connected = threading.Event()
        self._session: tuple[int, bytes] | None = None
        self._has_login_failed = False
        self._kazoo_log = LastKazooMessage()
        self._is_closed = False
        limit_s = self._timeout_s / len(self.ensemble.servers)
        self._handler = KazooHandler(limit_s, access, self._on_failed_login)
        self._kazoo = KazooClient(
            hosts=str(self.ensemble),
            timeout=session_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=1),
            handler=self._handler,
            logger=self._kazoo_log.logger,
            **credentials(access.login),
        )
        self._kazoo.add_listener(self._on_state)

    def __str__(self) -> str:
        return f"the ZooKeeper at {self.ensemble}"

    # --- life --------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the session. Raises Unreachable; JobFileError if the chroot does not exist, or if
        TLS or the login are configured wrongly; AccessDenied if the server refuses either."""
        self._kazoo.start_async()
        try:
            (root,) = self._ask("connect to", lambda: [self._kazoo.exists_async("/")])
            self._check_chroot_exists(root)
        except Unreachable as error:
            was_connected = self._session is not None
            self.close()
            raise (self._session_error(was_connected) or error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the session, so that its ephemeral nodes disappear at once. If the server does not
        answer, the session will time out later; this call does not wait for that."""
        self._is_closed = True
        # If the server is silent, kazoo waits as long as a session lasts.
        ending = threading.Thread(target=self._end, name="zookeeper-close", daemon=True)
        ending.start()
        ending.join(CLOSE_TIMEOUT_S)

    @property
    def session(self) -> int | None:
        """The session's number; None between the end of one session and the beginning of the next.
        It remains while the connection is lost, since the session may still be alive."""
        return None if self._session is None else self._session[0]

    # --- requests ----------------------------------------------------------------------

    def read(self, path: str) -> Znode | None:
        """Reads a node; None if it does not exist."""
        return self.read_all([path])[path]

    def read_all(
        self, paths: Iterable[str], within_ms: int | None = None
    ) -> dict[str, Znode | None]:
        """Reads all nodes in one round trip, but not as of a single moment. Raises Unreachable."""
        paths = list(paths)
        responses = self._ask_all("read", self._kazoo.get_async, paths, within_ms)
        return {p: _node(response) for p, response in zip(paths, responses, strict=True)}

    def children(self, path: str, within_ms: int | None = None) -> list[str] | None:
        """The names of a node's children, sorted; None if the node does not exist."""
        return self.children_of([path], within_ms)[path]

    def children_of(
        self, paths: Iterable[str], within_ms: int | None = None
    ) -> dict[str, list[str] | None]:
        paths = list(paths)
        responses = self._ask_all("list", self._kazoo.get_children_async, paths, within_ms)
        return {
            p: None if isinstance(response, KazooException) else sorted(response)
            for p, response in zip(paths, responses, strict=True)
        }

    def last_changes(self, paths: Iterable[str], within_ms: int | None = None) -> dict[str, int]:
        """For each node, the number of the last transaction that created or removed one of its
        children; -1 if the node does not exist."""
        paths = list(paths)
        stats = self._ask_all("read", self._kazoo.exists_async, paths, within_ms)
        return {p: -1 if s is None else s.pzxid for p, s in zip(paths, stats, strict=True)}

    def access_list(self, path: str) -> AccessList | None:
        """A node's access list; None if the node does not exist. Raises AccessDenied if the list is
        not shown, or only in part."""
        (response,) = self._ask_all("read", self._kazoo.get_acls_async, [path])
        if isinstance(response, KazooException):
            return None
        rules = tuple(AccessRule(acl.perms, acl.id.scheme, acl.id.id) for acl in response[0])
        if any(r.scheme == "digest" and r.user.endswith(_HIDDEN_DIGEST) for r in rules):
            raise hidden_access_list_error(path, str(self), self._access)
        return rules

    def catch_up(self) -> None:
        """Makes later reads at least as new as anything that any client has read so far."""
        self._ask("catch up with", lambda: [self._kazoo.sync_async("/")])

    def make(self, paths: Iterable[str]) -> None:
        """Creates missing persistent nodes, with their parents."""
        self._ask_all("create", self._kazoo.ensure_path_async, sorted(set(paths)))

    def apply(self, operations: Sequence[Operation]) -> Refused | None:
        """Applies all operations in one transaction. If one fails, none is applied, and the result
        is the one that failed."""

        def send() -> list[Any]:
            transaction = self._kazoo.transaction()
            for operation in operations:
                _ADD[type(operation)](transaction, operation)
            return [transaction.commit_async()]

        (results,) = self._ask("write to", send)
        self._check_all_succeeded(results)
        for operation, result in zip(operations, results, strict=True):
            if type(result) in _REASONS:
                return Refused(operation, _REASONS[type(result)])
        return None

    # --- sending and errors ------------------------------------------------------------

    def _ask_all(
        self,
        verb: str,
        ask: Callable[[str], Any],
        paths: Sequence[str],
        within_ms: int | None = None,
    ) -> list[Any]:
        responses: list[Any] = []
        for first in range(0, len(paths), _AT_ONCE):
            some = paths[first : first + _AT_ONCE]
            what = verb if len(some) > 1 else f"{verb} {some[0]} of"
            responses += self._ask(what, lambda some=some: [ask(p) for p in some], within_ms)  # type: ignore[misc]
        return responses

    def _ask(
        self, what: str, send: Callable[[], list[Any]], within_ms: int | None = None
    ) -> list[Any]:
        """Sends until responses arrive or time is up. That a node is missing, or exists already,
        counts as a response."""
        limit_s = self._timeout_s if within_ms is None else min(self._timeout_s, within_ms / 1000)
        deadline = time.monotonic() + limit_s
        while not self._is_closed and (left_s := deadline - time.monotonic()) > 0:
            if not self._is_connected_within(left_s, what):
                break
            try:
                return [_value(sent, deadline) for sent in send()]
            except ConnectionClosedError:
                if self._is_closed:
                    break
                time.sleep(0.02)  # kazoo also raises this between two connections
            except _PASSING:
                continue
            except KazooTimeoutError:
                break
            except KazooException as error:
                raise self._request_error(what, limit_s, error) from error
        raise self._unreachable_error(what, limit_s)

    def _session_error(self, was_connected: bool) -> RangelandError | None:
        """Why a session did not begin, if more is known about it."""
        if not was_connected:
            return ensemble_tls_error(self.ensemble, self._access.tls)
        login = self._access.login
        return endless_login_error(str(self)) if login is not None and login.uses_sasl else None

    def _is_connected_within(self, limit_s: float, what: str) -> bool:
        is_connected = self._connected.wait(limit_s)
        if self._has_login_failed:
            raise self._login_error(what)
        return is_connected

    def _check_chroot_exists(self, root: Any) -> None:
        if self.ensemble.chroot and root is None:
            raise JobFileError(
                f"{self} has no {self.ensemble.chroot}",
                why="the path does not exist",
                do="correct the path in source.zookeeper, or start the brokers that create it",
                zookeeper=str(self.ensemble),
            )

    def _check_all_succeeded(self, results: list[Any]) -> None:
        for result in results:
            if isinstance(result, NoAuthError):
                raise missing_rights_error("write to", str(self), self._access)
            unexpected = isinstance(result, KazooException) and type(result) not in _REASONS
            if unexpected and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise self._unreachable_error("write to", 0, type(result).__name__)

    def _request_error(self, what: str, limit_s: float, error: KazooException) -> RangelandError:
        if isinstance(error, NoAuthError):
            return missing_rights_error(what, str(self), self._access)
        if not isinstance(error, AuthFailedError | SessionClosedRequireSaslError):
            return self._unreachable_error(what, limit_s, type(error).__name__)
        return self._login_error(what)

    def _login_error(self, what: str) -> RangelandError:
        if self._kazoo_log.login_was_cut:
            return self._unreachable_error(what, 0, "it closed the connection during the login")
        return login_error(str(self), self._access)

    def _unreachable_error(self, what: str, limit_s: float, why: str = "") -> Unreachable:
        if self._is_closed:
            why = why or "the session was closed"
        message = self._kazoo_log.last
        why = why or f"no response within {limit_s:g} s" + (f" ({message})" if message else "")
        return Unreachable(
            f"could not {what} {self}",
            why=why,
            do="check that it is up and can be reached from here, then run again",
            zookeeper=str(self.ensemble),
        )

    def _on_failed_login(self) -> None:
        """Called by kazoo's own thread, which then ends, so it would be pointless to wait for a
        connection."""
        self._has_login_failed = True
        self._connected.set()

    def _on_state(self, state: str) -> None:
        """Called by kazoo's own thread, which must not block here."""
        if state == KazooState.CONNECTED:
            self._handler.session_began()
            self._session = self._kazoo.client_id
            self._kazoo_log.last = ""
            self._connected.set()
            return
        # kazoo may end a session for this reason by itself, even before it was asked for anything.
        if self._kazoo.client_state == KeeperState.AUTH_FAILED:
            self._on_failed_login()
        if not self._has_login_failed:
            self._connected.clear()
        if state == KazooState.LOST:
            logger.warning("Lost the session", extra={"zookeeper": str(self.ensemble)})
            self._session = None

    def _end(self) -> None:
        # An error while ending a session that is no longer needed does not matter.
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except (KazooException, KazooTimeoutError, OSError) as error:
            self._kazoo_log.last = str(error)


def connect(access: ZooKeeperAccess, session_ms: int | None = None) -> ZooKeeper:
    """Opens a session. Its length matters for ephemeral nodes. Raises Unreachable; JobFileError for
    an invalid address, a missing chroot, or a mistake about TLS or the login; AccessDenied if the
    server refuses either."""
    client = ZooKeeper(access, session_ms or access.connect_ms)
    client.start()
    return client


def _value(sent: Any, deadline: float) -> Any:
    try:
        return sent.get(timeout=max(0.0, deadline - time.monotonic()))
    except (NoNodeError, NodeExistsError) as error:
        return error


def _kazoo_acls(rules: AccessList | None) -> list[ACL] | None:
    if rules is None:
        return None
    return [ACL(rule.permissions, Id(rule.scheme, rule.user)) for rule in rules]


def _node(response: Any) -> Znode | None:
    if isinstance(response, KazooException):
        return None
    content, stat = response
    return Znode(content or b"", stat.version, stat.czxid, stat.ephemeralOwner)
