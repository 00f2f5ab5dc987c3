"""The packing problem: items with sizes, the bins they are in, and what a bin holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from balancer.allocation.errors import AllocationError
from cluster_model.snapshot import Bools, Floats, Ints

# Share of a capacity by which sums may exceed it through rounding.
ROUNDING = 1e-9


def _no_floats() -> Floats:
    return np.zeros((0, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Packing:
    """P items of R dimensions, and the bins that they are in (seed 000, Section III).

    Bins are numbered from 0. There are as many as needed: bins beyond those of `capacities` hold
    `capacity`. An item that is larger than all kinds of bins may be alone in one.

    Parameters
    ----------
    size : (P, R) float
        Size of each item: for partitions their write speed, and further dimensions such as lag.
    owner : (P,) int
        The bin that each item is in; -1 if in none.
    capacity : (R,) float
        What a bin holds.
    capacities : (N, R) float
        What the bins 0 to N - 1 hold, where they differ; empty if all are equal.
    weight : (P,) float
        Cost of moving each item, from a bin to another; by default its first dimension.

    Raises
    ------
    AllocationError
        Naming the field, the row and the value.
    """

    size: Floats
    owner: Ints
    capacity: Floats
    capacities: Floats = field(default_factory=_no_floats)
    weight: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if self.size.ndim != 2 or self.size.shape[1] == 0:
            raise AllocationError(
                f"packing, size: shape {self.size.shape} found, (items, dimensions) expected"
            )
        items, dimensions = self.size.shape
        if not self.weight.size:
            object.__setattr__(self, "weight", self.size[:, 0])
        if not self.capacities.size:
            object.__setattr__(self, "capacities", np.zeros((0, dimensions)))
        for name, shape in (
            ("owner", (items,)),
            ("capacity", (dimensions,)),
            ("capacities", (len(self.capacities), dimensions)),
            ("weight", (items,)),
        ):
            if getattr(self, name).shape != shape:
                raise AllocationError(
                    f"packing, {name}: shape {getattr(self, name).shape} found, {shape} expected"
                )
        for name, above in (
            ("size", False),
            ("capacity", True),
            ("capacities", True),
            ("weight", False),
        ):
            values = getattr(self, name)
            bad = np.argwhere(~(values > 0 if above else values >= 0) | ~np.isfinite(values))
            if len(bad):
                at = tuple(bad[0].tolist())
                expected = "a number above 0" if above else "0 or more"
                raise AllocationError(
                    f"packing, {name}, row {at[0]}: {values[at]} found, {expected} expected"
                )
        if items and self.owner.min() < -1:
            row = int(np.argmin(self.owner))
            raise AllocationError(
                f"packing, owner, row {row}: {self.owner[row]} found, -1 or more expected"
            )

    @property
    def kinds(self) -> Floats:
        """(K, R) what each kind of bin holds."""
        return np.unique(np.vstack([self.capacities, self.capacity]), axis=0)

    @property
    def too_large(self) -> Bools:
        """(P,) which items no kind of bin holds."""
        left = np.arange(len(self.size))
        for kind in self.kinds[::-1]:
            left = left[(self.size[left] > kind * (1 + ROUNDING)).any(axis=1)]
            if not len(left):
                break
        found = np.zeros(len(self.size), np.bool_)
        found[left] = True
        return found

    def capacity_of(self, bin_: int) -> Floats:
        """(R,) what a bin holds."""
        capacity: Floats = self.capacities[bin_] if bin_ < len(self.capacities) else self.capacity
        return capacity
