"""Which log stores Delta Kernel is given, of those that are set for Delta for Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.delta.java_bridge.hadoop_configuration import HadoopConf
from rangeland.errors import UsageError
from rangeland.jvm.spark_jvm import SparkJvm

DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


class Configuration(dict[str, str]):
    """Hadoop's, as far as it is called."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def setBoolean(self, name: str, value: bool) -> None:
        self[name] = str(value).lower()


class SparkConf(dict[str, str]):
    """Spark's, as far as it is called."""

    def getAllWithPrefix(self, prefix: str) -> list[Any]:
        ends = {n.removeprefix(prefix): v for n, v in self.items() if n.startswith(prefix)}
        return [
            SimpleNamespace(_1=lambda name=name: name, _2=lambda value=value: value)
            for name, value in ends.items()
        ]


class Facade:
    """The method of ``DeltaKernelFacade`` that is called."""

    def withSettings(self, configuration: Configuration, settings: SparkConf) -> Configuration:
        return Configuration(configuration | settings)


@pytest.fixture(autouse=True)
def classes(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = SimpleNamespace(Configuration=Configuration)
    hadoop = SimpleNamespace(hadoop=SimpleNamespace(conf=conf))
    found = SimpleNamespace(org=SimpleNamespace(apache=hadoop))
    monkeypatch.setattr(SparkJvm, "classes", property(lambda self: found))


def configuration(settings: dict[str, str], *, has_session: bool = True) -> Configuration:
    session = Configuration(settings if has_session else {})
    jvm = SparkJvm(object(), session, SparkConf(settings), has_session)
    java: Configuration = HadoopConf(jvm, Facade()).java
    assert java is not session
    return java


@pytest.mark.parametrize("has_session", [True, False])
@pytest.mark.parametrize("prefix", ["spark.", ""])
def test_a_log_store_is_that_of_its_scheme_and_has_its_own_settings(
    prefix: str, has_session: bool
) -> None:
    region = f"{prefix}{DYNAMO}.ddb.region"
    java = configuration(
        {f"{prefix}delta.logStore.s3a.impl": DYNAMO, region: "eu-central-1"},
        has_session=has_session,
    )
    assert java["io.delta.kernel.logStore.s3a.impl"] == DYNAMO
    assert java["rangeland.exclusive.s3a"] == "false"
    assert java["rangeland.exclusive.s3"] == "true"
    assert java[region] == "eu-central-1"


@pytest.mark.parametrize("prefix", ["spark.", ""])
def test_a_log_store_for_all_schemes_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError) as refused:
        configuration({f"{prefix}delta.logStore.class": DYNAMO})
    assert DYNAMO in refused.value.what
    assert "spark.delta.logStore.SCHEME.impl" in refused.value.do


@pytest.mark.parametrize("name", ["Delegating", "S3SingleDriver"])
def test_one_of_deltas_own_for_all_schemes_changes_nothing(name: str) -> None:
    own = f"org.apache.spark.sql.delta.storage.{name}LogStore"
    java = configuration({"spark.delta.logStore.class": own})
    assert java["rangeland.exclusive.s3a"] == "true"
    assert not [name for name in java if name.startswith("io.delta.kernel.")]
