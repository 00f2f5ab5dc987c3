"""Runs simulated annealing that is written and compiled for the load distance of key groups."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.allocation.problem import Allocation
from benchmarks.registry import Options
from benchmarks.subjects.annealing import run_annealing
from cluster_model.snapshot import Ints


class Found(NamedTuple):
    """An allocation (U,), and the processor seconds used."""

    node: Ints
    seconds: float


def distance_annealing(problem: Allocation, seconds: float, options: Options) -> Found:
    """Anneal for some seconds of the processor, in a separate process."""
    fields = ("load", "cost", "node", "weight", "removed", "budget")
    stated = {name: getattr(problem, name) for name in fields}
    script = "distance_annealing_solve.py"
    with tempfile.TemporaryDirectory(prefix="annealing-") as scratch:
        found = run_annealing(script, stated, seconds, Path(scratch), options)
    return Found(found["node"].astype(np.int64), float(found["seconds"]))
