"""One survey of the cluster, retried until it is complete or the deadline passes.

There is one request per broker and kind; where a protocol has one per partition, they are sent
together: a thousand partitions take about as long as ten. What has no response yet (a leader being
elected, a broker that just left) is asked again with new metadata from the next broker, until the
deadline. Then the survey fails with every address it tried and why, or continues without those
partitions if it may (``tolerates_missing_leaders``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import ClusterView, OffsetResult, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.model import (
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
from rangeland.patterns import match_topics, matches
from rangeland.survey.broker_requests import by_leader, request_offsets
from rangeland.survey.epoch_ends import epoch_ends, lacking_epochs, with_epochs
from rangeland.survey.leaders import ask_leaders, check_has_brokers
from rangeland.survey.legacy_times import corrected_times
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.time_confirmation import confirm_no_record
from rangeland.wording import count_noun

logger = logging.getLogger(__name__)

PAUSE_MS = 200
FIRST_RESPONSE_MS = 10_000
"""The time for the first response of any broker. Without one, the addresses are probably wrong."""
MANY_ADDRESSES = 32
"""How many addresses of a cluster are kept to identify it."""
When = Earliest | Latest | AtTime


class UnknownTopic(JobFileError):
    """One broker reports that there is no such topic or partition."""

    def confirmed_error(self, who: str) -> JobFileError:
        return JobFileError.of(self, why=f"{self.why}; {who}")


class ChangedMeanwhile(Unreachable):
    """A topic was created again or a leader has moved during a survey: what it has so far may be of
    another log."""


class SurveyAttempt:
    """The state of one survey: its deadline and the last failure."""

    def __init__(self, brokers: ConnectionPool, wanted: SurveyRequest) -> None:
        self._brokers = brokers
        self._wanted = wanted
        started, survey_ms = time.monotonic(), brokers.settings.survey_ms
        self._deadline = started + survey_ms / 1000
        self._first_response_by = started + min(survey_ms, FIRST_RESPONSE_MS) / 1000
        self._failure: RangelandError | None = None
        self._seeds: list[Address] = list(brokers.settings.seeds)
        self._tolerates_missing = wanted.tolerates_missing_leaders
        self.excluded_partitions: set[Partition] = set()
        self.unreachable: dict[Partition, str] = {}
        self.unanswered_brokers: dict[str, str] = {}
        self.brokers: set[str] = set()
        self.answered_by: Address | None = None
        """The broker that named the leaders."""
        self.unseen_topics: set[str] = set()
        self.cluster_id = ""
        self.asked: frozenset[str] = frozenset()
        """The topics to survey."""

    def again(self) -> SurveyAttempt:
        """A second survey from scratch, which asks another broker first if there is one."""
        other = SurveyAttempt(self._brokers, self._wanted)
        others = [seed for seed in self._seeds if seed != self.answered_by]
        other._seeds = [*others, *(seed for seed in self._seeds if seed == self.answered_by)]
        return other

    def _is_over(self) -> bool:
        deadline = self._first_response_by if self.answered_by is None else self._deadline
        return time.monotonic() + PAUSE_MS / 1000 >= deadline

    def _pause(self, what: str) -> None:
        if not self._is_over():
            logger.info("Surveying again in %d ms: %s", PAUSE_MS, what)
            time.sleep(PAUSE_MS / 1000)
            return
        if self._failure is not None:
            raise self._failure
        raise Unreachable(
            what,
            why=f"that did not change within {self._brokers.settings.survey_ms} ms",
            do="check the cluster, then run again",
        )

    def first_response(self, *, check_topics: bool) -> None:
        """Waits until a broker answers. ``check_topics``: raises UnknownTopic for what does not
        exist."""
        while True:
            try:
                view = self._view()
                break
            except Unreachable as error:
                self._failure = error
                self._pause(error.what)
            self._seeds = [*self._seeds[1:], *self._seeds[:1]]
        if check_topics:
            with suppress(Unreachable):  # partitions may lack what only a survey waits for
                self._wanted_partitions(view)

    def leaders(self) -> dict[Partition, Leader]:
        """All wanted partitions, each with a leader. If partitions may be held, those without
        a leader at the deadline are left out and listed in ``unreachable``."""
        while True:
            try:
                view = self._view()
                found = self._wanted_partitions(view)
                leaderless = [p for p, leader in found.items() if leader.address is None]
                led = {p: x for p, x in found.items() if x.address is not None}
                silent = self._silent_brokers(view)
                if not leaderless and not silent:
                    return self._done(view, led)
                if self._tolerates_missing and led and self._is_over():
                    self.unreachable |= dict.fromkeys(leaderless, "it has no leader")
                    return self._done(view, led)
                self._failure = None
                what = _missing_responses(leaderless, silent)
            except Unreachable as error:
                self._failure, what = error, error.what
            self._pause(what)
            # One broker may have stale metadata for long: the next one is asked first now.
            self._seeds = [*self._seeds[1:], *self._seeds[:1]]

    def _done(self, view: ClusterView, led: dict[Partition, Leader]) -> dict[Partition, Leader]:
        self._seeds = list(dict.fromkeys([*self._seeds, *view.brokers]))
        self.unanswered_brokers = dict(view.unreachable)
        members = [name for name, _ in self._brokers.settings.members]
        self.brokers = {name for name in members if name not in view.unreachable}
        self.brokers |= {p.broker for topic in view.topics.values() for p in topic.leaders} - {""}
        self.brokers |= view.registered
        return led

    def _silent_brokers(self, view: ClusterView) -> Mapping[str, str]:
        """The brokers that do not answer, except those whose partitions are not wanted."""
        listed = [self._wanted.partitions.get(topic) for topic in self._wanted.topics]
        if not listed or not all(only and all(isinstance(w, str) for w in only) for only in listed):
            return view.unreachable
        brokers = {str(which).rpartition("-")[0] for only in listed for which in only or ()}
        return {name: why for name, why in view.unreachable.items() if name in brokers}

    def _view(self) -> ClusterView:
        topics = self._wanted.topics if self._wanted.topic_pattern is None else None
        view = ask_leaders(self._brokers, topics, self._seeds)
        self.answered_by = view.answered_by
        self.cluster_id = view.cluster_id or self.cluster_id
        return view

    def cluster(self, leaders: Iterable[Leader]) -> Cluster:
        """The cluster of these leaders. The servers named by the job come first."""
        own = self._brokers.settings.seeds
        led = [leader.address for leader in leaders if leader.address is not None]
        others = sorted({*self._seeds, *led} - set(own))
        return Cluster(self.cluster_id, tuple(map(str, [*own, *others][:MANY_ADDRESSES])))

    def _wanted_partitions(self, view: ClusterView) -> dict[Partition, Leader]:
        listed = self._names(view)
        self.asked = frozenset((*listed, *filter(self._is_meant, self._wanted.known)))
        names = [name for name in listed if not self._is_gone(name, view)]
        found: dict[Partition, Leader] = {}
        for name in names:
            topic = view.topics.get(name)
            if topic is None or topic.meaning is not ErrorMeaning.OK:
                check_has_brokers(view)
                self._raise_for_topic(name, topic)
            only = self._wanted.partitions.get(name) or ()
            known = {which for p in topic.leaders for which in _written_as(p)} if only else set()
            for which in only:
                if which not in known and not view.unreachable:
                    numbers = ", ".join(str(p).rpartition("/")[2] for p in sorted(topic.leaders))
                    raise UnknownTopic(
                        f"topic {name} has no partition {which}",
                        why=f"it has {numbers}",
                        do="correct source.partitions",
                    )
            wanted = set(only)
            mine = {
                p: x
                for p, x in topic.leaders.items()
                if not only or not wanted.isdisjoint(_written_as(p))
            }
            found |= mine
            self.excluded_partitions |= topic.leaders.keys() - mine.keys()
        there_are = {p.topic for p in (*found, *self.excluded_partitions)}
        bare = [name for name in names if name not in there_are]
        if bare and not self._brokers.dialect.capabilities.numbered_per_broker:
            raise Unreachable(f"the topics {', '.join(bare)} have no partitions yet")
        if names and not found:
            raise Unreachable(f"the topics {', '.join(names)} have no partitions yet")
        return found

    def _names(self, view: ClusterView) -> list[str]:
        pattern = self._wanted.topic_pattern
        if pattern is None:
            return list(self._wanted.topics)
        named = sorted(t.name for t in view.topics.values() if not t.is_internal)
        found = match_topics(pattern, named)
        if not found and not match_topics(pattern, self._wanted.known):
            check_has_brokers(view)
            raise UnknownTopic(
                f"no topic matches {pattern}",
                why=f"the cluster has {count_noun(len(view.topics), 'topic')}; "
                "the pattern is anchored",
                do="correct source.topic_pattern or create the topic",
            )
        return found

    def _is_meant(self, topic: str) -> bool:
        """A topic that was landed before may no longer be part of the job."""
        pattern = self._wanted.topic_pattern
        return pattern is not None and matches(pattern, topic)

    def _is_gone(self, name: str, view: ClusterView) -> bool:
        topic = view.topics.get(name)
        denied = topic is None or topic.is_unknown
        if topic is not None and topic.may_be_hidden:
            self.unseen_topics.add(name)
        return denied and name in self._wanted.known

    def _raise_for_topic(self, name: str, topic: TopicView | None) -> NoReturn:
        code = topic.code if topic else "nothing"
        if topic is not None and topic.meaning.is_final:
            raise topic.meaning.refusal_error(
                f"this client may not read the topic {name}",
                why=code,
                do="give the user of source.security the right to describe and read it, or correct "
                "source.topics",
            )
        if topic is not None and not topic.is_unknown:
            raise Unreachable(f"the topic {name} is not ready", why=code)
        raise UnknownTopic(
            f"there is no topic {name}",
            why=f"the cluster answered {code}",
            do="correct source.topics or create the topic; nothing is created here",
            topic=name,
        )

    def offsets(
        self, leaders: dict[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, OffsetResult]:
        """Asks each leader; partitions that have moved meanwhile are asked for again at their new
        leader, which is recorded in ``leaders``."""
        found: dict[Partition, OffsetResult] = {}
        while True:
            missing = {
                p: leader
                for p, leader in leaders.items()
                if p not in found and p not in self.unreachable
            }
            if not missing:
                return found
            found |= self._ask_each_leader(missing, when, isolation)
            left = [p for p in missing if p not in found]
            if not left:
                continue
            why = "its leader does not answer" if self._failure is None else self._failure.why
            if self._are_given_up(left, len(leaders), why):
                continue
            self._pause("the offsets of some partitions are not available")
            leaders |= self._present_leaders(leaders)

    def _present_leaders(self, leaders: Mapping[Partition, Leader]) -> dict[Partition, Leader]:
        """Raises ChangedMeanwhile if one of them leads another incarnation of its topic."""
        present = {p: leader for p, leader in self.leaders().items() if p in leaders}
        for partition, leader in present.items():
            before = leaders[partition].topic_id
            if before and leader.topic_id and before != leader.topic_id:
                raise ChangedMeanwhile(
                    f"the topic {partition.topic} was deleted and created again while its offsets "
                    "were asked for",
                    why=f"its id was {before} and is {leader.topic_id}",
                    do="run again",
                )
        return present

    def start_over(self, why: ChangedMeanwhile) -> None:
        """Forgets what was seen, and waits a moment. Raises the error after the deadline."""
        self.excluded_partitions.clear()
        self.unreachable.clear()
        self.unseen_topics.clear()
        self._failure = why
        self._pause(why.what)

    def epoch_ends(
        self, logs: Mapping[Partition, LogState], epochs: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """The ends of epochs, as far as leaders report them. Raises ChangedMeanwhile if one has to
        be asked again: without it a log could not be told from one that was rewritten."""
        ends, left = epoch_ends(self._brokers, logs, epochs)
        why = "its leader did not answer where an earlier leader's records end"
        if left and not self._are_given_up(left, len(logs), why):
            raise ChangedMeanwhile(f"{left[0]} could not be surveyed", why=why, do="run again")
        return ends

    def epochs(self, logs: Mapping[Partition, LogState]) -> dict[Partition, LogState]:
        """The logs with the epochs of their last batches, where metadata does not have the
        leaders' (before Kafka 2.1). A leader whose high watermark lags does not send its last
        batch, and without its epoch a log could not be told from one that is rewritten later: so
        all are waited for."""
        while True:
            logs = with_epochs(self._brokers, logs)
            left = lacking_epochs(self._brokers, logs)
            if not left:
                return dict(logs)
            if self._are_given_up(left, len(logs), "its last batch could not be read"):
                return {p: log for p, log in logs.items() if p not in self.unreachable}
            self._pause(f"the last batch of {left[0]} could not be read")

    def _are_given_up(self, left: Sequence[Partition], total: int, why: str) -> bool:
        """Whether partitions are given up: at the deadline, if the policy holds partitions, and
        there are others. They are unreachable then."""
        if not self._tolerates_missing or len(left) == total or not self._is_over():
            return False
        self.unreachable |= dict.fromkeys(left, why)
        return True

    def _ask_each_leader(
        self, missing: Mapping[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, OffsetResult]:
        found: dict[Partition, OffsetResult] = {}
        for address, group in by_leader(missing, lambda leader: leader).items():
            try:
                responses = self._ask_leader(address, group, when, isolation)
            except ConnectionLost as error:
                self._failure = error
                continue
            for partition, part in responses.items():
                if part.meaning is ErrorMeaning.OK:
                    found[partition] = part
                else:
                    self._on_failure(partition, part)
        return found

    def _ask_leader(
        self, address: Address, group: Mapping[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, OffsetResult]:
        brokers = self._brokers
        found = request_offsets(brokers, address, group, when, isolation)
        timeless = {p: group[p] for p, x in found.items() if x.meaning is ErrorMeaning.UNSUPPORTED}
        if timeless and isinstance(when, AtTime):
            # Logs of a format without timestamps: the oldest version of the request is by segment.
            found |= request_offsets(brokers, address, timeless, when, isolation, by_segment=True)
        if isinstance(when, AtTime):
            found |= corrected_times(brokers, address, group, when, found)
            found |= confirm_no_record(brokers, address, group, when, isolation, found)
        return found

    def _on_failure(self, partition: Partition, part: OffsetResult) -> None:
        if part.meaning.is_final:
            raise part.meaning.refusal_error(
                f"this client may not ask for the offsets of {partition}",
                why=part.code,
                do="check the permissions of this client and the version of the broker",
            )
        self._failure = Unreachable(
            f"the offsets of {partition} are not available",
            why=f"its leader answered {part.code}",
            do="check the partition's leader, then run again",
        )


def _written_as(partition: Partition) -> tuple[int, str]:
    """How a job file may name a partition: its number, or ``broker-number``."""
    return partition.number, f"{partition.broker}-{partition.number}"


def _missing_responses(leaderless: Sequence[Partition], silent: Mapping[str, str]) -> str:
    if leaderless:
        named = ", ".join(str(p) for p in leaderless[:5])
        return f"no leader for {count_noun(len(leaderless), 'partition')}: {named}"
    return "; ".join(f"broker {name} cannot be asked: {why}" for name, why in silent.items())
