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


def measure(snapshot: Snapshot, scratch: Path, options: Options) -> tuple[Answer, int]:
    """Balance a snapshot in a separate process; returns the answer and its peak memory."""
    python = prepare(options)
    problem, answer = scratch / "problem.npz", scratch / "answer.npz"
    of, leads = snapshot.replica_partition, snapshot.replica_is_leader
    np.savez(
        problem,
        capacity=snapshot.capacity,
        broker_rack=snapshot.broker_rack,
        replica_broker=snapshot.replica_broker,
        replica_partition=of,
        replica_load=np.where(leads[:, None], snapshot.leader_load[of], snapshot.follower_load[of]),
        replica_leads=leads,
    )
    # Isolated (-I); otherwise the script would import this module instead of the package.
    script = Path(__file__).with_name("rebalancer_solve.py")
    limit = str(options.peer_timeout)
    peak = run_apart(
        [python, "-I", script, problem, answer, limit],
        NAME,
        seconds=options.peer_timeout + _GRACE,
    )
    return load_answer(answer, snapshot, NAME), peak
