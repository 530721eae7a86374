"""Lands through a transform, ``readable.py`` in this folder:
``spark-submit ... jobs/land_transformed.py orders.yaml``."""

import sys

import readable

import rangeland
from rangeland.results import RunResult
from rangeland.submit.entry_point import ScriptEntry, main


def land(entry: ScriptEntry) -> RunResult:
    spark = entry.spark()
    # Spark sends functions of a module by name, so the executors need the file as well.
    spark.sparkContext.addPyFile(readable.__file__)
    return rangeland.land(entry.job, spark, entry.progress)


if __name__ == "__main__":
    sys.exit(main(land, __doc__, settings=["sink.transform=readable:with_text"]))
