"""What carrying out a plan copies over the network, by broker: bytes in and bytes out."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from pydantic import BaseModel, ConfigDict

from balancer.planning.document import PlanDocument
from cluster_model import Snapshot


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BrokerTraffic(_Record):
    """A broker: what it receives and sends, in the unit of the plan's cost, and how many copies."""

    broker: int | str
    received: float
    sent: float
    copies_received: int
    copies_sent: int


class Traffic(_Record):
    """What a plan copies between brokers.

    Parameters
    ----------
    unit
        Unit of the amounts: bytes in Kafka.
    amount
        What is copied between brokers in all.
    between_disks
        What is copied between disks of one broker, in all.
    busiest
        The most that one broker receives or sends: over the throttle, it is the least time.
    brokers
        The brokers that receive or send anything, the busiest first.
    """

    unit: str
    amount: float
    between_disks: float
    busiest: float
    brokers: tuple[BrokerTraffic, ...]


def traffic(plan: PlanDocument, snapshot: Snapshot) -> Traffic:
    """What a plan copies; a copy is sent by the leader that the partition has by then.

    Parameters
    ----------
    plan
        The plan.
    snapshot
        The cluster, for the leaders before the plan; where it has none, the broker that the
        replica leaves is taken to send it.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> cluster = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    >>> plan = Balancer("default").propose(cluster).document()
    >>> found = traffic(plan, cluster)
    >>> round(sum(b.sent for b in found.brokers) / plan.summary.cost, 6)
    1.0
    """
    leaders = _leaders(snapshot, {(a.topic, a.partition) for a in plan.actions})
    received: defaultdict[int | str, float] = defaultdict(float)
    sent: defaultdict[int | str, float] = defaultdict(float)
    arrivals: defaultdict[int | str, int] = defaultdict(int)
    departures: defaultdict[int | str, int] = defaultdict(int)
    between_disks = 0.0
    for action in plan.actions:
        partition = action.topic, action.partition
        if action.kind == "move_disk":
            between_disks += action.cost
        elif action.kind in ("move", "add") and action.destination is not None:
            sender = leaders.get(partition, action.source)
            received[action.destination] += action.cost
            arrivals[action.destination] += 1
            if sender is not None:
                sent[sender] += action.cost
                departures[sender] += 1
        if action.leader and action.destination is not None:
            leaders[partition] = action.destination
    rows = [
        BrokerTraffic(
            broker=broker,
            received=received.get(broker, 0.0),
            sent=sent.get(broker, 0.0),
            copies_received=arrivals.get(broker, 0),
            copies_sent=departures.get(broker, 0),
        )
        for broker in received.keys() | sent.keys()
    ]
    rows.sort(key=lambda row: (-max(row.received, row.sent), str(row.broker)))
    return Traffic(
        unit=plan.summary.cost_unit,
        amount=sum(received.values()),
        between_disks=between_disks,
        busiest=max((max(row.received, row.sent) for row in rows), default=0.0),
        brokers=tuple(rows),
    )


def _leaders(
    snapshot: Snapshot, named: set[tuple[str, int]]
) -> dict[tuple[str, int], int | str | None]:
    """Leaders of some partitions, by topic and number; without those that have none."""
    topics = {topic for topic, _ in named}
    of_plan = np.array([topic in topics for topic in snapshot.topics], dtype=np.bool_)
    rows = np.flatnonzero(of_plan[snapshot.partition_topic] & (snapshot.leader >= 0))
    held = snapshot.replica_broker[snapshot.replica_offset[rows] + snapshot.leader[rows]]
    return {
        (snapshot.topics[t], n): broker
        for t, n, broker in zip(
            snapshot.partition_topic[rows].tolist(),
            snapshot.partition_number[rows].tolist(),
            snapshot.broker_ids[held].tolist(),
            strict=True,
        )
        if (snapshot.topics[t], n) in named
    }
