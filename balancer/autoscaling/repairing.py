"""Our policy: forecasts the rates, and repairs the assignment when it is worth its price."""

from __future__ import annotations

from collections import deque

import numpy as np

from balancer.allocation.packing.exact import exact
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.repair import repair
from balancer.autoscaling.feasibility import warnings_of
from balancer.autoscaling.forecast import Forecast
from balancer.autoscaling.group import Group
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.past_load import PastLoad
from balancer.autoscaling.policy import Decision, at_most, become, stay, too_few
from balancer.autoscaling.scores import rscore
from balancer.problem.deadline import Deadline
from cluster_model.snapshot import Bools, Floats, Ints
from metrics_reporter.quantities import percent, period, plural

# For so many times what a change takes, a load is provided for that has gone: as long as a
# consumer that was saved would be paid for, and missed, until it has started again.
_CHANGES = 2.0


class RepairPolicy:
    """Keeps what fits, moves what must, and saves a consumer where that is worth the moves.

    1. Rates are forecast to the time when a change would take effect.
    2. If a consumer would then have too much, or cannot catch up within the SLA before, partitions
       leave it: to other consumers or, if these are full, to new ones. What waits until these have
       started counts, too.
    3. If the highest rates of the last while fit into fewer consumers, and their price is more
       than that of the moves, the cheapest consumers are emptied. They stop one decision later:
       nobody waits for partitions of a consumer that has left. The longer a change takes, the
       longer is that while; and if consumers for a load that came back were missed, as long as it
       took to come back.

    Parameters
    ----------
    parameters
        Prices, thresholds, limits.
    """

    def __init__(self, parameters: AutoscalingParameters | None = None) -> None:
        self.parameters = parameters or AutoscalingParameters()
        p = self.parameters
        self._forecast = Forecast(
            p.level_seconds,
            p.trend_seconds,
            noise_seconds=p.noise_seconds,
            significance=p.significance,
            step=p.step,
        )
        self._recent: deque[tuple[float, Floats]] = deque()
        self._past = PastLoad(p.remembered)
        # of the partitions that forecasts are of
        self._names: tuple[str, ...] = ()
        self._bursts: deque[float] = deque(maxlen=p.burst_decisions)
        self._changed = -np.inf
        # whether consumers were started last for what waited, too, and not only for what arrives
        self._catching_up = False
        self._decided: float | None = None

    def decide(self, group: Group, now: float) -> Decision:
        """Decide, given the present state and its time in seconds."""
        p = self.parameters
        ahead = _change(group) + p.lookahead
        others = self._recent and len(self._recent[0][1]) != len(group.rate)
        if others or group.partition_names != self._names:
            self._forecast.forget()
            self._recent.clear()
            self._past.forget()
            self._names = group.partition_names
            if self._decided is not None:
                # what is read has changed, and how the load changes is yet to be seen
                self._changed = now
        rate = self._forecast.update(group.rate, now, ahead)
        while self._recent and self._recent[0][0] < now - p.calm:
            self._recent.popleft()
        self._observe_burst(group, now)
        needed = self._needed(group, rate)
        self._recent.append((now, needed))
        self._past.note(float(rate.sum()), now, missed=self._missed(group, rate))
        warnings = warnings_of(group, p.sla, rate)
        decision = self._grown(group, rate, needed, warnings)
        if decision is None:
            decision = self._saved(group, rate, now, warnings)
        if decision.moves or decision.start:
            self._changed = now
        if decision.start:
            self._catching_up = bool((needed > rate).any())
        return decision

    def _observe_burst(self, group: Group, now: float) -> None:
        """How many seconds' events wait in most partitions: those that come in bursts.

        What waits from before the last decision has not just come: it is late.
        """
        busy = group.rate > 0
        if busy.any() and self._decided is not None:
            waits = float(np.median(group.lag[busy] / group.rate[busy]))
            self._bursts.append(min(waits, now - self._decided))
        self._decided = now

    def _missed(self, group: Group, rate: Floats) -> bool:
        """Whether a change comes too late for what arrives at a consumer."""
        load = group.load(group.consumer, rate)
        growth = (load - group.capacity) * _change(group)
        waiting = group.load(group.consumer, self._late(group, rate)) + growth
        return bool(((growth > 0) & (waiting > load * self.parameters.sla)).any())

    def _late(self, group: Group, rate: Floats) -> Floats:
        """(P,) events that wait and do not belong to a burst."""
        found: Floats = np.maximum(group.lag - rate * self._burst, 0.0)
        return found

    @property
    def _burst(self) -> float:
        """Seconds' events that wait again and again, although consumers keep up."""
        return min(self._bursts) if len(self._bursts) == self._bursts.maxlen else 0.0

    def _needed(self, group: Group, rate: Floats) -> Floats:
        """(P,) events/s to process, so that what waits too long is worked off within the target.

        At most what a consumer can process: no number of them works off a partition faster.
        """
        within, change = self._within(group), _change(group)
        # what waits now must leave time for a rebalance, which what waits after it has seen
        now = group.lag - rate * within
        then = group.lag + rate * (self._too_slow(group, rate) * change - self.parameters.sla)
        late = np.maximum(np.maximum(now, then) - rate * self._burst, 0.0)
        most = np.maximum(rate, group.largest * self.parameters.fill)
        found: Floats = np.minimum(rate + late / max(within, change), most)
        return np.where(late > 0, found, rate)

    def _too_slow(self, group: Group, rate: Floats) -> Floats:
        """(P,) share of what arrives that is not processed before a change takes effect."""
        load = group.load(group.consumer, rate)
        share = np.maximum(1.0 - group.capacity / np.maximum(load, 1e-9), 0.0)
        found: Floats = np.append(share, 1.0)[group.consumer]
        return found

    def _within(self, group: Group) -> float:
        """Seconds in which events must be processed so that they can wait for a rebalance, too."""
        sla = self.parameters.sla
        return sla if self._must_wait(group) else max(sla - group.rebalance_seconds, sla / 2)

    def _must_wait(self, group: Group) -> bool:
        """Whether every rebalance violates the SLA, so that few of them matter most."""
        return group.rebalance_seconds >= self.parameters.sla

    def _grown(
        self, group: Group, rate: Floats, needed: Floats, warnings: tuple[str, ...]
    ) -> Decision | None:
        """The decision if the assignment cannot stay; None if it can.

        Parameters
        ----------
        group
            The present state.
        rate, needed : (P,) float
            Events/s that are expected, and that have to be processed.
        warnings
            What cannot be met anyway.
        """
        p = self.parameters
        homeless = int((group.consumer < 0).sum())
        missing = p.minimum - group.consumers
        surplus = group.consumers - p.maximum
        bad = self._overloaded(group, rate)
        if not homeless and missing <= 0 and surplus <= 0 and not bad.any():
            return None
        packed, count = at_most(group, self._kept(group, needed), needed, p.maximum)
        if count > p.maximum:
            warnings = (*warnings, too_few(count, p.maximum))
            # one without partitions can take some
            full = not homeless and len(np.unique(group.consumer)) == group.consumers == p.maximum
            if full and not self._relieves(group, rate, packed):
                most = plural(p.maximum, "consumer")
                reason = f"at the maximum of {most}, no move relieves any"
                return stay(group, reason, warnings)
        if homeless:
            reason = f"{plural(homeless, 'partition')} without a consumer"
        elif bad.any():
            reason = self._too_much(group, rate, bad)
        elif surplus > 0:
            reason = f"more consumers than the maximum of {p.maximum}"
        else:
            reason = f"fewer consumers than the minimum of {p.minimum}"
        # idle consumers stay until nothing has too much
        keep = min(max(group.consumers, p.minimum), p.maximum)
        decision = become(group, packed, reason, keep=keep, warnings=warnings)
        return decision if decision else None

    def _too_much(self, group: Group, rate: Floats, bad: Bools) -> str:
        """What is too much for the worst of some consumers: what comes, or what waits."""
        load = group.load(group.consumer, rate)
        worst = int(np.argmax(load / group.capacity))
        if load[worst] > group.capacity[worst] * self.parameters.fill:
            return (
                f"{plural(int(bad.sum()), 'consumer')} will have too much: "
                f"{group.consumer_name(worst)} {load[worst]:.0f} events/s of "
                f"{group.capacity[worst]:.0f}"
            )
        reading = self._reading(group)
        worst = int(np.argmax(reading))
        if reading[worst] > self.parameters.fill:
            return (
                f"{plural(int(bad.sum()), 'consumer')} will have too much: "
                f"{group.consumer_name(worst)} reads {percent(reading[worst])} of its bytes/s"
            )
        lag = np.where(bad, group.load(group.consumer, group.lag), 0.0)
        worst = int(np.argmax(lag / group.capacity))
        return (
            f"{plural(int(bad.sum()), 'consumer')} will be late: {group.consumer_name(worst)} "
            f"takes {period(lag[worst] / group.capacity[worst])} for the {lag[worst]:,.0f} events "
            f"that wait, and the target is {self.parameters.sla:g} s"
        )

    def _relieves(self, group: Group, rate: Floats, packed: Ints) -> bool:
        """Whether the consumer that has most to do has too much, and would have less.

        If there can be no more consumers, what waits is no reason to move: it waits longer by that.
        """
        fill = self.parameters.fill
        before, after = (self._highest(group, rate, c) for c in (group.consumer, packed))
        return before > fill and after < before - (1 - fill)

    def _highest(self, group: Group, rate: Floats, consumer: Ints) -> float:
        """The largest share of its capacity that a consumer has to process."""
        load = group.load(consumer, rate)
        return float((load / group.capacity_of(np.arange(len(load)))).max(initial=0.0))

    def _overloaded(self, group: Group, rate: Floats) -> Bools:
        """(C,) which consumers will have too much and could have less."""
        p = self.parameters
        load = group.load(group.consumer, rate)
        lag = group.load(group.consumer, group.lag)
        read = group.load(group.consumer, np.ones(len(rate)))
        relieved = (read > 1) | ((read == 1) & (group.capacity < group.largest))
        spare = np.maximum(group.capacity - load, 1e-9)
        burst = load * self._burst
        within = self._within(group)
        late = (lag - burst - group.capacity * within) / spare
        change = _change(group)
        bad = (load > group.capacity * p.fill) | (late > change)
        bad |= burst > group.capacity * within * p.fill
        bad |= self._reading(group) > p.fill
        found: Bools = bad & relieved
        return found

    def _reading(self, group: Group) -> Floats:
        """(C,) share of the bytes that each consumer can read; 0 where bytes are not limited."""
        if not len(group.speed) or not np.isfinite(group.byte_capacity):
            return np.zeros(group.consumers)
        most = group.capacity * group.byte_capacity / group.new_capacity
        found: Floats = group.load(group.consumer, group.speed) / most
        return found

    def _waits(self, group: Group, rate: Floats) -> bool:
        """Whether so much waits for a consumer that it may be late after another rebalance."""
        late = group.load(group.consumer, self._late(group, rate))
        left = self.parameters.sla - (0.0 if self._must_wait(group) else group.rebalance_seconds)
        return bool((late > group.capacity * left / 2).any())

    def _saved(self, group: Group, rate: Floats, now: float, warnings: tuple[str, ...]) -> Decision:
        """The decision if all consumers can take what they have."""
        p = self.parameters
        used = len(np.unique(group.consumer))
        waits = self._waits(group, rate)
        if group.consumers > max(used, p.minimum) and not (waits and group.blocking):
            return become(
                group, group.consumer, "idle consumers stop", keep=p.minimum, warnings=warnings
            )
        if waits:
            return stay(group, "no consumer is saved while so many events wait", warnings)
        if now < self._changed + p.quiet or used <= p.minimum:
            return stay(group, "every consumer keeps up", warnings)
        if self._must_wait(group):
            return stay(group, "only over-provisioning can keep the SLA", warnings)
        highest = self._highest_needed(group, now)
        # what was started for what waited is as little needed as before
        fill = p.target if self._catching_up else p.shrink
        packed = self._packed(group, highest, fill, RepairParameters(bin_price=self._price))
        saved = used - len(np.unique(packed))
        worth = saved * p.price_per_consumer * p.horizon / 60
        cost = p.price_per_rscore * rscore(highest, group.consumer, packed, group.new_capacity)
        if saved <= 0 or worth <= cost:
            return stay(group, "every consumer keeps up, and none can be saved", warnings)
        # consumers that are emptied stop later
        return become(
            group,
            packed,
            f"{plural(saved, 'consumer')} can be saved",
            keep=group.consumers,
            warnings=warnings,
        )

    def _highest_needed(self, group: Group, now: float) -> Floats:
        """(P,) what was needed of late: of each partition, and in all for longer."""
        highest: Floats = np.max([rates for _, rates in self._recent], axis=0)
        most = self._past.sustained(now, _CHANGES * _change(group), self._within(group))
        total = float(highest.sum())
        share = highest / total if total > 0 else np.full(len(highest), 1 / max(len(highest), 1))
        found: Floats = highest + share * max(most - total, 0.0)
        return found

    def _kept(self, group: Group, rate: Floats) -> Ints:
        """An assignment for more load: no consumer is saved, and only those leave one that must.

        A blocking rebalance stops all partitions anyway: then all consumers above `target` give
        some away, so that the next rebalance comes later.
        """
        p = self.parameters
        fill = p.target if group.blocking else p.fill
        # a maximum is kept at any price
        surplus = group.consumers > p.maximum
        price = 1 + rate.sum() / group.new_capacity if surplus else self._price
        return self._packed(
            group,
            rate,
            fill,
            RepairParameters(bin_price=price, headroom=1 - p.target / fill, spread=group.blocking),
            at_least=min(group.consumers, p.maximum),
        )

    @property
    def _price(self) -> float:
        """What a consumer less is worth, in Rscore."""
        p = self.parameters
        return min(p.price_per_consumer * p.horizon / 60 / max(p.price_per_rscore, 1e-9), 1e9)

    def _packed(
        self,
        group: Group,
        rate: Floats,
        fill: float,
        parameters: RepairParameters,
        at_least: int = 0,
    ) -> Ints:
        """An assignment with few consumers and few moves."""
        p = self.parameters
        # what a rebalance adds, as Algorithm 2: more consumers at once rather than one by one
        waits = group.rebalance_seconds if self._must_wait(group) else 0.0
        lag = rate * (self._burst + waits)
        packing = group.packing(self._within(group), fill, rate=rate, lag=lag)
        packed = repair(packing, parameters, at_least=at_least)
        if len(rate) <= p.exact_partitions:
            found = exact(packing, parameters, deadline=Deadline.after(p.exact_seconds)).bin
            least = min(at_least, len(np.unique(packed)))
            packed = found if len(np.unique(found)) >= least else packed
        return packed


def _change(group: Group) -> float:
    """Seconds until a change has taken effect, and partitions are read again."""
    return group.reaction_seconds + group.rebalance_seconds
