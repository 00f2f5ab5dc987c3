"""The target comes from goals: the best placement for what it restores, reached step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from balancer.assignment.absence import awaited_copies, wait_ms
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.draft import Draft
from balancer.assignment.lags import Lags
from balancer.assignment.movements import Warmups
from balancer.assignment.result import TaskAssignment, UnmetGoal
from balancer.assignment.snapshot import LOAD, application_snapshot
from balancer.assignment.state import ApplicationState
from balancer.assignment.targets.exchange import exchanged
from balancer.engine import Balancer
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation
from cluster_model.placement import Placement
from cluster_model.snapshot import SMALLEST, Ints, Snapshot
from goals import Goal, ResourceCapacity
from metrics_reporter.documents import shown

# Share of a capacity below which a difference is rounding.
_ROUNDING = 1e-9


class GoalTargets:
    """Assigns tasks so that goals are met, with little restored and no task without its state.

    The balancer plans from where tasks run now, and moves cost what has to be restored. Equal
    instances exchange all that they are to hold if less is restored then. The assignment is that
    plan, carried out as far as copies have caught up and warm-ups are allowed, in the plan's order:
    by what the goals gain for what is restored. What is exchanged comes last, that with the most
    load for what is restored first.

    Parameters
    ----------
    goals
        What :class:`balancer.Balancer` takes.
    """

    def __init__(
        self, goals: Iterable[Goal] | str | Path | Mapping[str, Any] = "stateful-tasks"
    ) -> None:
        self._balancer = Balancer(goals)

    def assign(self, state: ApplicationState, configs: AssignmentConfigs) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        way = _Way(state, configs)
        if not state.n_tasks:
            return way.draft.finished(way.draft.active, movements=0, probing=False)
        application = application_snapshot(state, configs)
        plan = self._plan(self._limited(state), application.snapshot, configs)
        there = np.argsort(application.task)
        start = Placement(plan.snapshot, plan.placement.slots)
        now, then = (_leaders_first(p, there) for p in (start, plan.placement))
        changed = application.task[plan.rows.partition].tolist()
        if changed:
            changed += _exchange(state, plan.placement, application.task, now, then)
        for t, copies in enumerate(then):
            way.put(t, copies[0], copies[1:])
        target = way.draft.active.copy()
        stateful = [t for t in dict.fromkeys(changed) if state.stateful[t] and now[t] != then[t]]
        # what is being restored already is not given up for something new
        for t in sorted(stateful, key=lambda t: not way.under_way(t, now[t], then[t])):
            way.go(t, now[t], then[t])
        found = way.draft.finished(target, way.movements, probing=way.movements > 0)
        wait = wait_ms(state, configs)
        if wait is not None:
            interval = configs.probing_rebalance_interval_ms
            found = replace(
                found,
                probing_rebalance=True,
                followup_ms=min(wait, interval) if way.movements else wait,
                awaited=int(awaited_copies(state, configs).sum()),
            )
        stated = {goal.name for goal in self._limits(state)}
        goals = [
            UnmetGoal(goal.goal, goal.hard, goal.reason)
            for goal in plan.unmet
            if goal.goal not in stated
        ]
        return replace(found, unmet=(*goals, *_over_capacity(found)))

    def _limited(self, state: ApplicationState) -> Balancer:
        """The balancer with a hard limit for each resource whose capacity instances state."""
        limited = copy(self._balancer)
        limited.goals = [*self._limits(state), *self._balancer.goals]
        return limited

    def _limits(self, state: ApplicationState) -> list[Goal]:
        """Hard goals for the capacities that instances state, unless there are such goals."""
        names = {goal.name for goal in self._balancer.goals}
        tier = min((goal.tier or 0 for goal in self._balancer.goals), default=0)
        limits = [
            ResourceCapacity(resource=resource, threshold=1.0, tier=tier)
            for resource in (state.resources if state.instance_capacity.size else ())
        ]
        return [goal for goal in limits if goal.name not in names]

    def _plan(self, balancer: Balancer, snapshot: Snapshot, configs: AssignmentConfigs) -> Plan:
        """The plan to the target; roles change where copies have caught up, if that is enough.

        If it is not, standbys that are still being restored will take over later.
        """
        operation = Operation(acceptable_lag=float(configs.acceptable_recovery_lag))
        plan = balancer.propose(snapshot, operation)
        if plan.ok or not len(snapshot.warming):
            return plan
        return balancer.propose(replace(snapshot, warming=np.zeros(0, np.bool_)))


def _over_capacity(assignment: TaskAssignment) -> Iterator[UnmetGoal]:
    """The stated capacities that the target exceeds."""
    s = assignment.state
    if not s.instance_capacity.size:
        return
    for r, resource in enumerate(s.resources):
        carried = np.bincount(assignment.target, s.load[:, r], s.n_instances)
        capacity = s.instance_capacity[:, r]
        for i in np.flatnonzero(carried > capacity * (1 + _ROUNDING)).tolist():
            yield UnmetGoal(
                f"capacity of {resource}",
                True,
                f"instance {shown(s.instances[i])} is to carry {carried[i]:,.6g}, "
                f"{capacity[i]:,.6g} stated",
            )


def _exchange(
    state: ApplicationState,
    target: Placement,
    task: Ints,
    now: list[list[int]],
    then: list[list[int]],
) -> list[int]:
    """Have equal instances exchange their copies in `then`; returns the tasks that this changes.

    Parameters
    ----------
    state
        The application.
    target
        The plan's placement.
    task
        The task of each partition.
    now, then
        Instances of each task's copies, at present and in the target, the active one first.
    """
    holder = exchanged(state, target)
    moved = (holder != np.arange(len(holder))).tolist()
    if not any(moved):
        return []
    taker = holder.tolist()
    found = [t for t, copies in enumerate(then) if any(moved[i] for i in copies)]
    for t in found:
        then[t] = [taker[i] for i in then[t]]
    s = target.snapshot
    partition = np.argsort(task)
    weighs = s.resources.index(LOAD) if LOAD in s.resources else 0
    order: dict[int, tuple[float, int]] = {}
    for t in found:
        new = np.array([i for i in then[t] if i not in now[t]], np.int64)
        p = np.full(len(new), partition[t])
        cost = float(s.move_cost_of(p, new, s.state_size[p]).sum())
        order[t] = cost / max(float(s.leader_load[partition[t], weighs]), SMALLEST), t
    return sorted(found, key=order.__getitem__)


def _leaders_first(placement: Placement, rows: Ints) -> list[list[int]]:
    """The brokers of partitions, each with its leader first."""
    brokers, leader = placement.brokers[rows], placement.leader[rows]
    rank = np.where(np.arange(placement.slots) == leader[:, None], -1, np.arange(placement.slots))
    ordered = np.take_along_axis(brokers, np.argsort(rank, axis=1, kind="stable"), 1)
    return [[i for i in row if i >= 0] for row in ordered.tolist()]


class _Way:
    """The way from the present copies to those of the target, as far as it can be gone now.

    Parameters
    ----------
    state, configs
        The application.

    Attributes
    ----------
    draft
        The assignment so far.
    movements
        Copies of the target that have not caught up, while others take their place.
    """

    def __init__(self, state: ApplicationState, configs: AssignmentConfigs) -> None:
        self.draft = Draft(state, configs)
        self.movements = 0
        self._lags = Lags(state, configs)
        self._warmups = Warmups(
            state, self._lags, configs.max_warmup_replicas, configs.max_warmup_bytes
        )
        previous = zip(state.previous_task.tolist(), state.previous_instance.tolist(), strict=True)
        self._previous = set(previous)

    def put(self, task: int, active: int, standbys: list[int]) -> None:
        """Place the copies of a task."""
        self.draft.active[task] = active
        self.draft.standbys[task] = standbys

    def under_way(self, task: int, now: list[int], then: list[int]) -> bool:
        """Whether a new copy of the target is one that was assigned before, to be restored."""
        return any((task, i) in self._previous for i in then if i not in now)

    def go(self, task: int, now: list[int], then: list[int]) -> None:
        """Take the steps of a stateful task that can be taken now.

        Parameters
        ----------
        task
            The task.
        now, then
            Instances of its copies, at present and in the target, the active one first.
        """
        lag = self._behind(task, {*now, *then})
        target = then[0]
        active = now[0] if lag[target] else target
        standbys: list[int] = []
        waiting = {i for i in then if i != active}
        if active != target:
            self.movements += 1
            if active not in then:
                # the copy that runs is one more until the other has caught up
                waiting.remove(target)
                if not self._warm_up(task, target, standbys):
                    self._stand_by(target, waiting - {*now}, waiting, lag)
        # a copy is given up once the one that takes its place has caught up
        spare = sorted({*now} - {*then, active}, key=lambda i: (lag[i], i))
        for i in sorted(waiting, key=lambda i: (lag[i], i)):
            if i in now or not spare or lag[spare[0]] >= lag[i]:
                standbys.append(i)
                continue
            standbys.append(spare.pop(0))
            self.movements += i != target
            self._warm_up(task, i, standbys)
        self.put(task, active, standbys)

    def _warm_up(self, task: int, instance: int, standbys: list[int]) -> bool:
        """Add a copy that only exists so that it can take over; False if there may be no more."""
        funded = self._warmups.take(task, instance)
        if funded:
            standbys.append(instance)
            self.draft.warmups.add((task, instance))
        return funded

    def _stand_by(
        self, target: int, new: set[int], waiting: set[int], lag: Mapping[int, int]
    ) -> None:
        """Let a target without a warm-up take the place of a new standby that is further behind."""
        last = max(new, key=lambda i: (lag[i], i), default=target)
        if lag[last] > lag[target]:
            waiting.remove(last)
            waiting.add(target)

    def _behind(self, task: int, instances: set[int]) -> dict[int, int]:
        """The lag of instances; 0 where no other has caught up more."""
        listed = sorted(instances)
        tasks, at = np.full(len(listed), task), np.array(listed)
        lag = np.where(self._lags.behind(tasks, at), self._lags.of(tasks, at), 0)
        return dict(zip(listed, lag.tolist(), strict=True))
