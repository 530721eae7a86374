"""The archive of a JVM's classes: one for each Java and its jars, complete or not used, and never a
reason to fail. The JVMs here are real, and small.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rangeland.jvm import class_archive
from rangeland.jvm.class_archive import OPTIONS_OF_JVMS, QUIET, ClassArchive, take_complete
from rangeland.jvm.jars import find_ivy
from rangeland.jvm.java import find_java
from rangeland.testing.processes import PATIENCE_S

MAIN = "org.apache.ivy.Main"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*OPTIONS_OF_JVMS, "RANGELAND_CLASS_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANGELAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "classes"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    return Path(shutil.copy2(find_ivy(), tmp_path / "ivy.jar"))


def archive_of(*jars: Path, options: str = "") -> ClassArchive:
    found = ClassArchive.of(find_java(), jars, options)
    assert found is not None
    return found


def new_file(options: list[str]) -> Path:
    return Path(options[0].removeprefix("-XX:ArchiveClassesAtExit="))


def java(jar: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs Ivy, which prints its version and nothing else."""
    return subprocess.run(
        [find_java(), *options, "-cp", str(jar), MAIN, "-version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


# --- files -------------------------------------------------------------------------------


def test_one_jvm_makes_it_and_those_after_it_use_it(jar: Path) -> None:
    archive = archive_of(jar)
    assert archive.options_to_use() == []
    made = new_file(archive.options_to_make())
    assert archive.options_to_make() == []  # somebody is about to make it
    assert archive.options_to_use() == []
    made.write_bytes(b"\0\0\0\0the header is written last")
    assert archive.options_to_use() == []
    made.write_bytes(b"\1\0\0\0all of it")
    assert archive.options_to_use() == [f"-XX:SharedArchiveFile={archive.path}", *QUIET]
    assert archive.options_to_make() == []
    assert list(made.parent.iterdir()) == [archive.path]


def test_what_a_killed_jvm_leaves_behind_is_removed_after_a_while(jar: Path) -> None:
    archive = archive_of(jar)
    left = new_file(archive.options_to_make())
    long_ago = time.time() - class_archive.GIVEN_UP_S - 10
    os.utime(left, (long_ago, long_ago))
    assert new_file(archive.options_to_make()) != left
    assert not left.exists()


def test_only_the_few_that_were_used_last_are_kept(cache: Path, jar: Path) -> None:
    cache.mkdir(parents=True)
    for age in range(5):
        (cache / f"old-{age}.jsa").touch()
        os.utime(cache / f"old-{age}.jsa", (1_000 - age, 1_000 - age))
    archive = archive_of(jar)
    new_file(archive.options_to_make()).write_bytes(b"\1\2\3\4")
    assert archive.options_to_use()
    kept = [archive.path, *(cache / f"old-{age}.jsa" for age in range(3))]
    assert sorted(cache.iterdir()) == sorted(path for path in kept if path is not None)


def test_other_jars_and_options_have_another(jar: Path, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    before = [archive_of(jar), archive_of(jar, options="-Xint"), archive_of(folder)]
    os.utime(jar, (1, 1))
    (folder / "more.jar").touch()
    assert len({a.key for a in (*before, archive_of(jar), archive_of(folder))}) == 5


def test_it_can_be_turned_off(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGELAND_CLASS_ARCHIVE", "off")
    assert ClassArchive.of(find_java(), [jar]) is None


def test_an_older_java_has_none(jar: Path, tmp_path: Path) -> None:
    old = tmp_path / "java"
    old.write_text("""#!/bin/sh\necho 'openjdk version "11.0.2"' >&2\n""")
    old.chmod(0o755)
    assert ClassArchive.of(str(old), [jar]) is None


@pytest.mark.parametrize("name", OPTIONS_OF_JVMS)
def test_none_is_made_by_a_jvm_with_options_of_the_environment(
    jar: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "-XX:-BytecodeVerificationRemote")
    assert archive_of(jar).options_to_make() == []


def test_a_cache_that_cannot_be_written_is_no_failure(jar: Path, cache: Path) -> None:
    cache.parent.write_text("a file in the place of the folder")
    archive = archive_of(jar)
    assert (archive.options_to_use(), archive.options_to_make()) == ([], [])


def test_without_room_none_is_made(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "NEEDED_BYTES", 1 << 62)
    assert archive_of(jar).options_to_make() == []


# --- the JVM -----------------------------------------------------------------------------


@pytest.fixture
def made(jar: Path) -> ClassArchive:
    """An archive that a JVM has written."""
    archive = archive_of(jar)
    options = archive.options_to_make()
    assert java(jar, *options).returncode == 0
    assert new_file(options).stat().st_size > 100_000
    take_complete(archive.folder)
    assert archive.path is not None
    return archive


def loaded_from(archive: Path, jar: Path) -> bool:
    """After it has been seen to work, and silently."""
    plain, options = java(jar), [f"-XX:SharedArchiveFile={archive}", *QUIET]
    done = java(jar, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    said = java(jar, *options, "-Xlog:class+load:stdout").stdout
    return f"{MAIN} source: shared objects file (top)" in said


def test_a_jvm_maps_the_archive_that_another_has_written(jar: Path, made: ClassArchive) -> None:
    assert made.path is not None
    assert made.options_to_use()[0].endswith(str(made.path))
    assert loaded_from(made.path, jar)


def test_an_archive_of_other_jars_is_ignored(jar: Path, made: ClassArchive) -> None:
    os.utime(jar, (1, 1))
    assert made.path is not None
    assert not loaded_from(made.path, jar)


def test_a_damaged_archive_is_ignored_by_the_jvm(jar: Path, made: ClassArchive) -> None:
    path = made.path
    assert path is not None
    content = path.read_bytes()
    header = bytes(byte ^ 0xFF for byte in content[:256])
    for damaged in (b"", b"not an archive at all" * 1000, header + content[256:]):
        path.unlink()
        path.write_bytes(damaged)
        assert not loaded_from(path, jar)


def test_an_archive_that_was_cut_is_given_to_no_jvm(made: ClassArchive) -> None:
    path = made.path
    assert path is not None
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])
    assert made.options_to_use() == []
