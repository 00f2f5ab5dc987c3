"""Balances a skewed cluster with Counterpoise and with Meta's Rebalancer, side by side."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness.answers import Answer
from benchmarks.harness.clusters import SIZES, cluster_of
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.judge import balance_metrics, move_metrics, placed
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from benchmarks.subjects import counterpoise, rebalancer
from cluster_model import InputError, Snapshot

# Counterpoise first: all subjects are compared with its bound on the bytes moved.
_SUBJECTS = {counterpoise.NAME: counterpoise, rebalancer.NAME: rebalancer}
# The sizes between which growth is measured, far enough apart to measure it.
_GROWTH = ("M", "XL")


@benchmark("balance", sizes=SIZES)
def balance(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Seconds, memory, evenness and bytes moved, from a skewed cluster to a balanced one.

    Three replicas per partition, one in twenty partitions violates the rack rule, loads are
    lognormal in four resources; size T has many small topics with exponential loads instead.
    The target is 1.1 times the mean in every resource and count.
    """
    for name in options.subjects:
        if name not in _SUBJECTS:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(_SUBJECTS)}")
    subjects = options.subjects or tuple(_SUBJECTS)
    taken: dict[tuple[str, str], dict[str, float]] = {}
    replicas: dict[str, int] = {}
    failures: list[str] = []
    for size in sizes:
        snapshot = cluster_of(size, options.seed)
        replicas[size] = snapshot.n_replicas
        for metric, value, unit in balance_metrics(snapshot):
            yield Row("balance", size, "before", metric, value, unit)
        bound = math.nan
        for subject in _SUBJECTS:
            if subject not in subjects:
                continue
            options.log(f"balance {size}: {subject}")
            try:
                rows, bound = _measure(subject, snapshot, options, bound)
            except PeerMissing as error:
                options.log(f"{subject} left out: {error}")
                continue
            except InputError as error:
                failures.append(f"size {size}: {error}")
                options.log(f"{subject} failed: {error}")
                continue
            taken[subject, size] = {metric: value for metric, value, _ in rows}
            for metric, value, unit in rows:
                yield Row("balance", size, subject, metric, value, unit)
    yield from growth(taken, replicas)
    if failures:
        raise BenchmarkError("; ".join(failures))


def growth(
    taken: dict[tuple[str, str], dict[str, float]], replicas: dict[str, int]
) -> Iterator[Row]:
    """Exponents of time and memory in the number of replicas, for subjects that finished."""
    small, large = _GROWTH
    for subject in _SUBJECTS:
        first, last = taken.get((subject, small)), taken.get((subject, large))
        if not (first and last and first["finished"] and last["finished"]):
            continue
        for metric in ("seconds", "peak memory"):
            times = math.log(last[metric] / first[metric])
            exponent = times / math.log(replicas[large] / replicas[small])
            size = f"{small} to {large}"
            yield Row("balance", size, subject, f"growth of {metric}", exponent, "exponent")


def _measure(
    subject: str, snapshot: Snapshot, options: Options, bound: float
) -> tuple[list[tuple[str, float, str]], float]:
    """Metrics of one subject, and the best bound on the bytes known so far."""
    with tempfile.TemporaryDirectory(prefix="balance-") as scratch:
        answer, peak = _SUBJECTS[subject].measure(snapshot, Path(scratch), options)
    after = placed(snapshot, answer.replica_broker, answer.leader)
    if math.isnan(bound):
        bound = answer.bytes_lower_bound
    rows = list(_cost(answer, peak))
    rows += balance_metrics(after)
    moves = list(move_metrics(snapshot, after))
    rows += moves
    if bound > 0:
        moved = next(value for metric, value, _ in moves if metric == "bytes moved")
        rows.append(("bytes moved / lower bound", moved / bound, "ratio"))
    return rows, bound


def _cost(answer: Answer, peak: int) -> Iterator[tuple[str, float, str]]:
    yield "finished", float(answer.finished), "yes"
    yield "seconds", answer.seconds, "seconds"
    yield "setup seconds", answer.setup_seconds, "seconds"
    yield "peak memory", float(peak), "bytes"
