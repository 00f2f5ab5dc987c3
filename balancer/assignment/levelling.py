"""Levels the number of tasks per thread by single moves between instances."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

import numpy as np

from cluster_model.snapshot import Ints


def level(
    tasks: Callable[[], list[list[int]]],
    count: Ints,
    capacity: Ints,
    move: Callable[[int, int, int], None],
    may_move: Callable[[int, int, int], bool] = lambda *_: True,
) -> None:
    """Move tasks from one instance to another as long as that levels the two.

    Kafka's order: each instance gives its first tasks to each other one in turn, and so on until
    nothing moves; a task moves if the source then has at least as many copies per thread as the
    destination.

    Parameters
    ----------
    tasks
        Returns the sorted tasks of each instance that may move; called only if any can. Changed.
    count : (I,) int
        Copies on each instance, of whatever kind; not changed.
    capacity : (I,) int
        Threads of each instance.
    move
        Called with the task, source and destination of each move.
    may_move
        Whether a task may move from a source to a destination.
    """
    copies, threads = count.tolist(), capacity.tolist()
    with_one_more = (count + 1) / capacity
    least = with_one_more.min()
    held: list[list[int]] = []
    moved = True
    while moved:
        moved = False
        for source in range(len(copies)):
            left = (copies[source] - 1) / threads[source]
            if left < least:
                continue
            held = held or tasks()
            given = False
            for destination in np.flatnonzero(with_one_more <= left).tolist():
                for task in tuple(held[source]):
                    if (copies[source] - 1) / threads[source] < with_one_more[destination]:
                        break
                    if not may_move(task, source, destination):
                        continue
                    move(task, source, destination)
                    given = True
                    held[source].remove(task)
                    insort(held[destination], task)
                    for instance, change in ((source, -1), (destination, 1)):
                        copies[instance] += change
                        with_one_more[instance] = (copies[instance] + 1) / threads[instance]
            if given:
                moved = True
                least = with_one_more.min()
