"""Decides how many nodes a job runs on, from how utilised they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from balancer.allocation.errors import AllocationError
from balancer.allocation.problem import Allocation
from cluster_model.snapshot import Ints

_TINY = 1e-9


@dataclass(frozen=True)
class Scale:
    """How many nodes to start, and which to remove."""

    start: int = 0
    remove: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.start > 0 or len(self.remove) > 0


class Scaling(Protocol):
    """Decides how many nodes a job runs on."""

    def __call__(self, problem: Allocation, node: Ints) -> Scale:
        """Decide for a plan, the node (U,) of each unit; nodes to remove are given by index."""


@dataclass(frozen=True)
class Utilisation:
    """Keeps nodes utilised: adds nodes above one threshold and removes nodes below another.

    Nodes are started if the plan leaves one above `high` and the mean is above `target`; if the
    mean is not, the load needs better balance, not more nodes. The nodes that carry least are
    removed if the mean is below `low` and the others would stay below `high` with the imbalance of
    the plan; never while other nodes are being removed.

    Parameters
    ----------
    low, target, high
        Load in percent of a node of mean capacity.

    Examples
    --------
    >>> busy = Allocation(load=np.full(4, 45.0), cost=np.ones(4), node=np.array([0, 0, 1, 1]),
    ...     weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=2)
    >>> Utilisation()(busy, busy.node)
    Scale(start=1, remove=())
    """

    low: float = 40.0
    target: float = 60.0
    high: float = 80.0

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.target <= self.high:
            raise AllocationError(
                f"utilisation: low {self.low:g}, target {self.target:g} and high {self.high:g} "
                "found, ascending values of more than 0 expected"
            )

    def __call__(self, problem: Allocation, node: Ints) -> Scale:
        """Decide for a plan, the node (U,) of each unit."""
        p, over = problem, problem.sides(node)[0]
        stays = np.flatnonzero(~p.removed)
        total, capacity = float(p.load.sum()), 1.0 / p.weight[stays]
        if p.mean + over > self.high and p.mean > self.target:
            requested = total / self.target - float(capacity.sum())
            return Scale(start=max(1, math.ceil(requested - _TINY)))
        if p.mean >= self.low or p.removed[node].any():
            return Scale()
        carried = p.deviation(node)[stays]
        order = np.argsort(carried, kind="stable")
        # The first k can go if the others can carry all of the load.
        left = capacity.sum() - np.cumsum(capacity[order])
        mean = np.divide(total, left, out=np.full(len(left), np.inf), where=left > _TINY)
        fits = (mean <= self.target + _TINY) & (mean + p.distance(node) <= self.high + _TINY)
        remove = stays[order[: int(np.cumprod(fits).sum())]]
        return Scale(remove=tuple(sorted(remove[: len(stays) - 1].tolist())))
