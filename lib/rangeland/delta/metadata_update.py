"""Gives a transaction of Delta Kernel another schema for its table.

Kernel itself changes the schema only of tables with column mapping, which older readers cannot
read. Delta's protocol allows it for all: added columns are null in the files that lack them. So the
method by which Kernel's transaction takes any other change of metadata is called by reflection;
commit, conflicts, checksum and the resulting snapshot then follow by themselves.
"""

from __future__ import annotations

from typing import Any


def set_schema(gateway: Any, transaction: Any, schema: Any, properties: Any) -> None:
    """``transaction`` is one of Kernel's that was just built, ``schema`` a StructType of Kernel.
    ``properties``, a map of Java, are those that follow from a schema."""
    jvm = gateway.jvm
    kind = transaction.getClass()
    current = kind.getDeclaredField("metadata")
    current.setAccessible(True)
    metadata = current.get(transaction)
    signature = gateway.new_array(jvm.java.lang.Class, 1)
    signature[0] = metadata.getClass()
    update = kind.getDeclaredMethod("updateMetadata", signature)
    update.setAccessible(True)
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = metadata.withNewSchema(schema).withMergedConfiguration(properties)
    update.invoke(transaction, arguments)
