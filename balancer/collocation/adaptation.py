"""The periodic adaptation loop: retire empty brokers, plan, scale, plan again, apply.

Seed 001, Section 4.1, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from balancer.allocation.drain import drain
from balancer.allocation.solver import solve
from balancer.allocation.units import Cost, Units, units_of
from balancer.autoscaling.utilisation import Scale, Scaling, Utilisation
from balancer.problem.operation import Operation
from cluster_model.snapshot import Floats, Ints, Snapshot

Planner = Callable[[Units], Ints]
"""Maps units to the node (U,) of each: ``lambda units: albic(units).solution.node``."""

_UTILISED = Utilisation()


class Job(Protocol):
    """The stream job to adapt, which runs on brokers."""

    def snapshot(self) -> Snapshot:
        """The measurements of the last period, with all current brokers."""

    def start(self, brokers: int) -> None:
        """Add this many new brokers to the job; returns when they are ready."""

    def apply(self, brokers: Ints) -> None:
        """Migrate: (P,) int, the id of the broker of each partition of the last snapshot."""

    def retire(self, brokers: Sequence[int]) -> None:
        """Release brokers, by id, that are empty."""


@dataclass(frozen=True, eq=False)
class Period:
    """The result of one period.

    Parameters
    ----------
    retired
        Brokers, by id, that were empty and have been released.
    scale
        The scaling decision.
    units, node
        The units of the final plan, and the node (U,) of each.
    """

    retired: tuple[int, ...]
    scale: Scale
    units: Units
    node: Ints

    @property
    def distance(self) -> float:
        """Load distance of the plan, in percentage points."""
        return self.units.problem.distance(self.node)

    @property
    def migrations(self) -> int:
        """Key groups that the plan migrated."""
        return int((self.node != self.units.problem.node).sum())


class Adaptation:
    """Adapts a job, once a period.

    Parameters
    ----------
    job
        The job to adapt.
    plan
        Allocates key groups; :func:`solve` by default.
    scaling
        Decides on the number of nodes; None keeps it.
    budget, cost, alpha
        maxMigrCost of a period, see :func:`units_of`.
    integrated
        Whether nodes are balanced while some are removed. Otherwise these are emptied first
        (:func:`drain`), in a separate step.
    removing
        Brokers, by id, that are marked for removal.
    """

    def __init__(
        self,
        job: Job,
        plan: Planner | None = None,
        scaling: Scaling | None = _UTILISED,
        *,
        budget: float = np.inf,
        cost: Cost | Floats = "count",
        alpha: float = 1.0,
        integrated: bool = True,
        removing: Sequence[int] = (),
    ) -> None:
        self.job, self.scaling, self.integrated = job, scaling, integrated
        self.plan: Planner = plan or _milp
        self.budget, self.cost, self.alpha = budget, cost, alpha
        self.removing = tuple(removing)

    def period(self) -> Period:
        """Run Algorithm 1 once; a plan is applied to the brokers that it was made for."""
        snapshot = self.job.snapshot()
        retired = self._retire(snapshot)
        if retired:
            snapshot = self.job.snapshot()
        units, node = self._planned(snapshot)
        scale = Scale() if self.scaling is None else self.scaling(units.problem, node)
        if scale:
            self._scale(scale, snapshot)
            snapshot = self.job.snapshot()
            units, node = self._planned(snapshot)
        if (node != units.problem.node).any():
            self.job.apply(snapshot.broker_ids[units.unfold(node)])
        return Period(retired, scale, units, node)

    def _retire(self, snapshot: Snapshot) -> tuple[int, ...]:
        there = [b for b in self.removing if b in snapshot.broker_ids]
        held = snapshot.broker_ids[np.unique(snapshot.replica_broker)]
        empty = tuple(b for b in there if b not in held)
        self.removing = tuple(b for b in there if b in held)
        if empty:
            self.job.retire(empty)
        return empty

    def _planned(self, snapshot: Snapshot) -> tuple[Units, Ints]:
        leaving = Operation(kind="remove_brokers", brokers=self.removing)
        units = units_of(
            snapshot,
            leaving if self.removing else None,
            budget=self.budget,
            cost=self.cost,
            alpha=self.alpha,
        )
        p = units.problem
        leaves = p.removed[p.node]
        if not self.integrated and leaves.any():
            return units, drain(p, p.node)
        node = self.plan(units)
        if leaves.any() and p.removed[node].sum() == leaves.sum():
            # Load comes in units: the last one may be too large to bring any remaining node
            # closer to the mean, and would stay forever.
            node = drain(p, node)
        return units, node

    def _scale(self, scale: Scale, snapshot: Snapshot) -> None:
        """Keep brokers marked for removal before new ones are started."""
        kept = min(scale.start, len(self.removing))
        leaving = snapshot.broker_ids[list(scale.remove)].tolist()
        self.removing = (*self.removing[kept:], *leaving)
        if scale.start > kept:
            self.job.start(scale.start - kept)


def _milp(units: Units) -> Ints:
    return solve(units.problem).node
