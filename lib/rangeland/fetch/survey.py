"""One look at the cluster: leaders, where each log begins and ends, offsets for times.

Requests are per broker and kind, never per partition: a thousand partitions cost what ten
do. Whatever has no answer yet (a leader being elected, a broker that just left) is asked
again with fresh metadata until the deadline; then the survey fails with every address it
tried and why. A topic that is not there is the job's mistake and said at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from rangeland.dialects.contract import ClusterView, OffsetAnswer, TopicView
from rangeland.dialects.verdicts import Verdict
from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.fetch.broker import Lost, NoBroker
from rangeland.fetch.pool import Brokers
from rangeland.model import (
    Address,
    AtTime,
    Earliest,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
    Survey,
)

PAUSE_MS = 200
When = Earliest | Latest | AtTime


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at. Exactly one of ``topics`` and ``topic_pattern`` is given; the pattern
    is anchored and never matches internal topics. ``partitions`` restricts by topic."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    times_ms: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()


def take_survey(brokers: Brokers, wanted: Wanted, now: Callable[[], float] = time.time) -> Survey:
    """Raises JobFileError for topics or partitions that are not there and Unreachable when
    the deadline of the settings passes."""
    look = _Look(brokers, wanted)
    leaders = look.leaders()
    isolation = brokers.settings.isolation
    start = look.offsets(leaders, Earliest(), isolation)
    end = look.offsets(leaders, Latest(), isolation)
    times = {t: look.offsets(leaders, AtTime(t), isolation) for t in wanted.times_ms}
    sizes = look.sizes(leaders)
    groups = {g: look.group_offsets(g, tuple(leaders)) for g in wanted.groups}
    return Survey(
        taken_at_ms=int(now() * 1000),
        logs={
            p: LogState(p, leaders[p], _known(start, p), _known(end, p), sizes.get(p))
            for p in sorted(leaders)
        },
        offsets_for_times={(p, t): found[p] for t, found in times.items() for p in leaders},
        group_offsets={(p, g): found.get(p) for g, found in groups.items() for p in leaders},
        requests=brokers.requests,
        elsewhere=frozenset(look.elsewhere),
    )


def _known(offsets: Mapping[Partition, int | None], partition: Partition) -> int:
    found = offsets[partition]
    return 0 if found is None else found


def ask_leaders(
    brokers: Brokers, topics: Sequence[str] | None, seeds: Sequence[Address]
) -> ClusterView:
    """Asks the seeds in turn; the first that answers is believed. Raises Unreachable naming
    every address and why, or JobFileError when somebody else listens at each of them.
    (``findLeader`` of SimpleConsumer, for all partitions at once.)"""
    tried: dict[str, str] = {}
    strangers = 0
    for seed in dict.fromkeys(seeds):
        try:
            answer = brokers.call(seed, brokers.dialect.ask_cluster(topics))
            return brokers.dialect.read_cluster(answer)
        except Lost as error:
            tried[str(seed)] = error.why
            strangers += isinstance(error, NoBroker)
    reasons = "; ".join(f"{address}: {why}" for address, why in tried.items())
    if tried and strangers == len(tried):
        raise JobFileError(
            "no server answers as a broker does",
            why=reasons,
            do="check host, port and security in source",
            tried=tried,
        )
    raise Unreachable(
        f"no broker could be reached, {len(tried)} tried",
        why=reasons,
        do="check source.servers, the network and that the brokers are up, then run again",
        tried=tried,
    )


class _Look:
    """The state of one survey: its deadline and what went wrong last."""

    def __init__(self, brokers: Brokers, wanted: Wanted) -> None:
        self._brokers = brokers
        self._wanted = wanted
        self._deadline = time.monotonic() + brokers.settings.survey_ms / 1000
        self._trouble: RangelandError | None = None
        self._seeds: list[Address] = list(brokers.settings.seeds)
        self.elsewhere: set[Partition] = set()

    def _pause(self, what: str) -> None:
        if time.monotonic() + PAUSE_MS / 1000 < self._deadline:
            time.sleep(PAUSE_MS / 1000)
            return
        if self._trouble is not None:
            raise self._trouble
        raise Unreachable(
            what,
            why=f"nothing changed in {self._brokers.settings.survey_ms} ms",
            do="check the cluster, then run again",
        )

    def leaders(self) -> dict[Partition, Leader]:
        """All partitions that are wanted; each has a leader."""
        while True:
            try:
                view = self._view()
                found = self._wanted_partitions(view)
                leaderless = [str(p) for p, leader in found.items() if leader.address is None]
                if not leaderless:
                    self._seeds = list(dict.fromkeys([*self._seeds, *view.brokers]))
                    return found
                self._trouble = None
                what = f"{len(leaderless)} partitions have no leader: {', '.join(leaderless[:5])}"
            except Unreachable as error:
                self._trouble, what = error, error.what
            self._pause(what)

    def _view(self) -> ClusterView:
        topics = self._wanted.topics if self._wanted.topic_pattern is None else None
        return ask_leaders(self._brokers, topics, self._seeds)

    def _wanted_partitions(self, view: ClusterView) -> dict[Partition, Leader]:
        names = self._names(view)
        found: dict[Partition, Leader] = {}
        for name in names:
            topic = view.topics.get(name)
            if topic is None or topic.verdict is not Verdict.OK:
                self._refuse_topic(name, topic)
            only = self._wanted.partitions.get(name)
            for number in only or ():
                if Partition(name, number) not in topic.leaders:
                    there = sorted(p.number for p in topic.leaders)
                    raise JobFileError(
                        f"{name} has no partition {number}",
                        why=f"it has {there}",
                        do="correct source.partitions",
                    )
            found |= {p: x for p, x in topic.leaders.items() if not only or p.number in only}
            self.elsewhere |= set(topic.leaders) - set(found)
        if not found:
            raise Unreachable(f"the topics {', '.join(names)} have no partitions yet")
        return found

    def _names(self, view: ClusterView) -> list[str]:
        pattern = self._wanted.topic_pattern
        if pattern is None:
            return list(self._wanted.topics)
        matching = sorted(
            t.name
            for t in view.topics.values()
            if not t.is_internal and re.fullmatch(pattern, t.name)
        )
        if not matching:
            raise JobFileError(
                f"no topic matches {pattern}",
                why=f"the cluster has {len(view.topics)} topics; the pattern is anchored",
                do="correct source.topic_pattern or create the topic",
            )
        return matching

    def _refuse_topic(self, name: str, topic: TopicView | None) -> NoReturn:
        code = topic.code if topic else "nothing"
        verdict = topic.verdict if topic else Verdict.UNKNOWN
        if verdict is Verdict.RETRY or code == "LEADER_NOT_AVAILABLE":
            raise Unreachable(f"the topic {name} is not ready", why=code)
        if verdict is Verdict.REFUSED:
            raise JobFileError(
                f"this client may not read the topic {name}",
                why=code,
                do="give it the right to describe and read the topic, or correct the name",
            )
        raise JobFileError(
            f"there is no topic {name}",
            why=f"the cluster answered {code}",
            do="correct source.topics or create the topic; nothing is created here",
            topic=name,
        )

    def offsets(
        self, leaders: dict[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, int | None]:
        """One request per leader; what has moved meanwhile is asked again at its new leader,
        which is noted in ``leaders``."""
        found: dict[Partition, int | None] = {}
        while True:
            missing = {p: leader for p, leader in leaders.items() if p not in found}
            if not missing:
                return found
            found |= self._ask_each_leader(missing, when, isolation)
            if all(p in found for p in leaders):
                continue
            self._pause("some partitions' offsets could not be had")
            leaders |= {p: x for p, x in self.leaders().items() if p in leaders}

    def _ask_each_leader(
        self, missing: Mapping[Partition, Leader], when: When, isolation: Isolation
    ) -> dict[Partition, int | None]:
        found: dict[Partition, int | None] = {}
        dialect = self._brokers.dialect
        for address, group in _by_leader(missing).items():
            try:
                answer = self._brokers.call(address, dialect.ask_offsets(group, when, isolation))
            except Lost as error:
                self._trouble = error
                continue
            for partition, part in dialect.read_offsets(answer).items():
                if part.verdict is Verdict.OK:
                    found[partition] = part.offset
                else:
                    self._note(partition, part)
        return found

    def _note(self, partition: Partition, part: OffsetAnswer) -> None:
        if part.verdict in (Verdict.REFUSED, Verdict.UNSUPPORTED):
            raise JobFileError(
                f"the offsets of {partition} may not be asked for",
                why=part.code,
                do="check the rights of this client and the version of the broker",
            )
        self._trouble = Unreachable(
            f"the offsets of {partition} could not be had",
            why=f"its leader answered {part.code}",
            do="check the partition's leader, then run again",
        )

    def sizes(self, leaders: Mapping[Partition, Leader]) -> dict[Partition, int]:
        """Sizes on the leaders' disks. What cannot be had is left out: they only steer cuts."""
        found: dict[Partition, int] = {}
        for address, group in _by_leader(leaders).items():
            try:
                question = self._brokers.dialect.ask_sizes(tuple(group))
                answer = self._brokers.call(address, question)
            except RangelandError:
                # Old brokers do not know this request and some clients may not ask it.
                continue
            sizes = self._brokers.dialect.read_sizes(answer)
            found |= {p: size for p, size in sizes.items() if p in group}
        return found

    def group_offsets(
        self, group: str, partitions: Sequence[Partition]
    ) -> dict[Partition, int | None]:
        """What a group has committed, from its coordinator."""
        dialect = self._brokers.dialect
        while True:
            for seed in self._seeds:
                try:
                    found = self._brokers.call(seed, dialect.ask_coordinator(group))
                    answer = self._brokers.call(
                        dialect.read_coordinator(found),
                        dialect.ask_group_offsets(group, partitions),
                    )
                    return dialect.read_group_offsets(answer)
                except Unreachable as error:
                    self._trouble = error
            self._pause(f"the offsets of group {group} could not be had")


def _by_leader(leaders: Mapping[Partition, Leader]) -> dict[Address, dict[Partition, Leader]]:
    groups: dict[Address, dict[Partition, Leader]] = {}
    for partition, leader in leaders.items():
        if leader.address is not None:
            groups.setdefault(leader.address, {})[partition] = leader
    return groups
