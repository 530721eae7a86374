"""Fetching jars: what is asked of Ivy, and what is said when it cannot be done.

No test here uses the network: Java is a shell script that stands for Ivy."""

from __future__ import annotations

import re
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rangeland.errors import Unreachable, UsageError
from rangeland.jvm.jar_sets import JarSet
from rangeland.jvm.jars import (
    cache_directory,
    fetch_jars,
    find_ivy,
    ivy_module,
    jar_files,
)
from rangeland.jvm.java import find_java, parse_java_version
from rangeland.testing import __main__ as testing
from tests.jar_sets import ALL_JARS

NAME = "kafka-4.1.0"
JARS = JarSet(NAME, ("a:b:1",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANGELAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pretend_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A JAVA_HOME whose java says it is 17 and otherwise runs ``script``."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    version = """[ "$1" = -version ] && echo 'openjdk version "17.0.9"' >&2 && exit 0"""
    java.write_text(f"#!/bin/sh\n{version}\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))


# The last argument is the pattern of the jars; its directory is where they go.
ONE_JAR = """
for last; do :; done
echo run >> "$(dirname "$0")/runs"
sleep 0.2
echo jar > "$(dirname "$last")/a.jar"
"""


def test_every_set_of_the_table_makes_a_module_that_parses() -> None:
    for name, jars in ALL_JARS.items():
        module = ElementTree.fromstring(ivy_module(jars))
        assert jars.name == name
        assert len(module.findall("dependencies/dependency")) == len(jars.coordinates)
        assert len(module.findall("dependencies/exclude")) == len(jars.excludes)


def test_coordinates_and_excludes_become_attributes() -> None:
    module = ElementTree.fromstring(ivy_module(JarSet("x", ("a.b:c:1",), ("d:*",))))
    dependency, exclude = (
        module.find("dependencies/dependency"),
        module.find("dependencies/exclude"),
    )
    assert dependency is not None
    assert dependency.attrib == {
        "org": "a.b", "name": "c", "rev": "1", "conf": "default->default"
    }  # fmt: skip
    assert exclude is not None
    assert exclude.attrib == {"org": "d", "module": "*"}


def test_a_set_that_is_not_transitive_has_the_named_jars_alone() -> None:
    jars = JarSet("x", ("a.b:c:1", "a.b:d:2"), transitive=False)
    module = ElementTree.fromstring(ivy_module(jars))
    asked = module.findall("dependencies/dependency")
    assert [found.get("transitive") for found in asked] == ["false", "false"]


def test_an_archive_is_asked_for_without_dependencies() -> None:
    module = ElementTree.fromstring(
        ivy_module(JarSet("x", ("a.b:c:1",), classifier="all", packaging="tar.gz"))
    )
    (dependency,) = module.findall("dependencies/dependency")
    assert dependency.get("transitive") == "false"
    (artifact,) = dependency.findall("artifact")
    assert artifact.attrib == {
        "name": "c",
        "type": "tar.gz",
        "ext": "tar.gz",
        "{http://ant.apache.org/ivy/maven}classifier": "all",
    }


def test_the_jars_of_an_archive_take_its_place(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
for last; do :; done
cd "$(dirname "$last")" && mkdir -p t/lib && echo 1 > t/main.jar && echo 2 > t/lib/b.jar
echo 3 > t/readme && tar czf a.tar.gz -C t . && rm -r t
"""
    pretend_java(tmp_path, monkeypatch, script)
    jars = JarSet(NAME, ("a:b:1",), classifier="all", packaging="tar.gz")
    assert {jar.name: jar.read_text() for jar in jar_files(jars)} == {
        "b.jar": "2\n",
        "main.jar": "1\n",
    }
    assert {path.name for path in fetch_jars(jars).iterdir()} == {"b.jar", "ivy.xml", "main.jar"}


def test_the_ivy_of_pyspark_is_found() -> None:
    assert find_ivy().is_file()


def test_an_unknown_set_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert testing.main(["fetch", "kafka-1"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert re.search(r"no set of jars named kafka-1.*kafka-4\.1\.0", said)


def test_a_set_is_fetched_once_even_by_many_at_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_java(tmp_path, monkeypatch, ONE_JAR)
    threads = [threading.Thread(target=fetch_jars, args=(JARS,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert jar_files(JARS) == [cache / "jars" / NAME / "a.jar"]
    assert len((tmp_path / "java-home" / "bin" / "runs").read_text().split()) == 1


def test_a_set_whose_coordinates_changed_is_fetched_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_java(tmp_path, monkeypatch, ONE_JAR)
    fetch_jars(JARS)
    (cache / "jars" / NAME / "old.jar").write_text("of the old coordinates")
    changed = JarSet(NAME, ("a:b:2",))
    assert [jar.name for jar in jar_files(changed)] == ["a.jar"]


def test_a_failed_fetch_says_why_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo ':: resolving ::'; echo '  Host maven.invalid not found. url=x'; exit 1"
    pretend_java(tmp_path, monkeypatch, script)
    with pytest.raises(Unreachable, match=r"Host maven\.invalid not found") as caught:
        fetch_jars(JARS)
    assert "RANGELAND_MAVEN" in str(caught.value)
    assert "resolving" not in str(caught.value)
    assert [path.name for path in (cache / "jars").iterdir()] == [f".{NAME}.lock"]


def test_leftovers_of_a_fetch_that_was_killed_are_removed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_java(tmp_path, monkeypatch, ONE_JAR)
    leftover = cache / "jars" / f".{NAME}.partial-x"
    leftover.mkdir(parents=True)
    fetch_jars(JARS)
    assert not leftover.exists()


def test_the_cache_is_where_the_user_says_or_where_caches_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANGELAND_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("RANGELAND_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == tmp_path / "rangeland"


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "25" 2025-09-16', 25),
    ],
)
def test_the_version_of_java_is_read(shown: str, version: int) -> None:
    assert parse_java_version(shown) == version


def test_a_missing_java_is_a_usage_error_that_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no java on the PATH.*JDK or JRE 17"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="has no bin/java"):
        find_java()


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("""#!/bin/sh\necho 'openjdk version "11.0.2"' >&2\n""")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="is version 11; 17 is required"):
        find_java()
