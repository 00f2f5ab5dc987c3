"""Chooses the next tasks: order, limits per broker and cluster, fair turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from balancer.execution.cluster import Key
from balancer.execution.limits import TaskOrder
from balancer.execution.tasks import Task

BrokersOfTask = Callable[[Task], Iterable[int]]


def ordered(
    tasks: Iterable[Task],
    order: Sequence[TaskOrder],
    *,
    under_min_isr: Collection[Key] = (),
    under_replicated: Collection[Key] = (),
) -> list[Task]:
    """Tasks by the given orders, the first one first; the plan's order breaks ties."""
    keys: dict[TaskOrder, Callable[[Task], float]] = {
        "plan_order": lambda t: t.id,
        "smallest_first": lambda t: t.bytes,
        "largest_first": lambda t: -t.bytes,
        "under_min_isr_first": lambda t: t.key not in under_min_isr,
        "postpone_under_replicated": lambda t: t.key in under_replicated,
    }
    return sorted(tasks, key=lambda t: (*(keys[s](t) for s in order), t.id))


def choose(
    waiting: Sequence[Task],
    running: Iterable[Task],
    loads: BrokersOfTask,
    *,
    per_broker: int,
    cluster: int,
    spread: bool = True,
) -> list[Task]:
    """The tasks to start now, in the given order as far as the limits allow.

    Parameters
    ----------
    waiting
        The tasks that may start, in order.
    running
        The tasks in progress.
    loads
        Returns the brokers that a task occupies.
    per_broker, cluster
        Maximum number of tasks at once on a broker, and in the cluster.
    spread
        Whether no broker starts a second task before every other has had its turn.

    Returns
    -------
    list of Task
        At most one per partition (and broker, for moves between disks).
    """
    running = list(running)
    busy = Counter(b for task in running for b in set(loads(task)))
    taken = {_place(task) for task in running}
    room = cluster - len(running)
    chosen: list[Task] = []
    left = list(waiting)
    while left and room > 0:
        turn: set[int] = set()
        passed: list[Task] = []
        before = len(chosen)
        for task in left:
            brokers = set(loads(task))
            free = room > 0 and _place(task) not in taken
            if not free or any(busy[b] >= per_broker for b in brokers):
                continue
            if spread and brokers & turn:
                passed.append(task)
                continue
            chosen.append(task)
            taken.add(_place(task))
            busy.update(brokers)
            turn |= brokers
            room -= 1
        if len(chosen) == before:
            break
        left = passed
    return chosen


def _place(task: Task) -> tuple[Key, int | None]:
    return task.key, task.broker


def copying(task: Task, leaders: Mapping[Key, int | None]) -> set[int]:
    """Brokers that a move between brokers occupies: its source and its destinations.

    Removing replicas occupies no broker.
    """
    if not task.added:
        return set()
    leader = leaders.get(task.key)
    return {*task.added, *(() if leader is None else (leader,))}
