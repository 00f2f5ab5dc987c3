"""Detects lost partitions: those with nothing left to copy from."""

from __future__ import annotations

import numpy as np

from balancer.controller.finding import Finding, FirstSeen, View, listed, living
from balancer.controller.settings import DeadBrokers
from cluster_model.snapshot import Bools, Ints, Snapshot
from metrics_reporter.quantities import plural

# Names listed in a finding; a broker can take thousands of partitions with it.
_NAMED = 50


def offline_replicas(snapshot: Snapshot) -> Bools:
    """(N,) replicas on dead brokers or offline log directories."""
    s = snapshot
    offline: Bools = ~living(s)[s.replica_broker]
    if s.n_disks:
        offline = offline | ~np.append(s.disk_alive, True)[s.replica_disk]
    return offline


def lost_partitions(snapshot: Snapshot) -> Bools:
    """(P,) partitions that Kafka cannot copy from anywhere.

    Either every replica is offline, or the partition has no leader: then no in-sync replica
    is available, and Kafka copies from leaders only.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> bool(lost_partitions(synthetic_snapshot(brokers=3, partitions=9, racks=3)).any())
    False
    """
    s = snapshot
    offline = np.bincount(s.replica_partition, offline_replicas(s), s.n_partitions)
    lost: Bools = ((offline >= s.replication_factor) & s.needs_source) | s.leaderless
    return lost


def partition_names(snapshot: Snapshot, chosen: Bools) -> tuple[str, ...]:
    """Names of the chosen partitions, ``orders-3``."""
    s, rows = snapshot, np.flatnonzero(chosen)
    pairs = zip(s.partition_topic[rows].tolist(), s.partition_number[rows].tolist(), strict=True)
    return tuple(f"{s.topics[t]}-{n}" for t, n in pairs)


class LostPartitionDetector:
    """Partitions that cannot be healed, reported after the grace period of dead brokers.

    They are excluded from the first look on: no plan touches them.
    """

    def __init__(self, settings: DeadBrokers) -> None:
        self.settings = settings
        self._seen = FirstSeen()
        self._reported: frozenset[str] = frozenset()
        self._changed = 0

    def look(self, view: View) -> list[Finding]:
        """One finding for all of them."""
        s = view.snapshot
        lost = lost_partitions(s)
        names = partition_names(s, lost)
        since = self._seen.update(names, view.now)
        reported = frozenset(n for n in names if view.now - since[n] >= self.settings.alert_after)
        if reported != self._reported:
            self._reported, self._changed = reported, self._changed + 1
        if not names:
            return []
        offline = offline_replicas(s) & lost[s.replica_partition]
        brokers = s.broker_ids[np.unique(s.replica_broker[offline])].tolist()
        many = len(names) > 1
        where = f", those on {listed(brokers, 'broker')} are offline" if brokers else ""
        stuck = int(np.count_nonzero(lost & ~s.partition_settled))
        if stuck:
            where += f"; {plural(stuck, 'reassignment')} cannot finish without one"
        return [
            Finding(
                kind="lost_partitions",
                subject="partitions",
                sentence=f"{plural(len(names), 'partition')} ({listed(names)}) cannot be healed: "
                f"no replica in sync is left to copy {'them' if many else 'it'} from{where}; "
                f"{'they are' if many else 'it is'} set aside until one comes back",
                state="notice",
                since=min(since.values()),
                alert=bool(reported),
                data={
                    "partitions": len(names),
                    "named": list(names[:_NAMED]),
                    "brokers": brokers,
                    "seconds": view.now - min(since.values()),
                    "changed": self._changed,
                },
            )
        ]


def healable(snapshot: Snapshot) -> tuple[Ints, Ints]:
    """(B,), (D,) offline replicas that can be healed, by broker and by disk."""
    s = snapshot
    heals = offline_replicas(s) & ~lost_partitions(s)[s.replica_partition]
    by_broker: Ints = np.bincount(s.replica_broker[heals], minlength=s.n_brokers)
    disks = s.replica_disk[heals] if s.n_disks else np.zeros(0, np.int64)
    by_disk: Ints = np.bincount(disks[disks >= 0], minlength=s.n_disks)
    return by_broker, by_disk
