"""Exports a plan as files that Kafka's own tools or other engines' schedulers read."""

from __future__ import annotations

import json

import numpy as np

from balancer.planning.document import PlanError
from balancer.planning.plan import Plan, preference_lists, ranked_slots
from balancer.problem.liveness import living_replicas
from cluster_model.placement import Placement
from cluster_model.snapshot import Ints
from metrics_reporter.documents import shown


def reassignment_json(plan: Plan) -> str:
    """The file that ``kafka-reassign-partitions --reassignment-json-file`` reads.

    It lists the partitions whose replicas, their order or their log directories change, by
    topic and number: the new leader first, replicas on demoted brokers last. A log
    directory is named only if the plan chooses one, and is ``any`` otherwise. The list may
    be empty, which Kafka's tool refuses: there is nothing to reassign then.

    Raises
    ------
    PlanError
        If the plan creates replicas of a partition without a living one (see
        :attr:`cluster_model.Snapshot.creatable`), which Kafka cannot do.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> plan = Balancer().propose(synthetic_snapshot(brokers=6, partitions=60, racks=3))
    >>> moves = json.loads(reassignment_json(plan))
    >>> moves["version"], sorted(moves["partitions"][0])
    (1, ['partition', 'replicas', 'topic'])
    """
    _check(plan)
    s, final = plan.snapshot, plan.placement
    start = Placement(s, final.slots)
    brokers, _ = preference_lists(plan)
    changed = (brokers != start.brokers).any(1)
    created = changed & ~living_replicas(start).any(1)
    if created.any():
        first = int(np.argmax(created))
        raise PlanError(
            f"partition {s.topics[s.partition_topic[first]]}-{s.partition_number[first]}: no "
            "living replica found, at least one expected by Kafka, which copies new replicas and "
            "creates none"
        )
    chosen = np.full(brokers.shape, -1)
    if s.n_disks:
        before, after = (p.replica_disk.reshape(brokers.shape) for p in (start, final))
        elsewhere = (final.brokers != start.brokers) | (after != before)
        chosen = np.where(elsewhere & (final.brokers >= 0), after, -1)
        chosen = np.take_along_axis(chosen, ranked_slots(plan), 1)
        changed |= (chosen >= 0).any(1)
    rows = np.flatnonzero(changed)
    ids = list(map(str, s.broker_ids.tolist()))
    replicas = [
        f', "replicas": [{", ".join([ids[b] for b in held if b >= 0])}]'
        for held in brokers[rows].tolist()
    ]
    paths = [*s.disk_path, "any"]
    for row in np.flatnonzero((chosen[rows] >= 0).any(1)).tolist():
        disks = chosen[rows[row]][brokers[rows[row]] >= 0]
        replicas[row] += f', "log_dirs": {json.dumps([paths[d] for d in disks.tolist()])}'
    return _lines('"version": 1, ', plan, rows, replicas)


def leader_election_json(plan: Plan) -> str:
    """The file that ``kafka-leader-election --path-to-json-file`` reads.

    Run it with ``--election-type preferred`` once the reassignment is complete. It lists
    the partitions whose leader changes to their preferred replica while the old leader
    stays a replica: if it leaves, Kafka elects the preferred one automatically.
    """
    _check(plan)
    s = plan.snapshot
    brokers, leader = preference_lists(plan)
    led = s.leader >= 0
    old = np.full(s.n_partitions, -1)
    old[led] = s.replica_broker[(s.replica_offset[:-1] + s.leader)[led]]
    stays = led & (brokers == old[:, None]).any(1)
    needed = stays & (leader == 0) & (brokers[:, 0] != old)
    rows = np.flatnonzero(needed)
    return _lines("", plan, rows, [""] * len(rows))


def assignments_json(plan: Plan) -> str:
    """The node of each unit at the end of a plan: ``{operator: {subtask: node}}``.

    It lists every unit, whether it moves or not, as an assignor or scheduler needs them.

    Raises
    ------
    PlanError
        If a partition has several replicas or none, so that it is no unit on one node.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> plan = Balancer(strategy="milp").propose(
    ...     synthetic_snapshot(brokers=4, partitions=8, racks=2, replication_factor=1)
    ... )
    >>> node = json.loads(assignments_json(plan))
    >>> list(node), sorted(map(int, node["topic-0"]))
    (['topic-0'], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    s, brokers = plan.snapshot, plan.placement.brokers
    held = brokers >= 0
    other = np.flatnonzero(held.sum(1) != 1)
    if len(other):
        p = other[0]
        raise PlanError(
            f"partition {s.topics[s.partition_topic[p]]}-{s.partition_number[p]}: "
            f"{held[p].sum()} replicas found, one expected of a unit that is assigned to a node"
        )
    found: dict[str, dict[int, int | str]] = {}
    for topic, number, broker in zip(
        s.partition_topic.tolist(),
        s.partition_number.tolist(),
        brokers.max(1).tolist(),
        strict=True,
    ):
        found.setdefault(s.topics[topic], {})[number] = s.broker_ids[broker].item()
    return f"{json.dumps(found, indent=1)}\n"


def _check(plan: Plan) -> None:
    """Raise PlanError if the plan cannot be written for Kafka: its brokers have names."""
    if plan.snapshot.named_brokers:
        raise PlanError(
            f"plan: broker {shown(str(plan.snapshot.broker_ids[0]))} found, a number expected: "
            "Kafka's tools know brokers by number"
        )


def _lines(head: str, plan: Plan, rows: Ints, more: list[str]) -> str:
    """JSON with one partition a line, so that two plans can be compared by line.

    Each line has the partition's topic and number, and then more.
    """
    s = plan.snapshot
    topics = [f'{{"topic": {json.dumps(topic)}, "partition": ' for topic in s.topics]
    columns = (s.partition_topic[rows].tolist(), s.partition_number[rows].tolist(), more)
    lines = ",\n".join([f"{topics[t]}{n}{end}}}" for t, n, end in zip(*columns, strict=True)])
    return f'{{{head}"partitions": [\n{lines}\n]}}\n'
