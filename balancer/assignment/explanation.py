"""Says why each task is where an assignment puts it, in one sentence."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from balancer.assignment.lags import Lags
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import RUNNING, UNKNOWN
from metrics_reporter.quantities import plural


class Explanation:
    """The reasons behind an assignment.

    Parameters
    ----------
    assignment
        The assignment to explain.
    """

    def __init__(self, assignment: TaskAssignment) -> None:
        self._assignment = assignment
        self._state = assignment.state
        self._offset = np.searchsorted(
            assignment.standby_task, np.arange(assignment.state.n_tasks + 1)
        )

    @cached_property
    def _lags(self) -> Lags:
        return Lags(self._state, self._assignment.configs)

    def of(self, task: int) -> str:
        """Why a task, by its index, runs where it does, and where its other copies are."""
        a, state = self._assignment, self._state
        first, last = self._offset[task : task + 2]
        pairs = zip(a.standby_instance[first:last].tolist(), a.warmup[first:last], strict=True)
        others = {instance: bool(warms) for instance, warms in pairs}
        if not state.offsets_known:
            reason = f": end offsets are not known, and {self._previous(task)}"
        elif not state.stateful[task]:
            reason = ", its target: it has no state to wait for"
        else:
            reason = self._by_lag(task, others)
        named = int(a.target[task])
        copies = [
            f"{'a warm-up' if warms else 'a standby'} on {self._with_lag(task, instance)}"
            for instance, warms in others.items()
            if instance != named
        ]
        kept = f"; there is {' and '.join(copies)}" if copies else ""
        return f"{state.task(task)} runs on {state.instances[a.active[task]]}{reason}{kept}."

    def _previous(self, task: int) -> str:
        state, active = self._state, int(self._assignment.active[task])
        had = state.previous_task == task
        if active in state.previous_instance[had & state.previous_active]:
            return "it ran there before"
        if active in state.previous_instance[had]:
            return "that instance had a standby of it"
        if not state.stateful[task]:
            return "it has no state to keep"
        first, last = state.lag_offset[task : task + 2]
        if active in state.lag_instance[first:last]:
            return "that instance has state of it on disk"
        if np.any(had) or last > first:
            return "no instance with state of it has fewer than its share of tasks"
        return "no instance is known to have state of it"

    def _by_lag(self, task: int, others: dict[int, bool]) -> str:
        a = self._assignment
        active, target = int(a.active[task]), int(a.target[task])
        where = np.array([task]), np.array([active])
        near, behind = self._lags.is_caught_up(*where)[0], self._lags.behind(*where)[0]
        unknown = self._lags.of(*where)[0] == UNKNOWN
        lags = f" ({self._lag(task, active)})"
        if active == target:
            if unknown:
                return f"{lags}, its target, as an unknown lag counts as caught up"
            return f"{lags}, its target" + ("" if near or behind else ", as no instance is closer")
        if others.get(target):
            then = "restores a warm-up"
        elif target in others:
            then = "restores a standby"
        elif int(a.warmup.sum()) >= a.configs.max_warmup_replicas:
            then = f"waits, as max_warmup_replicas is {a.configs.max_warmup_replicas}"
        else:
            then = "waits for its turn to restore"
        closest = "" if near or behind else ", the closest,"
        if unknown:
            closest = ", which counts as caught up,"
        return (
            f"{lags}{closest} until its target {self._with_lag(task, target)} has caught up, "
            f"which {then}"
        )

    def _with_lag(self, task: int, instance: int) -> str:
        return f"{self._state.instances[instance]} ({self._lag(task, instance)})"

    def _lag(self, task: int, instance: int) -> str:
        state = self._state
        if not state.offsets_known:
            return "lag not known"
        first, last = state.lag_offset[task : task + 2]
        at = np.flatnonzero(state.lag_instance[first:last] == instance)
        if not len(at):
            return f"without state, {plural(int(state.end_offset[task]), 'record')} behind"
        lag = int(state.lag[first + at[0]])
        if lag == RUNNING:
            return "running it now"
        if lag == UNKNOWN:
            return "lag unknown"
        return f"{plural(lag, 'record')} behind"
