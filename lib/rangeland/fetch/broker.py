"""The only file with a socket: one connection to one broker.

It sends what a session says and receives whole frames, each within a deadline. Foreign
errors (OSError, ssl) end here and become ``Lost``, which says what was tried, or the mistake
of the job that they show (``mistakes``). A peer that closes without a word is greeted once
more in another way, plain or over TLS, so that a mistake is told for what it is. It decides
nothing else: reconnecting and failing over are the callers' business.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rangeland.dialects.contract import Asking, Dialect, Question
from rangeland.errors import JobFileError, RangelandError, RemoteProtocolError
from rangeland.fetch import mistakes
from rangeland.fetch.lost import Closed, Lost, NoBroker, Tokenless
from rangeland.fetch.proof import Proof
from rangeland.fetch.settings import ClusterSettings
from rangeland.fetch.tls import tls_context
from rangeland.model import Address
from rangeland.wire.frames import FrameReader

# Until a peer has shown that it is a broker: "HTTP" read as a length is more than a gigabyte.
MAX_OPENING_BYTES = 1 << 20
RECEIVE_BUFFER_BYTES = 4 << 20
POOLED_BYTES = 1 << 16
AHEAD_BYTES = 1 << 18
PROBE_MS = 2_000
LAST_READS = 16

__all__ = ["Closed", "Connection", "Lost", "NoBroker", "Tokenless"]


class Connection:
    """Connected and negotiated when made; not for several threads at once.

    Answers are given in the order of the requests, in whatever order they come. After any
    error it is closed for good. ``is_old``: the broker is too old to be asked what it takes;
    ``was_old``: it was when it was asked last, so it need not be asked again."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        settings: ClusterSettings,
        *,
        is_probe: bool = False,
        was_old: bool = False,
    ) -> None:
        self.address = address
        self._settings = settings
        self._dialect = dialect
        self._is_probe = is_probe
        self._is_known = self._has_answered = self._was_heard = False
        sasl = settings.sasl
        self._proof = None if sasl is None else Proof(sasl, settings.request_ms)
        self._unanswered: deque[int] = deque()
        self._early: dict[int, Any] = {}
        self._session = dialect.open_session(settings.client_id)
        self._frames = FrameReader(MAX_OPENING_BYTES)
        self._socket = self._connect()
        try:
            self.is_old = was_old
            self._open()
            self._take_large_frames()
            if self._proof is not None:
                self._log_in_surely(self._proof)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        tls = self._settings.tls
        context = None if tls is None else tls_context(tls)
        timeout = self._settings.connect_ms / 1000
        try:
            plain = socket.create_connection((self.address.host, self.address.port), timeout)
        except OSError as error:
            raise self._lost("connect to", error) from error
        except UnicodeError as error:  # what idna says of a name with an empty label
            raise mistakes.no_host(self.address) from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except OSError as error:
            plain.close()
            lost = self._lost("shake hands over TLS with", error)
            if isinstance(lost, Lost) and self._speaks_plainly():
                raise mistakes.plain_port(self.address) from error
            raise lost from error
        except ValueError as error:
            plain.close()
            raise mistakes.no_host(self.address) from error

    def _take_large_frames(self) -> None:
        self._frames = FrameReader(self._settings.max_answer_bytes, _pooled, AHEAD_BYTES)

    def _open(self) -> None:
        try:
            if self.is_old:
                self._greet_as_old(self._session.oldest())
                self._ask_again()
                return
            self._negotiate()
        except Closed as closed:
            is_plain = self._settings.tls is None and not self._is_probe
            if is_plain and self._speaks_tls():
                raise mistakes.tls_port(self.address) from closed
            self._open_as_of_old(closed)
        except RemoteProtocolError as error:
            raise self._stranger(error) from error

    def _negotiate(self) -> None:
        question: bytes | None = self._session.open()
        self._is_known = bool(question)
        while question:
            self._send(question)
            question = self._session.negotiated(self._receive(self._settings.request_ms))

    def _open_as_of_old(self, closed: Closed) -> None:
        """One that closes may be too old for an opening, or busy, or going down. It is old if it
        answers what the oldest answer and then, on the same connection, closes at an opening."""
        self.is_old = False
        hello = self._session.oldest()
        if not hello or self._settings.sasl is not None:
            raise Closed(closed.what, why=closed.why, do=mistakes.SILENT_CLOSE, **closed.facts)
        self._connect_again()
        try:
            self._greet_as_old(hello)
        except Closed as again:
            raise Closed(
                again.what, why=again.why, do=mistakes.SILENT_CLOSE, **again.facts
            ) from closed
        self._ask_again()

    def _ask_again(self) -> None:
        """Opens on a connection that the oldest greeting was answered on: who closes it now is
        old, and who does not has been upgraded."""
        session, self.is_old = self._session, False
        self._session = self._dialect.open_session(self._settings.client_id)
        try:
            self._negotiate()
        except Closed:
            self._session = session
            self._is_known = self.is_old = True
            self._connect_again()

    def _greet_as_old(self, hello: bytes) -> None:
        self._send(hello)
        self._session.decode(self._receive(self._settings.request_ms))
        self._is_known = True

    def _connect_again(self) -> None:
        self.close()
        self._was_heard = False
        self._frames = FrameReader(MAX_OPENING_BYTES)
        self._socket = self._connect()

    # --- who we are ---------------------------------------------------------------------

    def _log_in_surely(self, proof: Proof) -> None:
        """Brokers that only close the connection have refused who closes it twice, at the same
        step: the first time it may be going down."""
        try:
            self._log_in(proof)
            return
        except JobFileError as error:
            first, closed_at = error, error.facts.get("closed_at")
            if closed_at is None:
                raise
        self._session = self._dialect.open_session(self._settings.client_id)
        self._unanswered.clear()
        self._early.clear()
        self._is_known = self._has_answered = False
        self._connect_again()
        self._open()
        self._take_large_frames()
        try:
            self._log_in(proof)
        except JobFileError as error:
            if error.facts.get("closed_at") in (None, closed_at):
                raise
            raise Closed(error.what, why=error.why, do=error.do, **error.facts) from first

    def _log_in(self, proof: Proof) -> None:
        """Raises JobFileError for who is not let in, Lost for a connection that breaks or a
        token that cannot be had now."""
        talk = self._dialect.login(proof.credentials())
        try:
            proof.holds(self._converse(talk))
        except RangelandError as error:
            proof.forget()
            error.facts.setdefault("broker", str(self.address))
            raise

    def _renew(self, proof: Proof) -> None:
        """As long as what was said last holds, a token that cannot be had can wait."""
        try:
            self._log_in(proof)
        except Tokenless:
            if not proof.put_off():
                self.close()
                raise

    def _converse(self, talk: Generator[Question, Any, int | None]) -> int | None:
        try:
            step = next(talk)
            while True:
                try:
                    answer = self.call(step)
                except RangelandError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(answer)
        except StopIteration as done:
            lifetime_ms: int | None = done.value
            return lifetime_ms

    # --- questions and answers ----------------------------------------------------------

    def call(self, question: Question) -> Any:
        """Sends and waits. Raises Lost, or RemoteProtocolError for bytes that make no sense."""
        self.send(question)
        return self.receive(question.wait_ms)

    def send(self, question: Question) -> None:
        """Sends without waiting for the answer, which ``receive`` gives later. First says again
        who we are, where that is about to end."""
        if self._proof is not None and self._proof.is_due and not self._unanswered:
            self._renew(self._proof)
        request_id, data = self._session.encode(question.request, question.max_version)
        self._send(data)
        self._unanswered.append(request_id)

    def receive(self, wait_ms: int | None = None) -> Any:
        """The answer to the oldest request that has none yet, waited for as long as any, or
        for ``wait_ms`` if that is longer."""
        wanted = self._unanswered.popleft()
        try:
            wait_ms = max(self._settings.request_ms, wait_ms or 0)
            deadline = time.monotonic() + wait_ms / 1000
            while wanted not in self._early:
                answered = self._session.decode(self._receive(wait_ms, deadline))
                if answered is not None:
                    self._early[answered[0]] = answered[1]
                elif due := self._session.due():
                    self._send(due)
        except RangelandError as error:
            self.close()
            if isinstance(error, RemoteProtocolError):
                raise self._misunderstood(error) from error
            if isinstance(error, Closed) and not self._has_answered:
                raise self._unwelcome(error) from error
            error.facts.setdefault("broker", str(self.address))
            raise
        self._is_known = self._has_answered = True
        return self._early.pop(wanted)

    def _misunderstood(self, error: RemoteProtocolError) -> RangelandError:
        error.facts.setdefault("broker", str(self.address))
        length = error.facts.get("length", -1)
        if not self._is_known:
            return self._stranger(error)
        if length < 0:
            return error
        limit = self._settings.max_answer_bytes
        return JobFileError(
            f"{self.address} announced an answer of {length} bytes",
            why=f"at most {limit} are taken at a time",
            do="raise source.max_answer_bytes if the topic has batches as large as that; if it "
            "has not, what listens there is no broker, or its data are damaged",
            broker=str(self.address),
            length=length,
            max_answer_bytes=limit,
        )

    def _unwelcome(self, error: Closed) -> RangelandError:
        """A close at the very first request: most often one knocked at the wrong port."""
        plain = self._settings.tls is None and not self._is_probe
        if not self._is_known and plain and self._speaks_tls():
            return mistakes.tls_port(self.address)
        closed = Closed(error.what, why=error.why, do=mistakes.SILENT_CLOSE, **error.facts)
        closed.is_unwelcome = self._is_known and self._settings.sasl is None
        return closed

    def _stranger(self, error: RemoteProtocolError) -> RangelandError:
        first = bytes.fromhex(str(error.facts.get("first_bytes", "")))
        if self._settings.tls is None and first[:2] in (b"\x15\x03", b"\x16\x03"):
            return mistakes.tls_port(self.address)
        return NoBroker(
            f"{self.address} does not answer as a broker does",
            why="; ".join(part for part in (error.what, error.why, error.do) if part),
            do="check host, port and source.security",
            broker=str(self.address),
        )

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._settings.request_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            told = self._last_words(error)
            self.close()
            raise self._lost("send to", told) from error

    def _last_words(self, error: OSError) -> OSError:
        """Why a peer hung up that does not take what is sent: an alert of its TLS may have come
        before, of a client certificate that is missing for one."""
        if not isinstance(self._socket, ssl.SSLSocket) or isinstance(error, TimeoutError):
            return error
        try:
            self._socket.settimeout(PROBE_MS / 1000)
            for _ in range(LAST_READS):  # what was sent before the alert is of no use
                if not self._socket.recv(POOLED_BYTES):
                    break
        except OSError as alert:
            return alert if getattr(alert, "reason", None) else error
        return error

    def _receive(self, wait_ms: int, deadline: float | None = None) -> memoryview:
        """The next frame. ``deadline`` is that of whoever waits for more than this one."""
        frame = self._frames.next()
        if frame is not None:
            return frame
        deadline = deadline or time.monotonic() + wait_ms / 1000
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                count = self._socket.recv_into(self._frames.buffer())
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
            except TimeoutError as error:
                self.close()
                silence = TimeoutError(f"no whole answer in {wait_ms} ms")
                raise self._lost("receive from", silence) from error
            except OSError as error:
                self.close()
                raise self._lost("receive from", error) from error
            frame = self._frames.advance(count)
            if frame is not None:
                self._was_heard = True
                return frame

    def _lost(self, doing: str, error: OSError) -> RangelandError:
        why, do = str(error) or type(error).__name__, ""
        tls = self._settings.tls
        if tls is not None and isinstance(error, ssl.SSLError):
            failed = mistakes.Failed(
                str(error.reason or error),
                getattr(error, "verify_code", 0),
                getattr(error, "verify_message", ""),
            )
            mistake = mistakes.tls_mistake(self.address, failed, tls)
            if mistake is not None and not self._was_heard:
                return mistake
            # An alert to a connection that was well has come of something else.
            why = failed.reason
            do = "" if self._was_heard else "check source.security.tls and that the port speaks TLS"
        what = f"could not {doing} {self.address}"
        is_end = isinstance(error, (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError))
        facts: dict[str, Any] = {"broker": str(self.address)}
        if is_end:
            return Closed(what, why=why, do=do, closed=True, **facts)
        return Lost(what, why=why, do=do, **facts)

    # --- what else it may be ------------------------------------------------------------

    def _speaks_tls(self) -> bool:
        """Whether TLS is answered to a TLS greeting. Nothing else is said, nobody trusted."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        at = (self.address.host, self.address.port)
        try:
            with (
                socket.create_connection(at, PROBE_MS / 1000) as plain,
                context.wrap_socket(plain, server_hostname=self.address.host),
            ):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
        except OSError:
            return False

    def _speaks_plainly(self) -> bool:
        """Whether a broker answers there without TLS. It is not told who we are."""
        wait_ms = min(PROBE_MS, self._settings.request_ms)
        bare = replace(self._settings, tls=None, sasl=None, connect_ms=wait_ms, request_ms=wait_ms)
        try:
            probe = Connection(self.address, self._dialect, bare, is_probe=True)
            try:
                if not probe._is_known:
                    search = self._dialect.find_leaders([], (self.address,), {})
                    asking: Asking = next(search)
                    probe.call(asking.questions[0])
                return True
            finally:
                probe.close()
        except (RangelandError, StopIteration):
            return False


def _pooled(size: int) -> memoryview:
    """Memory of Arrow's pool: it is used again, where fresh memory would be zeroed first."""
    if size < POOLED_BYTES:
        return memoryview(bytearray(size))
    return memoryview(pa.allocate_buffer(size)).cast("B")
