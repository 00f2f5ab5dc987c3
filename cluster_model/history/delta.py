"""Tables of Delta Lake: their versions, what changed between two, and deletion of old files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.history.errors import HistoryError, sentence
from cluster_model.history.session import delta_artifact
from cluster_model.history.store import Store

# Spark lists directories with up to 10,000 tasks, most of them empty in our tables.
MAINTENANCE = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "32"}
# The name of an entry in a table's log, with its version.
_ENTRY = re.compile(r"(\d{20})\.json")
_FILE = "struct<dataChange: boolean, partitionValues: map<string, string>>"


class TableVersion(NamedTuple):
    """A version of a table.

    Parameters
    ----------
    identity
        The table's own, which another one in its place does not have.
    version
        Its number.
    """

    identity: str
    version: int


def current_version(spark: SparkSession, store: Store, table: str) -> TableVersion:
    """The newest version of the table in a directory of a store."""
    at = store.at(table)
    # Without Delta Lake this fails with the reason, and the statement below as a syntax error.
    _ = spark.read.format("delta").load(at).schema
    detail = spark.sql(f"DESCRIBE DETAIL {sql_name(store, table)}").select("id").collect()[0]
    version = version_number(store, table)
    if version is None:
        raise HistoryError(f"{at}: no entry found in _delta_log, a table expected")
    return TableVersion(detail[0], version)


def version_number(store: Store, table: str) -> int | None:
    """The number of a table's newest version, by the names of its log's entries; None if none."""
    entries = (_ENTRY.fullmatch(name) for name in store.names(f"{table}/_delta_log"))
    return max((int(entry[1]) for entry in entries if entry), default=None)


def read_version(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The table as it was in a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def changed_partitions(
    spark: SparkSession, path: str, since: int, until: int, *columns: str
) -> set[tuple[str | None, ...]] | None:
    """Values of the partitions whose rows changed after a version; compaction changes none.

    Parameters
    ----------
    path
        The table's directory.
    since, until
        The versions, the second one included.
    columns
        All or some of the columns that partition the table.

    Returns
    -------
    set of tuple, or None
        None if the log does not say: its entries of that time are gone.
    """
    if since > until:
        return None
    # Spark takes these paths for patterns.
    log = re.sub(r"([\\{}\[\]*?])", r"\\\1", f"{path}/_delta_log")
    entries = [f"{log}/{number:020}.json" for number in range(since + 1, until + 1)]
    if not entries:
        return set()
    try:
        with configured(spark, MAINTENANCE):
            files = (
                spark.read.schema(f"add {_FILE}, remove {_FILE}")
                .json(entries)
                .select(f.explode(f.array("add", "remove")).alias("file"))
                .where("file.dataChange")
                .select(*(f.col("file.partitionValues")[name].alias(name) for name in columns))
            )
            found = {tuple(row) for row in files.distinct().collect()}
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return None if any(None in values for values in found) else found


def vacuum(spark: SparkSession, store: Store, table: str) -> None:
    """Delete the files that a table has not needed for a week, by default of Delta Lake."""
    with configured(spark, MAINTENANCE):
        spark.sql(f"VACUUM {sql_name(store, table)}")


def sql_name(store: Store, table: str) -> str:
    """The name in SQL of the table in a directory of a store."""
    escaped = store.absolute(table).replace("`", "``")
    return f"delta.`{escaped}`"


@contextmanager
def configured(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Set properties of the session for a while."""
    before = {name: spark.conf.get(name, None) for name in properties}
    try:
        for name, value in properties.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def delta_sentences(what: str | Path) -> Iterator[None]:
    """Report a failure of a table in one sentence."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = str(error)
        if "delta" in said and ("DATA_SOURCE_NOT_FOUND" in said or "ClassNotFound" in said):
            raise HistoryError(
                f"{what}: the session has no Delta Lake; spark_session(delta=True), or "
                f"spark.jars.packages={delta_artifact()} expected"
            ) from None
        raise HistoryError(f"{what}: {sentence(error)}") from None
