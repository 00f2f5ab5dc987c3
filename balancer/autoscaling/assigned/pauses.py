"""How long partitions are not read when they move, as heartbeats show."""

from __future__ import annotations

from typing import NamedTuple

from balancer.autoscaling.assigned.messages import Heartbeat, Partition
from balancer.autoscaling.measurement import MeasurementSettings, RebalanceTimes


class _Reader(NamedTuple):
    """What the last heartbeat of a consumer has said, and when."""

    id: str
    number: int
    reads: frozenset[Partition]
    at: float


class _Stop(NamedTuple):
    """Who has stopped a partition, under which controller, and when."""

    name: str
    epoch: int
    at: float


class Pauses:
    """Times between the heartbeat that a consumer stops a partition, and that another starts it.

    A consumer that ends, or whose heartbeats cease, moves nothing: how long its partitions wait
    is no rebalance. Neither is what was stopped under one controller and started under the next.

    Parameters
    ----------
    settings
        Tunable numbers.
    """

    def __init__(self, settings: MeasurementSettings | None = None) -> None:
        self._longest = (settings or MeasurementSettings()).longest_rebalance_seconds
        self.times = RebalanceTimes(settings)
        self._readers: dict[str, _Reader] = {}
        # partitions that nobody has started since
        self._stopped: dict[Partition, _Stop] = {}
        self._pruned = float("-inf")

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take note of a heartbeat, at the time at which it was received."""
        self._prune(now)
        name, reads, last = beat.consumer, beat.reads, self._readers.get(beat.consumer)
        if last is not None and last.id == beat.id and beat.number <= last.number:
            return
        if beat.leaving or reads is None:
            self._readers.pop(name, None)
            self._stopped = {p: by for p, by in self._stopped.items() if by.name != name}
            return
        self._readers[name] = _Reader(beat.id, beat.number, reads, now)
        known = last is not None and last.id == beat.id
        before = last.reads if last is not None and known else frozenset()
        started = [self._stopped.pop(p, None) for p in reads - before]
        if not known:
            return
        self._stopped.update(dict.fromkeys(before - reads, _Stop(name, beat.epoch, now)))
        pauses = [
            now - by.at
            for by in started
            if by is not None and by.name != name and by.epoch == beat.epoch
        ]
        if pauses:
            self.times.add(max(pauses))

    def _prune(self, now: float) -> None:
        """Forget, now and then, consumers and stops of longer ago than a rebalance may take."""
        if now <= self._pruned + self._longest:
            return
        self._pruned, oldest = now, now - self._longest
        self._readers = {name: r for name, r in self._readers.items() if r.at >= oldest}
        self._stopped = {p: by for p, by in self._stopped.items() if by.at >= oldest}
