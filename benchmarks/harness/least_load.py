"""Proves how full the fullest of some equal instances is at least, wherever tasks are."""

from __future__ import annotations

import numpy as np

from balancer.allocation.program import Program, run_program
from balancer.assignment.targets.goals import least_fullest
from balancer.problem.deadline import Deadline
from cluster_model.snapshot import Floats

# Seconds after which a proof ends with what it has.
_SECONDS = 20.0


def proven_least(load: Floats, instances: int, enough: float = np.inf) -> float:
    """A load below which the fullest instance cannot be.

    Parameters
    ----------
    load : (T,) float
        Load of each task.
    instances
        Number of instances.
    enough
        A bound as high as this needs no further proof.
    """
    least = least_fullest(load, np.ones(instances))
    if least >= enough or instances == 1:
        return least
    # The heaviest first: without loss of generality task t is on one of the first t + 1 instances.
    load = np.sort(load)[::-1]
    count = len(load)
    n = count * instances
    task, instance = np.divmod(np.arange(n), instances)
    program = Program(
        # Each task is on one instance; no instance has more than the last column.
        row=np.concatenate([task, count + instance, count + np.arange(instances)]),
        column=np.concatenate([np.arange(n), np.arange(n), np.full(instances, n)]),
        value=np.concatenate([np.ones(n), load[task], -np.ones(instances)]),
        cost=np.append(np.zeros(n), 1.0),
        lower=np.append(np.zeros(n), least),
        upper=np.append(np.where(instance <= task, 1.0, 0.0), np.inf),
        whole=np.append(np.ones(n, np.bool_), False),
        row_lower=np.append(np.ones(count), np.full(instances, -np.inf)),
        row_upper=np.append(np.ones(count), np.zeros(instances)),
    )
    return max(least, run_program(program, deadline=Deadline.after(_SECONDS)).bound)
