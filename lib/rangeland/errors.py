"""The errors that a command can end with.

Each error answers three questions for the person or scheduler that sees it: is my data safe, may I
retry, who has to act. A class has the usual answers, which the documentation repeats; if more is
known, an error gets its own answers (``with_answers``): see ``error_answers``.

A foreign exception never reaches the library's callers: it is turned into one of these errors. An
error carries its facts by name, for display and JSON. Callers never branch on facts, but on typed
values of the error's class, from which facts may be derived. Both survive pickling, since executors
send their errors to the driver. Broker codes never become classes: a dialect's ``error_code_of``
turns a code into an ``ErrorMeaning``, and the caller turns that into an action or one of these
errors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rangeland.loss import Loss, partition_facts
from rangeland.model import Partition
from rangeland.wording import count_noun, end_sentence, sentence

ALL_OR_NOTHING = (
    "either all rows of the plan were landed or none: the next run finds out which, and lands "
    "nothing twice"
)
"""The answer about the data after errors that may have occurred between the commit and its
confirmation."""
ROWS_STAY = "no rows from this run were landed, and rows that are in the table stay as they are"
WITH_ROOM = "yes, once there is room again"
CLUSTER_OPERATOR = "the operator of the Spark cluster"
BROKER_OPERATOR = "the brokers' operator"
JOB_AUTHOR = "the author of the job file"


class RangelandError(Exception):
    """Base of all errors: *what* happened, *why*, what to *do*, and the facts behind them.

    ``what`` names the things involved (partition, offsets, file, broker). ``facts`` are
    plain JSON values, for machines; the sentence repeats those that matter to a person.
    ``data``, ``retry`` and ``acts`` answer the three questions.
    """

    exit_code: ClassVar[int] = 70
    data: str = "no rows from this run were landed"
    retry: str = "no"
    acts: str = "the maintainers of Rangeland: report it, with the message and its facts"

    def __init__(self, what: str, *, why: str = "", do: str = "", **facts: Any) -> None:
        self.what = what
        self.why = why
        self.do = do
        self.own_facts = facts
        super().__init__(what)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain JSON values: its own facts, and those derived from its typed values."""
        return dict(self.own_facts)

    def with_words(self, *, what: str = "", why: str = "", do: str = "") -> Self:
        """A copy with these words in place of its own."""
        return self._copy(what=what, why=why, do=do)

    def with_answers(self, *, data: str = "", retry: str = "", acts: str = "") -> Self:
        """A copy with answers that differ from those of its class."""
        return self._copy(data=data, retry=retry, acts=acts)

    def with_facts(self, **facts: Any) -> Self:
        """A copy with these facts added to its own."""
        return self._copy(own_facts=self.own_facts | facts)

    def _copy(self, **attributes: Any) -> Self:
        """A copy with these attributes; empty ones are ignored."""
        copied = copy.copy(self)
        vars(copied).update({name: value for name, value in attributes.items() if value})
        copied.args = (copied.what,)
        copied.__cause__ = self.__cause__
        return copied.with_traceback(self.__traceback__)

    def after_landing(self, plans: int) -> Self:
        """This error, for a command that has already landed other plans."""
        if not plans:
            return self
        done = f"{count_noun(plans, 'plan')} had been landed completely"
        return self.with_answers(data=f"{done}; after that, {self.data}")

    def __str__(self) -> str:
        """The full message, without a capital letter, for use within another message."""
        return self._with_advice(end_sentence(self._statement))

    @property
    def message(self) -> str:
        """The full message as sentences, for people."""
        return self._with_advice(sentence(self._statement))

    @property
    def _statement(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def _with_advice(self, statement: str) -> str:
        return f"{statement} {sentence(self.do)}" if self.do else statement

    def __reduce__(self) -> tuple[Any, ...]:
        return (_bare_error, (type(self), self.what), vars(self))


def error_json(error: RangelandError) -> dict[str, Any]:
    """The error with its exit code and facts, and its meaning for data, retries and people."""
    return {
        "error": public_name(error),
        "message": error.message,
        "exit": error.exit_code,
        "data": error.data,
        "retry": error.retry,
        "acts": error.acts,
        "facts": error.facts,
    }


def public_name(error: RangelandError) -> str:
    """The name of the error's class, or of the class in this module that it derives from."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was caused by, directly and indirectly."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is one for one in seen):
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__


def is_caused_by_interrupt(error: BaseException) -> bool:
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes_of(error))


def _bare_error(kind: type[RangelandError], what: str) -> RangelandError:
    """An error of this class without its attributes."""
    return kind.__new__(kind, what)


def _known_facts(**facts: Any) -> dict[str, Any]:
    """The facts that are known."""
    return {name: fact for name, fact in facts.items() if fact is not None}


class UsageError(RangelandError):
    """The command line was not understood, or a version of Java, Spark or Delta that it starts is
    missing or not supported."""

    exit_code = 64
    acts = "the person who ran the command"


class JobFileError(RangelandError):
    """A job file asks for something impossible: a typo, a bad time, a topic that does not exist."""

    exit_code = 78
    acts = JOB_AUTHOR


class AccessDenied(RangelandError):
    """A broker, ZooKeeper or another server refuses this client: its login, a right, or TLS.

    Its ``operator`` acts; if the ``login_is_in_doubt``, the job's author acts first."""

    exit_code = 78
    retry = "not before the login is corrected or access is given"
    acts = "whoever manages access there"

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        do: str = "",
        operator: str = "",
        login_is_in_doubt: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(what, why=why, do=do, **facts)
        if operator:
            self.acts = operator
        if login_is_in_doubt:
            self.acts = f"{JOB_AUTHOR}, or {self.acts}"


class MissingRequirement(RangelandError):
    """A host, its Python, Spark or a broker lacks what the job needs."""

    exit_code = 78
    retry = "not before what is missing is provided"
    acts = CLUSTER_OPERATOR


class Unreachable(RangelandError):
    """A broker or a leader could not be reached, or did not answer, before the deadline."""

    exit_code = 75
    retry = "yes, later"
    acts = f"the scheduler; {BROKER_OPERATOR} if it persists"


class StorageFailed(RangelandError):
    """The table's store failed to write or read: disk full, I/O error, file missing."""

    exit_code = 75
    retry = "yes, once the store works again"
    acts = "the store's operator"


class EngineFailed(RangelandError):
    """Spark did not start, or it stopped; one of its queries failed; or it lost executors or Python
    workers."""

    exit_code = 75
    data = ALL_OR_NOTHING
    retry = "yes, the same plan is read again"
    acts = "the scheduler; the cluster's operator if it persists"


class RemoteProtocolError(RangelandError):
    """A broker or a registry violated its protocol or sent an impossible number. It may be a
    different kind of server, it may be restarting, or the bytes may have been damaged on the way.

    ``length`` and ``first_bytes`` are those of a refused frame."""

    exit_code = 75
    retry = "yes, later"
    acts = f"{BROKER_OPERATOR}, with the facts of the message"

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        do: str = "",
        length: int | None = None,
        first_bytes: bytes = b"",
        **facts: Any,
    ) -> None:
        super().__init__(what, why=why, do=do, **facts)
        self.length = length
        self.first_bytes = first_bytes

    @property
    def facts(self) -> dict[str, Any]:
        first_bytes = self.first_bytes.hex() or None
        return super().facts | _known_facts(length=self.length, first_bytes=first_bytes)


class LocalProtocolError(RangelandError):
    """We were about to violate the protocol."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a log that cannot be decoded, as offsets.

    The damaged entry begins at ``base_offset``; reading can resume at ``next_offset``, which is
    None if the end of the entry is unknown. Everything before ``good_until`` has been decoded; it
    is None if unknown. ``has_bytes``: the broker still returns the bytes, so they can be kept."""

    base_offset: int
    next_offset: int | None = None
    good_until: int | None = None
    has_bytes: bool = True

    @property
    def facts(self) -> dict[str, Any]:
        return _known_facts(
            base_offset=self.base_offset, next_offset=self.next_offset, good_until=self.good_until
        )


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """The partition that has the damage, and how far it was read, if known."""

    partition: Partition
    read_until: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return partition_facts(self.partition) | _known_facts(position=self.read_until)


class BadRecord(RangelandError):
    """Bytes of the log cannot be decoded: checksum, magic, codec or layout.

    ``damage`` is None if the offset of the entry is unknown, ``log`` is None if the partition
    is."""

    exit_code = 65
    acts = "the owner of the topic"

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        do: str = "",
        damage: Damage | None = None,
        log: DamagedLog | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(what, why=why, do=do, **facts)
        self.damage = damage
        self.log = log

    @property
    def facts(self) -> dict[str, Any]:
        damage = self.damage.facts if self.damage else {}
        return super().facts | damage | (self.log.facts if self.log else {})

    def with_values(self, *, damage: Damage | None = None, log: DamagedLog | None = None) -> Self:
        """A copy with this damage, in this log."""
        return self._copy(damage=damage, log=log)


class UndecodablePayload(BadRecord):
    """A record of the log is intact, but its key or value does not fit the job's schema."""

    retry = "not before the schema or the policy in the job file is changed"
    acts = f"{JOB_AUTHOR}, or the owner of the topic"


class TransformFailed(RangelandError):
    """The job's transform raised an exception, or returned rows that do not match its input."""

    exit_code = 65
    retry = "not before the transform is corrected"
    acts = "the author of the transform"


class RangeLost(RangelandError):
    """Requested offsets are no longer in the log, or never were."""

    exit_code = 66
    data = "no rows from this run were landed; this log no longer has the lost offsets"
    retry = "no, it would fail again"
    acts = "the owner of the job, who decides: skip and record the loss, or restore the log"

    def __init__(
        self, what: str, *, why: str = "", do: str = "", losses: Iterable[Loss] = (), **facts: Any
    ) -> None:
        super().__init__(what, why=why, do=do, **facts)
        self.losses = tuple(losses)

    @property
    def facts(self) -> dict[str, Any]:
        losses = [loss.facts for loss in self.losses]
        return super().facts | _known_facts(losses=losses or None)


class Conflict(RangelandError):
    """The state has changed: another run, backfill or restore is in the way."""

    exit_code = 73
    data = ROWS_STAY
    retry = "not before what is in the way is resolved; `rangeland status JOB.yaml` shows it"
    acts = "the operator"


class TableRefused(RangelandError):
    """The table cannot take these rows: features, schema, partitioning or permission."""

    exit_code = 73
    data = ROWS_STAY
    retry = "no, not before the table or the job file is changed"
    acts = "the owner of the table"


class ProofFailed(RangelandError):
    """The counts of a run do not add up to its ranges, so nothing was committed."""


class Bug(RangelandError):
    """Something happened that should be impossible."""

    data = ALL_OR_NOTHING
