"""What a consumer's latency is by the models of the two papers, and what keeps it at its target.

Seed 003 asks for the fewest consumers that keep an SLA (Eq. 5); its exact answer is here. Seed 000
models two queues of each consumer: that of partitions that stay, and that of those that just moved
and cannot be read during the rebalance (Eq. 16 to 27).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.allocation.packing.exact import exact
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Floats, Ints


@dataclass(frozen=True, eq=False)
class FewestConsumers:
    """The fewest consumers that keep an SLA: an assignment, its number, and a lower bound."""

    consumer: Ints
    consumers: int
    bound: int


def fewest_consumers(
    group: Group, sla: float, *, fill: float = 1.0, deadline: Deadline = NEVER
) -> FewestConsumers:
    """Solve the integer program of seed 003: (a) to (d) after Eq. 5.

    Parameters
    ----------
    group
        Rates, lags and capacities; where these differ, running consumers are numbered first.
    sla
        Target of the latency in seconds.
    fill
        Share of the capacity that may be used.
    deadline
        When to stop at the latest; the bound then tells what may be missing.

    Returns
    -------
    FewestConsumers
        A partition that exceeds a consumer has one to itself.
    """
    given = group.packing(sla, fill)
    packing = Packing(
        size=given.size,
        owner=given.owner,
        capacity=given.capacity,
        capacities=given.capacities,
        weight=np.zeros(len(given.size)),
    )
    found = exact(packing, RepairParameters(bin_price=1.0), deadline=deadline)
    bound = int(np.ceil(found.bound - 1e-6))
    return FewestConsumers(found.bin, len(np.unique(found.bin)), bound)


def usable_capacity(capacity: float, interval: float, rebalance_seconds: float) -> float:
    """Write speed that a consumer may be assigned so that it catches up within an interval.

    All of its partitions may have moved; what is written in the whole interval must be read in the
    rest of it. With 30 s and 5 s this is 5/6 of the capacity (seed 000, Section VI-C).

    Raises
    ------
    AutoscalingError
        If the capacity is not above 0, or the interval is not above the rebalance time.

    Examples
    --------
    >>> usable_capacity(120.0, 30.0, 5.0)
    100.0
    """
    if not capacity > 0:
        raise AutoscalingError(f"capacity: {capacity:g} found, a number above 0 expected")
    if not 0 <= rebalance_seconds < interval:
        raise AutoscalingError(
            f"rebalance time: {rebalance_seconds:g} s found, 0 to less than the interval of "
            f"{interval:g} s expected"
        )
    return capacity * (interval - rebalance_seconds) / interval


@dataclass(frozen=True, eq=False)
class Stretches:
    """Latencies as stretches of data over which they change evenly.

    Parameters
    ----------
    amount : (S,) float
        Data of each stretch, in the unit of the write speeds times seconds.
    first, last : (S,) float
        Latency of its first and its last data, in seconds.
    """

    amount: Floats
    first: Floats
    last: Floats

    def above(self, latency: float) -> float:
        """How much data has a latency above a given one."""
        low, high = np.minimum(self.first, self.last), np.maximum(self.first, self.last)
        width = np.where(high > low, high - low, 1.0)
        part = np.where(high > low, np.clip((high - latency) / width, 0, 1), high > latency)
        return float((self.amount * part).sum())

    def percentile(self, share: float, *, late_only: bool = False) -> float:
        """The latency that a share of the data does not exceed; of that above 0 if `late_only`."""
        total = self.above(0.0) if late_only else float(self.amount.sum())
        beyond = total * (1 - share)
        low, high = 0.0, max(float(self.first.max(initial=0)), float(self.last.max(initial=0)))
        if self.above(low) <= beyond:
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.above(middle) > beyond else (low, middle)
        return high


class TwoQueues:
    """The latency model of seed 000: a fixed and a rebalanced queue for each consumer.

    Parameters
    ----------
    capacity
        Write speed that a consumer reads at most.
    interval
        Seconds between two measurements; write speeds do not change in between.
    rebalance_seconds
        How long partitions that move are not read.
    """

    def __init__(self, capacity: float, interval: float, rebalance_seconds: float) -> None:
        usable_capacity(capacity, interval, rebalance_seconds)
        self.capacity, self.interval = capacity, interval
        self.rebalance_seconds = rebalance_seconds
        # latency at the end of the interval before, of the fixed queue of each consumer (Eq. 20)
        self._behind: dict[int, float] = {}

    def follow(self, speed: Floats, before: Ints, after: Ints) -> Stretches:
        """Latencies of one interval.

        Parameters
        ----------
        speed : (P,) float
            Write speed of each partition.
        before, after : (P,) int
            Its consumer, in the interval before and in this one; a partition that nobody read
            before does not wait for a rebalance.
        """
        moved = (before >= 0) & (before != after)
        rows: list[tuple[float, float, float]] = []
        behind: dict[int, float] = {}
        for consumer in np.unique(after).tolist():
            mine = after == consumer
            fixed = float(speed[mine & ~moved].sum())
            rebalanced = float(speed[mine & moved].sum())
            read = self.capacity if rebalanced == 0 else min(self.capacity, fixed)
            start = self._behind.get(consumer, 0.0)
            end = self._stretch(rows, fixed, read, start)
            if end > 0:
                behind[consumer] = end
            self._stretch(rows, rebalanced, self.capacity - read, self.rebalance_seconds)
        self._behind = behind
        table = np.array(rows, np.float64).reshape(-1, 3)
        return Stretches(table[:, 0], table[:, 1], table[:, 2])

    def _stretch(
        self, rows: list[tuple[float, float, float]], written: float, read: float, first: float
    ) -> float:
        """Add the data of a queue (Eq. 19 and 22, or 25 and 27); the latency of its last."""
        if written <= 0:
            return 0.0
        total = written * self.interval
        if read <= 0:
            # never read in this interval: it waits at least for the next one
            rows.append((total, first + self.interval, first))
            return first
        slope = 1 / read - 1 / written
        last = first + slope * total
        if last >= 0:
            rows.append((total, first, last))
            return last
        late = first / -slope
        rows.append((late, first, 0.0))
        rows.append((total - late, 0.0, 0.0))
        return 0.0


def together(stretches: list[Stretches]) -> Stretches:
    """The stretches of several intervals as one."""
    return Stretches(
        np.concatenate([s.amount for s in stretches]),
        np.concatenate([s.first for s in stretches]),
        np.concatenate([s.last for s in stretches]),
    )
