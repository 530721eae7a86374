"""Decides which partitions of a cluster a survey needs, from a view of its metadata.

Pure: a view and a request in, a frozen value or an error out. The caller decides whether to ask
again for missing partitions, and when to continue without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Final

from rangeland.dialects.cluster_values import ClusterView, TopicView
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import JobFileError, Unreachable
from rangeland.model import AbsentPartitions, Leader, Partition
from rangeland.patterns import match_topics, matches
from rangeland.planning.incarnation import LogMark
from rangeland.planning.listed_partitions import is_read, names_in_topic
from rangeland.planning.slice_receipt import later_epoch
from rangeland.survey.survey_request import SurveyRequest
from rangeland.wording import count_noun

NO_LEADER: Final = "it has no leader"


class NoTopicMatches(JobFileError):
    """The cluster has no topic that matches the pattern of a job; the job may have landed some
    before."""


class UnknownTopic(JobFileError):
    """One broker reports that there is no such topic or partition."""

    confirmed: ClassVar[type[JobFileError]] = JobFileError

    def confirmed_error(self, who: str) -> JobFileError:
        why = f"{self.why}; {who}"
        return self.confirmed(self.what, why=why, do=self.do, **self.facts)


class UnmatchedPattern(UnknownTopic):
    """One broker reports no topic that matches the pattern."""

    confirmed = NoTopicMatches


class ChangedMeanwhile(Unreachable):
    """A topic was recreated, or a leader has moved, during a survey: its results so far may belong
    to another log."""


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that a survey wants, with their leaders, and which partitions are absent."""

    leaders: Mapping[Partition, Leader]
    leaderless: Mapping[Partition, str]
    """The partitions without a leader that can be asked, and why."""
    topics: frozenset[str]
    """The topics to survey, including topics that were landed before and no longer exist."""
    absent: AbsentPartitions

    @property
    def reachable(self) -> dict[Partition, Leader]:
        """The partitions that have a leader and were not given up."""
        unreachable = self.absent.unreachable
        return {p: leader for p, leader in self.leaders.items() if p not in unreachable}

    def give_up(self, reasons: Mapping[Partition, str]) -> WantedPartitions:
        """The same, with these partitions unreachable, each for a reason."""
        unreachable = {**self.absent.unreachable, **reasons}
        return replace(self, absent=replace(self.absent, unreachable=unreachable))

    def move_to(self, later: WantedPartitions) -> WantedPartitions:
        """The same partitions with their leaders in a later view. Partitions that were given up
        remain so. Raises ChangedMeanwhile if a partition now belongs to another incarnation of its
        topic."""
        moved = {p: leader for p, leader in later.leaders.items() if p in self.leaders}
        for partition, leader in moved.items():
            before = self.leaders[partition].topic_id
            if before and leader.topic_id and before != leader.topic_id:
                raise ChangedMeanwhile(
                    f"the topic {partition.topic} was deleted and created again while its offsets "
                    "were asked for",
                    why=f"its id was {before} and is {leader.topic_id}",
                    do="run again",
                )
        unreachable = {**self.absent.unreachable, **later.absent.unreachable}
        absent = replace(later.absent, unreachable=unreachable)
        return replace(later, leaders={**self.leaders, **moved}, absent=absent)


def wanted_partitions(
    view: ClusterView,
    request: SurveyRequest,
    named_brokers: Collection[str] = (),
    *,
    numbered_per_broker: bool = False,
) -> WantedPartitions:
    """The wanted partitions in a view. ``named_brokers``: the brokers in the job file, if the
    cluster does not list its brokers itself.

    Raises UnknownTopic for a topic or partition that does not exist according to the view,
    Unreachable for one that may exist in a moment, and JobFileError for a topic that this client
    may not read."""
    names = topic_names(view, request)
    topics = frozenset((*names, *(name for name in request.known if _is_meant(name, request))))
    present = [name for name in names if not _is_gone(view.topics.get(name), name, request)]
    partitions: dict[Partition, Leader] = {}
    excluded: set[Partition] = set()
    for name in present:
        topic = _readable_topic(view, name)
        only = request.partitions.get(name, ())
        if not view.unreachable:
            _check_partitions_exist(topic, only)
        for partition, leader in topic.leaders.items():
            if is_read(partition, only):
                partitions[partition] = leader
            else:
                excluded.add(partition)
    topics_with_partitions = {p.topic for p in (*partitions, *excluded)}
    empty = [name for name in present if name not in topics_with_partitions]
    if empty and not numbered_per_broker:
        raise _no_partitions_error(empty)
    if present and not partitions:
        raise _no_partitions_error(present)
    unseen = (name for name in names if name in view.topics and view.topics[name].may_be_hidden)
    brokers = absent_brokers(view, named_brokers)
    absent = replace(brokers, excluded=frozenset(excluded), unseen_topics=frozenset(unseen))
    leaderless = {
        p: why
        for p, leader in partitions.items()
        if (why := _why_unusable(leader, request.checkpoint.get(p), request.known_epochs.get(p)))
    }
    leaders = {p: leader for p, leader in partitions.items() if p not in leaderless}
    return WantedPartitions(leaders, leaderless, topics, absent)


def _why_unusable(leader: Leader, mark: LogMark | None, known_epoch: int | None) -> str | None:
    """Why a leader in a view cannot be asked; None if it can. Leader epochs only grow in a log, so
    metadata is stale if its leader's epoch is earlier than the one in which the last landing was
    read, or one that is known since: that broker may have different records. Without topic ids, it
    may also be another log."""
    if leader.address is None:
        return NO_LEADER
    if mark is None or mark.topic_id is None or mark.topic_id != leader.topic_id:
        return None
    known_epoch = later_epoch(mark.epoch, known_epoch)
    if known_epoch is None or leader.epoch is None or leader.epoch >= known_epoch:
        return None
    return (
        f"the metadata is stale: it names {leader.address}, the leader of epoch {leader.epoch}, "
        f"but epoch {known_epoch} is already known"
    )


def _no_partitions_error(topics: Iterable[str]) -> Unreachable:
    return Unreachable(
        f"the topics {', '.join(topics)} have no partitions yet",
        why="they are in the metadata, but may have just been created",
        do="run again",
    )


def topic_names(view: ClusterView, request: SurveyRequest) -> list[str]:
    """The requested topics, or those in a view that match the pattern. Raises UnmatchedPattern if
    none does, and Unreachable if topics may only be missing in this view."""
    pattern = request.topic_pattern
    if pattern is None:
        return list(request.topics)
    visible = sorted(topic.name for topic in view.topics.values() if not topic.is_internal)
    names = match_topics(pattern, visible)
    if not names and not match_topics(pattern, request.known):
        _check_has_brokers(view)
        raise UnmatchedPattern(
            f"no topic matches {pattern}",
            why=f"the cluster has {count_noun(len(view.topics), 'topic')}; the pattern must match "
            "the whole name",
            do="correct source.topic_pattern or create the topic",
        )
    return names


def registered_topic_names(pattern: str, registered: Collection[str]) -> tuple[str, ...]:
    """The topics of a registry that match the pattern. Raises NoTopicMatches if none does."""
    names = tuple(match_topics(pattern, sorted(registered)))
    if not names:
        raise NoTopicMatches(
            f"no topic matches {pattern}",
            why=f"{count_noun(len(registered), 'topic')} registered; the pattern must match the "
            "whole name",
            do="correct source.topic_pattern, or create the topic",
        )
    return names


def _is_meant(topic: str, request: SurveyRequest) -> bool:
    """Whether the job still includes this topic, which may only have been landed before."""
    return request.topic_pattern is not None and matches(request.topic_pattern, topic)


def _is_gone(topic: TopicView | None, name: str, request: SurveyRequest) -> bool:
    return (topic is None or topic.is_unknown) and name in request.known


def _check_has_brokers(view: ClusterView) -> None:
    if view.has_no_brokers:
        raise Unreachable(
            "no broker is registered in the cluster",
            why="its servers answer, but they forget brokers that are down, with their topics",
            do="start the brokers; if they are up, check that source.servers names their servers",
        )


def _readable_topic(view: ClusterView, name: str) -> TopicView:
    topic = view.topics.get(name)
    if topic is not None and topic.meaning is ErrorMeaning.OK:
        return topic
    _check_has_brokers(view)
    code = topic.code_name if topic else "nothing"
    if topic is not None and topic.meaning is ErrorMeaning.UNSUPPORTED:
        do = "leave it out of source.topics"
        raise topic.meaning.refusal_error(f"the topic {name} cannot be read", why=code, do=do)
    if topic is not None and topic.meaning.is_final:
        raise topic.meaning.refusal_error(
            f"this client may not read the topic {name}",
            why=code,
            do="give the user of source.security the right to describe and read it, or correct "
            "source.topics",
        )
    if topic is not None and not topic.is_unknown:
        do = "check the brokers that lead its partitions, then run again"
        raise Unreachable(f"the topic {name} is not ready", why=code, do=do)
    raise UnknownTopic(
        f"there is no topic {name}",
        why=f"the cluster answered {code}",
        do="correct source.topics or create the topic; nothing is created here",
        topic=name,
    )


def _check_partitions_exist(topic: TopicView, only: Sequence[int | str]) -> None:
    existing = {name for p in topic.leaders for name in names_in_topic(p)}
    for partition in only:
        if partition not in existing:
            numbers = ", ".join(str(p).rpartition("/")[2] for p in sorted(topic.leaders))
            raise UnknownTopic(
                f"topic {topic.name} has no partition {partition}",
                why=f"it has {numbers}",
                do="correct source.partitions",
            )


def absent_brokers(view: ClusterView, named_brokers: Iterable[str]) -> AbsentPartitions:
    """Which brokers answered according to a view, and which did not: where each broker has its own
    partitions, nothing is known about the partitions of the latter. A replica may not list all that
    its broker has, though what it lists is there."""
    leaders = [pair for topic in view.topics.values() for pair in topic.leaders.items()]
    leading = {p.broker for p, leader in leaders if not leader.is_replica} - {""}
    answered = set(named_brokers) - view.unreachable.keys() | leading | view.registered
    replicated = {p.broker for p, leader in leaders if leader.is_replica} - answered
    return AbsentPartitions(
        answered_brokers=frozenset(answered),
        unanswered_brokers=dict(view.unreachable),
        partly_listed_brokers=dict.fromkeys(sorted(replicated), "only a replica of it is up"),
    )


def silent_brokers(unanswered: Mapping[str, str], request: SurveyRequest) -> Mapping[str, str]:
    """The ``unanswered`` brokers without those whose partitions are not wanted."""
    listed = [request.partitions.get(topic) for topic in request.topics]
    if not listed or not all(only and all(isinstance(w, str) for w in only) for only in listed):
        return unanswered
    brokers = {str(name).rpartition("-")[0] for only in listed for name in only or ()}
    return {name: why for name, why in unanswered.items() if name in brokers}


def why_incomplete(leaderless: Mapping[Partition, str], silent: Mapping[str, str]) -> str | None:
    """Which leaders are missing, in words; None if none are."""
    if leaderless:
        examples = (
            str(p) if why == NO_LEADER else f"{p} ({why})"
            for p, why in islice(leaderless.items(), 5)
        )
        return f"no leader for {count_noun(len(leaderless), 'partition')}: {', '.join(examples)}"
    if not silent:
        return None
    return "; ".join(f"broker {name} cannot be asked: {why}" for name, why in silent.items())


def may_be_given_up(missing: Collection[Partition], total: int, request: SurveyRequest) -> bool:
    """Whether a survey of ``total`` partitions may continue without these once its time is up. It
    may if the policy holds partitions, and there are others."""
    return request.tolerates_missing_leaders and len(missing) < total
