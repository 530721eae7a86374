"""One survey of the cluster, retried until it is complete or the deadline passes.

There is one request per broker and kind. If a protocol needs one per partition, these are sent
together, so that a thousand partitions take about as long as ten. If there is no response (a leader
is being elected, a broker has just left), the request is repeated with new metadata from the next
broker, until the deadline. Then the survey fails, naming every address it tried and why that
failed, or continues without these partitions if allowed (``tolerates_missing_leaders``).

``wanted_partitions`` decides what is wanted, missing or given up; this module asks and waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.deadline import Deadline
from rangeland.dialects.cluster_values import ClusterView, OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import RangelandError, Unreachable
from rangeland.model import (
    AbsentPartitions,
    Address,
    AtTime,
    Cluster,
    Earliest,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
)
from rangeland.survey.broker_requests import ask_offsets, by_address
from rangeland.survey.epoch_ends import epoch_ends, lacking_epochs, with_epochs
from rangeland.survey.legacy_times import corrected_times
from rangeland.survey.metadata_lookup import ask_metadata
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.time_confirmation import (
    ReplicationWait,
    contradicted_denials,
    denied_logs,
)
from rangeland.survey.wanted_partitions import (
    ChangedMeanwhile,
    WantedPartitions,
    may_be_given_up,
    silent_brokers,
    topic_names,
    wanted_partitions,
    why_incomplete,
)

logger = logging.getLogger(__name__)

PAUSE_MS = 200
FIRST_RESPONSE_MS = 10_000
"""The time in which the first response of any broker must come. Otherwise, the addresses are
probably wrong."""
MANY_ADDRESSES = 32
"""How many addresses of a cluster are kept to identify it."""
When = Earliest | Latest | AtTime
NOTHING_FOUND = WantedPartitions({}, {}, frozenset(), AbsentPartitions())


class SurveyAttempt:
    """Asks a cluster for one survey, and waits for missing responses."""

    def __init__(self, pool: ConnectionPool, request: SurveyRequest) -> None:
        self.pool = pool
        self.request = request
        self.partitions = NOTHING_FOUND
        """The wanted partitions, from the latest metadata."""
        self.answered_by: Address | None = None
        """The broker that named the leaders."""
        survey_ms = pool.settings.survey_ms
        self._complete_by = Deadline((survey_ms - PAUSE_MS) / 1000)
        self._first_response_by = Deadline((min(survey_ms, FIRST_RESPONSE_MS) - PAUSE_MS) / 1000)
        self._seeds: list[Address] = list(pool.settings.seeds)
        self._cluster_id = ""
        self._replication_wait = ReplicationWait()
        self._failure: RangelandError | None = None
        """Why the last request had no response."""

    def again(self) -> SurveyAttempt:
        """A second survey from scratch, which asks another broker first if there is one."""
        second = SurveyAttempt(self.pool, self.request)
        # A stable sort: the broker that has answered comes last, the others stay in order.
        second._seeds = sorted(self._seeds, key=lambda seed: seed == self.answered_by)
        return second

    def start_over(self, why: ChangedMeanwhile) -> None:
        """Forgets the partitions, and waits a moment. Raises the error after the deadline."""
        self.partitions = NOTHING_FOUND
        self._failure = why
        self._pause(why.what)

    # --- waiting --------------------------------------------------------------------------

    @property
    def _deadline(self) -> Deadline:
        return self._first_response_by if self.answered_by is None else self._complete_by

    def _pause(self, what: str) -> None:
        """Waits a moment. After the deadline, raises the last failure."""
        if not self._deadline.has_passed:
            time.sleep(PAUSE_MS / 1000)
            logger.info("Surveying again after %d ms: %s", PAUSE_MS, what)
            return
        if self._failure is not None:
            raise self._failure
        raise Unreachable(
            what,
            why=f"that did not change within {self.pool.settings.survey_ms} ms",
            do="check the cluster, then run again",
        )

    def _may_go_on_without(self, missing: Collection[Partition], total: int) -> bool:
        return may_be_given_up(missing, total, self.request) and self._deadline.has_passed

    def _give_up(self, missing: Sequence[Partition], why: str) -> None:
        self.partitions = self.partitions.give_up(dict.fromkeys(missing, why))

    # --- leaders --------------------------------------------------------------------------

    def first_response(self, *, check_topics: bool) -> None:
        """Waits until a broker answers. ``check_topics``: raises UnknownTopic for topics and
        partitions that do not exist."""
        while True:
            try:
                view = self._view()
                break
            except Unreachable as error:
                self._failure = error
                self._pause(error.what)
            self._turn_to_next_seed()
        if check_topics:
            with suppress(Unreachable):  # only a survey has to wait for what partitions still lack
                self._select(view)

    def find_topics(self) -> tuple[str, ...]:
        """The names of the requested topics, whether or not their partitions have leaders. Raises
        UnmatchedPattern if none matches the pattern."""
        while True:
            try:
                return tuple(topic_names(self._view(), self.request))
            except Unreachable as error:
                self._failure = error
                self._pause(error.what)
            self._turn_to_next_seed()

    def find_leaders(self) -> None:
        """Finds the leaders of all wanted partitions. If partitions may be held, those without a
        leader at the deadline are given up."""
        self.partitions = self._present_leaders()

    def _present_leaders(self) -> WantedPartitions:
        while True:
            try:
                view = self._view()
                partitions = self._select(view)
                leaderless = partitions.leaderless
                what = why_incomplete(leaderless, silent_brokers(view.unreachable, self.request))
                total = len(partitions.leaders) + len(leaderless)
                if what is None or self._may_go_on_without(leaderless, total):
                    self._seeds = list(dict.fromkeys([*self._seeds, *view.brokers]))
                    return partitions.give_up(leaderless)
                self._failure = None
            except Unreachable as error:
                self._failure = error
                what = error.what
            self._pause(what)
            self._turn_to_next_seed()

    def _view(self) -> ClusterView:
        topics = self.request.topics if self.request.topic_pattern is None else None
        view = ask_metadata(self.pool, topics, self._seeds)
        self.answered_by = view.answered_by
        self._cluster_id = view.cluster_id or self._cluster_id
        return view

    def _select(self, view: ClusterView) -> WantedPartitions:
        return wanted_partitions(
            view,
            self.request,
            [name for name, _ in self.pool.settings.named_brokers],
            numbered_per_broker=self.pool.dialect.capabilities.numbered_per_broker,
        )

    def _turn_to_next_seed(self) -> None:
        """Asks another broker first from now on: a broker may have stale metadata for a long
        time."""
        self._seeds = [*self._seeds[1:], *self._seeds[:1]]

    def cluster(self) -> Cluster:
        """The surveyed cluster. The servers named by the job come first."""
        named = self.pool.settings.seeds
        leading = [leader.address for leader in self.partitions.leaders.values() if leader.address]
        discovered = sorted({*self._seeds, *leading} - set(named))
        return Cluster(self._cluster_id, tuple(map(str, [*named, *discovered][:MANY_ADDRESSES])))

    # --- offsets --------------------------------------------------------------------------

    def offsets(
        self, when: When, isolation: Isolation, only: Set[Partition] | None = None
    ) -> dict[Partition, OffsetResult]:
        """Asks the leaders of all partitions, or of ``only`` these, and asks the new leaders of
        partitions that have moved. Partitions that are given up have no result."""
        partitions = self.partitions.leaders.keys() if only is None else only
        results: dict[Partition, OffsetResult] = {}
        while missing := self._reachable_of(partitions - results.keys()):
            results |= self._ask_each_leader(missing, when, isolation)
            unanswered = [p for p in missing if p not in results]
            why = "its leader does not answer" if self._failure is None else self._failure.why
            if self._may_go_on_without(unanswered, len(partitions)):
                self._give_up(unanswered, why)
            elif unanswered:
                self._pause("the offsets of some partitions are not available")
                self.partitions = self.partitions.move_to(self._present_leaders())
        return results

    def _reachable_of(self, partitions: Set[Partition]) -> dict[Partition, Leader]:
        return {p: leader for p, leader in self.partitions.reachable.items() if p in partitions}

    def _ask_each_leader(
        self, missing: Mapping[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, OffsetResult]:
        offsets: dict[Partition, OffsetResult] = {}
        for address, group in by_address(missing).items():
            try:
                results = self._ask_leader(address, group, when, isolation)
            except ConnectionLost as error:
                self._failure = error
                continue
            for partition, result in results.items():
                has_result = result.offset is not None or isinstance(when, AtTime)
                if result.meaning is ErrorMeaning.OK and has_result:
                    offsets[partition] = result
                elif result.meaning.is_final:
                    raise _refused_offsets_error(partition, result)
                else:
                    self._failure = _missing_offsets_error(partition, result)
        return offsets

    def _ask_leader(
        self, address: Address, group: Mapping[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, OffsetResult]:
        pool = self.pool
        results = ask_offsets(pool, address, group, when, isolation)
        if not isinstance(when, AtTime):
            return results
        timeless = [p for p, x in results.items() if x.meaning is ErrorMeaning.UNSUPPORTED]
        if timeless:
            # For logs in a format without timestamps, brokers answer the oldest version of the
            # request by segment.
            leaders = {p: group[p] for p in timeless}
            results |= ask_offsets(pool, address, leaders, when, isolation, by_segment=True)
        results |= corrected_times(pool, address, denied_logs(group, results), when)
        denied = denied_logs(group, results)
        wait = self._replication_wait
        return results | contradicted_denials(
            pool, address, denied, when, isolation, wait, self._complete_by
        )

    # --- epochs ---------------------------------------------------------------------------

    def with_epochs(self, logs: Mapping[Partition, LogState]) -> dict[Partition, LogState]:
        """The logs with the epochs of their last batches, if metadata lacks the leaders' epochs
        (before Kafka 2.1), without the logs that are given up. A leader whose high watermark lags
        does not send its last batch. Without its epoch, a log could not be distinguished from one
        that is rewritten later, so this waits for all batches."""
        while True:
            logs = with_epochs(self.pool, logs)
            lacking = lacking_epochs(self.pool, logs)
            if not lacking or self._may_go_on_without(lacking, len(logs)):
                self._give_up(lacking, "its last batch could not be read")
                return {p: log for p, log in logs.items() if p not in lacking}
            self._pause(f"the last batch of {lacking[0]} could not be read")

    def with_epoch_ends(
        self, logs: Mapping[Partition, LogState], epochs: Mapping[Partition, int]
    ) -> dict[Partition, LogState]:
        """The logs with the ends of these epochs, if leaders report them, without the logs that are
        given up. Raises ChangedMeanwhile if a leader has to be asked again: without its answer, a
        log could not be distinguished from one that was rewritten."""
        ends, unanswered = epoch_ends(self.pool, logs, epochs)
        why = "its leader did not report where an earlier leader's records end"
        if unanswered and not self._may_go_on_without(unanswered, len(logs)):
            what = f"{unanswered[0]} could not be surveyed"
            raise ChangedMeanwhile(what, why=why, do="run again")
        self._give_up(unanswered, why)
        return {
            p: replace(log, epoch_end=ends.get(p)) for p, log in logs.items() if p not in unanswered
        }


def _refused_offsets_error(partition: Partition, result: OffsetResult) -> RangelandError:
    return result.meaning.refusal_error(
        f"this client may not ask for the offsets of {partition}",
        why=result.code_name,
        do="check the permissions of this client and the version of the broker",
    )


def _missing_offsets_error(partition: Partition, result: OffsetResult) -> Unreachable:
    return Unreachable(
        f"the offsets of {partition} are not available",
        why=f"its leader answered {result.code_name}, without an offset",
        do="check the partition's leader, then run again",
    )
