"""What a policy is: looks at a consumer group, and decides on consumers and assignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from balancer.autoscaling.group import Group
from balancer.autoscaling.scores import rscore
from cluster_model.snapshot import Floats, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """What a consumer group should become.

    Parameters
    ----------
    consumer : (P,) int
        The consumer of each partition: running ones by their index, those to start from C on.
    start
        Number of consumers to start.
    stop : tuple of int
        The running consumers to stop.
    moves
        Number of partitions whose consumer changes.
    rscore
        Their rate over the capacity of a new consumer.
    reason
        One sentence.
    warnings : tuple of str
        What cannot be met, one sentence each.
    """

    consumer: Ints
    start: int = 0
    stop: tuple[int, ...] = ()
    moves: int = 0
    rscore: float = 0.0
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.start > 0 or len(self.stop) > 0 or self.moves > 0


class Policy(Protocol):
    """Decides when a consumer group changes, and into what."""

    def decide(self, group: Group, now: float) -> Decision:
        """Decide, given the present state and its time in seconds; called once per interval."""


def stay(group: Group, reason: str, warnings: tuple[str, ...] = ()) -> Decision:
    """The decision that changes nothing."""
    return Decision(consumer=group.consumer, reason=reason, warnings=warnings)


def become(
    group: Group,
    consumer: Ints,
    reason: str,
    *,
    keep: int = 0,
    warnings: tuple[str, ...] = (),
) -> Decision:
    """The decision for an assignment: starts the consumers it needs, stops those without partition.

    Parameters
    ----------
    group
        The present state.
    consumer : (P,) int
        The assignment; numbers from C on are new consumers, with gaps allowed.
    reason
        One sentence.
    keep
        Number of consumers to keep or to start even if they have no partition.
    warnings
        What cannot be met.
    """
    running = group.consumers
    used = np.unique(consumer[consumer >= 0])
    new = used[used >= running]
    known = np.append(np.arange(running), running + np.arange(len(new)))
    place = np.searchsorted(np.append(np.arange(running), new), consumer)
    named = np.where(consumer >= 0, known[np.minimum(place, len(known) - 1)], -1)
    idle = np.setdiff1d(np.arange(running), used)
    start = len(new)
    stays = max(keep - len(used), 0)
    stop = idle[stays:]
    start += max(stays - len(idle), 0)
    moved = named != group.consumer
    return Decision(
        consumer=named,
        start=start,
        stop=tuple(stop.tolist()),
        moves=int(moved.sum()),
        rscore=rscore(group.rate, group.consumer, named, group.new_capacity),
        reason=reason,
        warnings=warnings,
    )


def at_most(group: Group, consumer: Ints, rate: Floats, maximum: int) -> tuple[Ints, int]:
    """An assignment to at most so many consumers, and the number that was needed.

    Partitions of those beyond go to the consumers that are left least loaded, whatever they take.
    """
    used, place = np.unique(consumer, return_inverse=True)
    needed = len(used)
    if needed <= maximum:
        return consumer, needed
    consumer = consumer.copy()
    kept = used[:maximum]
    load = np.bincount(place, weights=rate, minlength=needed)[:maximum]
    capacity = group.capacity_of(kept)
    excess = np.flatnonzero(consumer > kept[-1])
    for partition in excess[np.argsort(-rate[excess], kind="stable")].tolist():
        to = int(np.argmin((load + rate[partition]) / capacity))
        consumer[partition] = kept[to]
        load[to] += rate[partition]
    return consumer, needed


def too_few(needed: int, maximum: int) -> str:
    """The sentence on a maximum that is below what a group needs."""
    return (
        f"the group needs {needed} consumers, and its maximum is {maximum}: the SLA cannot be kept"
    )


def evenly(partitions: int, consumers: Ints) -> Ints:
    """(P,) assignment of equal numbers of partitions, as Kafka's range assignor on one topic."""
    count = max(len(consumers), 1)
    share, more = divmod(partitions, count)
    sizes = np.full(count, share) + (np.arange(count) < more)
    found: Ints = np.repeat(consumers, sizes) if len(consumers) else np.full(partitions, -1)
    return found
