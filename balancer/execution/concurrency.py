"""Adaptive concurrency: additive increase, multiplicative decrease (AIMD)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from balancer.execution.cluster import ClusterView, Key
from balancer.execution.limits import Limits


@dataclass(frozen=True)
class Health:
    """The cluster's health: partitions under min ISR, those of them without an offline
    replica, and under-replicated partitions that do not move; partitions with all replicas
    offline do not count."""

    under_min_isr: frozenset[Key]
    lagging: frozenset[Key]
    under_replicated: frozenset[Key]


def health(view: ClusterView, min_isr: Mapping[str, int], ours: AbstractSet[Key]) -> Health:
    """Assess what Kafka reports.

    Parameters
    ----------
    view
        Partitions to assess.
    min_isr
        ``min.insync.replicas`` by topic; 1 for topics that are missing.
    ours
        Partitions that are under-replicated because they move.
    """
    under, lagging, lacking = set(), set(), set()
    for key, p in view.partitions.items():
        if len(p.isr) >= len(p.replicas):
            continue
        if p.leader is None and set(p.offline) >= set(p.before):
            # All replicas are lost, and no pace brings them back.
            continue
        if key not in ours and not p.moving:
            lacking.add(key)
        # A partition cannot have more replicas in sync than it has replicas.
        if len(p.isr) < min(min_isr.get(key.topic, 1), len(p.before)):
            under.add(key)
            if not p.offline:
                lagging.add(key)
    return Health(frozenset(under), frozenset(lagging), frozenset(lacking))


class AdaptiveConcurrency:
    """How many moves may run at once, given the cluster's health.

    Parameters
    ----------
    limits
        The initial values, which are also the upper limits.

    Examples
    --------
    >>> pace = AdaptiveConcurrency(Limits(concurrent_moves_per_broker=4))
    >>> hurt = Health(frozenset({Key("a", 0)}), frozenset(), frozenset())
    >>> pace.look(hurt, 0.0); pace.per_broker
    2
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.per_broker = limits.concurrent_moves_per_broker
        self.held = False
        self._lacking: int | None = None
        self._changed = 0.0
        self._slowed = float("-inf")

    def configure(self, limits: Limits) -> None:
        """Use other limits; a pace at its limit follows the limit."""
        most = limits.concurrent_moves_per_broker
        at_limit = self.per_broker == self._limits.concurrent_moves_per_broker
        self.per_broker = most if at_limit else min(self.per_broker, most)
        self._limits = limits

    @property
    def cluster(self) -> int:
        """Maximum number of moves in the cluster, reduced in proportion to those per broker."""
        share = self.per_broker / self._limits.concurrent_moves_per_broker
        return max(1, round(self._limits.concurrent_moves * share))

    def look(self, health: Health, now: float, *, slow: bool = False) -> None:
        """Adjust to the cluster's health.

        Parameters
        ----------
        health
            The cluster's health as Kafka reports it.
        now
            Seconds of any clock.
        slow
            Whether other evidence, such as the local times of requests, shows that the
            cluster suffers. It comes in windows, so it halves once per ``slow_interval``.
        """
        if not self._limits.adaptive:
            return
        lacking = len(health.under_replicated)
        grew = self._lacking is not None and lacking > self._lacking
        self._lacking = lacking
        self.held = bool(health.lagging)
        fresh = slow and now - self._slowed >= self._limits.slow_interval
        self._slowed = now if fresh else self._slowed
        if health.under_min_isr or grew or fresh:
            self.per_broker = max(1, self.per_broker // 2)
            self._changed = now
        elif slow:
            self._changed = now
        elif now - self._changed >= self._limits.adaptive_interval:
            self.per_broker = min(self._limits.concurrent_moves_per_broker, self.per_broker + 1)
            self._changed = now
