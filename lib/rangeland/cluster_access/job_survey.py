"""Surveys a job's cluster. All surveys of a job are taken here, except for those that confirm the
logs of a plan (``survey/log_comparison``).

This puts together what a survey needs: connections, and the backend of the groups whose offsets are
requested. If a registry knows the topics, a pattern is matched against its list.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_broker_registry, look_up_cluster
from rangeland.cluster_access.registry_lookup import schema_ids_in
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.schema_ids.schema_catalogue import TopicField
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_topics
from rangeland.model import Survey
from rangeland.survey.cluster_survey import find_topics, take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.survey.wanted_partitions import registered_topic_names


def survey_of(job: Job, request: SurveyRequest, settings: ClusterSettings | None = None) -> Survey:
    """Surveys the job's cluster. ``settings``: the job's, if they are already known, which saves
    asking a registry. Raises what ``take_survey`` raises, and Unreachable if a registry or a
    group's backend cannot be asked."""
    settings = settings or look_up_cluster(job)
    tolerant = job.policies.tolerates_missing_leaders
    request = replace(request, tolerates_missing_leaders=tolerant)
    backend = open_backend(job, settings) if request.groups else None
    try:
        with ConnectionPool(settings) as brokers:
            if request.topic_pattern and not brokers.dialect.capabilities.has_metadata:
                registered = {*look_up_broker_registry(job).topics, *request.known}
                names = registered_topic_names(request.topic_pattern, registered)
                request = replace(request, topics=names, topic_pattern=None)
            ask_group = None if backend is None else backend.offsets
            survey = take_survey(brokers, request, ask_group=ask_group)
            cluster = job.source.name_cluster(survey.cluster)
            return replace(survey, reports_versions=brokers.reports_versions, cluster=cluster)
    finally:
        if backend is not None:
            backend.close()


def topics_of(job: Job) -> tuple[str, ...]:
    """The topics that the job lists, or those in its cluster that match its pattern. Asks only for
    their names; leaders and offsets are asked for when a topic is surveyed. Raises NoTopicMatches
    if no topic matches, and the errors of connections and registries."""
    pattern = job.source.topic_pattern
    if pattern is None:
        return job.source.topics
    settings = look_up_cluster(job)
    with ConnectionPool(settings) as brokers:
        if brokers.dialect.capabilities.has_metadata:
            return find_topics(brokers, pattern)
    return registered_topic_names(pattern, look_up_broker_registry(job).topics)


def schema_ids_in_logs(job: Job, survey: Survey | None = None) -> dict[TopicField, Counter[int]]:
    """The schema ids in the oldest and newest records of the job's topics. Others may occur in
    between. Empty for a job without a schema registry. ``survey``: one that was just taken; if it
    is None, a new one is taken. Raises what a survey raises."""
    if not job.decode.fields_with_schema_ids:
        return {}
    if survey is None:
        survey = survey_of(job, request_for_topics(job, job.source.topics))
    topics = sorted({*job.source.topics, *(partition.topic for partition in survey.logs)})
    slices = [
        log.to_slice(index)
        for index, log in enumerate(survey.logs.values())
        if log.start_offset < log.end_offset
    ]
    counts = schema_ids_in(job, slices, survey)
    fields = [
        TopicField(topic, field) for topic in topics for field in job.decode.fields_with_schema_ids
    ]
    return {field: counts.get(field, Counter()) for field in fields}
