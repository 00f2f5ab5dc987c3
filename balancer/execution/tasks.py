"""Tasks: the single requests to Kafka that make up an execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from balancer.execution.cluster import Key
from balancer.execution.targets import Target
from metrics_reporter.documents import Number, Whole, WholeKey

Phase = Literal["move", "log_dir", "leadership"]
TaskState = Literal["pending", "in progress", "cancelling", "completed", "cancelled", "dead"]

# In this order: data first goes to its broker, then to its disk, then the replica may lead.
PHASES: tuple[Phase, ...] = ("move", "log_dir", "leadership")
OPEN: frozenset[TaskState] = frozenset({"pending", "in progress", "cancelling"})


class Task(BaseModel):
    """One reassignment, one move between disks, or one election.

    Parameters
    ----------
    id
        Place in the order of the plan within its phase; unique in an execution.
    origin, target
        Replicas before and after in preference order; the same brokers except for moves.
    dirs
        For a move: log directories chosen for the replicas it adds.
    broker, origin_dir, target_dir
        For a move between disks.
    leader
        For an election: the new leader; None if only the preference order changes.
    bytes
        Bytes to copy.
    after
        The task that must be completed first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Whole
    phase: Phase
    topic: str
    partition: Whole
    origin: tuple[Whole, ...]
    target: tuple[Whole, ...]
    dirs: dict[WholeKey, str] = {}
    broker: Whole | None = None
    origin_dir: str | None = None
    target_dir: str | None = None
    leader: Whole | None = None
    bytes: Number = 0.0
    after: Whole | None = None

    @property
    def key(self) -> Key:
        """The partition."""
        return Key(self.topic, self.partition)

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that receive a replica."""
        return tuple(b for b in self.target if b not in self.origin)

    def __str__(self) -> str:
        if self.phase == "log_dir":
            return f"{self.key} on broker {self.broker}: to {self.target_dir}"
        if self.phase == "leadership":
            what = f"leader {self.leader}" if self.leader is not None else "preference order"
            return f"{self.key}: {what}, replicas {','.join(map(str, self.target))}"
        here, there = (",".join(map(str, r)) for r in (self.origin, self.target))
        return f"{self.key}: replicas {here} to {there}"


def make_tasks(
    requested: Iterable[Target], *, one_at_a_time: bool = False, start: int = 0
) -> list[Task]:
    """Tasks of all phases, each phase in the order of the plan.

    Parameters
    ----------
    requested
        Partitions with their targets.
    one_at_a_time
        Whether each of a partition's replicas is a task, in its own place of the plan.
    start
        Id of the first task.
    """
    rows = sorted(requested, key=lambda w: w.place)
    moves: list[tuple[int, Target, tuple[int, ...], tuple[int, ...]]] = []
    for w in rows:
        if set(w.origin) == set(w.target):
            continue
        steps: Sequence[tuple[int, tuple[int, ...]]] = w.steps or ((w.place, w.target),)
        if not one_at_a_time:
            steps = ((steps[0][0], w.target),)
        before = w.origin
        for place, replicas in steps:
            moves.append((place, w, before, replicas))
            before = replicas
    tasks: list[Task] = []
    previous: dict[Key, int] = {}
    for _, w, before, after in sorted(moves, key=lambda m: m[0]):
        number = start + len(tasks)
        added = [b for b in after if b not in before]
        tasks.append(
            Task(
                id=number,
                phase="move",
                topic=w.topic,
                partition=w.partition,
                origin=before,
                target=after,
                dirs={b: w.dirs[b] for b in added if b in w.dirs},
                bytes=w.size * len(added),
                after=previous.get(w.key),
            )
        )
        previous[w.key] = number
    for w in rows:
        for broker, log_dir in w.dirs.items():
            if w.origin_dirs.get(broker) == log_dir and broker in w.origin:
                continue
            tasks.append(
                Task(
                    id=start + len(tasks),
                    phase="log_dir",
                    topic=w.topic,
                    partition=w.partition,
                    origin=w.target,
                    target=w.target,
                    broker=broker,
                    origin_dir=w.origin_dirs.get(broker),
                    target_dir=log_dir,
                    bytes=w.size if broker in w.origin else 0.0,
                    after=previous.get(w.key),
                )
            )
    for w in rows:
        moved = set(w.origin) != set(w.target)
        reordered = not moved and w.origin != w.target
        if reordered or (w.leader is not None and w.leader != w.origin_leader):
            tasks.append(
                Task(
                    id=start + len(tasks),
                    phase="leadership",
                    topic=w.topic,
                    partition=w.partition,
                    origin=w.target if moved else w.origin,
                    target=w.target,
                    leader=w.leader,
                    after=previous.get(w.key),
                )
            )
    return tasks
