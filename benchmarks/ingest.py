"""Feeds messages of a metrics topic into a live model: values per second and memory.

python -m benchmarks.ingest SIZE FORMAT SEED ANSWER.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.processes import run_apart
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel
from metrics_reporter import BYTES_IN, BYTES_OUT, CPU, CPU_RATIO, SIZE, Format, decode_batch
from metrics_reporter.arrays import Floats, Ints
from metrics_reporter.foreign import AUTOMQ_METRICS, CRUISE_CONTROL_METRICS
from metrics_reporter.metrics import METRIC_IDS, REPLICATION_IN, REPLICATION_OUT
from metrics_reporter.wire import MAGIC, VERSION

_CLUSTERS: dict[str, dict[str, Any]] = {
    "S": {"brokers": 20, "partitions": 2_000, "racks": 5},
    "M": {"brokers": 100, "partitions": 50_000, "racks": 10},
    "L": {"brokers": 300, "partitions": 1_000_000, "racks": 10},
}
# Messages that a consumer returns at once.
_MESSAGES = 10_000
# Three reports in the first window of five minutes, one in the second, which completes it.
_REPORTS = 4
_INTERVAL_MS = 100_000
_START_MS = 1_699_999_200_000
_ROOT = Path(__file__).parents[1]

# The messages of one report by layout: a structured array each, and the values in a message.
ReportArrays = list[npt.NDArray[Any]]


@benchmark("ingest", sizes=tuple(_CLUSTERS))
def ingest(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Values per second and core, decoded and aggregated, and memory; own and foreign formats.

    Three replicas per partition, all of which report their size and the leader its rates, in
    the order in which brokers would send them. Seconds are those of the processor.
    """
    formats: tuple[str, ...] = tuple(_LAYOUTS)
    for name in options.subjects:
        if name not in formats:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(formats)}")
    for size in sizes:
        for subject in options.subjects or formats:
            options.log(f"ingest {size}: {subject}")
            with tempfile.TemporaryDirectory(prefix="ingest-") as scratch:
                answer = Path(scratch) / "answer.json"
                command: list[str | Path] = [sys.executable, "-m", __name__, size, subject]
                command += [str(options.seed), answer]
                peak = run_apart(command, subject, cwd=_ROOT)
                measured = json.loads(answer.read_text())
            yield Row("ingest", size, subject, "peak memory", float(peak), "bytes")
            for metric, value, unit in measured:
                yield Row("ingest", size, subject, metric, value, unit)


def measure(size: str, format: Format, seed: int) -> list[tuple[str, float, str]]:
    """Ingest a few reports of a synthetic cluster, and time it.

    Raises
    ------
    BenchmarkError
        If the model does not end up with the cluster's rates.
    """
    cluster = synthetic_snapshot(**_CLUSTERS[size], seed=seed)
    model = ClusterModel(cluster)
    order: Ints | None = None
    rng = np.random.default_rng(seed)
    layouts = _LAYOUTS[format](cluster)
    decoding = adding = 0.0
    values = messages = 0
    for report in range(_REPORTS):
        brokers = np.concatenate([layout["broker"] for layout in layouts])
        if order is None:
            order = np.lexsort((rng.random(len(brokers)), brokers)).astype(np.int64)
        for layout in layouts:
            layout["time"] = _START_MS + report * _INTERVAL_MS
        for batch in _batches(layouts, order):
            began = time.thread_time()
            decoded = decode_batch(batch, format)
            between = time.thread_time()
            model.add_batch(decoded)
            adding += time.thread_time() - between
            decoding += between - began
            values += len(decoded.value)
            messages += len(batch)
    lost = messages - sum(model.counters[what] for what in ("added", "split", "unknown"))
    began = time.thread_time()
    measured = model.snapshot()
    found = measured.leader_load[:, measured.resource("network_in")]
    seconds = time.thread_time() - began
    total = cluster.leader_load[:, 1].sum()
    if lost or abs(found.sum() - total) > 1e-6 * total:
        raise BenchmarkError(f"{format}: {lost} messages lost, {found.sum()} B/s of {total} found")
    return [
        ("values", float(values), "values"),
        ("messages", float(messages), "messages"),
        ("seconds of decoding", decoding, "seconds"),
        ("seconds of adding", adding, "seconds"),
        ("values per second", values / (decoding + adding), "values/s"),
        ("seconds of a snapshot", seconds, "seconds"),
    ]


def _batches(layouts: ReportArrays, order: Ints) -> Iterator[list[bytes]]:
    """The messages in order, in batches, as a consumer returns them."""
    ends = np.cumsum([len(layout) for layout in layouts])
    for first in range(0, len(order), _MESSAGES):
        these = order[first : first + _MESSAGES]
        of = np.searchsorted(ends, these, "right")
        batch: list[bytes] = [b""] * len(these)
        for i, layout in enumerate(layouts):
            mine = np.flatnonzero(of == i)
            width = layout.dtype.itemsize
            data = layout[these[mine] - (ends[i] - len(layout))].tobytes()
            for n, at in enumerate(mine.tolist()):
                batch[at] = data[n * width : (n + 1) * width]
        yield batch


def _replicas(cluster: Snapshot) -> tuple[Ints, Ints, Ints, list[bytes]]:
    """Partition and broker id of each replica, which ones lead, and names of topics."""
    leads = np.flatnonzero(cluster.replica_is_leader)
    broker = cluster.broker_ids[cluster.replica_broker]
    return cluster.replica_partition, broker, leads, [t.encode() for t in cluster.topics]


def _own(cluster: Snapshot) -> ReportArrays:
    partition, broker, leads, names = _replicas(cluster)
    follows = np.setdiff1d(np.arange(len(broker)), leads)
    load = cluster.leader_load
    rates = np.stack([load[:, 1], load[:, 2], load[:, 3]], axis=1)
    report = []
    for replica, metrics in ((leads, (BYTES_IN, BYTES_OUT, SIZE)), (follows, (SIZE,))):
        values = rates[partition[replica], -len(metrics) :]
        report += _own_messages(
            cluster, metrics, broker[replica], partition[replica], values, names
        )
    cpu = cluster.broker_load()[:, :1]
    return report + _own_messages(cluster, (CPU,), cluster.broker_ids, None, cpu, names)


def _own_messages(
    cluster: Snapshot,
    metrics: Sequence[str],
    broker: Ints,
    partition: Ints | None,
    values: Floats,
    names: list[bytes],
) -> ReportArrays:
    messages = []
    for rows, width, name in _by_width(cluster, partition, len(broker), names):
        kind = [
            ("magic", "u1"), ("version", "u1"), ("scope", "u1"), ("n", "u1"), ("time", "<i8"),
            ("broker", "<i4"), ("partition", "<i4"), ("t", "<u2"), ("m", "<u2"),
            ("values", "<f8", (len(metrics),)), ("ids", "<u2", (len(metrics),)),
            ("topic", f"S{width}"),
        ]  # fmt: skip
        layout = np.zeros(len(rows), np.dtype(kind))
        layout["magic"], layout["version"], layout["n"] = MAGIC, VERSION, len(metrics)
        layout["scope"], layout["t"] = partition is not None, width
        layout["broker"], layout["values"] = broker[rows], values[rows]
        layout["partition"] = -1 if partition is None else cluster.partition_number[partition[rows]]
        layout["ids"] = [METRIC_IDS[metric] for metric in metrics]
        layout["topic"] = name
        messages.append(layout)
    return messages


def _cruise_control(cluster: Snapshot) -> ReportArrays:
    partition, broker, leads, names = _replicas(cluster)
    cpu = cluster.broker_load()[:, 0] / cluster.capacity[:, 0]
    # A topic's rates on each broker that leads any of it; other topic metrics are ones.
    key = cluster.partition_topic * (int(broker.max()) + 1) + broker[leads]
    pairs, pair = np.unique(key, return_inverse=True)
    topic, on = np.divmod(pairs, int(broker.max()) + 1)
    totals = _broker_totals(cluster) | {CPU_RATIO: cpu}
    report: ReportArrays = []
    for id_, (scope, metric) in enumerate(CRUISE_CONTROL_METRICS):
        if scope == "broker":
            value = totals.get(metric, np.ones(cluster.n_brokers))
            report += _cc_messages(cluster, 0, id_, cluster.broker_ids, None, value, names)
        elif scope == "topic":
            column = {BYTES_IN: 1, BYTES_OUT: 2}.get(metric)
            value = np.ones(len(pairs))
            if column is not None:
                value = np.bincount(pair, cluster.leader_load[:, column]).astype(np.float64)
            report += _cc_messages(cluster, 1, id_, on, topic, value, names)
        else:
            size = cluster.leader_load[partition, 3]
            report += _cc_messages(cluster, 2, id_, broker, partition, size, names)
    return report


def _broker_totals(cluster: Snapshot) -> dict[str, Floats]:
    """(B,) rates of whole brokers, summed from those of the partitions."""
    leads = cluster.replica_is_leader
    bytes_in = cluster.leader_load[:, 1][cluster.replica_partition]
    copies = (cluster.replication_factor - 1)[cluster.replica_partition]

    def summed(value: Floats) -> Floats:
        return np.bincount(cluster.replica_broker, value, cluster.n_brokers).astype(float)

    return {
        BYTES_IN: summed(bytes_in * leads),
        BYTES_OUT: summed(cluster.leader_load[:, 2][cluster.replica_partition] * leads),
        REPLICATION_IN: summed(bytes_in * ~leads),
        REPLICATION_OUT: summed(bytes_in * copies * leads),
    }


def _cc_messages(
    cluster: Snapshot,
    class_: int,
    metric: int,
    broker: Ints,
    about: Ints | None,
    value: Floats,
    names: list[bytes],
) -> ReportArrays:
    messages = []
    for rows, width, name in _by_width(cluster, about, len(broker), names, class_ == 1):
        kind: list[tuple[str, str]] = [
            ("class", "i1"), ("version", "i1"), ("metric", "i1"), ("time", ">i8"),
            ("broker", ">i4"),
        ]  # fmt: skip
        kind += [("t", ">i4"), ("topic", f"S{width}")] if class_ else []
        kind += [("partition", ">i4")] if class_ == 2 else []
        layout = np.zeros(len(rows), np.dtype([*kind, ("value", ">f8")]))
        layout["class"], layout["metric"] = class_, metric
        layout["broker"], layout["value"] = broker[rows], value[rows]
        if class_:
            layout["t"], layout["topic"] = width, name
        if class_ == 2 and about is not None:
            layout["partition"] = cluster.partition_number[about[rows]]
        messages.append(layout)
    return messages


def _automq(cluster: Snapshot) -> ReportArrays:
    partition, broker, leads, names = _replicas(cluster)
    led = partition[leads]
    report = []
    for rows, width, name in _by_width(cluster, led, len(led), names):
        layout = _automq_layout(len(rows), [("t", ">i4"), ("topic", f"S{width}"), ("p", ">i4")], 3)
        layout["t"], layout["topic"] = width, name
        layout["p"] = cluster.partition_number[led[rows]]
        layout["broker"] = broker[leads[rows]]
        for i in range(3):
            layout[f"metric{i}"] = i
            layout[f"value{i}"] = cluster.leader_load[led[rows], i + 1]
        report.append(layout)
    latencies = [i for i, (scope, _) in enumerate(AUTOMQ_METRICS) if scope == "broker"]
    layout = _automq_layout(cluster.n_brokers, [], len(latencies))
    layout["scope"], layout["broker"] = 1, cluster.broker_ids
    for i, metric in enumerate(latencies):
        layout[f"metric{i}"], layout[f"value{i}"] = metric, 1.0
    return [*report, layout]


def _automq_layout(n: int, about: list[tuple[str, str]], values: int) -> npt.NDArray[Any]:
    layout = np.zeros(
        n,
        np.dtype(
            [
                ("scope", "u1"), ("version", "u1"), ("time", ">i8"), ("broker", ">i4"),
                ("rack", ">i4"), *about, ("n", ">i4"),
                *(
                    field
                    for i in range(values)
                    for field in ((f"metric{i}", "i1"), (f"value{i}", ">f8"))
                ),
            ]
        ),
    )  # fmt: skip
    layout["n"] = values
    return layout


def _by_width(
    cluster: Snapshot, about: Ints | None, n: int, names: list[bytes], topics: bool = False
) -> Iterator[tuple[Ints, int, npt.NDArray[Any] | bytes]]:
    """Rows whose topics' names are of one length, that length, and the names."""
    if about is None:
        yield np.arange(n), 0, b""
        return
    topic = about if topics else cluster.partition_topic[about]
    width = np.array([len(name) for name in names])[topic]
    name_of = np.array(names)
    for w in np.unique(width).tolist():
        rows = np.flatnonzero(width == w)
        yield rows, w, name_of[topic[rows]]


_LAYOUTS = {"counterpoise": _own, "cruise-control": _cruise_control, "automq": _automq}


def main(size: str, format: Format, seed: str, answer: str) -> None:
    """Measure one format, and write the rows to a file."""
    Path(answer).write_text(json.dumps(measure(size, format, int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
