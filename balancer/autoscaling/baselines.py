"""Policies to compare with: linear, KEDA's rule, over-provisioning, and those of seed 003."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from balancer.allocation.packing.least_loaded import least_loaded
from balancer.allocation.packing.naming import keep_names
from balancer.autoscaling.feasibility import warnings_of
from balancer.autoscaling.group import MOST_CONSUMERS, Group
from balancer.autoscaling.policy import Decision, at_most, become, evenly, stay, too_few
from cluster_model.snapshot import Floats, Ints


def _resized(group: Group, count: int, reason: str, minimum: int, maximum: int) -> Decision:
    """A number of consumers, to which Kafka assigns equal numbers of partitions."""
    warnings: tuple[str, ...] = ()
    if count > maximum:
        warnings = (f"the policy asks for {count} consumers, and the maximum is {maximum}",)
    count = min(max(count, minimum), maximum)
    if count == group.consumers and (group.consumer >= 0).all():
        return stay(group, reason, warnings)
    return become(
        group,
        evenly(len(group.rate), np.arange(count)),
        reason,
        keep=count,
        warnings=warnings,
    )


@dataclass(frozen=True)
class Linear:
    """The ratio of arrival rate to capacity, as cloud autoscalers (seed 003, Section 5.1).

    Parameters
    ----------
    up, down
        Share of a consumer's capacity by which consumers are added and removed.
    seconds
        Time in which a consumer must have processed the events of a second; the SLA, if they all
        come at once.
    minimum, maximum
        Fewest and most consumers.
    """

    up: float = 0.9
    down: float = 0.4
    seconds: float = 1.0
    minimum: int = 1
    maximum: int = MOST_CONSUMERS

    def decide(self, group: Group, now: float) -> Decision:
        """Decide; partitions are assigned by their number, not by their load."""
        total = float(group.rate.sum()) / (group.new_capacity * self.seconds)
        most = max(len(group.rate), 1)
        more, fewer = (
            min(max(math.ceil(total / share - 1e-9), 1), most) for share in (self.up, self.down)
        )
        count = group.consumers
        count = more if more > count else fewer if fewer < count else count
        reason = f"{total:.2f} consumers' capacity arrives"
        return _resized(group, count, reason, self.minimum, self.maximum)


@dataclass
class Keda:
    """KEDA's rule for Kafka: the total lag over a threshold, at most one consumer per partition.

    As its HPA does, it decides once per period, and removes consumers only down to the highest
    number of the last minutes.

    Parameters
    ----------
    threshold
        Events of lag per consumer; KEDA's default is 10.
    period
        Seconds between two decisions.
    stabilisation
        Seconds of which the highest number counts when consumers are removed.
    minimum, maximum
        Fewest and most consumers.
    """

    threshold: float = 10.0
    period: float = 15.0
    stabilisation: float = 300.0
    minimum: int = 1
    maximum: int = MOST_CONSUMERS
    _at: float = field(default=-math.inf, init=False, repr=False)
    _proposed: deque[tuple[float, int]] = field(default_factory=deque, init=False, repr=False)

    def decide(self, group: Group, now: float) -> Decision:
        """Decide; partitions are assigned by their number, not by their load."""
        if now < self._at + self.period and group.consumers:
            return stay(group, "between two decisions")
        self._at = now
        lag = float(group.lag.sum())
        count = min(max(math.ceil(lag / self.threshold), 1), max(len(group.rate), 1))
        self._proposed.append((now, count))
        while self._proposed[0][0] < now - self.stabilisation:
            self._proposed.popleft()
        if count < group.consumers:
            count = min(max(c for _, c in self._proposed), group.consumers)
        reason = f"{lag:.0f} events of lag in all"
        return _resized(group, count, reason, self.minimum, self.maximum)


@dataclass(frozen=True)
class Fixed:
    """Over-provisioning: the consumers that the highest rates need, at all times (seed 003, 5.1).

    Parameters
    ----------
    highest : (P,) float
        Highest rate of each partition.
    sla
        Target of the latency in seconds.
    fill
        Share of a consumer's capacity to use.
    lag : (P,) float
        Highest number of events that wait in each partition.
    """

    highest: Floats
    lag: Floats
    sla: float = 0.5
    fill: float = 0.9

    def decide(self, group: Group, now: float) -> Decision:
        """Decide once."""
        if group.consumers and (group.consumer >= 0).all():
            return stay(group, "nothing ever changes")
        packed = _least_loaded(group, self.sla, self.fill, self.highest, self.lag)
        return become(group, packed, "the highest rates are provided for")


@dataclass(frozen=True)
class LatencyAware:
    """The latency-aware bin packing of seed 003: Algorithm 1, or Algorithm 2.

    Parameters
    ----------
    sla
        Target of the latency in seconds.
    up, down
        Share of a consumer's capacity by which consumers are added and removed.
    rebalance_lag
        Whether the lag that a rebalance will add is planned for, which is Algorithm 2.
    minimum, maximum
        Fewest and most consumers.
    """

    sla: float = 0.5
    up: float = 0.9
    down: float = 0.4
    rebalance_lag: bool = True
    minimum: int = 1
    maximum: int = MOST_CONSUMERS

    def decide(self, group: Group, now: float) -> Decision:
        """Decide."""
        wanted = self._wanted(group)
        warnings = warnings_of(group, self.sla, group.rate)
        packed, needed = at_most(group, wanted.consumer, group.rate, self.maximum)
        if needed > self.maximum:
            warnings = (*warnings, too_few(needed, self.maximum))
        count = group.consumers + wanted.start - len(wanted.stop)
        keep = min(max(count, self.minimum), self.maximum)
        return become(group, packed, wanted.reason, keep=keep, warnings=warnings)

    def _wanted(self, group: Group) -> Decision:
        """The decision without bounds."""
        action = self._needed(group)
        if not action:
            return stay(group, "the assignment keeps the SLA")
        lag = group.lag
        if self.rebalance_lag:
            lag = lag + group.rate * group.rebalance_seconds
        if action == "down":
            packed = _least_loaded(group, self.sla, self.down, group.rate, lag)
            if len(np.unique(packed)) >= group.consumers:
                return stay(group, "fewer consumers could not take the lag of a rebalance")
            return become(group, packed, "fewer consumers suffice")
        packed = _least_loaded(group, self.sla, self.up, group.rate, lag)
        if action == "up":
            return become(group, packed, "more consumers are needed", keep=group.consumers)
        return become(group, packed, "the assignment violates the SLA", keep=group.consumers)

    def _needed(self, group: Group) -> str:
        """Algorithm 1 without its actions: ``up``, ``down``, ``reassign`` or nothing."""
        up = _least_loaded(group, self.sla, self.up, group.rate, group.lag)
        if len(np.unique(up)) > group.consumers or (group.consumer < 0).any():
            return "up"
        down = _least_loaded(group, self.sla, self.down, group.rate, group.lag)
        if len(np.unique(down)) < group.consumers:
            return "down"
        return "reassign" if violates(group, self.sla, self.up) else ""


def violates(group: Group, sla: float, fill: float) -> bool:
    """Whether a consumer has more lag or a higher rate than it can take (seed 003, Eq. 4)."""
    limit = group.capacity * fill
    lag = group.load(group.consumer, group.lag)
    rate = group.load(group.consumer, group.rate)
    return bool(((lag > limit * sla) | (rate > limit)).any())


def _least_loaded(group: Group, sla: float, fill: float, rate: Floats, lag: Floats) -> Ints:
    packing = group.packing(sla, fill, rate=rate, lag=lag)
    return keep_names(packing, least_loaded(packing))
