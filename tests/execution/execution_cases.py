"""Plans written by hand, and a cluster in memory that carries out what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from balancer import Action, PlanDocument
from balancer.execution import Executor, Limits
from balancer.execution.cluster import Held, Key, PartitionView, Refusals, Resource, View
from balancer.plan import Summary

SIZE = 100.0


def move(
    topic: str, partition: int, source: int, destination: int, disk: str | None = None
) -> Action:
    return Action(
        kind="move", topic=topic, partition=partition, source=source, destination=destination,
        destination_disk=disk,
    )  # fmt: skip


def lead(topic: str, partition: int, source: int, destination: int) -> Action:
    return Action(
        kind="leadership", topic=topic, partition=partition, source=source, destination=destination
    )


def plan_of(*actions: Action, **operation: Any) -> PlanDocument:
    nothing = {name: 0 for name in Summary.model_fields if name != "exhausted"}
    return PlanDocument(
        operation={"kind": "rebalance", **operation},
        goals=(),
        summary=Summary.model_validate(nothing),
        columns={},
        goal_results=(),
        unmet=(),
        actions=actions,
    )


class Killed(BaseException):
    """The process dies here: nothing more reaches the cluster."""


@dataclass
class FakeCluster:
    """Partitions that copy a little with every look at them.

    ``replicas`` is what Kafka's metadata would tell; the first replica leads. A move is
    complete after `looks` looks, unless a broker that it adds is dead.
    """

    replicas: dict[Key, tuple[int, ...]]
    brokers: set[int] = field(default_factory=lambda: set(range(6)))
    looks: int = 2
    leaders: dict[Key, int | None] = field(default_factory=dict)
    ongoing: dict[Key, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    dirs: dict[tuple[Key, int], str] = field(default_factory=dict)
    futures: dict[tuple[Key, int], tuple[str, int]] = field(default_factory=dict)
    values: dict[Resource, dict[str, str]] = field(default_factory=dict)
    out_of_sync: dict[Key, set[int]] = field(default_factory=dict)
    min_isr_of: dict[str, int] = field(default_factory=dict)
    refuses: dict[Key, str] = field(default_factory=dict)
    dies_after: int | None = None
    asked: list[tuple[Key, tuple[int, ...] | None]] = field(default_factory=list)
    most: int = 0
    calls: int = 0
    on_view: Callable[[FakeCluster], None] = lambda cluster: None

    def __post_init__(self) -> None:
        for key, replicas in self.replicas.items():
            self.leaders.setdefault(key, replicas[0])

    def identity(self) -> str:
        return "fake"

    def view(self, topics: Sequence[str] | None) -> View:
        self._alive()
        self.on_view(self)
        self.advance()
        names = {k.topic for k in self.replicas}
        wanted = names if topics is None else set(topics)
        return View(
            frozenset(self.brokers),
            {k: self._partition(k) for k in self.replicas if k.topic in wanted},
            frozenset(self.ongoing),
        )

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], Held]:
        self._alive()
        found = {}
        for key, broker in replicas:
            if broker not in self.brokers or key not in self.replicas:
                continue
            if broker in (*self.replicas[key], *self.ongoing.get(key, ((), 0))[0]):
                future = self.futures.get((key, broker))
                found[key, broker] = Held(self.dirs.get((key, broker), "/a"), SIZE, *(future or ()))
        return found

    def reassign(self, wanted: Mapping[Key, Sequence[int] | None]) -> Refusals:
        self._alive()
        refused = {}
        for key, replicas in wanted.items():
            self.asked.append((key, None if replicas is None else tuple(replicas)))
            if key not in self.replicas:
                refused[key] = "unknown topic or partition"
            elif key in self.refuses:
                refused[key] = self.refuses[key]
            elif replicas is None:
                if self.ongoing.pop(key, None) is None:
                    refused[key] = "no reassignment in progress"
            elif set(replicas) == set(self.replicas[key]):
                self.replicas[key] = tuple(replicas)
            else:
                self.ongoing[key] = (tuple(replicas), self.looks)
        self.most = max(self.most, len(self.ongoing))
        return refused

    def move_log_dirs(self, wanted: Mapping[tuple[Key, int], str]) -> Refusals:
        self._alive()
        refused = {}
        for (key, broker), log_dir in wanted.items():
            if broker not in self.replicas[key]:
                refused[key, broker] = "replica not available"
                self.dirs[key, broker] = log_dir
            elif self.dirs.get((key, broker), "/a") == log_dir:
                self.futures.pop((key, broker), None)
            else:
                self.futures[key, broker] = (log_dir, self.looks)
        return refused

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        self._alive()
        refused = {}
        for key in partitions:
            first = self.replicas[key][0]
            if first in self.brokers:
                self.leaders[key] = first
            else:
                refused[key] = "preferred leader not available"
        return refused

    def configs(
        self, keys: Mapping[Resource, Sequence[str]]
    ) -> dict[Resource, dict[str, str | None]]:
        self._alive()
        return {
            r: {k: self.values.get(r, {}).get(k) for k in names}
            for r, names in keys.items()
            if r.kind == "topic" or int(r.name) in self.brokers
        }

    def set_configs(self, values: Mapping[Resource, Mapping[str, str | None]]) -> Refusals:
        self._alive()
        for r, wanted in values.items():
            for key, value in wanted.items():
                if value is None:
                    self.values.get(r, {}).pop(key, None)
                else:
                    self.values.setdefault(r, {})[key] = value
        return {}

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        self._alive()
        return {t: self.min_isr_of.get(t, 1) for t in topics}

    def advance(self) -> None:
        """Copy a little."""
        for key, (target, left) in list(self.ongoing.items()):
            if set(target) - set(self.replicas[key]) - self.brokers:
                continue
            if left > 1:
                self.ongoing[key] = (target, left - 1)
                continue
            del self.ongoing[key]
            self.replicas[key] = target
            if self.leaders[key] not in target:
                self.leaders[key] = target[0]
        for place, (log_dir, left) in list(self.futures.items()):
            self.futures[place] = (log_dir, left - 1)
            if left <= 1:
                del self.futures[place]
                self.dirs[place] = log_dir

    def throttles(self) -> dict[Resource, dict[str, str]]:
        """What is configured anywhere."""
        return {r: v for r, v in self.values.items() if v}

    def _alive(self) -> None:
        self.calls += 1
        if self.dies_after is not None and self.calls > self.dies_after:
            raise Killed

    def _partition(self, key: Key) -> PartitionView:
        now = self.replicas[key]
        target = self.ongoing[key][0] if key in self.ongoing else now
        lost = self.out_of_sync.get(key, set()) | (set(now) - self.brokers)
        return PartitionView(
            replicas=(*target, *(b for b in now if b not in target)),
            leader=self.leaders[key],
            isr=tuple(b for b in now if b not in lost),
            offline=tuple(b for b in now if b not in self.brokers),
            adding=tuple(b for b in target if b not in now),
            removing=tuple(b for b in now if b not in target),
        )


def executor(
    cluster: FakeCluster, path: Path, *, owner: str | None = None, **limits: Any
) -> Executor:
    """An executor that does not wait."""
    quick = {"progress_interval": 0.001, "broker_grace": 0.0} | limits
    return Executor(
        "nowhere:1",
        journal=path / "journal",
        limits=Limits(**quick),
        owner=owner,
        connect=lambda: cluster,
    )


def alive(cluster: FakeCluster) -> FakeCluster:
    """The same cluster for the next process."""
    return replace(cluster, dies_after=None, calls=0)
