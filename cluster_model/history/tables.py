"""Writes snapshots and forecasts as tables for other tools; equal runs give equal tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model.history.errors import HistoryError, sentence
from cluster_model.history.forecast import Forecast
from cluster_model.snapshot import BrokerState, Snapshot

OutputFormat = Literal["delta", "parquet"]

# Units of the resources that every cluster has; others are in the unit of their capacities.
_UNITS = {
    "cpu": "unit of the cpu capacity",
    "network_in": "B/s",
    "network_out": "B/s",
    "disk": "B",
}
RUN = "run"


class OutputTable(NamedTuple):
    """A table that commands write.

    Parameters
    ----------
    name
        Its name.
    purpose
        What a row is.
    schema
        Its columns, with their meaning and unit as comments.
    """

    name: str
    purpose: str
    schema: t.StructType


def column(name: str, kind: t.DataType, comment: str) -> t.StructField:
    """A column of an output, with its comment."""
    return t.StructField(name, kind, nullable=True, metadata={"comment": comment})


TEXT, LONG, DOUBLE, FLAG, TIME = (
    t.StringType(),
    t.LongType(),
    t.DoubleType(),
    t.BooleanType(),
    t.TimestampType(),
)
RUN_COLUMNS = [
    column(RUN, TEXT, "identity of the run: equal for equal arguments, whose rows it replaces"),
    column("cluster", TEXT, "name of the cluster"),
]
_AT = [
    *RUN_COLUMNS,
    column("at", TIME, "end of the time that loads are from (UTC)"),
    column("statistic", TEXT, "mean, p95, peak or forecast"),
]
_OF = [column("topic", TEXT, "name of the topic"), column("partition", LONG, "its number")]
_RESOURCE = [
    column("resource", TEXT, "cpu, network_in, network_out, disk or a further resource"),
    column("unit", TEXT, "unit of the loads: B/s, B or that of the capacity"),
]
REPLICA_LOADS = OutputTable(
    "replica_loads",
    "A replica and a resource of a snapshot.",
    t.StructType(
        [
            *_AT,
            *_OF,
            column("broker", TEXT, "id of the broker"),
            column("leader", FLAG, "whether the replica leads the partition"),
            *_RESOURCE,
            column("load", DOUBLE, "load of the replica, in `unit`"),
        ]
    ),
)
BROKER_LOADS = OutputTable(
    "broker_loads",
    "A broker and a resource of a snapshot.",
    t.StructType(
        [
            *_AT,
            column("broker", TEXT, "id of the broker"),
            column("rack", TEXT, "name of its rack"),
            column("state", TEXT, "alive, new, dead, demoted or bad_disks"),
            *_RESOURCE,
            column("load", DOUBLE, "sum of its replicas' loads, in `unit`"),
            column("capacity", DOUBLE, "in `unit`"),
            column("share", DOUBLE, "load / capacity; null without a capacity"),
        ]
    ),
)
FORECASTS = OutputTable(
    "forecasts",
    "A partition and a resource of a forecast.",
    t.StructType(
        [
            *RUN_COLUMNS,
            column("at", TIME, "when the forecast begins (UTC)"),
            column("until", TIME, "when it ends (UTC)"),
            *_OF,
            *_RESOURCE,
            column("leader_load", DOUBLE, "largest hourly mean expected of the leader, in `unit`"),
            column("leader_low", DOUBLE, "lower end of its interval, in `unit`"),
            column("leader_high", DOUBLE, "upper end of its interval, in `unit`"),
            column("follower_load", DOUBLE, "largest hourly mean expected of a follower"),
        ]
    ),
)
FORECAST_ERRORS = OutputTable(
    "forecast_errors",
    "A resource and a method, with the errors of forecasts of known hours.",
    t.StructType(
        [
            *RUN_COLUMNS,
            column("at", TIME, "end of the hours (UTC)"),
            column("resource", TEXT, "name of the resource"),
            column("method", TEXT, "chosen: the methods in use; or a baseline"),
            column("hours", LONG, "number of hours predicted"),
            column("error_of_hours", DOUBLE, "absolute errors / loads, over all hours"),
            column("error_of_peaks", DOUBLE, "the same of the largest hour of each horizon"),
        ]
    ),
)


class TableWriter:
    """A place for tables: a directory, or a schema of a catalog.

    Parameters
    ----------
    spark
        The session, with Delta Lake for its format.
    place
        A directory, which has a ``/`` or is a whole path, for tables below it; or the name of a
        schema in a catalog, such as ``lake.kafka``.
    format
        ``delta``; or ``parquet`` in a directory.

    Raises
    ------
    HistoryError
        For Parquet in a catalog.
    """

    def __init__(self, spark: SparkSession, place: str, format: OutputFormat = "delta") -> None:
        self._spark = spark
        self._place = place.rstrip("/") or "/"
        self._format = format
        self._catalog = "/" not in place and ":" not in place
        if self._catalog and format != "delta":
            raise HistoryError(
                f"tables {place}: {format} in a catalog found, a directory (with /) expected"
            )

    def write(
        self, table: OutputTable, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> str:
        """Write the rows of a run, in place of those of an earlier run with the same key.

        Parameters
        ----------
        table
            Which table.
        key
            What the run was about: JSON-compatible.
        rows
            Its rows without ``run``; a number that is not finite is null.

        Returns
        -------
        str
            The run's identity.
        """
        text = json.dumps({"table": table.name, **key}, sort_keys=True, default=str)
        run = hashlib.sha256(text.encode()).hexdigest()[:16]
        arrow = pa.Table.from_pylist(
            [{**{k: _finite(v) for k, v in row.items()}, RUN: run} for row in rows],
            schema=to_arrow_schema(table.schema),
        )
        frame = self._spark.createDataFrame(arrow, schema=table.schema)
        with self._sentences(table.name):
            if self._catalog:
                name = f"{self._place}.{table.name}"
                if self._spark.catalog.tableExists(name):
                    frame.writeTo(name).overwrite(f.col(RUN) == run)
                else:
                    frame.writeTo(name).using(self._format).create()
            elif self._format == "delta":
                frame.write.format("delta").mode("overwrite").option(
                    "replaceWhere", f"{RUN} = '{run}'"
                ).save(f"{self._place}/{table.name}")
            else:
                # Of the form that Spark and others read as partitions, which has no transactions.
                path = f"{self._place}/{table.name}/{RUN}={run}"
                frame.drop(RUN).write.mode("overwrite").parquet(path)
        return run

    @contextmanager
    def _sentences(self, name: str) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            raise HistoryError(f"table {self._place}, {name}: {sentence(error)}") from None


def write_snapshot(
    writer: TableWriter, snapshot: Snapshot, key: Mapping[str, Any], at_ms: int, statistic: str
) -> None:
    """Write the tables `replica_loads` and `broker_loads` of a snapshot.

    Parameters
    ----------
    writer
        Where to.
    snapshot
        The snapshot.
    key
        What it was made from, with the ``cluster``.
    at_ms, statistic
        End of the range of time, and what loads are.
    """
    s = snapshot
    said = {"cluster": key["cluster"], "at": _time(at_ms), "statistic": statistic}
    units = [unit_of(name) for name in s.resources]
    partition, leads = s.replica_partition, s.replica_is_leader
    loads = np.where(leads[:, None], s.leader_load[partition], s.follower_load[partition])
    replicas = []
    for n in range(s.n_replicas):
        p = int(partition[n])
        same = {
            **said,
            "topic": s.topics[s.partition_topic[p]],
            "partition": int(s.partition_number[p]),
            "broker": str(s.broker_ids[s.replica_broker[n]]),
            "leader": bool(leads[n]),
        }
        for r, (name, unit) in enumerate(zip(s.resources, units, strict=True)):
            replicas.append({**same, "resource": name, "unit": unit, "load": float(loads[n, r])})
    brokers = []
    of_brokers = s.broker_load()
    for b in range(s.n_brokers):
        same = {
            **said,
            "broker": str(s.broker_ids[b]),
            "rack": s.racks[s.broker_rack[b]],
            "state": BrokerState(int(s.broker_state[b])).name.lower(),
        }
        for r, (name, unit) in enumerate(zip(s.resources, units, strict=True)):
            load, capacity = float(of_brokers[b, r]), float(s.capacity[b, r])
            share = load / capacity if capacity else None
            brokers.append(
                {
                    **same, "resource": name, "unit": unit, "load": load, "capacity": capacity,
                    "share": share,
                }
            )  # fmt: skip
    writer.write(REPLICA_LOADS, key, replicas)
    writer.write(BROKER_LOADS, key, brokers)


def write_forecast(
    writer: TableWriter,
    forecast: Forecast,
    resources: Sequence[str],
    key: Mapping[str, Any],
    at_ms: int,
    horizon_ms: int,
) -> None:
    """Write the tables `forecasts` and `forecast_errors`.

    Parameters
    ----------
    writer
        Where to.
    forecast, resources
        The forecast, and the names of its resources.
    key
        What it was made from, with the ``cluster``.
    at_ms, horizon_ms
        When it begins, and its length.
    """
    said = {"cluster": key["cluster"], "at": _time(at_ms)}
    figures = {
        "leader_load": forecast.leader,
        "leader_low": forecast.leader_low,
        "leader_high": forecast.leader_high,
        "follower_load": forecast.follower,
    }
    rows = [
        {
            **said,
            "until": _time(at_ms + horizon_ms),
            "topic": topic,
            "partition": int(number),
            "resource": name,
            "unit": unit_of(name),
            **{figure: float(values[i, r]) for figure, values in figures.items()},
        }
        for i, (topic, number) in enumerate(zip(forecast.topic, forecast.partition, strict=True))
        for r, name in enumerate(resources)
    ]
    writer.write(FORECASTS, key, rows)
    errors = []
    for of in forecast.errors:
        same = {**said, "resource": of.resource, "hours": of.hours}
        methods = {"chosen": (of.wape, of.wape_of_peaks)}
        methods |= {n: (of.baselines[n], of.baselines_of_peaks[n]) for n in of.baselines}
        errors += [
            {**same, "method": name, "error_of_hours": hours, "error_of_peaks": peaks}
            for name, (hours, peaks) in methods.items()
        ]
    writer.write(FORECAST_ERRORS, key, errors)


def unit_of(resource: str) -> str:
    """The unit of a resource's loads.

    Examples
    --------
    >>> unit_of("disk"), unit_of("requests")
    ('B', 'unit of the requests capacity')
    """
    return _UNITS.get(resource, f"unit of the {resource} capacity")


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
