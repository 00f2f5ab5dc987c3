"""Names the rules that forbid actions, for reports: what :meth:`Rules.legal` only decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from balancer.problem.liveness import dead_brokers
from balancer.problem.operation import Operation
from balancer.problem.rules import Rules
from balancer.problem.sentences import brokers_named
from balancer.problem.topics import excluded_partitions, named_partitions
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot


@dataclass(frozen=True, eq=False)
class Prohibition:
    """A rule, and which of C actions it forbids.

    Parameters
    ----------
    name
        The rule, for a list of rules: "brokers excluded from receiving replicas".
    forbids : (C,) bool
        The actions.
    sentence
        Why it forbids the action of a row: "broker 7 is excluded from receiving replicas".
    """

    name: str
    forbids: Bools
    sentence: Callable[[int], str]


def prohibitions(
    rules: Rules, operation: Operation, placement: Placement, batch: Batch
) -> list[Prohibition]:
    """The rules that forbid some of the actions; an action is legal if none forbids it.

    Parameters
    ----------
    rules
        What the operation lets a strategy touch.
    operation
        The request, which names what it excludes.
    placement
        Where the actions start; each moves a replica that exists.
    batch
        C actions.
    """
    found = [
        *_of_partitions(rules, operation, placement, batch),
        *_of_destinations(rules, operation, placement, batch),
        *_of_leaders(rules, operation, placement, batch),
        *_of_disks(rules, placement, batch),
    ]
    return [one for one in found if one.forbids.any()]


def _of_partitions(
    rules: Rules, operation: Operation, placement: Placement, batch: Batch
) -> Iterator[Prohibition]:
    """Replicas that stay where they are."""
    s, p = placement.snapshot, batch.partition

    def name(row: int) -> str:
        return f"{topic(row)}-{s.partition_number[p[row]]}"

    def topic(row: int) -> str:
        return s.topics[int(s.partition_topic[p[row]])]

    yield Prohibition(
        "partitions without a living replica",
        rules.lost[p],
        lambda row: f"{name(row)} has no living replica to copy from",
    )
    settled = s.partition_settled[p]
    yield Prohibition(
        "partitions that Kafka is reassigning",
        rules.frozen[p] & ~settled,
        lambda row: f"Kafka is reassigning {name(row)}",
    )
    yield Prohibition(
        "frozen partitions",
        rules.frozen[p] & settled,
        lambda row: f"{name(row)} is frozen",
    )
    at = p * placement.slots + batch.slot
    source = placement.source(batch)
    urgent = _leaving(rules, placement, batch)
    if len(placement.replica_disk):
        disk = placement.source_disk(batch)
        urgent |= (disk >= 0) & ~s.disk_alive[disk]
    lead = batch.kind == LEAD
    stays = ~(urgent | np.where(lead, rules.movable[p] | ~rules.leads[source], rules.slots[at]))
    stays &= ~rules.frozen[p]
    excluded = excluded_partitions(s, operation)
    yield Prohibition(
        "excluded topics", stays & excluded[p], lambda row: f"topic {topic(row)} is excluded"
    )
    single = named_partitions(s, operation.excluded_partitions)[p] & ~excluded[p]
    yield Prohibition("excluded partitions", stays & single, lambda row: f"{name(row)} is excluded")
    what = np.where(lead, "this leader", "this replica")
    yield Prohibition(
        f"{operation.kind}, which leaves other replicas in place",
        stays & ~excluded[p] & ~single,
        lambda row: f"{operation.kind} leaves {what[row]} in place",
    )


def _of_destinations(
    rules: Rules, operation: Operation, placement: Placement, batch: Batch
) -> Iterator[Prohibition]:
    """Brokers that may not receive the replica."""
    s, p, target = placement.snapshot, batch.partition, batch.target
    move, id_ = batch.kind == MOVE, s.broker_ids
    closed = move & ~rules.receives[target]
    for name, brokers, why in _not_receiving(rules, operation, s):
        yield Prohibition(
            name, closed & brokers[target], partial(_on_target, why, id_.tolist(), target)
        )
    yield Prohibition(
        "brokers that hold a replica of the partition",
        move & (placement.brokers[p] == target[:, None]).any(1),
        lambda row: f"broker {id_[target[row]]} holds a replica of the partition",
    )
    if rules.permitted is not None:
        topic = s.partition_topic[p]
        yield Prohibition(
            "topics limited to other brokers",
            move & ~rules.permitted[topic, target],
            lambda row: f"topic {s.topics[topic[row]]} may not be on broker {id_[target[row]]}",
        )
    yield Prohibition(
        "copies on dead disks",
        move & (rules.stranded[p] == target[:, None]).any(1),
        lambda row: f"a dead disk of broker {id_[target[row]]} holds a copy of the partition",
    )


def _on_target(why: Callable[[str], str], ids: list[object], target: Ints, row: int) -> str:
    return why(str(ids[target[row]]))


def _not_receiving(
    rules: Rules, operation: Operation, s: Snapshot
) -> Iterator[tuple[str, Bools, Callable[[str], str]]]:
    """Why brokers receive no replicas: a name, (B,) which brokers, and a sentence on one."""
    rest = ~rules.receives
    named = ", ".join(map(str, operation.destinations or ()))
    only = f"no broker receives replicas with {operation.kind}"
    if rules.receives.any():
        who = brokers_named(s, rules.receives, ("receives", "receive"))
        only = f"only {who} replicas with {operation.kind}"
    causes: list[tuple[str, Bools, Callable[[str], str]]] = [
        ("dead brokers", dead_brokers(s), lambda b: f"broker {b} is dead"),
        ("brokers to be emptied", rules.draining, lambda b: f"broker {b} is being emptied"),
        (
            "brokers excluded from receiving replicas",
            np.isin(s.broker_ids, list(operation.excluded_brokers_for_replicas)),
            lambda b: f"broker {b} is excluded from receiving replicas",
        ),
        (
            "brokers whose log directories are cordoned",
            ~s.broker_open,
            lambda b: f"every log directory of broker {b} is cordoned",
        ),
        (
            "brokers that are not among the destinations",
            np.full(s.n_brokers, operation.destinations is not None)
            & ~np.isin(s.broker_ids, list(operation.destinations or ())),
            lambda b: f"broker {b} is not among the destinations ({named})",
        ),
        (
            f"{operation.kind}, which lets no other brokers receive replicas",
            np.ones(s.n_brokers, np.bool_),
            lambda b: only,
        ),
    ]
    for name, brokers, why in causes:
        yield name, rest & brokers, why
        rest = rest & ~brokers


def _of_leaders(
    rules: Rules, operation: Operation, placement: Placement, batch: Batch
) -> Iterator[Prohibition]:
    """Brokers that may not lead the partition."""
    s, p, target = placement.snapshot, batch.partition, batch.target
    lead, id_ = batch.kind == LEAD, s.broker_ids
    leading = batch.slot == placement.leader[p]
    yield Prohibition(
        "replicas that lead already",
        lead & leading,
        lambda row: f"broker {id_[target[row]]} leads the partition already",
    )
    arrives = lead | ((batch.kind == MOVE) & leading)
    barred = np.isin(id_, list(operation.excluded_brokers_for_leadership))
    causes = np.select(
        [dead_brokers(s), rules.draining, barred, s.broker_state == BrokerState.DEMOTED],
        ["it is dead", "it is being emptied", "it is excluded from leadership", "it is demoted"],
        f"{operation.kind} lets it lead nothing",
    )
    yield Prohibition(
        "brokers that may not lead",
        arrives & ~rules.leads[target],
        lambda row: f"broker {id_[target[row]]} may not lead: {causes[target[row]]}",
    )
    yield Prohibition(
        f"{operation.kind}, which serves no other brokers",
        ~rules.serves(placement, batch),
        lambda row: (
            f"{operation.kind} transfers no leadership to broker {id_[target[row]]} and moves "
            "no replicas between its disks"
        ),
    )
    if rules.cold is not None:
        yield Prohibition(
            "replicas that are still warming up",
            arrives & (rules.cold[p] == target[:, None]).any(1),
            lambda row: f"the replica on broker {id_[target[row]]} is still warming up",
        )


def _of_disks(rules: Rules, placement: Placement, batch: Batch) -> Iterator[Prohibition]:
    """Disks that give or take nothing."""
    if not len(placement.replica_disk):
        return
    s, id_ = placement.snapshot, placement.snapshot.broker_ids
    source, inside = placement.source(batch), batch.kind == MOVE_DISK
    bare = np.bincount(s.disk_broker, minlength=s.n_brokers) == 0
    to = np.where(batch.kind == MOVE, batch.target, source)
    takes = np.where(batch.disk < 0, bare[to], np.append(s.disk_open, False)[batch.disk])
    yield Prohibition(
        "disks that accept no replicas",
        (batch.kind != LEAD) & ~takes,
        lambda row: f"the disk on broker {id_[to[row]]} accepts no replicas",
    )
    yield Prohibition(
        "replicas that must leave their broker",
        inside & _leaving(rules, placement, batch),
        lambda row: f"the replica must leave broker {id_[source[row]]}",
    )
    alive = np.append(s.disk_alive, True)
    dead: Ints = np.where(inside, placement.source_disk(batch), placement.target_disk(batch))
    yield Prohibition(
        "replicas on dead disks",
        (batch.kind != MOVE) & ~alive[dead],
        lambda row: f"the replica on broker {id_[batch.target[row]]} is on a dead disk",
    )


def _leaving(rules: Rules, placement: Placement, batch: Batch) -> Bools:
    """(C,) whether the replica, or the leadership, must leave its broker."""
    source = placement.source(batch)
    leaving: Bools = rules.draining[source].copy()
    if rules.permitted is not None:
        leaving |= ~rules.permitted[placement.snapshot.partition_topic[batch.partition], source]
    return leaving
