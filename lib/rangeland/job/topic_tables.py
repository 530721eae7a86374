"""A job with one table per topic: ``sink.table: lake/{topic}``. Pure.

Such a job file is a template. ``job_of_topic`` makes the job of one topic from it: the same file
with only that topic's fields, and with a table, a ledger and a checkpoint of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rangeland.errors import JobFileError
from rangeland.job.job_file import Job
from rangeland.job.job_text import JobText
from rangeland.job.sink_section import Sink
from rangeland.job.value_parsers import TOPIC_FIELD
from rangeland.patterns import matches


def job_of_topic(
    template: Job, text: JobText, topic: str, *, is_later: bool = False
) -> tuple[Job, JobText]:
    """The job that lands this topic, and its text. It has no group: drivers that share a topic's
    partitions would have to join once per table. ``is_later``: the topic appeared after the first
    run of the template, so it is landed from its beginning, as a later partition is."""
    values = {key: value for key, value in text.values.items() if key != "group"}
    source = {k: v for k, v in values["source"].items() if k != "topic_pattern"}
    values["source"] = {**source, "topics": [topic], **_only(topic, source, "partitions")}
    if isinstance(bounds := values.get("range"), dict):
        values["range"] = {**bounds, **_only(topic, bounds, "from", "until")}
    if is_later:
        values["range"] = {**(values.get("range") or {}), "first_run": "earliest"}
    policy = values.get("policy")
    if isinstance(policy, dict) and isinstance(rules := policy.get("topics"), dict):
        matching = {
            pattern: rule for pattern, rule in rules.items() if matches(str(pattern), topic)
        }
        values["policy"] = {**policy, "topics": matching}
    values["sink"] = {**values["sink"], "table": table_of_topic(template.sink, topic)}
    of_topic = replace(text, values=values, topic=topic)
    return Job.of(of_topic), of_topic


def is_asked_for(template: Job, topic: str) -> bool:
    """Whether the range includes this topic: a mapping lands only the partitions it lists."""
    sides = (template.range.from_, template.range.until)
    return all(not side.only_listed or any(p.topic == topic for p in side.listed) for side in sides)


def table_of_topic(sink: Sink, topic: str) -> str:
    """The table of a topic. A path contains the topic's name unchanged. In the name of a catalog
    table, where case does not matter and few characters are allowed, letters are converted to lower
    case, and anything but letters, digits and ``_`` becomes ``_``."""
    if sink.is_catalog_name:
        topic = re.sub(r"[^a-z0-9_]", "_", topic.lower())
    return sink.table.replace(TOPIC_FIELD, topic)


def check_tables_are_distinct(template: Job, topics: Iterable[str]) -> None:
    """Raises JobFileError if two topics would land in one table."""
    owners: dict[str, str] = {}
    for topic in topics:
        table = table_of_topic(template.sink, topic)
        owner = owners.setdefault(table, topic)
        if owner != topic:
            raise JobFileError(
                f"the topics {owner} and {topic} of the job {template.name} would share the table "
                f"{table}",
                why="in the name of a catalog table, capital letters become lower case, and "
                "anything but letters, digits and _ becomes _",
                do="give one of them a separate job, or land in folders, where names are unchanged",
            )


def _only(topic: str, section: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields that are mappings by topic, reduced to this topic."""
    fields = {}
    for name in names:
        value = section.get(name)
        if isinstance(value, dict):
            fields[name] = {k: v for k, v in value.items() if str(k) == topic}
    return fields
