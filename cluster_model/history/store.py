"""Directories on whatever file system Spark reads and writes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Store:
    """A directory of Spark's file system, and what is below it; paths are relative to it.

    Parameters
    ----------
    spark
        Tells the file system, and how to get in.
    root
        As Spark takes it: a path, or one with ``file:``, ``hdfs:``, ``s3a:`` before it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self.root = root.rstrip("/") or "/"
        self._path = context._jvm.org.apache.hadoop.fs.Path
        self._files = self._path(self.root).getFileSystem(context._jsc.hadoopConfiguration())

    def at(self, path: str) -> str:
        """The whole path, as Spark takes it."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str = "") -> bool:
        """Whether there is such a file or directory."""
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str = "") -> list[str]:
        """Names of directories and files in a directory, sorted; none where there is none."""
        if not self.exists(path):
            return []
        found = self._files.listStatus(self._at(path))
        return sorted(status.getPath().getName() for status in found)

    def changed_ms(self, path: str) -> int:
        """When a file or directory was changed, ms since 1970."""
        return int(self._files.getFileStatus(self._at(path)).getModificationTime())

    def size(self, path: str) -> tuple[int, int]:
        """Files below a path, and their bytes."""
        summary = self._files.getContentSummary(self._at(path))
        return int(summary.getFileCount()), int(summary.getLength())

    def rename(self, path: str, to: str) -> bool:
        """Give a directory another name; at once, where the file system can. Says if it did."""
        return bool(self._files.rename(self._at(path), self._at(to)))

    def delete(self, path: str) -> None:
        """Remove a directory and all below it, if it is there."""
        self._files.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        return self._path(self.at(path))
