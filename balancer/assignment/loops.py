"""Hands the arrays of an assignment in the making to its compiled loops."""

from __future__ import annotations

import numpy as np

from balancer.assignment.arrays import Budget, Copies, Marks
from balancer.assignment.draft import Draft
from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.lags import Lags
from balancer.assignment.warmups import Warmups
from cluster_model.snapshot import Bools, Ints


def require_numba() -> None:
    """Load the compiled loops.

    Raises
    ------
    TaskAssignmentError
        Without numba.
    """
    try:
        from balancer.assignment import compiled  # noqa: F401
    except ImportError as error:
        raise TaskAssignmentError(
            f"compiled=True found, but numba cannot be loaded ({error}): "
            "counterpoise[fast] expected to be installed"
        ) from None


def least_loaded(draft: Draft, tasks: Ints) -> Ints:
    """(S, C) the least loaded instances for the standbys of tasks, sorted."""
    from balancer.assignment import compiled

    chosen = np.empty((len(tasks), draft.configs.num_standby_replicas), np.int64)
    compiled.least_loaded(_copies(draft, draft.count.copy()), draft.active[tasks], chosen)
    return chosen


def in_order(keys: Ints) -> Ints:
    """(M,) the order in which Java's queue returns entries that arrive one after the other."""
    from balancer.assignment import compiled

    found = np.empty(len(keys), np.int64)
    compiled.in_order(keys, np.empty(len(keys), np.int64), found)
    return found


def move_actives(draft: Draft, lags: Lags, warmups: Warmups, queue: Ints, followed: bool) -> None:
    """Leave the active tasks of a queue where they are closest to being caught up."""
    from balancer.assignment import compiled

    task, instance = draft.standby_pairs()
    targets, warms = draft.active[queue], np.zeros(len(queue), np.bool_)
    budget = _budget(warmups)
    compiled.move_actives(
        lags.arrays,
        _copies(draft, draft.count),
        _marks(draft),
        budget,
        followed,
        queue,
        draft.active,
        draft.standby_offset(task),
        instance,
        warms,
    )
    warmups.left, warmups.used = int(budget.left[0]), float(budget.used[0])
    _finish(draft, (task, instance), (queue, targets), (queue, targets), warms)


def move_standbys(
    draft: Draft, lags: Lags, warmups: Warmups, tasks: Ints, targets: Ints, followed: bool
) -> int:
    """Give the standbys of a queue stand-ins that are closer; returns how many there are."""
    from balancer.assignment import compiled

    task, instance = draft.standby_pairs()
    sources, warms = np.empty(len(tasks), np.int64), np.zeros(len(tasks), np.bool_)
    budget = _budget(warmups)
    compiled.move_standbys(
        lags.arrays,
        _copies(draft, draft.count),
        _marks(draft),
        budget,
        followed,
        tasks,
        targets,
        draft.active,
        draft.standby_offset(task),
        instance,
        sources,
        warms,
    )
    warmups.left, warmups.used = int(budget.left[0]), float(budget.used[0])
    _finish(draft, (task, instance), (tasks, sources), (tasks, targets), warms)
    return int(np.count_nonzero(sources >= 0))


def _finish(
    draft: Draft,
    pairs: tuple[Ints, Ints],
    more: tuple[Ints, Ints],
    warming: tuple[Ints, Ints],
    warms: Bools,
) -> None:
    """Note the copies after a step: those that there were, some more, and which only warm up."""
    if warms.any():
        n = draft.state.n_instances
        new = np.sort(more[0][warms] * n + more[1][warms])
        at = np.searchsorted(pairs[0] * n + pairs[1], new)
        pairs = np.insert(pairs[0], at, new // n), np.insert(pairs[1], at, new % n)
        draft.warmups.update(
            zip(warming[0][warms].tolist(), warming[1][warms].tolist(), strict=True)
        )
    draft.set_standbys(*pairs)


def _copies(draft: Draft, count: Ints) -> Copies:
    """The copies on each instance, counted in place, and an empty queue of instances."""
    n = len(count)
    threads = np.asarray(draft.state.capacity, np.int64)
    heap, aside, after, order = np.empty((4, n), np.int64)
    return Copies(
        count,
        threads,
        load=count / threads,
        heap=heap,
        size=np.zeros(1, np.int64),
        place=np.full(n, -1),
        aside=aside,
        after=after,
        order=order,
        bins=np.empty(max(16, 4 * n), np.int64),
    )


def _marks(draft: Draft) -> Marks:
    """No marks of instances."""
    return Marks(*np.zeros((4, draft.state.n_instances), np.int64))


def _budget(warmups: Warmups) -> Budget:
    """What is left for warm-ups."""
    left, used = np.array([warmups.left]), np.array([warmups.used])
    return Budget(left, used, warmups.limit, warmups.sizes)
