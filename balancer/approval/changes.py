"""What has changed in the cluster since a plan was made, as far as the plan is concerned."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from balancer.planning.document import PlanDocument
from cluster_model.snapshot import BrokerState, Snapshot


def changes_since(plan: PlanDocument, snapshot: Snapshot, most: int = 100) -> list[str]:
    """What is no longer as the plan expects, one sentence each; empty if it still applies.

    Loads change all the time and are not compared.

    Parameters
    ----------
    plan
        The plan.
    snapshot
        The cluster now.
    most
        How many partitions to name.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> cluster = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    >>> plan = Balancer("default").propose(cluster)
    >>> changes_since(plan.document(), cluster), len(changes_since(plan.document(),
    ...     plan.final_snapshot())) > 0
    ([], True)
    """
    found: list[str] = []
    made_for = plan.identity.cluster_id
    if made_for is not None and snapshot.cluster_id not in (None, made_for):
        return [f"the plan is for cluster {made_for}, this is cluster {snapshot.cluster_id}"]
    dead = {
        b
        for b, state in zip(
            snapshot.broker_ids.tolist(), snapshot.broker_state.tolist(), strict=True
        )
        if state == BrokerState.DEAD
    }
    known = {*snapshot.broker_ids.tolist()}
    receiving = {a.destination for a in plan.actions if a.destination is not None}
    for broker in sorted(receiving, key=str):
        if broker not in known:
            found.append(f"broker {broker}, which the plan moves replicas to, no longer exists")
        elif broker in dead:
            found.append(f"broker {broker}, which the plan moves replicas to, is down")
    rows = _rows(snapshot, {(a.topic, a.partition) for a in plan.actions})
    changed = 0
    for name, expected in plan.replicas.items():
        topic, _, number = name.rpartition("-")
        row = rows.get((topic, int(number)))
        if row is None:
            now = None
        else:
            start, end = snapshot.replica_offset[row : row + 2].tolist()
            now = snapshot.broker_ids[snapshot.replica_broker[start:end]].tolist()
        if now is not None and sorted(now, key=str) == sorted(expected, key=str):
            continue
        changed += 1
        if changed <= most:
            said = "no longer exists" if now is None else f"is on {_list(now)}"
            found.append(f"{name} {said}; the plan expects {_list(expected)}")
    if changed > most:
        found.append(f"and {changed - most:,} more partitions")
    return found


def _list(brokers: Iterable[int | str]) -> str:
    return "[" + ", ".join(map(str, brokers)) + "]"


def _rows(snapshot: Snapshot, named: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Rows of some partitions, by topic and number."""
    place = {topic: i for i, topic in enumerate(snapshot.topics)}
    topics = np.array(sorted({place[t] for t, _ in named if t in place}), dtype=np.int64)
    rows = np.flatnonzero(np.isin(snapshot.partition_topic, topics))
    return {
        (snapshot.topics[t], n): row
        for row, t, n in zip(
            rows.tolist(),
            snapshot.partition_topic[rows].tolist(),
            snapshot.partition_number[rows].tolist(),
            strict=True,
        )
        if (snapshot.topics[t], n) in named
    }
