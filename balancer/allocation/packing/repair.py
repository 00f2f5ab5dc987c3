"""Repairs a packing: keeps what fits, moves the least that must, and empties what is not worth it.

Modified Any Fit packs every bin again; this starts from the present packing. It needs about as
many bins, and moves a fraction of the weight.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict

import numpy as np

from balancer.allocation.packing.any_fit import any_fit
from balancer.allocation.packing.bins import Bins
from balancer.allocation.packing.bound import fewest_bins
from balancer.allocation.packing.naming import keep_names
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from cluster_model.snapshot import Ints

_TINY = 1e-9


def repair(
    problem: Packing, parameters: RepairParameters | None = None, *, at_least: int = 0
) -> Ints:
    """Pack items again, starting from the bins that they are in.

    1. Bins that are too full lose the items with the least weight that suffice.
    2. These and new items go where they leave least room, or where most is left, the largest first.
       One that only a bin of another kind holds takes the place of smaller ones there.
    3. Bins are emptied, the cheapest first, while that moves less than a bin is worth: each item
       goes where it leaves least room, if necessary in exchange for one that fits elsewhere.
    4. If bins still cannot be emptied one by one, those with most left are packed together, ever
       more of them.

    Parameters
    ----------
    problem
        The packing problem.
    parameters
        What a bin is worth, and how much is tried.
    at_least
        Bins are emptied only while there are more.

    Returns
    -------
    (P,) int
        The bin of each item.
    """
    return _Repair(problem, parameters or RepairParameters(), at_least).run()


class _Repair:
    """One repair: the bins so far, and what moves would cost."""

    def __init__(self, problem: Packing, parameters: RepairParameters, at_least: int) -> None:
        self.problem, self.parameters = problem, parameters
        self.bins = Bins(problem, parameters.headroom)
        self.owner: list[int] = problem.owner.tolist()
        self.weight: list[float] = (problem.weight / problem.capacity[0]).tolist()
        # weight of the items of each bin that are where they were
        self.at_home: dict[int, float] = defaultdict(float)
        self.too_large = problem.too_large
        self.fewest = max(fewest_bins(problem), at_least)

    def run(self) -> Ints:
        bins = self.bins
        choose = bins.worst if self.parameters.spread else bins.best
        homeless = [(-bins.share[i], i) for i in self._keep()]
        heapq.heapify(homeless)
        while homeless:
            _, item = heapq.heappop(homeless)
            bin_ = choose(item)
            if bin_ < 0 and bins.closed_for(item) < 0 and not self.too_large[item]:
                bin_ = self._cleared(item, homeless)
            self._put(item, bin_ if bin_ >= 0 else bins.open_for(item))
        if self.parameters.bin_price > 0:
            self._empty()
            self._pack_together()
        return self.bins.result()

    def _keep(self) -> list[int]:
        """Leave items where they are, except the cheapest that suffice; these are returned."""
        owner, weight = self.problem.owner, np.array(self.weight)
        self.bins.fill(owner)
        homeless: list[int] = np.flatnonzero(owner < 0).tolist()
        used, place = np.unique(owner[owner >= 0], return_inverse=True)
        total = np.zeros(len(used))
        np.add.at(total, place, weight[owner >= 0])
        self.at_home.update(zip(used.tolist(), total.tolist(), strict=True))
        for bin_ in list(self.bins.items):
            if self.bins.left(bin_) >= -_TINY:
                continue
            sized = [i for i in self.bins.items[bin_] if self.bins.share[i] > 0]
            leaving = self._leaving(bin_) if len(sized) > 1 else []
            for item in leaving:
                self._take(item)
            homeless += leaving
            if self.bins.left(bin_) < -_TINY:
                # what is left does not fit here, but into bins of another kind
                left = [i for i in sized if self.bins.bin[i] == bin_ and not self.too_large[i]]
                for item in left:
                    self._take(item)
                homeless += left
            if not self.bins.items[bin_]:
                self.bins.close(bin_)
        return homeless

    def _cleared(self, item: int, homeless: list[tuple[float, int]]) -> int:
        """The bin where smaller items, which become homeless, make room for one; -1 if nowhere.

        Of all bins that hold the item it is the one that loses least weight.
        """
        bins, found, least = self.bins, -1, math.inf
        gone: list[int] = []
        for bin_ in [b for b in bins.items if bins.holds(b, item)]:
            held = bins.items[bin_]
            smaller = sorted((bins.share[i], i) for i in held if bins.share[i] < bins.share[item])
            leaving: list[int] = []
            while smaller and not bins.fits(item, bin_):
                leaving.append(smaller.pop()[1])
                self._take(leaving[-1])
            cost = sum(self.weight[i] for i in leaving)
            if bins.fits(item, bin_) and cost < least:
                found, least, gone = bin_, cost, leaving
            for other in leaving:
                self._put(other, bin_)
        for other in gone:
            self._take(other)
            heapq.heappush(homeless, (-bins.share[other], other))
        return found

    def _leaving(self, bin_: int) -> list[int]:
        """The items with the least weight without which the others fit, or nearly."""
        items = sorted(self.bins.items[bin_], key=lambda i: (self.weight[i], i))
        size = [self.bins.sizes[i] for i in items]
        over = [-left for left in self.bins.left_of(bin_)]
        most = len(items) - 1
        if len(items) <= self.parameters.exact_items:
            return self._cheapest(items, size, over)
        found: list[int] = []
        # the smallest weight that suffices alone, or the largest first
        for k, item in enumerate(items):
            if all(s >= o - _TINY for s, o in zip(size[k], over, strict=True)):
                found = [item]
                break
        together: list[int] = []
        for k in range(most, 0, -1):
            if all(o <= _TINY for o in over):
                break
            over = [o - s for o, s in zip(over, size[k], strict=True)]
            together.append(items[k])
        cost = sum(self.weight[i] for i in together)
        return found if found and self.weight[found[0]] <= cost else together

    def _cheapest(self, items: list[int], size: list[list[float]], over: list[float]) -> list[int]:
        """The set of items with the least weight that suffices; one item may stay in any case."""
        best, chosen = math.inf, (1 << len(items)) - 2
        weights, sums = [0.0], [[0.0] * len(over)]
        for k, item in enumerate(items):
            for m in range(1 << k):
                weights.append(weights[m] + self.weight[item])
                sums.append([a + b for a, b in zip(sums[m], size[k], strict=True)])
        for m in range(1, (1 << len(items)) - 1):
            if weights[m] < best and all(
                s >= o - _TINY for s, o in zip(sums[m], over, strict=True)
            ):
                best, chosen = weights[m], m
        return [item for k, item in enumerate(items) if chosen >> k & 1]

    def _empty(self) -> None:
        """Empty bins one by one, the cheapest first."""
        queue = [(self.at_home[b], b) for b in self.bins.items]
        heapq.heapify(queue)
        failures = 0
        while queue and failures <= self.parameters.tries and len(self.bins.items) > self.fewest:
            cost, bin_ = heapq.heappop(queue)
            if cost > self.parameters.bin_price:
                return
            if cost != self.at_home[bin_]:
                heapq.heappush(queue, (self.at_home[bin_], bin_))
            elif self._emptied(bin_):
                self.bins.close(bin_)
                failures = 0
            else:
                failures += 1

    def _emptied(self, bin_: int) -> bool:
        """Whether all items of a bin found another at a worthwhile price; if not, nothing moves."""
        moves: list[tuple[int, int]] = []
        cost = 0.0
        for item in sorted(self.bins.items[bin_], key=lambda i: (-self.bins.share[i], i)):
            to = self._destination(item, bin_)
            if to < 0:
                exchange = self._exchange(item, bin_)
                if exchange is None:
                    cost = math.inf
                    break
                other, other_to, to = exchange
                cost += self._move(other, other_to, moves)
            cost += self._move(item, to, moves)
        if cost <= self.parameters.bin_price:
            return True
        for item, before in reversed(moves):
            self._move(item, before, [])
        return False

    def _destination(self, item: int, *besides: int) -> int:
        """Where an item fits: where it was, or where it leaves least room; -1 if nowhere."""
        home = self.owner[item]
        if home in self.bins.items and home not in besides and self.bins.fits(item, home):
            return home
        return self.bins.best(item, besides)

    def _exchange(self, item: int, emptied: int) -> tuple[int, int, int] | None:
        """The cheapest item that makes room for another by moving: itself, whereto, and its bin."""
        bins, share = self.bins, self.bins.share
        found: tuple[int, int, int] | None = None
        least = math.inf
        for bin_ in bins.roomiest(self.parameters.exchange_bins):
            if bin_ == emptied:
                continue
            for other in sorted(bins.items[bin_]):
                price = self.weight[other] if self.owner[other] == bin_ else 0.0
                if (
                    share[other] < share[item]
                    and price < least
                    and bins.fits_instead(item, other)
                    and (to := self._destination(other, emptied, bin_)) >= 0
                ):
                    found, least = (other, to, bin_), price
        return found

    def _pack_together(self) -> None:
        """Pack groups of bins, those with most left first, into one bin less."""
        while len(self.bins.items) > self.fewest and self._packed_together():
            pass

    def _packed_together(self) -> bool:
        """Whether a group of bins was packed into fewer at a worthwhile price."""
        order = self.bins.roomiest(len(self.bins.items))
        count = 3
        while True:
            count = min(count, len(order))
            group = sorted(order[:count])
            items = sorted(i for b in group for i in self.bins.items[b])
            if len(items) > self.parameters.group_items:
                return False
            if self._spare(group):
                bin_ = self._packed(group, items)
                if len(set(bin_)) < count:
                    return self._replace(group, items, bin_)
            if count == len(order):
                return False
            count = max(count + 1, int(count * self.parameters.growth))

    def _spare(self, group: list[int]) -> bool:
        """Whether what is left in the bins of a group adds up to a bin."""
        left = [self.bins.left_of(b) for b in group]
        return all(sum(max(x[r], 0.0) for x in left) >= 1 - _TINY for r in range(len(left[0])))

    def _packed(self, group: list[int], items: list[int]) -> list[int]:
        """The bins of items of a group, packed by best fit decreasing."""
        p = self.problem
        place = {b: k for k, b in enumerate(group)}
        differ = len(p.capacities) > 0
        part = Packing(
            size=p.size[items],
            owner=np.array([place.get(self.owner[i], -1) for i in items], np.int64),
            capacity=p.capacity,
            capacities=np.array([p.capacity_of(b) for b in group]) if differ else np.zeros((0, 0)),
            weight=p.weight[items],
        )
        found = keep_names(part, any_fit(part, "best", decreasing=True)).tolist()
        return [group[k] if k < len(group) else -1 for k in found]

    def _replace(self, group: list[int], items: list[int], bin_: list[int]) -> bool:
        """Whether a group's items moved to given bins at a worthwhile price; if not, none does."""
        if -1 in bin_:
            return False
        moves: list[tuple[int, int]] = []
        over = self._over(group)
        cost = sum(self._move(item, to, moves) for item, to in zip(items, bin_, strict=True))
        emptied = [b for b in group if not self.bins.items[b]]
        fits = self._over(group) <= over + _TINY
        if fits and cost <= self.parameters.bin_price * len(emptied):
            for b in emptied:
                self.bins.close(b)
            return True
        for item, before in reversed(moves):
            self._move(item, before, [])
        return False

    def _over(self, group: list[int]) -> float:
        """By how much bins are too full, together."""
        return sum(max(-self.bins.left(b), 0.0) for b in group)

    def _move(self, item: int, to: int, moves: list[tuple[int, int]]) -> float:
        """Move an item; the weight that is added to what moves, negative if it returns."""
        before = self._take(item)
        self._put(item, to)
        moves.append((item, before))
        home = self.owner[item]
        return ((before == home) - (to == home)) * self.weight[item] if home >= 0 else 0.0

    def _put(self, item: int, bin_: int) -> None:
        self.bins.put(item, bin_)
        if self.owner[item] == bin_:
            self.at_home[bin_] += self.weight[item]

    def _take(self, item: int) -> int:
        bin_ = self.bins.take(item)
        if self.owner[item] == bin_:
            self.at_home[bin_] -= self.weight[item]
        return bin_
