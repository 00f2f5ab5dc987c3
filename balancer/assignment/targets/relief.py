"""Relieves the fullest instance: it and another one redistribute all their active tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cluster_model.snapshot import Floats, Ints

# Share of a load below which a difference is rounding.
_ROUNDING = 1e-9


class ReliefParameters(BaseModel):
    """When the fullest instance is relieved, and with how much effort.

    Parameters
    ----------
    excess
        Measured load of the fullest instance above what is certain to be necessary, as a share,
        beyond which it is relieved.
    pair_tasks
        Active tasks that two instances may have together: more are not redistributed, as all
        ways to do so are tried.
    starts
        Random placements that are tried while none is within the excess; 0 for none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    excess: float = Field(default=0.05, ge=0, allow_inf_nan=False)
    pair_tasks: int = Field(default=14, ge=2, le=20)
    starts: int = Field(default=20, ge=0, le=10_000)


def relieved(
    load: Floats, capacity: Floats, starts: Sequence[Ints], enough: float, own: ReliefParameters
) -> Ints:
    """(T,) the instance of each task in the first placement whose fullest has enough room.

    If there is none, that in which the fullest has the most.

    Parameters
    ----------
    load : (T,) float
        Load of each task.
    capacity : (I,) float
        Capacity of each instance.
    starts
        Placements that are changed until no pair of instances relieves the fullest one; random
        ones follow.
    enough
        A load / capacity of the fullest instance that is low enough.
    own
        Parameters.

    Examples
    --------
    >>> load, start = np.array([4.0, 5.0, 6.0, 7.0, 8.0]), np.array([0, 0, 0, 0, 1])
    >>> relieved(load, np.ones(2), [start], 15.0, ReliefParameters()).tolist()
    [1, 1, 1, 0, 0]
    """
    best, least = starts[0], np.inf
    for start in _all(starts, load, capacity, own):
        found = _redistributed(load, capacity, start, own.pair_tasks)
        fullest = float((np.bincount(found, load, len(capacity)) / capacity).max())
        if fullest < least:
            best, least = found, fullest
        if least <= enough:
            break
    return best


def _all(
    starts: Sequence[Ints], load: Floats, capacity: Floats, own: ReliefParameters
) -> Iterator[Ints]:
    yield from starts
    rng = np.random.default_rng(0)
    for _ in range(own.starts):
        yield rng.integers(len(capacity), size=len(load))


def _redistributed(load: Floats, capacity: Floats, start: Ints, pair_tasks: int) -> Ints:
    """A placement changed until no pair of instances relieves the fullest one."""
    owner, n = start.copy(), len(capacity)
    while True:
        carried, count = np.bincount(owner, load, n), np.bincount(owner, minlength=n)
        full = carried / capacity
        fullest = int(full.argmax())
        least = float(full[fullest]) * (1 - _ROUNDING)
        best: tuple[int, Ints, int] | None = None
        for other in range(n):
            if other == fullest or count[fullest] + count[other] > pair_tasks:
                continue
            both = np.flatnonzero((owner == fullest) | (owner == other))
            # bit k of the position in the sums: whether the other one takes the k-th task
            sums = np.zeros(1)
            for each in load[both].tolist():
                sums = np.concatenate([sums, sums + each])
            rest = carried[fullest] + carried[other] - sums
            fuller = np.maximum(sums / capacity[other], rest / capacity[fullest])
            if fuller.min() < least:
                least, best = float(fuller.min()), (other, both, int(fuller.argmin()))
        if best is None:
            return owner
        other, tasks, taken = best
        owner[tasks] = np.where(taken >> np.arange(len(tasks)) & 1, other, fullest)
