"""Accesses directories on any file system that Spark reads and writes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Store:
    """A directory of Spark's file system and its contents; paths are relative to it.

    Parameters
    ----------
    spark
        Provides the file system, and access to it.
    root
        In Spark's form: a path, optionally prefixed with ``file:``, ``hdfs:``, ``s3a:``.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self.root = root.rstrip("/") or "/"
        self._path = context._jvm.org.apache.hadoop.fs.Path
        self._files = self._path(self.root).getFileSystem(context._jsc.hadoopConfiguration())

    def at(self, path: str) -> str:
        """The full path, in Spark's form."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str = "") -> bool:
        """Whether the file or directory exists."""
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str = "") -> list[str]:
        """Names of directories and files in a directory, sorted; none if it does not exist."""
        if not self.exists(path):
            return []
        found = self._files.listStatus(self._at(path))
        return sorted(status.getPath().getName() for status in found)

    def delete(self, path: str) -> None:
        """Remove a directory with its contents, if it exists."""
        self._files.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        return self._path(self.at(path))
