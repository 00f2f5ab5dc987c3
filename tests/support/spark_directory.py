"""Where Spark looks for files whose paths are relative: where it was started, unless told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_from(spark: SparkSession, directory: str | Path) -> str:
    """Have a session look in this directory; returns where it looked before."""
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    before = str(files.getWorkingDirectory().toString())
    files.setWorkingDirectory(hadoop.Path(str(directory)))
    return before
