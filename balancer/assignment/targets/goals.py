"""The target comes from goals: the best placement for what it restores, reached step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.lags import Lags
from balancer.assignment.result import TaskAssignment
from balancer.assignment.snapshot import application_snapshot, bytes_per_record
from balancer.assignment.state import ApplicationState
from balancer.engine import Balancer
from balancer.planning.plan import Plan
from cluster_model.placement import Placement
from cluster_model.snapshot import Ints
from goals import Goal


class GoalTargets:
    """Assigns tasks so that goals are met, with few records restored and no task without state.

    The balancer plans from where tasks run now; moves cost what has to be restored. The
    assignment is that plan, carried out as far as copies have caught up, and as the number of
    warm-ups allows, in the plan's order: what the goals gain for what is restored.

    Parameters
    ----------
    goals
        What :class:`balancer.Balancer` takes.
    """

    def __init__(
        self, goals: Iterable[Goal] | str | Path | Mapping[str, Any] = "stateful-tasks"
    ) -> None:
        self._balancer = Balancer(goals)

    def plan(self, state: ApplicationState, configs: AssignmentConfigs) -> Plan:
        """The plan from where tasks run to the target."""
        return self._balancer.propose(application_snapshot(state, configs).snapshot)

    def assign(self, state: ApplicationState, configs: AssignmentConfigs) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        if not state.n_tasks:
            return _Transition(state, configs, [], [], []).assignment()
        application = application_snapshot(state, configs)
        plan = self._balancer.propose(application.snapshot)
        task = application.task
        start = Placement(plan.snapshot, plan.placement.slots)
        now: list[list[int]] = [[] for _ in task]
        then: list[list[int]] = [[] for _ in task]
        for placement, found in ((start, now), (plan.placement, then)):
            lists = _leaders_first(placement)
            for p, t in enumerate(task.tolist()):
                found[t] = lists[p]
        changed = dict.fromkeys(task[plan.rows.partition].tolist())
        return _Transition(state, configs, now, then, list(changed)).assignment()


def _leaders_first(placement: Placement) -> list[list[int]]:
    """The brokers of each partition, its leader first."""
    slot = np.arange(placement.slots)
    rank = np.where(slot == placement.leader[:, None], -1, slot)
    order = np.argsort(rank, axis=1, kind="stable")
    ordered = np.take_along_axis(placement.brokers, order, 1)
    return [[i for i in row if i >= 0] for row in ordered.tolist()]


@dataclass
class _Transition:
    """The way from the present copies to the target's, as far as it can be gone now.

    Parameters
    ----------
    now, then
        Instances of each task's copies, at present and in the target; the active one first.
    changed
        Tasks that differ, those first whose moves bring most for what they restore.
    """

    state: ApplicationState
    configs: AssignmentConfigs
    now: list[list[int]]
    then: list[list[int]]
    changed: list[int]
    # instances of the copies of each task, and whether each is a warm-up, active one first
    _active: list[int] = field(default_factory=list)
    _others: list[dict[int, bool]] = field(default_factory=list)
    _movements: int = 0
    _copies_left: int = 0
    _bytes_left: float = np.inf
    _warming: int = 0

    def assignment(self) -> TaskAssignment:
        """The copies of every task until the next rebalance."""
        self._lags = Lags(self.state, self.configs)
        self._bytes = bytes_per_record(self.state)
        self._copies_left = self.configs.max_warmup_replicas
        if self.configs.max_warmup_bytes is not None:
            self._bytes_left = float(self.configs.max_warmup_bytes)
        self._active = [copies[0] for copies in self.then]
        self._others = [dict.fromkeys(copies[1:], False) for copies in self.then]
        self._before = set(
            zip(
                self.state.previous_task.tolist(),
                self.state.previous_instance.tolist(),
                strict=True,
            )
        )
        waiting = [t for t in self.changed if self.state.stateful[t] and self.now[t]]
        for t in sorted(waiting, key=lambda t: not self._in_flight(t)):
            self._go(t)
        return self._result()

    def _in_flight(self, t: int) -> bool:
        """Whether a copy that the target asks for is being restored already."""
        new = set(self.then[t]) - set(self.now[t])
        return any((t, i) in self._before for i in new)

    def _go(self, t: int) -> None:
        """Take the steps of one task that can be taken now."""
        now, then = self.now[t], self.then[t]
        lag = self._behind(t, {*now, *then})
        others: dict[int, bool] = {}
        target = then[0]
        active = now[0] if lag[target] else target
        leaving = [i for i in now if i not in then]
        if active != target:
            self._movements += 1
            if active in leaving:
                # the copy that runs is one more until the other has caught up
                leaving.remove(active)
                if self._funded(t, target):
                    others[target] = True
            else:
                others[target] = False
        # a standby is given up once the one that takes its place has caught up
        spare = sorted((i for i in leaving if i != active), key=lambda i: (lag[i], i))
        for i in sorted(then[1:], key=lambda i: (lag[i], i)):
            if i == active:
                continue
            held = i in now
            source = None
            if not held and spare and lag[spare[0]] < lag[i]:
                source = spare.pop(0)
            if source is None:
                others[i] = False
                continue
            self._movements += 1
            others[source] = False
            if self._funded(t, i):
                others[i] = True
        self._active[t], self._others[t] = active, others

    def _behind(self, t: int, instances: set[int]) -> dict[int, int]:
        """The lag of instances; 0 where no other has caught up more."""
        listed = sorted(instances)
        task, instance = np.full(len(listed), t), np.array(listed)
        behind = self._lags.behind(task, instance)
        lag = np.where(behind, self._lags.of(task, instance), 0)
        return dict(zip(listed, lag.tolist(), strict=True))

    def _funded(self, t: int, instance: int) -> bool:
        """Whether the limits allow one more warm-up; it is then counted."""
        size = 0.0
        if len(self._bytes):
            s = self.state
            lag = int(s.lag_of(np.array([t]), np.array([instance]))[0])
            size = float(self._bytes[t]) * (lag if lag >= 0 else int(s.end_offset[t]))
        fits = size <= self._bytes_left or not self._warming
        if self._warming >= self._copies_left or not fits:
            return False
        self._warming += 1
        self._bytes_left -= size
        return True

    def _result(self) -> TaskAssignment:
        copies = [
            (t, i, warms) for t, others in enumerate(self._others) for i, warms in others.items()
        ]
        copies.sort()
        return TaskAssignment(
            state=self.state,
            configs=self.configs,
            active=np.array(self._active, np.int64),
            target=np.array([c[0] for c in self.then], np.int64),
            standby_task=_column([t for t, _, _ in copies]),
            standby_instance=_column([i for _, i, _ in copies]),
            warmup=np.array([warms for _, _, warms in copies], np.bool_),
            movements=self._movements,
            probing_rebalance=self._movements > 0,
        )


def _column(values: list[int]) -> Ints:
    return np.array(values, np.int64)
