"""Runs Meta's Rebalancer (``rebalancer`` on PyPI), a C++ local search with a Python binding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.harness.answers import Answer, load_answer
from benchmarks.harness.environments import environment
from benchmarks.harness.processes import run_apart
from benchmarks.registry import Options
from cluster_model.snapshot import Snapshot

NAME = "rebalancer"
REQUIREMENTS = ("rebalancer==1.0.4", "numpy>=2")
PYTHONS = ((3, 12), (3, 13), (3, 14))
# Its time limit does not cover stating the problem and building its expressions.
_GRACE = 300.0


def prepare(options: Options) -> Path:
    """The interpreter to run it with, made on the first call."""
    if options.peer_python is not None:
        return options.peer_python
    return environment(NAME, REQUIREMENTS, PYTHONS, options.log)


def measure(
    snapshot: Snapshot,
    scratch: Path,
    options: Options,
    *,
    only_usage: tuple[str, ...] = (),
    limits: tuple[int, ...] = (),
) -> tuple[Answer, int]:
    """Balance a snapshot in a separate process; returns the answer and its peak memory.

    Parameters
    ----------
    snapshot, scratch, options
        As for every subject.
    only_usage
        Resources whose even usage is the only goal; by default all, with racks, capacities and
        counts.
    limits
        Number of moves, and of replicas of the hottest broker to compare before each; by default
        its own stop, and its own number.
    """
    python = prepare(options)
    problem, answer = scratch / "problem.npz", scratch / "answer.npz"
    of, leads = snapshot.replica_partition, snapshot.replica_is_leader
    columns = [snapshot.resource(name) for name in only_usage or snapshot.resources]
    load = np.where(leads[:, None], snapshot.leader_load[of], snapshot.follower_load[of])
    np.savez(
        problem,
        capacity=snapshot.capacity[:, columns],
        broker_rack=snapshot.broker_rack,
        replica_broker=snapshot.replica_broker,
        replica_partition=of,
        replica_load=load[:, columns],
        replica_leads=leads,
        only_usage=bool(only_usage),
    )
    # Isolated (-I); otherwise the script would import this module instead of the package.
    script = Path(__file__).with_name("rebalancer_solve.py")
    peak = run_apart(
        [python, "-I", script, problem, answer, str(options.peer_timeout), *map(str, limits)],
        NAME,
        seconds=options.peer_timeout + _GRACE,
    )
    return load_answer(answer, snapshot, NAME), peak
