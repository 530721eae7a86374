"""Delta Kernel is loaded once per JVM, however many threads ask for it first."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from rangeland.delta.java_bridge import delta_kernel_loader as loader
from rangeland.jvm.spark_jvm import SparkJvm


def test_threads_that_ask_at_once_get_the_same_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def compile_slowly(gateway: Any, jars: Any) -> Any:
        facade = SimpleNamespace(version=lambda: loader.DELTA_KERNEL_VERSION)
        time.sleep(0.05)
        compiled.append(facade)
        return facade

    monkeypatch.setattr(loader, "_compile_facade", compile_slowly)
    monkeypatch.setattr(loader, "jar_files", lambda name: ())
    jvm = SparkJvm(gateway=object(), hadoop=None, settings={})
    together = Barrier(8)

    def load(_: int) -> Any:
        together.wait()
        return loader.load_delta_kernel(jvm)

    loader._load.cache_clear()
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(load, range(8)))
    finally:
        loader._load.cache_clear()
    assert len(compiled) == 1
    assert all(facade is compiled[0] for facade in found)
