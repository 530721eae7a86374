"""Spark looks for packages of this name to find data sources: with it installed,
``spark.read.format("rangeland")`` needs no registration."""

from rangeland.dataframe.datasource import RangelandSource as DefaultSource

__all__ = ["DefaultSource"]
