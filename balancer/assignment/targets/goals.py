"""The target comes from goals: the best placement for what it restores, reached step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from balancer.assignment.absence import awaited_copies, wait_ms
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.draft import Draft
from balancer.assignment.lags import Lags
from balancer.assignment.result import TaskAssignment, UnmetGoal
from balancer.assignment.snapshot import LOAD, application_snapshot
from balancer.assignment.state import ApplicationState
from balancer.assignment.targets.exchange import exchanged
from balancer.assignment.targets.relief import ReliefParameters, relieved
from balancer.assignment.warmups import Warmups
from balancer.engine import Balancer
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation
from balancer.search.scorer import Scorer
from cluster_model.placement import Placement
from cluster_model.snapshot import SMALLEST, Floats, Ints, Snapshot
from goals import Cluster, Goal, ResourceCapacity, UsageDistribution
from metrics_reporter.documents import shown
from metrics_reporter.quantities import rounded

# Share of a capacity below which a difference is rounding.
_ROUNDING = 1e-9
PROFILE = "stateful-tasks"
# The profile's limit of the measured load of the fullest instance.
_FULLEST = f"ResourceCapacity[{LOAD}]"
# Digits of a penalty; what differs beyond them is rounding.
_DIGITS = 9

# The instances of each task's copies, the active one first.
Copies = list[list[int]]


class _Target(NamedTuple):
    """Where copies are to be, and the tasks that change for it, in the order of their steps."""

    copies: Copies
    changed: list[int]


class GoalTargets:
    """Assigns tasks so that goals are met, with little restored and no task without its state.

    The balancer plans from where tasks run now, and moves cost what has to be restored. Equal
    instances exchange all that they are to hold if less is restored then. The assignment is that
    plan, carried out as far as copies have caught up and warm-ups are allowed, in the plan's order:
    by what the goals gain for what is restored. What is exchanged comes last, that with the most
    load for what is restored first.

    A search from another placement can find another target, also one that is no better, and with
    few warm-ups allowed the way to a target leads over placements that are worse than the start.
    So the last target is remembered. As long as members, tasks and copies are as the last
    assignment left them, it is left only for one that is strictly better: that has a lower penalty
    in the first tier in which they differ by more than rounding. The search goes on from it, too.

    While members, loads and goals stay as they are, rebalances therefore come to an end. The
    potential is the sequence of the target's penalties, tier by tier and rounded, compared
    lexicographically: each change of the target lowers it, and as there are finitely many
    placements, it can change only so often. In between, the target stays, and each rebalance after
    warm-ups have caught up lets tasks move to them, so that fewer copies are not yet where they
    are to be. Goals that judge the distance from the start have no such fixed penalty.

    Parameters
    ----------
    goals
        What :class:`balancer.Balancer` takes.
    relief
        With the profile: when the fullest instance of what a search has found is relieved.
    """

    def __init__(
        self,
        goals: Iterable[Goal] | str | Path | Mapping[str, Any] = PROFILE,
        relief: ReliefParameters | None = None,
    ) -> None:
        self._balancer = Balancer(goals)
        self._widens = goals == PROFILE
        self._relief = relief or ReliefParameters()
        self._last: tuple[_Target, TaskAssignment] | None = None

    def assign(self, state: ApplicationState, configs: AssignmentConfigs) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        way = _Way(state, configs)
        if not state.n_tasks:
            return way.draft.finished(way.draft.active, movements=0, probing=False)
        application = application_snapshot(state, configs)
        balancer = self._limited(state, application.snapshot)
        plan = self._plan(balancer, application.snapshot, configs)
        there = np.argsort(application.task)
        now = _leaders_first(Placement(application.snapshot), there)
        changed = application.task[plan.rows.partition].tolist()
        if self._widens and _excess(plan) > self._relief.excess:
            plan = self._relieved(balancer, plan, now, application.task)
            changed += application.task[plan.rows.partition].tolist()
        then = _leaders_first(plan.placement, there)
        changed += [t for t, held in enumerate(then) if _differ(now[t], held)]
        if changed:
            changed += _exchange(state, plan.placement, application.task, now, then)
        target, last = _Target(then, changed), self._last
        if last is not None and _continues(last[1], state):
            target, plan = _kept(balancer, last[0], target, plan, application.task)
            then, changed = target
            rest = [t for t, held in enumerate(then) if _differ(now[t], held)]
            changed = list(dict.fromkeys([*changed, *rest]))
        for t, copies in enumerate(then):
            way.put(t, copies[0], copies[1:])
        runs = way.draft.active.copy()
        stateful = [t for t in dict.fromkeys(changed) if state.stateful[t] and now[t] != then[t]]
        # what is being restored already is not given up for something new
        for t in sorted(stateful, key=lambda t: not way.under_way(t, now[t], then[t])):
            way.go(t, now[t], then[t])
        found = way.draft.finished(runs, way.movements, probing=way.movements > 0)
        wait = wait_ms(state, configs)
        if wait is not None:
            interval = configs.probing_rebalance_interval_ms
            found = replace(
                found,
                probing_rebalance=True,
                followup_ms=min(wait, interval) if way.movements else wait,
                awaited=int(awaited_copies(state, configs).sum()),
            )
        stated = {goal.name for goal in self._limits(state)} | {_FULLEST}
        goals = [
            UnmetGoal(goal.goal, goal.hard, goal.reason)
            for goal in plan.unmet
            if goal.goal not in stated
        ]
        found = replace(found, unmet=(*goals, *_over_capacity(found)))
        self._last = target, found
        return found

    def _limited(self, state: ApplicationState, snapshot: Snapshot) -> Balancer:
        """The balancer with a hard limit for each resource whose capacity instances state."""
        limited = copy(self._balancer)
        limited.goals = [*self._limits(state), *self._fullest_first(state, snapshot)]
        return limited

    def _fullest_first(self, state: ApplicationState, snapshot: Snapshot) -> list[Goal]:
        """The goals; of the profile, before evenness, that none is fuller than tasks require.

        Where large tasks prevent evenness, hardly any instance can be content, and whether one is
        far beyond the limit counts little.
        """
        goals = self._balancer.goals
        even = [g for g in goals if isinstance(g, UsageDistribution) and g.resource == LOAD]
        if not self._widens or not even or LOAD not in snapshot.resources:
            return goals
        tier, slack = even[0].tier or 0, even[0].slack
        load, capacity = _load_and_capacity(snapshot)
        threshold = least_fullest(load, capacity) * (1 + slack)
        stated = {goal.name for goal in self._limits(state)}
        if not 0 < threshold <= 1 or _FULLEST in stated:
            return goals
        limit = ResourceCapacity(resource=LOAD, threshold=threshold, hard=False, tier=tier)
        later = [
            g.model_copy(update={"tier": (g.tier or 0) + ((g.tier or 0) >= tier)}) for g in goals
        ]
        return [*later, limit]

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

    def _relieved(self, balancer: Balancer, plan: Plan, now: Copies, task: Ints) -> Plan:
        """A plan from a placement whose fullest instance carries less, if hard goals allow it."""
        s = plan.snapshot
        load, capacity = _load_and_capacity(s)
        then = _leaders_first(plan.placement, np.argsort(task))
        owners = [np.array([copies[0] for copies in held])[task] for held in (then, now)]
        enough = least_fullest(load, capacity) * (1 + self._relief.excess)
        leaders = np.empty_like(task)
        leaders[task] = relieved(load, capacity, owners, enough, self._relief)
        copies = [_led_by(i, held) for i, held in zip(leaders.tolist(), then, strict=True)]
        found = balancer.propose(_snapshot_at(s, copies, task))
        if not _is_allowed(found):
            return plan
        return found if not _is_allowed(plan) or _excess(found) < _excess(plan) else plan


def least_fullest(load: Floats, capacity: Floats) -> float:
    """What no placement of tasks goes below: load / capacity of the fullest instance.

    The mean; the heaviest task on the largest instance; and where instances are equal, of the
    `k * instances + 1` heaviest tasks some instance has `k + 1`.

    Examples
    --------
    >>> least_fullest(np.array([3.0, 3.0, 3.0, 1.0]), np.ones(2))
    6.0
    """
    most = float(capacity.max())
    if most <= 0:
        return np.inf if load.any() else 0.0
    least = max(float(load.sum() / capacity.sum()), float(load.max(initial=0.0)) / most)
    if capacity.min() == most:
        summed = np.concatenate([[0.0], np.cumsum(np.sort(load)[::-1])])
        for k, n in enumerate(range(1, len(load) + 1, len(capacity))):
            least = max(least, float(summed[n] - summed[n - k - 1]) / most)
    return least


def _load_and_capacity(s: Snapshot) -> tuple[Floats, Floats]:
    """(P,) measured load of each task where it is active, and (B,) what instances can carry."""
    r = s.resources.index(LOAD)
    return s.leader_load[:, r], s.capacity[:, r]


def _excess(plan: Plan) -> float:
    """Measured load of the fullest instance above what is certain to be necessary, as a share.

    0 where instances have no capacity: that is a limit, which goals judge.
    """
    if LOAD not in plan.snapshot.resources:
        return 0.0
    load, capacity = _load_and_capacity(plan.snapshot)
    if not capacity.all():
        return 0.0
    leaders = [held[0] for held in _leaders_first(plan.placement, np.arange(len(load)))]
    fullest = float((np.bincount(leaders, load, len(capacity)) / capacity).max())
    least = least_fullest(load, capacity)
    return fullest / least - 1 if least > 0 else 0.0


def _is_allowed(plan: Plan) -> bool:
    """Whether no hard goal is unmet after the plan."""
    return not any(goal.hard for goal in plan.unmet)


def _led_by(instance: int, copies: list[int]) -> list[int]:
    """Copies of a task with another active one: a standby there changes roles with it."""
    if instance in copies:
        return [instance, *(i for i in copies if i != instance)]
    return [instance, *copies[1:]]


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
                f"instance {shown(s.instances[i])} is to carry {rounded(carried[i], 6)}, "
                f"{rounded(capacity[i], 6)} stated",
            )


def _continues(last: TaskAssignment, state: ApplicationState) -> bool:
    """Whether the copies of an application are those of an assignment."""
    before = last.state
    if before.instances != state.instances or not (
        np.array_equal(before.subtopology, state.subtopology)
        and np.array_equal(before.partition, state.partition)
        and np.array_equal(before.stateful, state.stateful)
    ):
        return False
    owner = np.full(state.n_tasks, -1)
    owner[state.previous_task[state.previous_active]] = state.previous_instance[
        state.previous_active
    ]
    standby, n = ~state.previous_active, state.n_instances
    held = state.previous_task[standby] * n + state.previous_instance[standby]
    assigned = last.standby_task * n + last.standby_instance
    return np.array_equal(owner, last.active) and bool(np.isin(held, assigned).all())


def _differ(one: list[int], other: list[int]) -> bool:
    """Whether copies of a task are on other instances, or another is the active one."""
    return one[0] != other[0] or {*one} != {*other}


def _kept(
    balancer: Balancer, last: _Target, found: _Target, plan: Plan, task: Ints
) -> tuple[_Target, Plan]:
    """The target under way, or what a search from it finds, unless another one is better.

    Parameters
    ----------
    balancer
        Searches.
    last
        The target under way.
    found, plan
        What a search from the present copies has found.
    task
        The task of each partition.

    Returns
    -------
    tuple
        The target, and the plan that says what it leaves unmet.
    """
    pairs = list(zip(last.copies, found.copies, strict=True))
    if any(len(one) != len(other) for one, other in pairs):
        return found, plan
    if any(_differ(one, other) for one, other in pairs):
        least = _penalties(plan, _placement(plan, last.copies, task))
        if _penalties(plan, _placement(plan, found.copies, task)) < least:
            return found, plan
        plan = balancer.propose(_snapshot_at(plan.snapshot, last.copies, task))
        if _penalties(plan, plan.placement) < _penalties(plan, Placement(plan.snapshot)):
            further = task[plan.rows.partition].tolist()
            copies = _leaders_first(plan.placement, np.argsort(task))
            return _Target(copies, [*last.changed, *further]), plan
    return last, plan


def _penalties(plan: Plan, placement: Placement) -> tuple[float, ...]:
    """What goals lack in a placement, tier by tier, hard goals of a tier first; rounded."""
    scorer = plan.end.scorer
    of = scorer.cluster
    other = Scorer(Cluster(placement, of.eligible, of.leader_eligible, of.draining), scorer.goals)
    return tuple(
        round(float(other.penalty(stage)), _DIGITS)
        for tier in other.tiers
        for stage in other.stages(tier)
    )


def _placement(plan: Plan, copies: Copies, task: Ints) -> Placement:
    """A placement beside that of a plan, with the given copies of each task."""
    found = Placement(plan.snapshot, plan.placement.slots)
    for p, t in enumerate(task.tolist()):
        found.brokers[p] = [*copies[t], *[-1] * (found.slots - len(copies[t]))]
    found.leader[:] = 0
    found.invalidate_sums()
    return found


def _snapshot_at(s: Snapshot, copies: Copies, task: Ints) -> Snapshot:
    """The snapshot once all copies are where they are to be."""
    held = [copies[t] for t in task.tolist()]
    return replace(
        s,
        replica_offset=np.concatenate([[0], np.cumsum([len(h) for h in held])]),
        replica_broker=np.array([i for h in held for i in h], np.int64),
        leader=np.zeros(len(held), np.int64),
        warming=np.zeros(0, np.bool_),
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
