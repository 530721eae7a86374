"""Loads Delta Kernel into the driver's JVM: always the same version, whichever Spark runs there.

Delta Kernel needs a newer Parquet than most Spark versions ship, and Delta for Spark may bring
another version of Delta Kernel. Its jars therefore get a class loader of their own, which falls
back on the session only for classes that the jars lack: Hadoop, Jackson, and the log stores of
Delta and of users. py4j finds classes by name, and only in the session. A Java class,
``DeltaKernelFacade``, which Spark's own Janino compiles in that class loader, therefore offers
Delta Kernel's static methods as methods of an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from rangeland.errors import Bug, UsageError
from rangeland.jvm.jar_sets import LIBRARY_JARS
from rangeland.jvm.jars import jar_files
from rangeland.jvm.spark_jvm import SparkJvm

DELTA_KERNEL_VERSION = "4.4.0"
"""The only version that works: the code uses internal names of Delta Kernel, some by reflection."""
DELTA_KERNEL_JARS = LIBRARY_JARS[f"delta-kernel-{DELTA_KERNEL_VERSION}"]
SOURCES = ("ExclusiveFiles", "DeltaKernelFacade")
JARS_SETTING = "spark.rangeland.kernelJars"
"""The setting for a folder that contains the jars, for drivers that cannot fetch them; ``rangeland
submit`` sets it."""
_one_at_a_time = Lock()


def load_delta_kernel(jvm: SparkJvm) -> Any:
    """The ``DeltaKernelFacade`` of a driver's JVM, loaded once per JVM. Raises UsageError
    if the jars are of another version, and what ``jar_files`` raises if they cannot be fetched."""
    folder = jvm.settings.get(JARS_SETTING, "")
    jars = sorted(Path(folder).absolute().glob("*.jar")) if folder else jar_files(DELTA_KERNEL_JARS)
    # py4j caches methods by class name: it would mix up classes of the same name from two loaders.
    with _one_at_a_time:
        return _load(jvm.gateway, tuple(jars), folder)


@lru_cache(maxsize=1)
def _load(gateway: Any, jars: Sequence[Path], folder: str) -> Any:
    try:
        facade = _compile_facade(gateway, jars)
        version = str(facade.version())
    except (Py4JJavaError, Py4JError, TypeError) as error:
        if folder and DELTA_KERNEL_JARS.name not in _delta_kernels(jars):
            raise _other_delta_kernel_error(
                folder, ", ".join(_delta_kernels(jars)) or "there is none"
            ) from error
        raise Bug("Delta Kernel cannot be loaded", why=str(error).strip()) from error
    if version != DELTA_KERNEL_VERSION:
        raise _other_delta_kernel_error(folder, version)
    return facade


def _compile_facade(gateway: Any, jars: Sequence[Path]) -> Any:
    jvm = gateway.jvm
    urls = gateway.new_array(jvm.java.net.URL, len(jars))
    for number, jar in enumerate(jars):
        urls[number] = jvm.java.net.URL(jar.as_uri())
    session = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader = jvm.org.apache.spark.util.ChildFirstURLClassLoader(urls, session)
    for name in SOURCES:  # each may refer to those before it
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(8)  # class file version: the first with static interface methods
        compiler.setParentClassLoader(loader)
        compiler.cook(files("rangeland.delta.java_bridge").joinpath(f"{name}.java").read_text())
        loader = compiler.getClassLoader()
    java_class = loader.loadClass(f"rangeland.{SOURCES[-1]}")
    return java_class.getConstructors()[0].newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _delta_kernels(jars: Sequence[Path]) -> list[str]:
    return [jar.stem for jar in jars if jar.name.startswith("delta-kernel-")]


def _other_delta_kernel_error(folder: str, versions: str) -> UsageError:
    return UsageError(
        f"{folder} has no Delta Kernel {DELTA_KERNEL_VERSION}",
        why=f"found: {versions}",
        do=f"have {JARS_SETTING} name a folder with the jars of {DELTA_KERNEL_JARS.name}, as in "
        "the command that `rangeland submit` writes, or leave it out, so that they are fetched",
    )
