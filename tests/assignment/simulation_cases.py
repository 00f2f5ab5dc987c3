"""Assignors of a few lines for tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from balancer.assignment import ApplicationState, AssignmentConfigs, TaskAssignment

# For each task by name: its owner, then its other copies.
Placement = Mapping[str, Sequence[str]]


class Written:
    """Places tasks as a function of the state says; probes while the function asks for it."""

    def __init__(
        self,
        place: Callable[[ApplicationState], tuple[Placement, bool]],
        configs: AssignmentConfigs | None = None,
    ) -> None:
        self.place, self.configs = place, configs or AssignmentConfigs()

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks as written."""
        placement, probing = self.place(state)
        index = {name: i for i, name in enumerate(state.instances)}
        rows = [
            [index[name] for name in placement[str(state.task(t))]] for t in range(state.n_tasks)
        ]
        others = sorted((t, i) for t, row in enumerate(rows) for i in row[1:])
        active = np.array([row[0] for row in rows], np.int64)
        return TaskAssignment(
            state=state,
            configs=self.configs,
            active=active,
            target=active,
            standby_task=np.array([t for t, _ in others], np.int64),
            standby_instance=np.array([i for _, i in others], np.int64),
            warmup=np.zeros(len(others), np.bool_),
            movements=0,
            probing_rebalance=probing,
        )


def always(placement: Placement) -> Written:
    """The same placement at every rebalance; who is absent is left out."""
    return Written(
        lambda state: (
            {
                task: [name for name in names if name in state.instances]
                for task, names in placement.items()
            },
            False,
        )
    )


def round_robin(state: ApplicationState) -> TaskAssignment:
    """Deal the tasks over the instances, with a standby on the next instance."""
    n = state.n_instances
    placement = {
        str(state.task(t)): [
            state.instances[(t + k) % n] for k in range(min(2 if state.stateful[t] else 1, n))
        ]
        for t in range(state.n_tasks)
    }
    return Written(lambda _: (placement, False)).assign(state)
