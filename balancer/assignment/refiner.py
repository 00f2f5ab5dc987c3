"""Derives what to do now from where tasks are to be: the refiner of streams groups (KIP-1071).

Kafka's brokers split an assignment in two: an assignor computes a target without a look at lags,
and a refiner makes of it an assignment in which tasks run where their state is. An instance here
is a process of one member.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.lags import Lags
from balancer.assignment.result import TaskAssignment
from balancer.assignment.warmups import Warmups


class _Staged(NamedTuple):
    """A task that runs elsewhere until its target has caught up."""

    task: int
    owner: int
    target: int
    tier: int


def refine(target: TaskAssignment, warmups: int | None = None) -> TaskAssignment:
    """Let tasks run where their state is until their target has caught up.

    A task goes to its target if that runs it or has caught up. Otherwise it stays on an owner
    that has caught up; or another instance that has takes it, rather one without a designated
    standby of it; or, if there is none, its target restores it. While a task is elsewhere, its
    target keeps a warm-up. If there may not be as many, those come first that go on, then those
    on the least loaded instances, of these the ones from the most loaded owners.

    Parameters
    ----------
    target
        Where the copies of each task are to be in the end.
    warmups
        Maximum number of warm-ups; that of the configuration unless given. 0 returns the target.

    Returns
    -------
    TaskAssignment
        The assignment for now. Stateless tasks are where they are to be.
    """
    state, configs = target.state, target.configs
    budget = configs.max_warmup_replicas if warmups is None else warmups
    if not budget:
        return target
    refining = _Refining(target)
    stateful = np.flatnonzero(state.stateful)
    lags = refining.lags
    ready = lags.is_caught_up(stateful, target.active[stateful])
    ready |= refining.owner[stateful] == target.active[stateful]
    staged: list[tuple[int, int]] = []
    for t in stateful[~ready].tolist():
        owner = refining.owner_for_now(t)
        if owner is None:
            refining.restoring.add(int(target.active[t]))
        else:
            staged.append((t, owner))
    refining.stage(staged, budget)
    return refining.draft.finished(target.active, len(staged), bool(staged))


class _Refining:
    """One refinement."""

    def __init__(self, target: TaskAssignment) -> None:
        state = target.state
        self.draft = draft = Draft(state, target.configs)
        self.lags = Lags(state, target.configs)
        draft.place(np.arange(state.n_tasks), target.active)
        for t, i in zip(
            target.standby_task.tolist(), target.standby_instance.tolist(), strict=True
        ):
            draft.standbys[t].append(i)
            draft.count[i] += 1
        self.owner = np.full(state.n_tasks, -1)
        active = np.flatnonzero(state.previous_active)
        self.owner[state.previous_task[active]] = state.previous_instance[active]
        standby = np.flatnonzero(~state.previous_active)
        self._had = {
            *zip(
                state.previous_task[standby].tolist(),
                state.previous_instance[standby].tolist(),
                strict=True,
            )
        }
        # Instances that restore an active task.
        self.restoring: set[int] = set()

    def owner_for_now(self, t: int) -> int | None:
        """The instance that runs a task until its target has caught up; None for its target."""
        draft, target = self.draft, int(self.draft.active[t])
        caught_up = set(self.lags.caught_up(t))
        owner = int(self.owner[t])
        if owner in caught_up:
            return owner
        if owner < 0 and self._restored(t, target):
            return None
        load = draft.load
        return min(caught_up, key=lambda i: (i in draft.standbys[t], load[i], i), default=None)

    def stage(self, staged: list[tuple[int, int]], budget: int) -> None:
        """Leave tasks where they are, and put warm-ups where they are to be."""
        draft = self.draft
        waiting: list[_Staged] = []
        for t, owner in staged:
            target = int(draft.active[t])
            draft.active[t] = owner
            if owner in draft.standbys[t]:
                # Its standby takes over, and the target is the standby for now.
                draft.standbys[t][draft.standbys[t].index(owner)] = target
                continue
            draft.count[[owner, target]] += (1, -1)
            waiting.append(_Staged(t, owner, target, self._tier(t, target)))
        warmups = Warmups(draft.state, self.lags, budget, draft.configs.max_warmup_bytes)
        while waiting and warmups.left:
            load = draft.load
            first = min(waiting, key=lambda s: (s.tier, load[s.target], -load[s.owner], s.task))
            waiting.remove(first)
            if not warmups.take(first.task, first.target):
                continue
            draft.standbys[first.task].append(first.target)
            draft.warmups.add((first.task, first.target))
            draft.count[first.target] += 1

    def _tier(self, t: int, target: int) -> int:
        """0 for a warm-up that goes on, 1 for a new one, 2 and 3 for those that have to wait."""
        in_flight = (t, target) in self._had
        waits = target in self.restoring
        if in_flight:
            return 0 if self._restored(t, target) or not waits else 2
        return 3 if waits else 1

    def _restored(self, t: int, instance: int) -> bool:
        """Whether an instance has restored some of a task's state."""
        lag = int(self.lags.of(np.array([t]), np.array([instance]))[0])
        return lag < int(self.draft.state.end_offset[t])
