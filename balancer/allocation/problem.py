"""The allocation problem: units with a load and a migration cost, and nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from balancer.allocation.errors import AllocationError
from cluster_model.snapshot import Bools, Floats, Ints

# Sums up to this can be multiplied by a weight and squared.
_LEAST, _GREATEST = 1e-60, 1e60
_FINITE = float(np.finfo(np.float64).max)
_KINDS = {"fiu": "numbers", "iu": "whole numbers", "b": "truth values"}


def _no_floats() -> Floats:
    return np.empty((0, 0))


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Allocation:
    """U units on N nodes, and the constraints on moving them (seed 001, Section 4.3.1, Table 2).

    A unit is a key group, or a set of them that stays together. The sums of all loads, of all costs
    and of each further resource are at most 1e60.

    Parameters
    ----------
    load : (U,) float
        gLoad: load of each unit on a node of weight 1, in percentage points.
    cost : (U,) float
        mc: cost of migrating each unit; all 1 to count migrations.
    node : (U,) int
        q: the node that each unit is on.
    weight : (N,) float
        Factor on the loads of each node: the mean capacity over its own; from 1e-60 to 1e60.
    removed : (N,) bool
        kill: whether the node is marked for removal. At least one is not.
    budget
        maxMigrCost: limit of the total cost of all migrations.
    fixed : (U,) int
        The node that a unit has to be on; -1 for any; empty if all are free. A
        constraint that the budget does not allow is an error of :func:`solve`.
    further : (U, R) float
        Load of each unit in R further resources.
    ceiling : (N, R) float
        Each node's limit for them, possibly infinite. A node that exceeds it at the start takes
        nothing more of that resource.

    Raises
    ------
    AllocationError
        Naming the field, the row and the value.
    """

    load: Floats
    cost: Floats
    node: Ints
    weight: Floats
    removed: Bools
    budget: float
    fixed: Ints = field(default_factory=_no_ints)
    further: Floats = field(default_factory=_no_floats)
    ceiling: Floats = field(default_factory=_no_floats)

    def __post_init__(self) -> None:
        units, nodes = len(self.load), len(self.weight)
        if not len(self.fixed):
            object.__setattr__(self, "fixed", np.full(units, -1))
        if not self.further.size:
            object.__setattr__(self, "further", np.zeros((units, 0)))
            object.__setattr__(self, "ceiling", np.zeros((nodes, 0)))
        resources = self.further.shape[-1]
        for name, shape, kinds in (
            ("load", (units,), "fiu"),
            ("cost", (units,), "fiu"),
            ("node", (units,), "iu"),
            ("fixed", (units,), "iu"),
            ("weight", (nodes,), "fiu"),
            ("removed", (nodes,), "b"),
            ("further", (units, resources), "fiu"),
            ("ceiling", (nodes, resources), "fiu"),
        ):
            values = getattr(self, name)
            if values.shape != shape:
                raise AllocationError(
                    f"allocation, {name}: shape {values.shape} found, {shape} expected"
                )
            if values.dtype.kind not in kinds:
                raise AllocationError(
                    f"allocation, {name}: type {values.dtype} found, {_KINDS[kinds]} expected"
                )
        if nodes == 0 or self.removed.all():
            raise AllocationError(
                f"allocation, removed: all {nodes} nodes are marked for removal, at least one "
                "that stays expected"
            )
        finite = "a finite number of at least 0"
        for name, low, high, expected in (
            ("load", 0.0, _FINITE, finite),
            ("cost", 0.0, _FINITE, finite),
            ("further", 0.0, _FINITE, finite),
            ("node", 0, nodes - 1, f"a value from 0 to {nodes - 1}"),
            ("fixed", -1, nodes - 1, f"a value from -1 to {nodes - 1}"),
            ("weight", _LEAST, _GREATEST, f"a value from {_LEAST:g} to {_GREATEST:g}"),
            ("ceiling", -np.inf, np.inf, "a number or infinity"),
        ):
            values = getattr(self, name)
            self._check(name, ~((values >= low) & (values <= high)), expected)
        elsewhere = (self.fixed >= 0) & (self.fixed != self.node)
        self._check("fixed", elsewhere & self.removed[self.fixed], "a node that stays")
        for name in ("load", "cost", "further"):
            # Each value may be a number while the sum is none.
            with np.errstate(over="ignore"):
                total = float(getattr(self, name).sum(axis=0).max(initial=0.0))
            if not total <= _GREATEST:
                raise AllocationError(
                    f"allocation, {name}: a sum of {total:g} found, at most {_GREATEST:g} expected"
                )
        if not self.budget >= 0:
            raise AllocationError(f"allocation, budget: {self.budget} found, at least 0 expected")

    def _check(self, name: str, bad: Bools, expected: str) -> None:
        """Name the first bad value of a field."""
        if bad.any():
            at = tuple(np.argwhere(bad)[0].tolist())
            raise AllocationError(
                f"allocation, {name}, row {at[0]}: {getattr(self, name)[at]} found, {expected} "
                "expected"
            )

    @property
    def mean(self) -> float:
        """Load of every remaining node if all load is spread evenly.

        Not rounded up, unlike in the seed: that would only make a perfect balance look like
        an underload.
        """
        return float(self.load.sum() / (1.0 / self.weight[~self.removed]).sum())

    def deviation(self, node: Ints) -> Floats:
        """(N,) float: load of each node above the mean, for any allocation."""
        carried: Floats = np.bincount(node, self.load, len(self.weight)) * self.weight
        return carried - self.mean

    def sides(self, node: Ints) -> tuple[float, float]:
        """Greatest overload of any node, and greatest underload of a remaining one; from 0."""
        off = self.deviation(node)
        return max(0.0, float(off.max())), max(0.0, float(-off[~self.removed].min()))

    def distance(self, node: Ints) -> float:
        """Load distance: the greater of both sides (Section 4.3.1, Metric)."""
        return max(self.sides(node))

    def carried(self, node: Ints) -> Floats:
        """(N, R) float: each node's load of the further resources."""
        carried = np.zeros(self.ceiling.shape)
        np.add.at(carried, node, self.further)
        return carried

    def admits(self, node: Ints, unit: int, to: int) -> bool:
        """Whether a node has room for a unit in the further resources."""
        if not self.further.size:
            return True
        held = self.further[node == to].sum(axis=0)
        more = self.further[unit]
        return bool(((more == 0) | (held + more <= self.ceiling[to])).all())

    def within_ceilings(self, node: Ints) -> bool:
        """Whether no node exceeds its ceiling by more than at the start."""
        most = np.maximum(self.carried(self.node), self.ceiling)
        return bool((self.carried(node) <= most + 1e-9).all())

    def spent(self, node: Ints) -> float:
        """The cost of migrating to that allocation."""
        return float(self.cost[node != self.node].sum())


@dataclass(frozen=True, eq=False)
class Solution:
    """An allocation that was found, with a bound on the best possible.

    Parameters
    ----------
    node : (U,) int
        x: the node of each unit.
    over, under
        Greatest overload and underload, in percentage points.
    bound
        No allocation within the budget has a smaller load distance.
    migrations, cost
        Units that change nodes, and the cost of that.
    """

    node: Ints
    over: float
    under: float
    bound: float
    migrations: int
    cost: float

    @property
    def distance(self) -> float:
        """Load distance d."""
        return max(self.over, self.under)

    @property
    def gap(self) -> float:
        """Share of the distance that is not proven to be necessary, 0 to 1."""
        return 0.0 if self.distance <= self.bound else 1.0 - self.bound / self.distance
