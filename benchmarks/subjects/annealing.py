"""Runs simulated annealing that is written and compiled for the cost of machine reassignment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.environments import environment
from benchmarks.harness.machines import Reassignment
from benchmarks.harness.processes import run_apart
from benchmarks.registry import Options
from cluster_model.snapshot import Ints

NAME = "annealing"
REQUIREMENTS = ("numba>=0.61", "numpy>=2")
PYTHONS = ((3, 11), (3, 12), (3, 13))
# Compiling, and other work on the same processor.
_GRACE = 300.0


class Found(NamedTuple):
    """An assignment: a machine for each process, processor seconds, and what was scored."""

    machine: Ints
    seconds: float
    candidates: int


def measure(problem: Reassignment, seconds: float, scratch: Path, options: Options) -> Found:
    """Anneal for some seconds of the processor, in a separate process."""
    found = run_annealing("annealing_solve.py", vars(problem), seconds, scratch, options)
    return Found(found["machine"], float(found["seconds"]), int(found["candidates"]))


def run_annealing(
    script: str, stated: Mapping[str, Any], seconds: float, scratch: Path, options: Options
) -> dict[str, Any]:
    """Run a script beside this module on arrays, in a separate process; returns its arrays."""
    python = options.peer_python or environment(NAME, REQUIREMENTS, PYTHONS, options.log)
    problem, answer = scratch / "problem.npz", scratch / "answer.npz"
    np.savez(problem, **stated)
    # Isolated (-I): it shares no code with the rest.
    path = Path(__file__).with_name(script)
    run_apart(
        [python, "-I", path, problem, answer, str(seconds), str(options.seed)],
        NAME,
        seconds=4 * seconds + _GRACE,
    )
    with np.load(answer) as found:
        return dict(found)
