"""Runs DuckDB on the records of a history, for the same loads as our snapshot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.harness.environments import environment
from benchmarks.harness.processes import run_apart
from benchmarks.registry import BenchmarkError, Options
from cluster_model.snapshot import Snapshot
from cluster_model.trust import TrustParameters

NAME = "duckdb"
REQUIREMENTS = ("duckdb==2.0.1", "numpy>=2")
PYTHONS = ((3, 11), (3, 12), (3, 13))
# How DuckDB's answer may differ, as a share: it adds floats in another order.
TOLERANCE = 1e-6
# Resource and role of the columns of the answer.
_LOADS = {
    "leader": {
        "cpu": "leader_cpu", "network_in": "network_in", "network_out": "network_out",
        "disk": "leader_disk",
    },
    "follower": {"cpu": "follower_cpu", "network_in": "network_in", "disk": "follower_disk"},
}  # fmt: skip


def prepare(options: Options) -> Path:
    """The interpreter to run it with, made on the first call."""
    return options.peer_python or environment(NAME, REQUIREMENTS, PYTHONS, options.log)


def measure(
    python: Path, records: Path, cluster: Snapshot, answered: Snapshot, scratch: Path
) -> tuple[float, float]:
    """Processor seconds of DuckDB from records to loads, and its largest difference as a share.

    Parameters
    ----------
    python
        An interpreter with DuckDB.
    records
        Directory of Parquet with the table RECORDS.
    cluster
        Placement: a leader for each partition, and equal brokers.
    answered
        Our snapshot of the same records, with windows of 5 minutes and their p95.
    scratch
        Directory for files.

    Raises
    ------
    BenchmarkError
        If DuckDB fails, or answers differ.
    """
    from cluster_model.history.alignment import partition_rows

    problem, answer = scratch / "problem.npz", scratch / "answer.npz"
    limits, of = TrustParameters(), cluster.replica_partition
    np.savez(
        problem,
        topic=np.array(cluster.topics)[cluster.partition_topic[of]],
        partition=cluster.partition_number[of],
        broker=cluster.broker_ids[cluster.replica_broker],
        leads=cluster.replica_is_leader,
        window=np.array(300_000),
        windows=np.array(5),
        samples=np.array(3),
        max_rate=np.array(limits.max_rate),
        max_size=np.array(limits.max_size),
        max_cpu=np.array(limits.max_cpu),
    )
    path = Path(__file__).with_name("duckdb_history_solve.py")
    run_apart([python, "-I", path, records, problem, answer], NAME)
    with np.load(answer) as stated:
        found = dict(stated)
    row = partition_rows(cluster, found["topic"].tolist(), found["partition"].astype(np.int64))
    if sorted(row.tolist()) != list(range(cluster.n_partitions)):
        raise BenchmarkError(
            f"DuckDB answered for {len(set(row.tolist()) - {-1})} partitions, "
            f"{cluster.n_partitions} expected"
        )
    most = 0.0
    for role, columns in _LOADS.items():
        loads = answered.leader_load if role == "leader" else answered.follower_load
        for resource, name in columns.items():
            own = loads[row, answered.resource(resource)]
            differs = np.abs(own - found[name]) / np.maximum(np.abs(own), 1e-300)
            worst = float(np.where(own == found[name], 0.0, differs).max())
            if not worst <= TOLERANCE:
                raise BenchmarkError(
                    f"DuckDB's {resource} of a {role} differs from ours by {worst:.2g} of it"
                )
            most = max(most, worst)
    return float(found["seconds"]), most
