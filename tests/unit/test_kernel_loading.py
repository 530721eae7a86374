"""The kernel is found next to the package or in its archive, safely; without it, an error."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rangeland import decode
from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.native import native_library
from rangeland.decode.payload.json import json_kernel
from rangeland.errors import MissingRequirement, StorageFailed
from rangeland.testing.processes import PATIENCE_S

LIB = Path(native_library.__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No kernel loaded yet, and a temporary folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    decode.kafka_decoder.cache_clear()
    yield
    decode.kafka_decoder.cache_clear()


def hide_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "library_name", lambda: "_kernel-plan9-sparc.so")


def test_the_library_beside_the_package_is_used() -> None:
    assert isinstance(decode.kafka_decoder(), KafkaKernel)


def test_the_build_hook_and_the_loader_agree_on_the_name() -> None:
    spec = importlib.util.spec_from_file_location("kernel_build", LIB / "kernel_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert hook.library_name() == native_library.library_name()
    assert LIB.parent / hook.FOLDER == Path(native_library.__file__).parent


def test_an_installation_without_a_kernel_decodes_nothing_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide_library(monkeypatch)
    with pytest.raises(
        MissingRequirement, match=r"_kernel-plan9-sparc\.so.*Install rangeland"
    ) as caught:
        decode.kafka_decoder()
    assert caught.value.exit_code == 78
    error = decode.kernel_error()
    assert error is not None
    assert error.why == "this installation has no _kernel-plan9-sparc.so"
    assert caught.value.facts["library"] == "_kernel-plan9-sparc.so"


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "KERNEL_ABI", 0)
    with pytest.raises(MissingRequirement, match="a different version"):
        native_library.load_library()


@pytest.mark.parametrize(
    ("struct", "fields"),
    [
        ("json_call_t", json_kernel._JsonCall._fields),
        ("json_result_t", json_kernel._JsonResult._fields),
    ],
)
def test_what_is_passed_to_the_json_kernel_has_the_fields_of_its_struct(
    struct: str, fields: tuple[str, ...]
) -> None:
    header = Path(native_library.__file__).with_name("json_records.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    (body,) = re.findall(r"typedef struct \{([^}]*)\} " + struct + ";", code)
    assert tuple(re.findall(r"(\w+)[,;]", body)) == fields


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "junk.so"
    path.write_bytes(b"not a library")
    with pytest.raises(MissingRequirement, match="cannot be loaded"):
        native_library._load(path)


# --- out of a zip -----------------------------------------------------------------------

IN_ZIP = """
import sys, rangeland.decode as d
assert ".zip" in d.__file__, d.__file__
from rangeland.decode.kafka.layout import Payload
payload = Payload(bytes([16, 0, 0, 0, 2, 107, 2, 118, 0]), 5, 0, None, 1, 0)
assert d.kafka_decoder().decode_records([payload], 0, 9).column("offset").to_pylist() == [5]
heavy = {"pydantic", "typer", "rich", "pyspark", "numba", "importlib.resources"} & set(sys.modules)
assert not heavy, heavy
"""


def make_zip(path: Path) -> Path:
    package = LIB / "rangeland"
    with zipfile.ZipFile(path, "w") as archive:
        for file in package.rglob("*"):
            if file.suffix in (".py", ".so", ".dylib", ".dll"):
                archive.write(file, file.relative_to(LIB))
    return path


def test_the_kernel_works_from_a_zip_in_many_processes_at_once(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "rangeland.zip")
    cache = tmp_path / "tmp"
    cache.mkdir()
    environment = os.environ | {"PYTHONPATH": str(archive), "TMPDIR": str(cache)}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", IN_ZIP],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in running:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
    (folder,) = cache.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 1


def test_a_folder_from_which_nothing_may_be_loaded_has_to_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide_library(monkeypatch)
    monkeypatch.setattr(native_library, "_read_from_archive", lambda _: b"not a library")
    monkeypatch.setattr(native_library, "_forbids_programs", lambda _: True)
    with pytest.raises(MissingRequirement, match=r"noexec.*spark\.executorEnv\.TMPDIR") as caught:
        native_library.load_library()
    assert caught.value.exit_code == 78


def test_a_folder_that_cannot_be_written_is_not_the_stores_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_full(content: bytes, name: str) -> Path:
        raise OSError("no space left on device")

    hide_library(monkeypatch)
    monkeypatch.setattr(native_library, "_read_from_archive", lambda _: b"")
    monkeypatch.setattr(native_library, "extract", is_full)
    with pytest.raises(StorageFailed, match="no space left") as caught:
        native_library.load_library()
    assert caught.value.acts == "the operator of the Spark cluster"


# --- the private folder -----------------------------------------------------------------


def test_content_is_copied_out_once() -> None:
    first = native_library.extract(b"content", "_kernel-x.so")
    before = first.stat().st_mtime_ns
    again = native_library.extract(b"content", "_kernel-x.so")
    assert (again, again.stat().st_mtime_ns) == (first, before)
    assert again.read_bytes() == b"content"


def test_other_content_has_another_name() -> None:
    assert native_library.extract(b"1", "_kernel-x.so") != native_library.extract(
        b"2", "_kernel-x.so"
    )


def test_a_damaged_copy_is_replaced() -> None:
    path = native_library.extract(b"content", "_kernel-x.so")
    path.write_bytes(b"cont")
    assert native_library.extract(b"content", "_kernel-x.so").read_bytes() == b"content"


def test_many_at_once_leave_one_whole_file() -> None:
    content = os.urandom(1 << 16)
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: native_library.extract(content, "_kernel-x.so"), range(32)))
    (path,) = paths
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def squat_with_open_permissions(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def squat_with_a_link(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def squat_with_a_file(folder: Path) -> None:
    folder.write_text("mine")


@pytest.mark.parametrize(
    "squat", [squat_with_open_permissions, squat_with_a_link, squat_with_a_file]
)
def test_a_folder_that_is_not_ours_alone_is_not_used(
    squat: Callable[[Path], None], tmp_path: Path
) -> None:
    taken = tmp_path / f"rangeland-{os.getuid()}"
    squat(taken)
    path = native_library.extract(b"content", "_kernel-x.so")
    assert path.parent != taken
    assert path.parent.parent == tmp_path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    us = os.getuid()
    native_library.private_folder()
    monkeypatch.setattr(os, "getuid", lambda: us + 1)
    (tmp_path / f"rangeland-{us}").rename(tmp_path / f"rangeland-{us + 1}")
    assert native_library.private_folder().name != f"rangeland-{us + 1}"
