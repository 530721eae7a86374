"""What every dialect can do: the base class, and how a dialect is loaded by name.

A dialect is a folder: a package with a subclass of ``Dialect``, whose instance it calls
``DIALECT``. A fourth dialect would be a fourth folder; the contract tests find it by themselves.
Outside its folder, a dialect is named only in the choices for the job file, and in ``decode`` if
its log has a format of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.cluster_values import CleanupPolicy, OffsetResult, Search
from rangeland.dialects.fetch_values import (
    DecodedChunk,
    FetchedRecords,
    FetchOptions,
    FetchResult,
    Gap,
    PartitionFetch,
    Scan,
)
from rangeland.dialects.protocol_session import BrokerRequest, Credentials, ProtocolSession
from rangeland.errors import JobFileError
from rangeland.model import (
    Address,
    AtTime,
    Earliest,
    Isolation,
    Latest,
    Leader,
    OpenTransaction,
    Partition,
    Retention,
)


class Dialect(ABC):
    """The rules of one protocol. Methods are pure, apart from the nonce of a login:
    ``..._requests`` returns requests to send, ``read_...`` reads the responses to them. All
    requests in a list are sent to one broker together, and their responses come in the same order.
    The defaults suit brokers that have no logins, leader epochs or transactions, and report no
    retention."""

    capabilities: ClassVar[Capabilities]

    # --- connections ------------------------------------------------------------------------

    @abstractmethod
    def open_session(self, client_id: str) -> ProtocolSession: ...

    def login(self, credentials: Credentials) -> Generator[BrokerRequest, Any, int | None]:
        """Yields requests and is sent their responses. If a request fails, the error is thrown into
        the generator: ``PeerClosed`` if the peer closed the connection. Returns the number of
        milliseconds after which the login must be repeated on the same connection; None or 0:
        never. Raises AccessDenied if the login is refused, LoginClosed if the only evidence of a
        refusal is that the connection was closed, JobFileError for a mechanism that does not fit,
        and MissingRequirement for a package that this Python lacks."""
        raise JobFileError(
            "brokers of this dialect have no logins",
            why=f"{credentials.mechanism} was requested",
            do="remove source.security.sasl",
        )

    def mechanisms_requests(self) -> list[BrokerRequest]:
        """Requests for the login mechanisms that a listener offers to a client that has not logged
        in. They contain no secrets; the list is empty if listeners cannot be asked."""
        return []

    def read_mechanisms(self, responses: Sequence[Any]) -> tuple[str, ...] | None:
        """The mechanisms listed in the responses. None: the listener takes no login, or did not
        say."""
        return None

    # --- the cluster ------------------------------------------------------------------------

    @abstractmethod
    def find_leaders(
        self,
        topics: Sequence[str] | None,
        seeds: Sequence[Address],
        named_brokers: Mapping[str, Address],
    ) -> Search:
        """Searches for the leaders of topics; None: of all topics. ``seeds`` are asked first.
        ``named_brokers`` are the brokers by name, if names are known."""

    @abstractmethod
    def offsets_requests(
        self,
        leaders: Mapping[Partition, Leader],
        when: Earliest | Latest | AtTime,
        isolation: Isolation,
    ) -> list[BrokerRequest]: ...

    def latest_timestamps_requests(
        self, leaders: Mapping[Partition, Leader], isolation: Isolation
    ) -> list[BrokerRequest]:
        """Requests for the records with the latest timestamps, whether or not they have been
        deleted; ``read_offsets`` reads the responses. Empty if the brokers' own search by time is
        exact."""
        return []

    @abstractmethod
    def read_offsets(self, responses: Sequence[Any]) -> dict[Partition, OffsetResult]: ...

    def sizes_requests(self, logs: Mapping[Partition, tuple[int, int]]) -> list[BrokerRequest]:
        """Requests for the sizes of logs in bytes. ``logs`` gives the beginning and end of each.
        Empty if offsets are bytes."""
        return []

    def read_sizes(self, responses: Sequence[Any]) -> dict[Partition, int]:
        return {}

    def epochs_requests(
        self, leaders: Mapping[Partition, Leader], epochs: Mapping[Partition, int]
    ) -> list[BrokerRequest]:
        """Requests for the offsets at which these leader epochs end, or the newest epochs before
        them if they do not exist."""
        return []

    def read_epochs(self, responses: Sequence[Any]) -> dict[Partition, int | None]:
        """The end offset by partition; None if the broker cannot or may not say. Partitions whose
        leader has to be asked again are left out."""
        return {}

    def epoch_of(self, fetched: FetchedRecords) -> int | None:
        """The leader epoch of the first of these records; None if they carry none."""
        return None

    def transactions_requests(self, partitions: Collection[Partition]) -> list[BrokerRequest]:
        """Requests for the open transactions in these partitions of one leader. Empty if brokers
        cannot be asked."""
        return []

    def read_transactions(self, responses: Sequence[Any]) -> dict[Partition, OpenTransaction]:
        """The open transaction that holds back the last stable offset, by partition."""
        return {}

    def retention_requests(self, topics: Sequence[str]) -> list[BrokerRequest]:
        return []

    def read_retention(self, responses: Sequence[Any]) -> dict[str, Retention]:
        return {}

    def cleanup_requests(self, topic: str) -> list[BrokerRequest]:
        """Requests for the cleanup policy of a topic. Empty if no decoder of this dialect reports
        gaps."""
        return []

    def read_cleanup(self, responses: Sequence[Any]) -> CleanupPolicy:
        return CleanupPolicy(None, "its brokers do not say how its log is cleaned")

    # --- records ----------------------------------------------------------------------------

    @abstractmethod
    def records_requests(
        self, fetches: Sequence[PartitionFetch], options: FetchOptions
    ) -> list[BrokerRequest]: ...

    @abstractmethod
    def read_records(
        self, responses: Sequence[Any], fetches: Sequence[PartitionFetch], isolation: Isolation
    ) -> FetchResult: ...

    @abstractmethod
    def scan(self, fetched: FetchedRecords) -> Scan:
        """The end of the complete entries, and what is uncertain about the last of them. Raises
        BadRecord for an invalid entry."""

    def first_offset(self, fetched: FetchedRecords, from_offset: int) -> int:
        """The first offset, from ``from_offset`` on, for which an intact response has an entry;
        ``from_offset`` itself if the dialect's brokers say where entries are."""
        return from_offset

    def entry_around(self, fetched: FetchedRecords, target: int) -> tuple[int, int | None]:
        """The (begin, end) of the entry that contains ``target``, found by walking over records,
        which must begin with an entry; (reached, None) if the bytes end first. Unless offsets are
        bytes, any offset may begin or end a range."""
        return target, target + 1

    @abstractmethod
    def cut_out(self, fetched: FetchedRecords, from_offset: int, until_offset: int) -> memoryview:
        """The bytes of the entries with offsets in ``[from_offset, until_offset)``, of which at
        least one could not be decoded."""

    def aborted_within(
        self, fetched: FetchedRecords, from_offset: int, until_offset: int
    ) -> tuple[tuple[int, int], ...]:
        """The aborted transactions that are needed to decode the entries of ``[from_offset,
        until_offset)`` on their own."""
        return ()

    @abstractmethod
    def decode_chunks(
        self,
        fetched: FetchedRecords,
        from_offset: int,
        until_offset: int,
        *,
        reports_gaps: bool = False,
    ) -> Iterator[DecodedChunk | Gap]:
        """Decodes the offsets ``[from_offset, until_offset)``, as far as complete entries account
        for them. Each chunk or gap begins where the previous one ends. Raises BadRecord for damage,
        after yielding the chunks before it.

        ``reports_gaps``: offsets missing between two entries are reported as a ``Gap``, because
        nothing has explained them yet; otherwise they count as compacted. Offsets missing inside an
        entry always count as compacted: only log compaction writes such entries.
        """


def dialect_names() -> list[str]:
    """The names of the dialects: the folders next to this file."""
    import rangeland.dialects as package

    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg)


@cache
def load_dialect(name: str) -> Dialect:
    """The dialect in a folder. Raises JobFileError if there is no such folder."""
    if name not in dialect_names():
        raise JobFileError(
            f"the dialect {name} is not available in this version",
            do=f"use one of: {', '.join(dialect_names())}",
            dialect=name,
        )
    dialect = importlib.import_module(f"rangeland.dialects.{name}").DIALECT
    assert isinstance(dialect, Dialect)
    return dialect
