"""One connection to one broker: how it is greeted, who we are, questions and answers.

It is negotiated when made, logs in where the job says so, and says again who we are before that
ends. A peer that closes without a word is greeted once more in another way, plain or over TLS,
so that a mistake is told for what it is (``mistakes``). No socket here: ``stream`` has it. It
decides nothing else: reconnecting and failing over are the callers' business.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from rangeland.connection import diagnosis
from rangeland.connection.authentication import Authentication
from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.failures import (
    ConnectionClosed,
    ConnectionLost,
    NoAnswer,
    NotABroker,
    TokenUnavailable,
)
from rangeland.connection.stream import PROBE_MS, Stream, speaks_tls
from rangeland.dialects.cluster_values import LeaderQuery
from rangeland.dialects.dialect import Dialect
from rangeland.dialects.protocol_session import Question
from rangeland.errors import JobFileError, RangelandError, RemoteProtocolError, Unreachable
from rangeland.model import Address, VersionSupport

__all__ = ["BrokerConnection", "ConnectionLost"]

OPENING_MS = 3_000
"""So long an opening is waited for before it is asked whether the broker is too old for one."""


class BrokerConnection:
    """Connected and negotiated when made; not for several threads at once.

    Answers are given in the order of the requests, in whatever order they come. After any
    error it is closed for good. ``was`` is the broker's age as it was when it was asked last:
    an old one need not be asked again, and a young one that says nothing is busy.
    ``was_served``: these settings have worked before, so a close is no refusal.
    ``has_spoken``: this address has answered without TLS before, so it is not tried with TLS."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        settings: ClusterSettings,
        *,
        is_probe: bool = False,
        was: VersionSupport | None = None,
        was_served: bool = False,
        has_spoken: bool = False,
    ) -> None:
        self.age = VersionSupport.YOUNG if was is None else was
        self.address = address
        self._settings = settings
        self._dialect = dialect
        self._is_probe = is_probe
        self._was_served = was_served
        self._may_want_tls = settings.tls is None and not is_probe and not has_spoken
        self._is_known = self._has_answered = False
        sasl = settings.sasl
        self._proof = None if sasl is None else Authentication(sasl, settings.request_ms)
        self._unanswered: deque[int] = deque()
        self._early: dict[int, Any] = {}
        self._session = dialect.open_session(settings.client_id)
        self._stream = self._connect()
        try:
            self._open(was)
            self._stream.take_large_frames()
            if self._proof is not None:
                self._log_in_surely(self._proof)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stream.close()

    def _connect(self) -> Stream:
        stream = Stream(self.address, self._settings)
        try:
            stream.shake_hands()
        except ConnectionLost as lost:
            if self._speaks_plainly():
                raise diagnosis.plain_port(self.address) from lost
            raise
        return stream

    def _connect_again(self) -> None:
        self.close()
        self._stream = self._connect()

    # --- the greeting -------------------------------------------------------------------

    def _open(self, was: VersionSupport | None) -> None:
        try:
            if was is VersionSupport.MUTE:
                self._ask_age()
            elif was is VersionSupport.OLD:
                self._greet_as_old(self._session.skip_opening())
                self._ask_again()
            elif was is VersionSupport.YOUNG:
                self._negotiate()
            else:
                self._negotiate_or_ask_age()
        except ConnectionClosed as closed:
            if self._may_want_tls and speaks_tls(self.address):
                raise diagnosis.tls_port(self.address) from closed
            self._open_as_of_old(closed)
        except RemoteProtocolError as error:
            raise self._stranger(error) from error
        except ConnectionLost:
            raise
        except Unreachable as error:  # its answer was an error that may pass
            raise ConnectionLost(error.what, why=error.why, do=error.do, **error.facts) from error

    def _negotiate(self, wait_ms: int | None = None) -> None:
        question: bytes | None = self._session.open()
        self._is_known = bool(question)
        wait_ms = wait_ms or self._settings.request_ms
        while question:
            self._stream.send(question)
            question = self._session.negotiated(self._stream.receive(wait_ms))

    def _negotiate_or_ask_age(self) -> None:
        """One that says nothing to an opening may be busy, or too old for it."""
        if self._settings.sasl is not None or self._is_probe:
            self._negotiate()
            return
        wait_ms = min(OPENING_MS, self._settings.request_ms)
        try:
            self._negotiate(wait_ms)
        except NoAnswer:
            left_ms = max(self._settings.request_ms - wait_ms, wait_ms)
            self._connect_again()
            self._ask_age(time.monotonic() + left_ms / 1000)

    def _ask_age(self, deadline: float | None = None) -> None:
        """By a question that old and young brokers answer differently, and not by an opening:
        where that is not answered, others' requests are lost with it. Only brokers as young as
        4.0 close at the oldest greeting."""
        self.age = VersionSupport.YOUNG
        try:
            self._greet_as_old(self._session.skip_opening(), deadline)
            self._stream.take_large_frames()
            self._stream.send(self._session.version_probe())
            answer = self._stream.receive(self._settings.request_ms, deadline)
            self.age = (
                VersionSupport.MUTE if self._session.is_too_old(answer) else VersionSupport.YOUNG
            )
        except ConnectionClosed:
            self._connect_again()
        if self.age is VersionSupport.YOUNG:
            self._session = self._dialect.open_session(self._settings.client_id)
            self._negotiate()

    def _open_as_of_old(self, closed: ConnectionClosed) -> None:
        """One that closes may be too old for an opening, or busy, or going down. It is old if it
        answers what the oldest answer and then, on the same connection, closes at an opening."""
        self.age = VersionSupport.YOUNG
        hello = self._session.skip_opening()
        if not hello or self._settings.sasl is not None:
            raise ConnectionClosed(
                closed.what, why=closed.why, do=diagnosis.SILENT_CLOSE, **closed.facts
            )
        self._connect_again()
        try:
            self._greet_as_old(hello)
        except ConnectionClosed as again:
            raise ConnectionClosed(
                again.what, why=again.why, do=diagnosis.SILENT_CLOSE, **again.facts
            ) from closed
        self._ask_again()

    def _ask_again(self) -> None:
        """Opens on a connection that the oldest greeting was answered on: who closes it now is
        old, and who does not has been upgraded."""
        session, self.age = self._session, VersionSupport.YOUNG
        self._session = self._dialect.open_session(self._settings.client_id)
        try:
            self._negotiate()
        except ConnectionClosed:
            self._session = session
            self._is_known, self.age = True, VersionSupport.OLD
            self._connect_again()

    def _greet_as_old(self, hello: bytes, deadline: float | None = None) -> None:
        self._stream.send(hello)
        self._session.decode(self._stream.receive(self._settings.request_ms, deadline))
        self._is_known = True

    # --- who we are ---------------------------------------------------------------------

    def _log_in_surely(self, proof: Authentication) -> None:
        """Brokers that only close the connection have refused who closes it twice, at the same
        step: the first time it may be going down."""
        try:
            self._log_in(proof)
            return
        except JobFileError as error:
            first, closed_at = error, error.closed_at
            if closed_at is None:
                raise
        self._session = self._dialect.open_session(self._settings.client_id)
        self._unanswered.clear()
        self._early.clear()
        self._is_known = self._has_answered = False
        self._connect_again()
        self._open(self.age)
        self._stream.take_large_frames()
        try:
            self._log_in(proof)
        except JobFileError as error:
            again_at = error.closed_at
            if again_at is None or (again_at == closed_at and not self._was_served):
                raise
            raise ConnectionClosed(error.what, why=error.why, do=error.do, **error.facts) from first

    def _log_in(self, proof: Authentication) -> None:
        """Raises JobFileError for who is not let in, Lost for a connection that breaks or a
        token that cannot be had now."""
        talk = self._dialect.login(proof.credentials())
        try:
            proof.holds(self._converse(talk))
        except RangelandError as error:
            proof.forget()
            error.facts.setdefault("broker", str(self.address))
            raise

    def _renew(self, proof: Authentication) -> None:
        """As long as what was said last holds, a token that cannot be had can wait."""
        try:
            self._log_in(proof)
        except TokenUnavailable:
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
        self._stream.send(data)
        self._unanswered.append(request_id)

    def receive(self, wait_ms: int | None = None) -> Any:
        """The answer to the oldest request that has none yet, waited for as long as any, or
        for ``wait_ms`` if that is longer."""
        wanted = self._unanswered.popleft()
        try:
            wait_ms = max(self._settings.request_ms, wait_ms or 0)
            deadline = time.monotonic() + wait_ms / 1000
            while wanted not in self._early:
                answered = self._session.decode(self._stream.receive(wait_ms, deadline))
                if answered is not None:
                    self._early[answered[0]] = answered[1]
                elif due := self._session.due():
                    self._stream.send(due)
        except RangelandError as error:
            self.close()
            if isinstance(error, RemoteProtocolError):
                raise self._misunderstood(error) from error
            if isinstance(error, ConnectionClosed) and not self._has_answered:
                raise self._unwelcome(error) from error
            error.facts.setdefault("broker", str(self.address))
            raise
        self._is_known = self._has_answered = True
        return self._early.pop(wanted)

    def _misunderstood(self, error: RemoteProtocolError) -> RangelandError:
        error.facts.setdefault("broker", str(self.address))
        length = error.length
        if not self._is_known:
            return self._stranger(error)
        if length is None or length < 0:
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

    def _unwelcome(self, error: ConnectionClosed) -> RangelandError:
        """A close at the very first request: most often one knocked at the wrong port."""
        if not self._is_known and self._may_want_tls and speaks_tls(self.address):
            return diagnosis.tls_port(self.address)
        closed = ConnectionClosed(
            error.what, why=error.why, do=diagnosis.SILENT_CLOSE, **error.facts
        )
        closed.is_unwelcome = self._is_known and self._settings.sasl is None
        return closed

    def _stranger(self, error: RemoteProtocolError) -> RangelandError:
        first = error.first_bytes
        if self._settings.tls is None and first[:2] in (b"\x15\x03", b"\x16\x03"):
            return diagnosis.tls_port(self.address)
        return NotABroker(
            f"{self.address} does not answer as a broker does",
            why="; ".join(part for part in (error.what, error.why, error.do) if part),
            do="check host, port and source.security",
            broker=str(self.address),
        )

    # --- what else it may be ------------------------------------------------------------

    def _speaks_plainly(self) -> bool:
        """Whether a broker answers there without TLS. It is not told who we are."""
        wait_ms = min(PROBE_MS, self._settings.request_ms)
        bare = replace(self._settings, tls=None, sasl=None, connect_ms=wait_ms, request_ms=wait_ms)
        try:
            probe = BrokerConnection(self.address, self._dialect, bare, is_probe=True)
            try:
                if not probe._is_known:
                    search = self._dialect.find_leaders([], (self.address,), {})
                    asking: LeaderQuery = next(search)
                    probe.call(asking.questions[0])
                return True
            finally:
                probe.close()
        except (RangelandError, StopIteration):
            return False
