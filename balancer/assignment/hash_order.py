"""The order in which Java's hash tables return tasks and instances, where Kafka relies on it."""

from __future__ import annotations

from collections.abc import Sequence

from balancer.assignment.state import ApplicationState, TaskId
from cluster_model.snapshot import Ints

# Java's limits: entries per bin of a table, entries of a bin, and bins of a small table.
_FILL, _LONG, _SMALL = 0.75, 8, 64


def tasks_in_hash_order(
    state: ApplicationState, tasks: Ints, *, at_once: bool = False
) -> list[int]:
    """Tasks in the order in which a table with their ids returns them.

    Exact as long as no more than eight ids fall into one bin.

    Parameters
    ----------
    state
        The application.
    tasks : (N,) int
        The tasks, in the order in which they are put into the table.
    at_once
        Whether the table is made for all of them, or grows with each.
    """
    hashes = {t: _hash(state.task(t)) for t in tasks.tolist()}
    size = _size(len(hashes)) if at_once else 16
    bins: dict[int, list[int]] = {}
    for n, (t, hashed) in enumerate(hashes.items(), 1):
        held = bins.setdefault(hashed % size, [])
        held.append(t)
        if n > _FILL * size or (len(held) > _LONG and size < _SMALL):
            size *= 2
            old, bins = bins, {}
            for _, entries in sorted(old.items()):
                for other in entries:
                    bins.setdefault(hashes[other] % size, []).append(other)
    return [t for _, held in sorted(bins.items()) for t in held]


def instances_in_hash_order(instances: Sequence[int], *, at_once: bool = False) -> list[int]:
    """Instances in the order in which a table with process ids 0, 1, ... returns them.

    Parameters
    ----------
    instances
        The instances, in the order in which they are put into the table.
    at_once
        Whether the table is made for all of them, or grows with each.
    """
    size = _size(len(instances)) if at_once else 16
    while len(instances) > _FILL * size:
        size *= 2
    return sorted(instances, key=size.__rmod__)


def _size(entries: int) -> int:
    """Bins of a table that is made for a number of entries."""
    needed = max(int(entries / _FILL + 1), 16)
    return 1 << (needed - 1).bit_length()


def _hash(task: TaskId) -> int:
    """What a table makes of ``Objects.hash(subtopology, partition, null)``."""
    hashed = (((31 + task.subtopology) * 31 + task.partition) * 31) % 2**32
    return hashed ^ hashed >> 16
