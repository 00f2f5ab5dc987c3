"""Prepares a snapshot for planning: concerns to report, and unreliable loads to exclude."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balancer.problem.operation import Operation
from balancer.problem.operations import type_of
from cluster_model import BrokerState, Snapshot
from cluster_model.snapshot import Ints
from cluster_model.trust import Distrust, frozen_partitions
from metrics_reporter.quantities import plural


def concerns(s: Snapshot) -> list[str]:
    """What limits the quality of a plan for a cluster, one sentence each.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> concerns(synthetic_snapshot(brokers=6, dead_brokers=1))
    ['1 broker is down: 4']
    """
    found = []
    down = s.broker_ids[s.broker_state == BrokerState.DEAD].tolist()
    if down:
        verb = "is" if len(down) == 1 else "are"
        found.append(f"{plural(len(down), 'broker')} {verb} down: {_some(down)}")
    lost = np.flatnonzero(~s.disk_alive & (s.broker_state != BrokerState.DEAD)[s.disk_broker])
    if len(lost):
        verb = "is" if len(lost) == 1 else "are"
        paths = [f"{s.disk_path[d]} of broker {s.broker_ids[s.disk_broker[d]]}" for d in lost]
        found.append(f"{plural(len(lost), 'disk')} {verb} offline: {_some(paths)}")
    for stuck, why in (
        (
            s.leaderless & ~s.partition_settled,
            "a reassignment that cannot finish, because there is no leader to copy from; the "
            "replicas from before it are shown",
        ),
        (s.leaderless & s.partition_settled, "no leader, because no replica in sync serves"),
    ):
        if stuck.any():
            names = _names(s, np.flatnonzero(stuck))
            verb = "has" if len(names) == 1 else "have"
            found.append(f"{plural(len(names), 'partition')} ({_some(names)}) {verb} {why}")
    moving = np.flatnonzero(~s.partition_settled & ~s.leaderless)
    if len(moving):
        names = _names(s, moving)
        one = len(names) == 1
        found.append(
            f"Kafka is reassigning {plural(len(names), 'partition')} ({_some(names)}): the plan "
            f"takes {'it' if one else 'them'} as moved and leaves {'it' if one else 'them'} alone"
        )
    return found


def _names(s: Snapshot, partitions: Ints) -> list[str]:
    return [f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}" for p in partitions]


def _some(names: Sequence[Any], most: int = 5) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def restricted_to_known(
    snapshot: Snapshot, asked: Operation, distrust: Distrust, notice: Callable[[str], None]
) -> Operation:
    """The operation without partitions and brokers whose loads are unknown.

    Healing operations need no loads and stay as they are.

    Parameters
    ----------
    snapshot
        The cluster.
    asked
        The operation.
    distrust
        Reporters that are distrusted, and loads that are unknown.
    notice
        Called with a sentence on partitions that stay for that reason.
    """
    if not type_of(asked).needs_loads:
        return asked
    frozen = distrust.unknown | frozen_partitions(snapshot, distrust.brokers)
    ids = snapshot.broker_ids.tolist() if asked.destinations is None else asked.destinations
    silent = distrust.brokers - {*asked.brokers}
    if frozen:
        stay = plural(len(frozen), "partition stays", "partitions stay")
        notice(f"{stay}, because not all loads are known")
    return asked.model_copy(
        update={
            "excluded_partitions": tuple(sorted(frozen.union(asked.excluded_partitions))),
            "destinations": tuple(b for b in ids if b not in silent)
            if silent
            else asked.destinations,
        }
    )
