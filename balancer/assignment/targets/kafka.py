"""Kafka's own target: stateful tasks in turn to all instances, levelled by threads (KIP-441)."""

from __future__ import annotations

import numpy as np

from balancer.assignment.levelling import level
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Ints


def in_turn(state: ApplicationState) -> Ints:
    """(S,) the instance that is to run each stateful task, regardless of who runs it now."""
    tasks = np.flatnonzero(state.stateful)
    active = np.arange(len(tasks)) % state.n_instances

    def held() -> list[list[int]]:
        return [np.flatnonzero(active == i).tolist() for i in range(state.n_instances)]

    def move(task: int, _source: int, destination: int) -> None:
        active[task] = destination

    level(held, np.bincount(active, minlength=state.n_instances), state.capacity, move)
    return active
