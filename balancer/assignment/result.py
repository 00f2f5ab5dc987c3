"""The assignment of tasks to instances: active, standby and warm-up copies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.state import ApplicationState, TaskId
from cluster_model.snapshot import Bools, Floats, Ints


@dataclass(frozen=True)
class UnmetGoal:
    """A goal, or a stated capacity, that the target does not meet, and why.

    Parameters
    ----------
    goal
        Its name.
    hard
        Whether it has to be met; stated capacities have to.
    reason
        Why it is not, in one sentence.
    """

    goal: str
    hard: bool
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskAssignment:
    """Where the copies of each task are; T tasks, S copies besides the active ones.

    Parameters
    ----------
    state, configs
        What it was made from.
    active : (T,) int
        Index of the instance that runs each task.
    target : (T,) int
        Index of the instance that is to run it in the end.
    standby_task, standby_instance : (S,) int
        The other copies, sorted by task, then instance. Kafka sees all as standbys.
    warmup : (S,) bool
        Whether the copy exists only so that the task can move: it counts towards
        ``max_warmup_replicas``.
    movements
        Copies that are not yet where they are to be.
    probing_rebalance
        Whether a later rebalance can come closer to the target, once warm-ups have caught up.
    unmet
        Where goals give the target: what it leaves unmet.
    followup_ms
        Milliseconds until a probing rebalance; None for the configured interval.
    awaited
        Copies that are not made, as an instance that has left may be back soon with them.
    """

    state: ApplicationState
    configs: AssignmentConfigs
    active: Ints
    target: Ints
    standby_task: Ints
    standby_instance: Ints
    warmup: Bools
    movements: int
    probing_rebalance: bool
    unmet: tuple[UnmetGoal, ...] = ()
    followup_ms: int | None = None
    awaited: int = 0

    @property
    def followup_rebalance_ms(self) -> int | None:
        """Milliseconds until the next rebalance; None if none is needed."""
        if not self.probing_rebalance:
            return None
        interval = self.configs.probing_rebalance_interval_ms
        return interval if self.followup_ms is None else self.followup_ms

    def tasks_by_instance(self) -> dict[str, dict[str, list[TaskId]]]:
        """The ``active``, ``standby`` and ``warmup`` tasks of each instance, by its id."""
        s = self.state
        ids = [s.task(t) for t in range(s.n_tasks)]
        found: dict[str, dict[str, list[TaskId]]] = {
            i: {"active": [], "standby": [], "warmup": []} for i in s.instances
        }
        for task, instance in enumerate(self.active.tolist()):
            found[s.instances[instance]]["active"].append(ids[task])
        pairs = zip(self.standby_task.tolist(), self.standby_instance.tolist(), strict=True)
        for (task, instance), warms in zip(pairs, self.warmup.tolist(), strict=True):
            found[s.instances[instance]]["warmup" if warms else "standby"].append(ids[task])
        return found

    def copies_per_thread(self) -> Floats:
        """(I,) copies of tasks per thread of each instance."""
        n = self.state.n_instances
        copies = np.bincount(self.active, minlength=n)
        copies += np.bincount(self.standby_instance, minlength=n)
        return copies / self.state.capacity

    def to_dict(self) -> dict[str, Any]:
        """The assignment as a document."""
        return {
            "schema_version": 1,
            "instances": {
                id_: {role: [str(t) for t in tasks] for role, tasks in of.items()}
                for id_, of in self.tasks_by_instance().items()
            },
            "movements": self.movements,
            "probing_rebalance": self.probing_rebalance,
            "followup_rebalance_ms": self.followup_rebalance_ms,
            "unmet": [asdict(goal) for goal in self.unmet],
        }
