"""The bins of a packing in the making, found by how much is left in them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection

import numpy as np

from balancer.allocation.packing.problem import ROUNDING, Packing
from cluster_model.snapshot import Floats, Ints

# Digits of what is left in a bin that count when bins are compared.
_DIGITS = 9


class Bins:
    """The open bins of a new packing, and the items in them.

    Sizes and what is left are shares of the capacity of a usual bin. With several dimensions,
    what is left is the share of the scarcest one. Of bins with equally much left, but for rounding,
    the one that was opened first counts as the first.

    Parameters
    ----------
    problem
        The packing problem; no bin is open at first.
    headroom
        Share of each bin that items put in by :meth:`fits` leave free.

    Attributes
    ----------
    bin : list of int
        The bin of each item, -1 while it is in none.
    items : dict
        The items of each open bin, in the order in which the bins were opened.
    sizes : list of list of float
        Each item's share of a bin in each dimension.
    share : list of float
        Each item's share of a bin, in its largest dimension.
    """

    def __init__(self, problem: Packing, headroom: float = 0.0) -> None:
        self.problem = problem
        self.bin = [-1] * len(problem.size)
        self.items: dict[int, set[int]] = {}
        scaled = problem.size / problem.capacity
        self.share: list[float] = scaled.max(axis=1).tolist()
        self.sizes: list[list[float]] = scaled.tolist()
        self._single = problem.size.shape[1] == 1
        self._headroom = headroom - ROUNDING
        self._left: dict[int, list[float]] = {}
        # the open bins by what is left, and of equal ones by when they were opened
        self._order: list[tuple[float, int, int]] = []
        self._rank: dict[int, int] = {}
        self._opened = self._free = 0
        # with several dimensions: what is left in each bin, by when it was opened
        self._table = np.full((problem.size.shape[1], 64), np.nan)
        self._bin_at: list[int] = []

    def left(self, bin_: int) -> float:
        """What is left in a bin in its scarcest dimension; negative if it holds too much."""
        return min(self._left[bin_])

    def left_of(self, bin_: int) -> list[float]:
        """What is left in a bin, in each dimension."""
        return self._left[bin_]

    def roomiest(self, count: int) -> list[int]:
        """The bins with most left, those with more first."""
        return [bin_ for _, _, bin_ in self._order[: -count - 1 : -1]]

    def capacity(self, bin_: int) -> list[float]:
        """What an empty bin holds, in each dimension."""
        found: list[float] = (self.problem.capacity_of(bin_) / self.problem.capacity).tolist()
        return found

    def open(self, bin_: int) -> int:
        """Open a bin, which is returned."""
        self.items[bin_] = set()
        self._left[bin_] = self.capacity(bin_)
        self._rank[bin_] = self._opened
        insort(self._order, self._entry(bin_))
        self._bin_at.append(bin_)
        self._opened += 1
        if not self._single:
            if self._opened > self._table.shape[1]:
                self._table = np.hstack([self._table, np.full_like(self._table, np.nan)])
            self._table[:, self._opened - 1] = self._left[bin_]
        return bin_

    def fill(self, owner: Ints) -> None:
        """Open the bins that items are in, and put these in, all at once; no bin is open yet.

        Parameters
        ----------
        owner : (P,) int
            The bin of each item; -1 for items that stay out.
        """
        inside = np.flatnonzero(owner >= 0)
        used, first, place = np.unique(owner[inside], return_index=True, return_inverse=True)
        # in the order in which the first item of each is met
        order = np.argsort(first, kind="stable")
        names = used[order].tolist()
        rank = np.argsort(order, kind="stable")[place]
        dimensions = self.problem.size.shape[1]
        left = np.array([self.capacity(b) for b in names]).reshape(-1, dimensions)
        np.subtract.at(left, rank, (self.problem.size / self.problem.capacity)[inside])
        members: list[list[int]] = [[] for _ in names]
        for item, at in zip(inside.tolist(), rank.tolist(), strict=True):
            members[at].append(item)
            self.bin[item] = names[at]
        self.items = {b: set(held) for b, held in zip(names, members, strict=True)}
        self._left = dict(zip(names, left.tolist(), strict=True))
        self._rank = {b: k for k, b in enumerate(names)}
        self._order = sorted(self._entry(b) for b in names)
        self._bin_at = list(names)
        self._opened = len(names)
        if not self._single:
            self._table = np.full((dimensions, max(64, 2 * len(names))), np.nan)
            self._table[:, : len(names)] = left.T

    def close(self, bin_: int) -> None:
        """Close an empty bin."""
        del self._order[bisect_left(self._order, self._entry(bin_))]
        self._table[:, self._rank[bin_] if not self._single else 0] = np.nan
        del self._left[bin_], self._rank[bin_], self.items[bin_]
        self._free = min(self._free, bin_)

    def open_for(self, item: int) -> int:
        """Open the bin that the item was in, or else the free one with the lowest number.

        The function h of the seed (000, Eq. 14). Bins that cannot hold the item are passed over,
        unless none can.
        """
        found = self.closed_for(item)
        if found < 0:
            before = int(self.problem.owner[item])
            found = before if before >= 0 and before not in self.items else self._next_free()
        return self.open(found)

    def closed_for(self, item: int) -> int:
        """The closed bin that :meth:`open_for` opens if one can hold the item; else -1."""
        before = int(self.problem.owner[item])
        if before >= 0 and before not in self.items and self.holds(before, item):
            return before
        free = self._next_free()
        for bin_ in range(free, len(self.problem.capacities)):
            if bin_ not in self.items and self.holds(bin_, item):
                return bin_
        if not self.holds(len(self.problem.capacities), item):
            return -1
        bin_ = max(free, len(self.problem.capacities))
        while bin_ in self.items:
            bin_ += 1
        return bin_

    def put(self, item: int, bin_: int) -> None:
        """Put an item into an open bin, whether it fits or not."""
        self.bin[item] = bin_
        self._change(bin_, item, -1.0)

    def take(self, item: int) -> int:
        """Take an item out of its bin, which is returned."""
        bin_ = self.bin[item]
        self.bin[item] = -1
        self._change(bin_, item, 1.0)
        return bin_

    def fits(self, item: int, bin_: int) -> bool:
        """Whether a bin has room for an item."""
        if self._single:
            return self.share[item] + self._headroom <= self._left[bin_][0]
        pairs = zip(self.sizes[item], self._left[bin_], strict=True)
        return all(size + self._headroom <= left for size, left in pairs)

    def fits_instead(self, item: int, other: int) -> bool:
        """Whether an item fits into the bin of another if that leaves."""
        bin_ = self.bin[other]
        rows = zip(self.sizes[item], self._left[bin_], self.sizes[other], strict=True)
        return all(size + self._headroom <= left + gone for size, left, gone in rows)

    def best(self, item: int, besides: Collection[int] = ()) -> int:
        """The bin, other than `besides`, where the item leaves least; -1 if it fits into none."""
        if self._single:
            least = round(self.share[item] + self._headroom, _DIGITS)
            for place in range(bisect_left(self._order, (least, -1, -1)), len(self._order)):
                bin_ = self._order[place][2]
                if bin_ not in besides and self.fits(item, bin_):
                    return bin_
            return -1
        left = self._where_fits(item)
        for bin_ in besides:
            if bin_ in self._rank:
                left[self._rank[bin_]] = np.nan
        return self._bin_at[int(np.nanargmin(left))] if not np.isnan(left).all() else -1

    def worst(self, item: int) -> int:
        """The bin where the item leaves most; -1 if it fits into none."""
        if self._single:
            if not self._order:
                return -1
            most = self._order[-1][0]
            bin_ = self._order[bisect_left(self._order, (most, -1, -1))][2]
            return bin_ if self.fits(item, bin_) else -1
        left = self._where_fits(item)
        return self._bin_at[int(np.nanargmax(left))] if not np.isnan(left).all() else -1

    def _where_fits(self, item: int) -> Floats:
        """What is left in the bins that have room for an item, by when they were opened, or NaN."""
        table = self._table[:, : self._opened]
        fits = np.ones(self._opened, np.bool_)
        for left, size in zip(table, self.sizes[item], strict=True):
            fits &= left >= size + self._headroom
        return np.where(fits, table.min(axis=0).round(_DIGITS), np.nan)

    def first(self, item: int) -> int:
        """The bin with the lowest number that the item fits into; -1 if there is none."""
        return min((b for b in self.items if self.fits(item, b)), default=-1)

    def last(self, item: int) -> int:
        """The bin opened last; -1 if the item does not fit into it."""
        bin_ = next(reversed(self.items), -1)
        return bin_ if bin_ >= 0 and self.fits(item, bin_) else -1

    def _entry(self, bin_: int) -> tuple[float, int, int]:
        return round(min(self._left[bin_]), _DIGITS), self._rank[bin_], bin_

    def _change(self, bin_: int, item: int, sign: float) -> None:
        del self._order[bisect_left(self._order, self._entry(bin_))]
        held = self.items[bin_]
        if sign < 0:
            held.add(item)
        else:
            held.remove(item)
        if held:
            pairs = zip(self._left[bin_], self.sizes[item], strict=True)
            self._left[bin_] = [left + sign * size for left, size in pairs]
        else:
            # exactly, so that no rounding accumulates
            self._left[bin_] = self.capacity(bin_)
        insort(self._order, self._entry(bin_))
        if not self._single:
            self._table[:, self._rank[bin_]] = self._left[bin_]

    def holds(self, bin_: int, item: int) -> bool:
        """Whether the bin, empty, could hold an item."""
        pairs = zip(self.sizes[item], self.capacity(bin_), strict=True)
        return all(size + self._headroom <= capacity for size, capacity in pairs)

    def _next_free(self) -> int:
        while self._free in self.items:
            self._free += 1
        return self._free

    def result(self) -> Ints:
        """(P,) the bin of each item."""
        return np.array(self.bin, np.int64)
