"""How long partitions are not read when they move, as heartbeats show."""

from __future__ import annotations

from typing import NamedTuple

from balancer.autoscaling.assigned.messages import Heartbeat, Partition
from balancer.autoscaling.measurement import RebalanceTimes


class _Reader(NamedTuple):
    """What the last heartbeat of a consumer has said."""

    id: str
    number: int
    reads: frozenset[Partition]


class Pauses:
    """Times between the heartbeat that a consumer stops a partition, and that another starts it.

    A consumer that ends, or whose heartbeats cease, moves nothing: how long its partitions wait
    is no rebalance.
    """

    def __init__(self) -> None:
        self.times = RebalanceTimes()
        self._readers: dict[str, _Reader] = {}
        # who has stopped a partition that nobody has started since, and when
        self._stopped: dict[Partition, tuple[str, float]] = {}

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take note of a heartbeat, at the time at which it was received."""
        name, reads, last = beat.consumer, beat.reads, self._readers.get(beat.consumer)
        if last is not None and last.id == beat.id and beat.number <= last.number:
            return
        if beat.leaving or reads is None:
            self._readers.pop(name, None)
            self._stopped = {p: by for p, by in self._stopped.items() if by[0] != name}
            return
        self._readers[name] = _Reader(beat.id, beat.number, reads)
        if last is None or last.id != beat.id:
            return
        self._stopped.update(dict.fromkeys(last.reads - reads, (name, now)))
        started = [self._stopped.pop(p, None) for p in reads - last.reads]
        pauses = [now - by[1] for by in started if by is not None and by[0] != name]
        if pauses:
            self.times.add(max(pauses))
