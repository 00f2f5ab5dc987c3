"""Tracks missing brokers, deleted topics and missing leaders, and for how long."""

from __future__ import annotations

from collections.abc import Iterable

from balancer.execution.cluster import ClusterView, Key
from balancer.execution.tasks import Task


class Availability:
    """Brokers, partitions and leaders that tasks need, and since when they are missing.

    Parameters
    ----------
    grace
        Seconds a broker may be away before it counts as gone; the same for leaders.
    looks
        Looks at the cluster before a missing partition counts as deleted.
    """

    def __init__(self, grace: float, looks: int) -> None:
        self._grace, self._looks = grace, looks
        self._away: dict[int, float] = {}
        self._absent: dict[Key, int] = {}
        self._leaderless: dict[Key, float] = {}

    def look(self, view: ClusterView, tasks: Iterable[Task], now: float) -> None:
        """Record one look at the cluster; `now` in seconds of any clock."""
        needed: set[int] = set()
        absent: dict[Key, int] = {}
        leaderless: dict[Key, float] = {}
        for task in tasks:
            needed |= needed_brokers(task)
            found = view.partitions.get(task.key)
            if found is None and task.key in view.moving:
                # A partition that Kafka is reassigning exists, whatever the metadata says.
                continue
            if found is None:
                absent[task.key] = self._absent.get(task.key, 0) + 1
            elif found.leader is None:
                leaderless[task.key] = self._leaderless.get(task.key, now)
        self._absent, self._leaderless = absent, leaderless
        self._away = {b: self._away.get(b, now) for b in needed - view.brokers}

    def deleted(self, key: Key) -> bool:
        """Whether a partition has been deleted."""
        return self._absent.get(key, 0) >= self._looks

    def away(self, brokers: Iterable[int]) -> bool:
        """Whether one of the brokers is away."""
        return any(b in self._away for b in brokers)

    def gone(self, brokers: Iterable[int], now: float) -> str:
        """Which of the brokers have been away for too long, as text; empty if none."""
        gone = sorted(b for b in brokers if b in self._away and now - self._away[b] >= self._grace)
        return f"broker {', '.join(map(str, gone))} is gone" if gone else ""

    def dead(self, key: Key, now: float) -> str:
        """Why a partition cannot be copied once it has been leaderless too long; else empty."""
        since = self._leaderless.get(key)
        if since is None or now - since < self._grace:
            return ""
        return "it has no leader, since no replica in sync is on a broker that serves"


def needed_brokers(task: Task) -> set[int]:
    """Brokers that a task depends on."""
    if task.phase == "leadership":
        return set() if task.leader is None else {task.leader}
    return set(task.added) if task.broker is None else {task.broker}
