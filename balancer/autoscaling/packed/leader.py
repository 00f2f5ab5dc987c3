"""What the leader of a group does with a decision: the partitions of each member.

A decision is some seconds old, and members come and go: what it says of consumers that are there is
followed, and the rest gets the best place that is known.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from balancer.autoscaling.packed.message import DecidedAssignment, Partition


@dataclass(frozen=True)
class Member:
    """A member of a rebalance.

    Parameters
    ----------
    name
        Its static id, or the id that Kafka gave it.
    topics
        What it subscribes to.
    owned
        Partitions that it reads.
    generation
        That in which they were assigned.
    """

    name: str
    topics: frozenset[str]
    owned: frozenset[Partition] = frozenset()
    generation: int = -1


def owners(members: Mapping[str, Member]) -> dict[Partition, str]:
    """The id of the member that reads each partition; claims of an older generation do not count.

    Who missed a generation has lost its partitions, and may not know it yet.
    """
    latest = max((m.generation for m in members.values() if m.owned), default=-1)
    return {
        partition: id_
        for id_, member in sorted(members.items())
        if member.generation == latest
        for partition in member.owned
    }


def shares(
    decision: DecidedAssignment | None,
    members: Mapping[str, Member],
    partitions: Collection[Partition],
) -> dict[str, list[Partition]]:
    """The partitions of each member, once all have moved.

    1. A partition goes to the consumer that the decision names, if it is a member.
    2. Members that the decision does not know take the place of consumers that it wanted started,
       and then of those that have gone, each of one.
    3. What is still to be placed stays where it is; without a decision only up to an equal number.
    4. The rest goes to the member with the least load, the heaviest first.

    Parameters
    ----------
    decision
        The newest; None if there is none.
    members
        By their id.
    partitions
        All of the topics that any member subscribes to.
    """
    given: dict[str, list[Partition]] = {id_: [] for id_ in members}
    if not members:
        return given
    owner = owners(members)
    rate = {} if decision is None else decision.rates()
    # one that is new receives what is usual
    usual = sum(rate.values()) / len(rate) if rate else 1.0
    load = dict.fromkeys(members, 0.0)
    room = {} if decision is not None else _equal(owner, members, partitions)
    taker = {} if decision is None else _takers(decision, members)
    consumer = {} if decision is None else decision.consumer_of()
    left: list[Partition] = []
    for partition in sorted(partitions):
        to = taker.get(consumer.get(partition, -1))
        if to is None or partition[0] not in members[to].topics:
            to = owner.get(partition)
            if to is not None and decision is None:
                room[to] -= 1
                to = to if room[to] >= 0 else None
        if to is None or partition[0] not in members[to].topics:
            left.append(partition)
            continue
        given[to].append(partition)
        load[to] += rate.get(partition, usual)
    for partition in sorted(left, key=lambda p: (-rate.get(p, usual), p)):
        able = [id_ for id_, m in members.items() if partition[0] in m.topics]
        if able:
            to = min(able, key=lambda id_: (load[id_], len(given[id_]), id_))
            given[to].append(partition)
            load[to] += rate.get(partition, usual)
    return given


def first_round(
    target: Mapping[str, Sequence[Partition]], members: Mapping[str, Member]
) -> dict[str, list[Partition]]:
    """The partitions of each member in this round (KIP-429).

    A partition that another member still reads is nobody's: its reader gives it up and joins again,
    and the next round assigns it.
    """
    owner = owners(members)
    return {id_: [p for p in mine if owner.get(p, id_) == id_] for id_, mine in target.items()}


def must_move(decision: DecidedAssignment, name: str, owned: Collection[Partition]) -> bool:
    """Whether a member reads a partition that a decision gives to another that runs.

    It then joins again, and so the group rebalances. Consumers that are yet to start do not count:
    the group rebalances when they join.
    """
    consumer = decision.consumer_of()
    taken = (consumer.get(p, -1) for p in owned)
    return any(0 <= c < decision.running and decision.consumers[c] != name for c in taken)


def _takers(decision: DecidedAssignment, members: Mapping[str, Member]) -> dict[int, str]:
    """The member that takes the part of each consumer of the decision."""
    id_of = {member.name: id_ for id_, member in members.items()}
    used = set(decision.consumer_of().values())
    rows = [*range(decision.running, len(decision.consumers)), *range(decision.running)]
    found = {c: id_of[decision.consumers[c]] for c in rows if decision.consumers[c] in id_of}
    absent = [c for c in rows if c in used and c not in found]
    unknown = sorted(id_ for id_ in members if id_ not in found.values())
    return found | dict(zip(absent, unknown, strict=False))


def _equal(
    owner: Mapping[Partition, str],
    members: Mapping[str, Member],
    partitions: Collection[Partition],
) -> dict[str, int]:
    """How many partitions each member may keep so that all have an equal number, or nearly."""
    each, more = divmod(len(partitions), len(members))
    has = Counter(owner[p] for p in partitions if p in owner)
    most = heapq.nsmallest(more, members, key=lambda id_: (-has[id_], id_))
    return {id_: each + (id_ in most) for id_ in members}
