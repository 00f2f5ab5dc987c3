"""Accesses directories on any file system that Spark reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from cluster_model.history.errors import HistoryError, sentence
from cluster_model.history.session import is_remote


class _Files(Protocol):
    """What a store does with full paths."""

    def exists(self, path: str) -> bool: ...

    def names(self, path: str) -> list[str]: ...

    def delete(self, path: str) -> None: ...

    def absolute(self, path: str) -> str: ...


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
        self.root = root.rstrip("/") or "/"
        self._files: _Files = (
            _ByDataFrames(spark) if is_remote(spark) else _Hadoop(spark, self.root)
        )

    def at(self, path: str) -> str:
        """The full path, in Spark's form."""
        return f"{self.root}/{path}" if path else self.root

    def absolute(self, path: str) -> str:
        """The full path of something that exists, as SQL needs it: from the file system's root."""
        return self._files.absolute(self.at(path))

    def exists(self, path: str = "") -> bool:
        """Whether the file or directory exists."""
        return self._files.exists(self.at(path))

    def names(self, path: str = "") -> list[str]:
        """Names of directories and files in a directory, sorted; none if it does not exist.

        With Spark Connect, those that hold no file are left out, and those that Spark takes for
        hidden.
        """
        return self._files.names(self.at(path)) if self.exists(path) else []

    def delete(self, path: str) -> None:
        """Remove a directory with its contents, if it exists; with Spark Connect, its contents."""
        if self.exists(path):
            self._files.delete(self.at(path))


class _Hadoop:
    """By Hadoop's file system in the JVM of the driver."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._path = context._jvm.org.apache.hadoop.fs.Path
        with _sentences(root):
            self._files = self._path(root).getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        with _sentences(path):
            return bool(self._files.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        with _sentences(path):
            found = self._files.listStatus(self._path(path))
            return sorted(status.getPath().getName() for status in found)

    def delete(self, path: str) -> None:
        with _sentences(path):
            self._files.delete(self._path(path), True)

    def absolute(self, path: str) -> str:
        with _sentences(path):
            return str(self._files.makeQualified(self._path(path)).toString())


@contextmanager
def _sentences(path: str) -> Iterator[None]:
    """Turn errors of Hadoop's file systems into one sentence with the path."""
    try:
        yield
    except Py4JJavaError as error:
        reported = sentence(error)
        if "Class " in reported and reported.endswith(" not found"):
            reported += (
                "; the jar of this file system is missing, such as by --conf "
                "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1"
            )
        raise HistoryError(f"{path}: {reported}") from None


class _ByDataFrames:
    """By reading and writing, where the driver is elsewhere."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def exists(self, path: str) -> bool:
        try:
            _ = self._listed(path).schema
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return False
            raise
        return True

    def names(self, path: str) -> list[str]:
        # What Spark states is absolute, with the scheme of its file system.
        end = f"{path.partition(':')[2] or path}/"
        found = {
            row.path.partition(end)[2].partition("/")[0] for row in self._listed(path).collect()
        }
        return sorted(found - {""})

    def delete(self, path: str) -> None:
        self._spark.sql("SELECT '' AS value WHERE false").write.mode("overwrite").text(path)

    def absolute(self, path: str) -> str:
        if path.startswith("/") or ":" in path:
            return path
        # What Spark states is absolute; of a path with .. it states another one.
        found = self._listed(path).first()
        before, end, _ = (f"/{path}/" if found is None else found.path).partition(f"/{path}/")
        if not end:
            raise HistoryError(f"{path}: a path with .. found, one from the root (/) expected")
        return f"{before}/{path}"

    def _listed(self, path: str) -> DataFrame:
        """The files below a directory; their contents are not read."""
        read = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        return read.load(path).select("path")
