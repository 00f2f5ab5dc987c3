"""The history of a cluster: months of windows, and snapshots made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.attribution import (
    attribute_cpu,
    cpu_capacity,
    hardware_cost,
    with_estimates,
)
from cluster_model.history import windows as windowed
from cluster_model.history.alignment import (
    aligned_loads,
    default_loads,
    matrix,
    partition_rows,
)
from cluster_model.history.clean import judge
from cluster_model.history.cpu import CpuModel, broker_classes, broker_traffic, fit_cpu
from cluster_model.history.errors import HistoryError
from cluster_model.history.forecast import Forecast, forecast_loads
from cluster_model.history.loads import window_loads
from cluster_model.history.metadata import ALWAYS_MS, MetadataLog
from cluster_model.history.prepared import PreparedHistory, read_prepared
from cluster_model.history.schema import CLUSTER
from cluster_model.history.screening import MetadataTables
from cluster_model.history.smoothing import ForecastParameters
from cluster_model.history.statistics import DAY_MS, ENTITY, load_statistics, one_number, ordered
from cluster_model.history.traffic import traffic_rates, traffic_sums, with_traffic
from cluster_model.history.window_sums import broker_sums, further_sums, partition_sums, sizes
from cluster_model.index import SnapshotIndex
from cluster_model.live import disk_by_role
from cluster_model.snapshot import DEFAULT_RESOURCES, Floats, Snapshot
from cluster_model.windows import Extrapolation
from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, CPU

HistoryStatistic = Literal["mean", "p95", "peak", "forecast"]
CpuMethod = Literal["regression", "attribution"]
_NO_VALID = int(Extrapolation.NO_VALID_EXTRAPOLATION)


class History:
    """The records of a cluster over any range of time.

    All times are ms since 1970 (UTC). A range is one of whole windows: those that start
    in it, its end excluded.

    Parameters
    ----------
    prepared
        Records judged and summed over windows, possibly of other clusters too.
    metadata
        A log of brokers, capacities and placement, or a constant state. Loads in other
        than the default resources are kept unless `measured` names them.
    min_samples
        Samples of a metric that make a window's value good without extrapolation.
    measured
        Further resources that are measured, as for
        :class:`cluster_model.live.ClusterModel`: resource to a follower's share.

    Examples
    --------
    ::

        history = History.open(spark, "prepared", load_metadata("metadata-log"))
        snapshot = history.snapshot(statistic="p95", horizon_ms=7 * DAY_MS)
    """

    def __init__(
        self,
        prepared: PreparedHistory,
        metadata: MetadataLog | Snapshot,
        *,
        min_samples: int = 3,
        measured: Mapping[str, float] | None = None,
    ) -> None:
        log = metadata if isinstance(metadata, MetadataLog) else MetadataLog.of(metadata)
        own = f.col(CLUSTER) == log.cluster
        self.metadata = log
        self.window_ms = prepared.window_ms
        self.min_samples = min_samples
        self._partition_sums = prepared.partition_sums.where(own)
        self._broker_sums = prepared.broker_sums.where(own)
        self._sizes = prepared.sizes.where(own)
        self._traffic = prepared.traffic.where(own)
        self._quarantine = prepared.quarantine.where(own)
        self._further_sums = prepared.further.where(own)
        self._shares = dict(measured or {})
        self._placements = log.placements(self.spark)
        self._range: tuple[int, int] | None = None
        self._cpu: dict[tuple[int, int], CpuModel] = {}
        self._forecasts: dict[tuple[int, int, ForecastParameters], Forecast] = {}
        self._kept: dict[tuple[int, int], DataFrame] = {}

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        path: str | Path,
        metadata: MetadataLog | Snapshot,
        *,
        min_samples: int = 3,
        measured: Mapping[str, float] | None = None,
    ) -> History:
        """Open a prepared history (:func:`cluster_model.history.prepare.prepare`).

        Raises
        ------
        HistoryError
            If nothing was prepared, or not completely.
        """
        prepared = read_prepared(spark, path)
        return cls(prepared, metadata, min_samples=min_samples, measured=measured)

    @classmethod
    def of_records(
        cls,
        records: DataFrame,
        metadata: MetadataLog | Snapshot,
        *,
        window_ms: int = 300_000,
        windows: int = 5,
        min_samples: int = 3,
        measured: Mapping[str, float] | None = None,
    ) -> History:
        """Make a history from records.

        The sums are computed when first needed, and kept on the executors' disks for the
        life of the session. For months of records, :meth:`open` a prepared history instead.

        Parameters
        ----------
        records
            The table RECORDS, possibly with ``problem`` and ``value``.
        metadata, min_samples, measured
            As for :class:`History`.
        window_ms, windows
            Length of a window; a record is late if its window is at least this many
            before the newest.

        Raises
        ------
        HistoryError
            For a number below 1.
        """
        log = metadata if isinstance(metadata, MetadataLog) else MetadataLog.of(metadata)
        own = records.where(f.col(CLUSTER) == log.cluster)
        tables = MetadataTables.of(own.sparkSession, [log])
        judged = judge(
            own, tables, window_ms=window_ms, windows=windows, further=tuple(measured or ())
        ).persist(settled=False)
        prepared = PreparedHistory(
            partition_sums=partition_sums(judged.rated).persist(StorageLevel.DISK_ONLY),
            broker_sums=broker_sums(judged.brokers).persist(StorageLevel.DISK_ONLY),
            sizes=sizes(judged.partitions).persist(StorageLevel.DISK_ONLY),
            traffic=traffic_sums(own, judged.rated, window_ms).persist(StorageLevel.DISK_ONLY),
            quarantine=judged.quarantine,
            further=further_sums(judged).persist(StorageLevel.DISK_ONLY),
            window_ms=window_ms,
            windows=windows,
        )
        return cls(prepared, log, min_samples=min_samples, measured=measured)

    @property
    def spark(self) -> SparkSession:
        """The Spark session that runs the queries."""
        return self._partition_sums.sparkSession

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.metadata.cluster

    def range(self) -> tuple[int, int]:
        """From the first window with a sample to the last, incomplete one, excluded.

        Raises
        ------
        HistoryError
            If there is no complete window.
        """
        if self._range is None:
            first, last = self._partition_sums.agg(f.min("start_ms"), f.max("start_ms")).collect()[
                0
            ]
            if first == last:
                raise HistoryError(
                    f"history of {self.cluster!r}: no complete window of rates found, at least 1 "
                    f"of {self.window_ms / 1000:g} s expected (the newest window is not complete)"
                )
            self._range = (first, last)
        return self._range

    def windows(self, first_ms: int | None = None, end_ms: int | None = None) -> DataFrame:
        """The table WINDOWS of a range, by default of all complete windows."""
        first, end = self._within(first_ms, end_ms)
        if (first, end) in self._kept:
            return self._kept[first, end].drop("by_broker")
        return windowed.windows(self._partition_sums, first_ms=first, end_ms=end, **self._options)

    def broker_windows(self, first_ms: int | None = None, end_ms: int | None = None) -> DataFrame:
        """The table BROKER_WINDOWS of a range, by default of all complete windows."""
        first, end = self._within(first_ms, end_ms)
        return windowed.broker_windows(
            self._broker_sums, first_ms=first, end_ms=end, **self._options
        )

    def further_windows(self, first_ms: int | None = None, end_ms: int | None = None) -> DataFrame:
        """The table FURTHER_WINDOWS of a range, by default of all complete windows."""
        first, end = self._within(first_ms, end_ms)
        sums = self._further_sums.where(f.col("metric").isin(*self._shares))
        return windowed.further_windows(sums, first_ms=first, end_ms=end, **self._options)

    def loads(
        self,
        first_ms: int | None = None,
        end_ms: int | None = None,
        *,
        cpu: CpuModel | None = None,
    ) -> DataFrame:
        """Loads of each partition in each window in which one of its rates is known.

        Parameters
        ----------
        first_ms, end_ms
            The range; all complete windows by default.
        cpu
            Cost of a byte; by default :meth:`cpu_model` of all windows before the end.

        Returns
        -------
        DataFrame
            start_ms, topic, partition, leader and follower: array of R, in the order of the
            metadata's resources; null if unknown. See
            :func:`cluster_model.history.loads.window_loads`.
        """
        first, end = self._within(first_ms, end_ms)
        return self._loads(self.windows(first, end), first, end, cpu)

    def _loads(self, windows: DataFrame, first: int, end: int, cpu: CpuModel | None) -> DataFrame:
        return window_loads(
            windows,
            self._sizes.where(f.col("start_ms") < end),
            self._placements,
            cpu or self.cpu_model(end_ms=end),
            self.metadata.at(end - 1),
            self.window_ms,
            self.further_windows(first, end) if self._shares else None,
            self._shares,
        )

    def statistics(self, first_ms: int | None = None, end_ms: int | None = None) -> DataFrame:
        """Mean, percentiles, peak, trend and hour-of-week profile of each partition's loads.

        See :func:`cluster_model.history.statistics.load_statistics`.
        """
        first, end = self._within(first_ms, end_ms)
        loads = self._living(self.loads(first, end), end)
        return load_statistics(loads, self.metadata.at(end - 1).resources)

    def cpu_model(self, first_ms: int | None = None, end_ms: int | None = None) -> CpuModel:
        """Cpu cost of a byte for each class of brokers, with its accuracy.

        Brokers with equal capacities, at the end of the range, form a class. See
        :func:`cluster_model.history.cpu.fit_cpu`.
        """
        first, end = self._within(first_ms, end_ms)
        if (first, end) not in self._cpu:
            if (first, end) in self._kept:
                led = windowed.led_of(self._kept[first, end])
            else:
                led = windowed.led(
                    self._partition_sums, first_ms=first, end_ms=end, **self._options
                )
            self._cpu[first, end] = fit_cpu(
                broker_traffic(led, self._placements, self.window_ms),
                self.broker_windows(first, end),
                broker_classes(self.metadata.at(end - 1)),
                self.window_ms,
            )
        return self._cpu[first, end]

    def forecast(
        self,
        at_ms: int | None = None,
        horizon_ms: int | None = None,
        parameters: ForecastParameters | None = None,
    ) -> Forecast:
        """Loads expected after a time, from the windows before it, with the error in the past.

        The horizon is a day by default. See
        :func:`cluster_model.history.forecast.forecast_loads`.
        """
        first, end = self._within(None, at_ms)
        horizon = DAY_MS if horizon_ms is None else horizon_ms
        key = (end, horizon, parameters or ForecastParameters())
        if key not in self._forecasts:
            resources = self.metadata.at(end - 1).resources
            with self._keeping_windows(first, end):
                means = self._means(self.metadata.at(end - 1), first, end, 0.0)
                loads = self._complete_loads(first, end, means)
                reported = forecast_loads(loads, resources, (first, end), horizon, key[2])
            # Only the last one, which holds arrays of all loads.
            self._forecasts = {key: reported}
        return self._forecasts[key]

    def snapshot(
        self,
        at_ms: int | None = None,
        horizon_ms: int | None = None,
        statistic: HistoryStatistic = "mean",
        *,
        cpu: CpuMethod | None = None,
        min_ratio: float = 0.95,
        forecasting: ForecastParameters | None = None,
    ) -> Snapshot:
        """The cluster with its placement at a time, and one number for each load.

        ``mean`` equals :meth:`cluster_model.live.ClusterModel.snapshot` of the same windows, but
        for what consumers read from followers, which is left out here. ``p95`` and ``peak`` are
        taken over the windows of each partition, role and resource; for disk they are at least
        the newest size. ``forecast`` is the largest hourly mean expected. Peaks of a broker's
        partitions are added up even if they occur at different times.

        An unknown load is never taken as 0. A window counts if it has the load. If none of
        the range does, a size is that of other replicas or of log directories, a rate is
        the mean of its topic, or of all partitions, and the other loads follow from the rates.

        A partition counts from when it was created, if the metadata saw that: windows before are
        not missing, and those of a deleted topic of the same name are not its own. With a single
        state for all time it counts from its first window.

        Parameters
        ----------
        at_ms
            The time; by default the end of the last complete window.
        horizon_ms
            Length of the range: back, by default to the first window; for a forecast ahead,
            by default a day, learning from all windows before.
        statistic
            ``"mean"``, ``"p95"``, ``"peak"`` or ``"forecast"``.
        cpu
            ``"attribution"``: each broker's cpu divided among its replicas, as in the live
            model; allowed, and the default, only for means. ``"regression"``: the cost of
            the traffic by :meth:`cpu_model`; the default for the others.
        min_ratio
            Share of windows of partitions whose rates must be known.
        forecasting
            How to forecast.

        Raises
        ------
        HistoryError
            For an unknown statistic or method, a range without windows, or one with too
            little known.
        """
        _require("statistic", statistic, get_args(HistoryStatistic))
        cpu = cpu or ("attribution" if statistic == "mean" else "regression")
        _require("cpu", cpu, get_args(CpuMethod) if statistic == "mean" else ("regression",))
        back = None if statistic == "forecast" else horizon_ms
        first, end = self._within(None, at_ms)
        if back is not None:
            first = max(first, (end - back) // self.window_ms * self.window_ms)
        first, end = self._within(first, end)
        base = self.metadata.at(end - 1)
        capacity = base.capacity
        # Attribution of a mean reads the windows once.
        several = cpu == "regression"
        with self._keeping_windows(first, end) if several else nullcontext():
            means = self._means(base, first, end, min_ratio)
            further = self._further(base, first, end, min_ratio)
            if statistic == "mean":
                loads, capacity = self._mean_loads(base, first, end, means, cpu)
                for (name, share), lead in zip(self._shares.items(), further.T, strict=True):
                    loads[0][:, base.resource(name)] = lead
                    loads[1][:, base.resource(name)] = share * lead
            elif statistic == "forecast":
                reported = self.forecast(end, horizon_ms, forecasting)
                found = aligned_loads(
                    base, reported.topic, reported.partition, reported.leader, reported.follower
                )
                loads = self._completed(base, end, found)
            else:
                loads = self._statistic_loads(base, first, end, statistic, means)
        measured = replace(base, capacity=capacity, leader_load=loads[0], follower_load=loads[1])
        rates = self._traffic.where((f.col("start_ms") >= first) & (f.col("start_ms") < end))
        return with_traffic(measured, traffic_rates(rates, statistic))

    def quarantine(self) -> DataFrame:
        """The table QUARANTINE: messages and records that do not count, with the reason."""
        return self._quarantine

    @property
    def _options(self) -> dict[str, Any]:
        return {"window_ms": self.window_ms, "min_samples": self.min_samples}

    def _within(self, first_ms: int | None, end_ms: int | None) -> tuple[int, int]:
        """A range of whole windows; by default from the first to the last complete one."""
        length = self.window_ms
        if first_ms is None or end_ms is None:
            first, end = self.range()
            first_ms = first if first_ms is None else first_ms
            end_ms = end if end_ms is None else end_ms
        first, end = -(-first_ms // length) * length, end_ms // length * length
        if first >= end:
            raise HistoryError(
                f"history of {self.cluster!r}: a range from {first_ms} to {end_ms} (ms since 1970) "
                f"found, one with at least one window of {length / 1000:g} s expected"
            )
        return first, end

    @contextmanager
    def _keeping_windows(self, first: int, end: int) -> Iterator[None]:
        """Compute the windows of a range once, for all that reads them meanwhile."""
        if (first, end) in self._kept:
            yield
            return
        found = windowed.attributed_windows(
            self._partition_sums, first_ms=first, end_ms=end, **self._options
        )
        # In the order of what reads them.
        kept = self._kept[first, end] = ordered(found).persist(StorageLevel.DISK_ONLY)
        try:
            yield
        finally:
            del self._kept[first, end]
            kept.unpersist()

    def _means(self, base: Snapshot, first: int, end: int, min_ratio: float) -> Floats:
        """(P, 2) float: mean bytes in and out over the windows that have them; else nan."""
        known = {name: f.col(f"{name}_kind") < _NO_VALID for name in (BYTES_IN, BYTES_OUT)}
        of = [f.avg(f.when(ok, f.col(name))).alias(name) for name, ok in known.items()]
        both = f.count(f.when(known[BYTES_IN] & known[BYTES_OUT], 1)).alias("both")
        created = self.metadata.created_ms(end - 1)
        windows = self.windows(first, end)
        in_order = windows if (first, end) in self._kept else ordered(windows)
        found = (
            self._living(in_order, end)
            .groupBy(*ENTITY)
            .agg(*of, both, f.min("start_ms").alias("first"))
            .toArrow()
        )
        if not found.num_rows:
            raise HistoryError(
                f"history of {self.cluster!r}: no window of rates between {first} and {end} (ms "
                "since 1970) found, at least 1 expected"
            )
        row = partition_rows(base, found["topic"].to_pylist(), found["partition"].to_numpy())
        there, count = row >= 0, np.zeros(base.n_partitions)
        count[row[there]] = found["both"].to_numpy()[there]
        begun = found["first"].to_numpy()
        if len(self.metadata.times_ms) == 1:
            created[row[there]] = begun[there]
        length = self.window_ms
        start = np.maximum(created, int(begun.min()))
        expected = np.maximum((end - -(-start // length) * length) // length, 0)
        count = np.minimum(count, expected)
        ratio = count.sum() / max(expected.sum(), 1)
        if expected.any() and ratio < min_ratio:
            missing = int(np.argmin(np.where(expected > 0, count / np.maximum(expected, 1), 2.0)))
            raise HistoryError(
                f"history of {self.cluster!r}: rates of {ratio:.1%} of the windows of partitions "
                f"found, at least {min_ratio:.1%} expected; least are known of "
                f"{base.topics[base.partition_topic[missing]]}-{base.partition_number[missing]}"
            )
        means = np.full((base.n_partitions, 2), np.nan)
        for i, name in enumerate((BYTES_IN, BYTES_OUT)):
            means[row[there], i] = found[name].to_numpy()[there]
        return means

    def _living(self, rows: DataFrame, end: int) -> DataFrame:
        """Windows of the partitions that existed at the end, from when they were created."""
        base, created = self.metadata.at(end - 1), self.metadata.created_ms(end - 1)
        later = np.flatnonzero(created > ALWAYS_MS)
        if not len(later):
            return rows
        names = np.array(base.topics, np.object_)[base.partition_topic[later]]
        table = pa.table(
            {"topic": names, "partition": base.partition_number[later], "since": created[later]}
        )
        since = self.spark.createDataFrame(table)
        known = rows.join(f.broadcast(since), [*ENTITY], "left")
        return known.where(f.coalesce(f.col("start_ms") >= f.col("since"), f.lit(True))).select(
            *rows.columns
        )

    def _complete_loads(self, first: int, end: int, means: Floats) -> DataFrame:
        """As :meth:`loads` of the partitions at the end, without rates that are never known.

        Where a partition has one of its rates in no window, the other is not the whole of its
        load: the one that is missing is the mean of its topic, or of all. `means` are those
        of the rates.
        """
        base = self.metadata.at(end - 1)
        whole = np.column_stack([with_estimates(base, rate) for rate in means.T])
        missing = np.flatnonzero(np.isnan(means).any(axis=1) & ~np.isnan(means).all(axis=1))
        windows = self._living(self.windows(first, end), end)
        if len(missing):
            names = np.array(base.topics, np.object_)[base.partition_topic[missing]]
            columns: dict[str, Any] = {"topic": names, "partition": base.partition_number[missing]}
            for i, name in enumerate((BYTES_IN, BYTES_OUT)):
                guess = np.where(np.isnan(means[missing, i]), whole[missing, i], np.nan)
                columns[f"{name}_guess"] = pa.array(guess, from_pandas=True)
            guesses = self.spark.createDataFrame(pa.table(columns))
            windows = windows.join(f.broadcast(guesses), [*ENTITY], "left")
            for name in (BYTES_IN, BYTES_OUT):
                guessed = f.col(f"{name}_guess").isNotNull()
                kind = f.lit(int(Extrapolation.FORCED_INSUFFICIENT)).cast("byte")
                windows = windows.withColumn(name, f.coalesce(f"{name}_guess", name))
                windows = windows.withColumn(
                    f"{name}_kind", f.when(guessed, kind).otherwise(f.col(f"{name}_kind"))
                )
        return self._loads(windows, first, end, None)

    def _further(self, base: Snapshot, first: int, end: int, min_ratio: float) -> Floats:
        """(P, K) float: mean loads of leaders in further resources, unknown ones estimated."""
        means = np.full((base.n_partitions, len(self._shares)), np.nan)
        if not self._shares:
            return means
        found = (
            self._living(self.further_windows(first, end), end)
            .repartition(*ENTITY, "metric")
            .sortWithinPartitions(*ENTITY, "metric", "start_ms")
            .groupBy(*ENTITY, "metric")
            .agg(f.avg("value").alias("value"))
            .toArrow()
        )
        row = partition_rows(base, found["topic"].to_pylist(), found["partition"].to_numpy())
        names = found["metric"].to_pylist()
        value = found["value"].to_numpy()
        for i, name in enumerate(self._shares):
            base.resource(name)
            here = (row >= 0) & np.array([other == name for other in names], np.bool_)
            means[row[here], i] = value[here]
            ratio = 1 - np.isnan(means[:, i]).mean() if base.n_partitions else 1.0
            if ratio < min_ratio:
                raise HistoryError(
                    f"history of {self.cluster!r}: {name} of {ratio:.1%} of partitions found, at "
                    f"least {min_ratio:.1%} expected"
                )
        return with_estimates(base, means)

    def _mean_loads(
        self, base: Snapshot, first: int, end: int, means: Floats, cpu: CpuMethod
    ) -> tuple[tuple[Floats, Floats], Floats]:
        """Loads of leaders and followers, and the capacities in the same unit."""
        capacity = base.capacity
        bytes_in, bytes_out = (with_estimates(base, of) for of in means.T)
        network_out = bytes_out + bytes_in * (base.replication_factor - 1)
        if cpu == "regression":
            leader_cpu, follower_cpu = self.cpu_model(end_ms=end).attribute(
                base, bytes_in, network_out
            )
        else:
            measured = self._broker_cpu(base, first, end)
            cost = hardware_cost(base, bytes_in, network_out, measured)
            capacity = cpu_capacity(base, cost)
            leader_cpu, follower_cpu = attribute_cpu(base, bytes_in, network_out, measured / cost)
        leader_disk, follower_disk = self._disk(base, end)
        none = np.zeros(base.n_partitions)
        leader = (leader_cpu, bytes_in, network_out, leader_disk)
        follower = (follower_cpu, bytes_in, none, follower_disk)
        return default_loads(base, leader, follower), capacity

    def _statistic_loads(
        self, base: Snapshot, first: int, end: int, statistic: str, means: Floats
    ) -> tuple[Floats, Floats]:
        loads = self._complete_loads(first, end, means)
        table = one_number(loads, len(base.resources), statistic).toArrow()
        matrices = (matrix(table, role, len(base.resources)) for role in ("leader", "follower"))
        found = aligned_loads(
            base, table["topic"].to_pylist(), table["partition"].to_numpy(), *matrices
        )
        return self._completed(base, end, found, no_less=True)

    def _completed(
        self, base: Snapshot, end: int, loads: tuple[Floats, Floats], *, no_less: bool = False
    ) -> tuple[Floats, Floats]:
        """Loads with unknown ones (nan) filled in, and other resources from the metadata.

        With `no_less`, disk is at least the newest size.
        """
        measured = np.isin(base.resources, (*DEFAULT_RESOURCES, *self._shares))
        complete = []
        for load, size, kept in zip(
            loads, self._disk(base, end), (base.leader_load, base.follower_load), strict=True
        ):
            if "disk" in base.resources:
                disk = load[:, base.resource("disk")]
                disk[:] = np.fmax(disk, size) if no_less else np.where(np.isnan(disk), size, disk)
            complete.append(np.where(measured, with_estimates(base, load), kept))
        return complete[0], complete[1]

    def _broker_cpu(self, base: Snapshot, first: int, end: int) -> Floats:
        """(B,) float: mean over the windows; nan for brokers without any."""
        known = (f.col("metric") == CPU) & (f.col("kind") < _NO_VALID)
        found = (
            self.broker_windows(first, end)
            .where(known)
            .repartition("broker")
            .sortWithinPartitions("broker", "start_ms")
            .groupBy("broker")
            .agg(f.avg("value").alias("cpu"))
            .toArrow()
        )
        cpu = np.full(base.n_brokers, np.nan)
        row = SnapshotIndex(base).brokers(found["broker"].to_numpy())
        cpu[row[row >= 0]] = found["cpu"].to_numpy()[row >= 0]
        return cpu

    def _disk(self, base: Snapshot, end: int) -> tuple[Floats, Floats]:
        """(P,), (P,) float: newest bytes of the leader, and of a follower on average."""
        found = windowed.newest_sizes(self._living(self._sizes, end), end_ms=end).toArrow()
        index = SnapshotIndex(base)
        row = partition_rows(base, found["topic"].to_pylist(), found["partition"].to_numpy())
        replica = index.replicas(row, index.brokers(found["broker"].to_numpy()))
        size = np.full(base.n_replicas, np.nan)
        size[replica[replica >= 0]] = found["size"].to_numpy()[replica >= 0]
        return disk_by_role(base, size)


def _require(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise HistoryError(
            f"history snapshot, {name}: {value!r} found, one of {', '.join(known)} expected"
        )
