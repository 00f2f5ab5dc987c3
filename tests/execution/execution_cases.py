"""Handwritten plans, and a cluster in memory that carries out requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from balancer import Action, PlanDocument
from balancer.execution import Executor, Limits, Vote
from balancer.execution.cluster import (
    ClusterView,
    ConfigResource,
    HeldReplica,
    Key,
    PartitionView,
    Refusals,
)
from benchmarks.harness.plans import plan_by_hand
from cluster_model.log_dirs import FileSystem

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
    return plan_by_hand(*actions, cluster_id="fake", **operation)


C = TypeVar("C", bound="FakeCluster")


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
    values: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    out_of_sync: dict[Key, set[int]] = field(default_factory=dict)
    min_isr_of: dict[str, int] = field(default_factory=dict)
    space: dict[int, list[FileSystem]] = field(default_factory=dict)
    refuses: dict[Key, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    # Whether it takes cancels, and does not carry them out.
    deaf: bool = False
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

    def view(self, topics: Sequence[str] | None) -> ClusterView:
        self._alive()
        self.on_view(self)
        self.advance()
        names = {k.topic for k in self.replicas}
        requested = names if topics is None else set(topics)
        return ClusterView(
            frozenset(self.brokers),
            {k: self._partition(k) for k in self.replicas if k.topic in requested},
            frozenset(self.ongoing),
        )

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], HeldReplica]:
        self._alive()
        found = {}
        for key, broker in replicas:
            if broker not in self.brokers or key not in self.replicas:
                continue
            if broker in (*self.replicas[key], *self.ongoing.get(key, ((), 0))[0]):
                future = self.futures.get((key, broker))
                found[key, broker] = HeldReplica(
                    self.dirs.get((key, broker), "/a"), SIZE, *(future or ())
                )
        return found

    def reassign(self, targets: Mapping[Key, Sequence[int] | None]) -> Refusals:
        self._alive()
        refused = {}
        for key, replicas in targets.items():
            self.asked.append((key, None if replicas is None else tuple(replicas)))
            if key not in self.replicas:
                refused[key] = "unknown topic or partition"
            elif key in self.refuses:
                refused[key] = self.refuses[key]
            elif replicas is None:
                if key not in self.ongoing:
                    refused[key] = "no reassignment in progress"
                elif not self.brokers & set(self.replicas[key]):
                    # It would leave no replica in sync.
                    refused[key] = "invalid replication assignment"
                elif not self.deaf:
                    # The list made for the move, without what it adds.
                    found = self._partition(key)
                    self.replicas[key] = found.before
                    del self.ongoing[key]
            elif set(replicas) == set(self.replicas[key]):
                self.replicas[key] = tuple(replicas)
            else:
                self.ongoing[key] = (tuple(replicas), self.looks)
        self.most = max(self.most, len(self.ongoing))
        return refused

    def move_log_dirs(self, targets: Mapping[tuple[Key, int], str]) -> Refusals:
        self._alive()
        refused = {}
        for (key, broker), log_dir in targets.items():
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
        self, keys: Mapping[ConfigResource, Sequence[str]]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        self._alive()
        return {
            r: {k: self.values.get(r, {}).get(k) for k in names}
            for r, names in keys.items()
            if r.kind == "topic" or int(r.name) in self.brokers
        }

    def set_configs(self, values: Mapping[ConfigResource, Mapping[str, str | None]]) -> Refusals:
        self._alive()
        refused = {}
        for r, requested in values.items():
            if r.kind == "topic" and r.name in self.deleted:
                refused[r] = "[Error 3] UnknownTopicOrPartitionError: None"
                continue
            if r.kind == "broker" and int(r.name) not in self.brokers:
                refused[r] = "no answer"
                continue
            for key, value in requested.items():
                if value is None:
                    self.values.get(r, {}).pop(key, None)
                else:
                    self.values.setdefault(r, {})[key] = value
        return refused

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        self._alive()
        return {t: self.min_isr_of.get(t, 1) for t in topics}

    def free(self, brokers: Sequence[int]) -> dict[int, list[FileSystem]]:
        self._alive()
        return {b: self.space[b] for b in brokers if b in self.space}

    def advance(self) -> None:
        """Copy a little."""
        for key, (target, left) in list(self.ongoing.items()):
            if set(target) - set(self.replicas[key]) - self.brokers:
                continue
            if not self.brokers & set(self.replicas[key]):
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

    def delete(self, topic: str) -> None:
        """Delete a topic, with its configs."""
        for key in [k for k in self.replicas if k.topic == topic]:
            del self.replicas[key], self.leaders[key]
            self.ongoing.pop(key, None)
        self.values.pop(ConfigResource("topic", topic), None)
        self.deleted.add(topic)

    def throttles(self) -> dict[ConfigResource, dict[str, str]]:
        """What is configured anywhere."""
        return {r: v for r, v in self.values.items() if v}

    def _alive(self) -> None:
        self.calls += 1
        if self.dies_after is not None and self.calls > self.dies_after:
            raise Killed

    def _leader(self, key: Key) -> int | None:
        """Who leads: another replica where the broker of the leader is away."""
        led = self.leaders[key]
        if led is not None and led not in self.brokers:
            led = next((b for b in self.replicas[key] if b in self.brokers), None)
        return led

    def _partition(self, key: Key) -> PartitionView:
        now = self.replicas[key]
        target = self.ongoing[key][0] if key in self.ongoing else now
        lost = self.out_of_sync.get(key, set()) | (set(now) - self.brokers)
        return PartitionView(
            replicas=(*target, *(b for b in now if b not in target)),
            leader=self._leader(key),
            isr=tuple(b for b in now if b not in lost),
            offline=tuple(b for b in now if b not in self.brokers),
            adding=tuple(b for b in target if b not in now),
            removing=tuple(b for b in now if b not in target),
        )


def executor(
    cluster: FakeCluster,
    path: Path,
    *,
    owner: str | None = None,
    vote: Vote | None = None,
    **limits: Any,
) -> Executor:
    """An executor that does not wait."""
    quick = {"progress_interval": 0.001, "broker_grace": 0.0} | limits
    return Executor(
        "nowhere:1",
        journal=path / "journal",
        limits=Limits(**quick),
        owner=owner,
        vote=vote,
        connect=lambda: cluster,
    )


def alive(cluster: C) -> C:
    """The same cluster for the next process."""
    return replace(cluster, dies_after=None, calls=0)


class WonElection:
    """An election that is won at once, and by this one."""

    acting, epoch, previous, holder = True, 7, None, None

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def prove(self, within: float) -> int | None:
        return self.epoch
