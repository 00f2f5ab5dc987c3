"""Runs simulated annealing that is written and compiled for the load distance of key groups."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from balancer.allocation.problem import Allocation
from benchmarks.harness.environments import environment
from benchmarks.harness.processes import run_apart
from benchmarks.registry import Options
from benchmarks.subjects.annealing import NAME, PYTHONS, REQUIREMENTS
from cluster_model.snapshot import Ints

# Compiling, and other work on the same processor.
_GRACE = 300.0


def distance_annealing(problem: Allocation, seconds: float, options: Options) -> Ints:
    """(U,) int: what annealing finds in some seconds of the processor, in a separate process."""
    python = options.peer_python or environment(NAME, REQUIREMENTS, PYTHONS, options.log)
    with tempfile.TemporaryDirectory(prefix="annealing-") as scratch:
        stated, answer = Path(scratch) / "problem.npz", Path(scratch) / "answer.npz"
        np.savez(
            stated,
            load=problem.load,
            cost=problem.cost,
            node=problem.node,
            weight=problem.weight,
            removed=problem.removed,
            budget=problem.budget,
        )
        # Isolated (-I): it shares no code with the rest.
        script = Path(__file__).with_name("distance_annealing_solve.py")
        run_apart(
            [python, "-I", script, stated, answer, str(seconds), str(options.seed)],
            NAME,
            seconds=4 * seconds + _GRACE,
        )
        with np.load(answer) as found:
            node: Ints = found["node"].astype(np.int64)
    return node
