"""Buckets that a Spark session knows: Hadoop has settings of its own for each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.servers.s3 import S3Server

# Hadoop would try for minutes.
IMPATIENT = {"attempts.maximum": "1", "retry.limit": "1", "retry.interval": "100ms"}

Bucket = Callable[..., str]


@contextmanager
def buckets_of(spark: Any, default: S3Server) -> Iterator[Bucket]:
    """Makes a bucket that the session knows; settings are those of a bucket, and win."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    names: list[str] = []

    def make(server: S3Server = default, settings: Mapping[str, str] = IMPATIENT) -> str:
        name = f"lake-{uuid.uuid4().hex[:8]}"
        server.create_bucket(name)
        own = {f"fs.s3a.bucket.{name}.{key}": value for key, value in settings.items()}
        for key, value in {**server.hadoop_settings(name), **own}.items():
            conf.set(key, value)
            names.append(key)
        return name

    yield make
    for name in names:
        conf.unset(name)
