"""What is where now: the load of brokers, racks, disks, topics and partitions, as figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from balancer.problem.liveness import dead_brokers
from balancer.problem.topics import named_partitions
from cluster_model import InputError, Snapshot
from cluster_model.columns import LOAD, Column
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Floats
from cluster_model.trust import Distrust
from cluster_model.units import COUNTS, column_unit
from goals import Cluster
from metrics_reporter.suggestions import one_of

# Columns that Kafka itself tells, whether or not anybody measures the others.
_TOLD = {"disk", *COUNTS}


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Row):
    """One amount in the unit of its resource, as a share of capacity, and in fair shares.

    ``of_capacity`` is None without a capacity, ``fair_shares`` for what should carry nothing.
    """

    amount: float
    of_capacity: float | None = None
    fair_shares: float | None = None


class DiskLoad(_Row):
    """A disk: what fills it, None if sizes are not known, and how many replicas it holds."""

    broker: int | str
    path: str
    state: str
    capacity: float
    used: float | None
    replicas: int


class BrokerLoad(_Row):
    """A broker: figures by resource, with ``replica_count`` and ``leader_count``.

    Of a broker whose reports are not trusted, only those that Kafka itself tells.
    """

    broker: int | str
    rack: str
    host: str
    state: str
    capacity: dict[str, float]
    figures: dict[str, Figure]


class ColumnLoad(_Row):
    """One resource or count of every broker, as lists side by side, by rack and id.

    ``rack`` is a place in ``racks``; a broker that is not alive is in ``states`` by its id. What
    nobody measured is None.
    """

    name: str
    unit: str
    racks: tuple[str, ...]
    broker: tuple[int | str, ...]
    rack: tuple[int, ...]
    amount: tuple[float | None, ...]
    of_capacity: tuple[float | None, ...]
    fair_shares: tuple[float | None, ...]
    states: dict[str, str]


class RackLoad(_Row):
    """A rack: its brokers taken together."""

    rack: str
    brokers: int
    not_alive: int
    figures: dict[str, Figure]


class TopicLoad(_Row):
    """A topic: what all its replicas carry; absent where no partition of it is measured."""

    topic: str
    partitions: int
    replicas: int
    amounts: dict[str, float]
    of_cluster: dict[str, float]


class PartitionLoad(_Row):
    """A partition: where it is, and what its leader and one follower carry, if it is measured."""

    partition: str
    leader: int | str | None
    replicas: tuple[int | str, ...]
    leader_amounts: dict[str, float]
    follower_amounts: dict[str, float]


class Total(_Row):
    """A resource or count of the whole cluster, and its fullest broker."""

    unit: str
    amount: float
    of_capacity: float | None
    fullest_broker: int | str
    fullest: Figure


class Totals(_Row):
    """The cluster as a whole: sizes, what is out of order, and totals by resource."""

    cluster_id: str | None
    taken_ms: int | None
    brokers: int
    racks: int
    topics: int
    partitions: int
    replicas: int
    brokers_not_alive: int
    disks_offline: int
    replicas_offline: int
    partitions_without_leader: int
    partitions_reassigning: int
    figures: dict[str, Total]


@dataclass(frozen=True)
class _Measured:
    """A column of B brokers."""

    amount: Floats
    capacity: Floats | None
    share: Floats


class ClusterLoad:
    """The load of a cluster; rows are made only for what is asked.

    Parameters
    ----------
    snapshot
        The cluster.
    distrust
        Brokers whose reports are not trusted, and partitions whose loads are unknown: those of
        the snapshot are estimates, which only sums over several of them include.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> load = ClusterLoad(synthetic_snapshot(brokers=6, partitions=60, racks=3, seed=2))
    >>> [row.broker for row in load.brokers(sort="disk", limit=2)]
    [5, 6]
    """

    def __init__(self, snapshot: Snapshot, distrust: Distrust | None = None) -> None:
        self.snapshot = snapshot
        self._distrust = distrust or Distrust()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the figures: each resource, then the numbers of replicas and leaders."""
        return (*self.snapshot.resources, *COUNTS)

    def totals(self) -> Totals:
        """The cluster as a whole."""
        s = self.snapshot
        figures = {}
        for name in self.columns:
            m = self._measured[name]
            of_capacity = None
            if m.capacity is not None and (size := m.capacity[self._lives].sum()) > 0:
                of_capacity = float(m.amount.sum() / size)
            most = int(np.argmax(self._rank(name)))
            figures[name] = Total(
                unit=column_unit(name),
                amount=float(m.amount.sum()),
                of_capacity=of_capacity,
                fullest_broker=s.broker_ids[most].item(),
                fullest=_figure(m.amount, m.capacity, m.share, most),
            )
        disk = np.append(s.disk_alive, True)[s.replica_disk] if s.n_disks else np.True_
        return Totals(
            cluster_id=s.cluster_id,
            taken_ms=s.taken_ms,
            brokers=s.n_brokers,
            racks=len(s.racks),
            topics=len(s.topics),
            partitions=s.n_partitions,
            replicas=s.n_replicas,
            brokers_not_alive=int(np.count_nonzero(~self._lives)),
            disks_offline=int(np.count_nonzero(~s.disk_alive)),
            replicas_offline=int(np.count_nonzero(~(self._lives[s.replica_broker] & disk))),
            partitions_without_leader=int(np.count_nonzero(s.leaderless)),
            partitions_reassigning=int(np.count_nonzero(~s.partition_settled)),
            figures=figures,
        )

    def brokers(
        self,
        *,
        sort: str | None = None,
        limit: int | None = None,
        only: Sequence[int | str] | None = None,
    ) -> list[BrokerLoad]:
        """Brokers by rack and id, or with most of a column first.

        Parameters
        ----------
        sort
            A resource, ``replica_count`` or ``leader_count``: by the share of capacity, else by
            the amount.
        limit
            Maximum number of rows.
        only
            Ids of the brokers to show.
        """
        s = self.snapshot
        if sort is None:
            order = np.lexsort((np.arange(s.n_brokers), s.broker_rack))
        else:
            order = np.argsort(-self._rank(self.known(sort)), kind="stable")
        if only is not None:
            order = order[np.isin(order, [self.broker_index(id_) for id_ in only])]
        return [self._broker(b) for b in order[:limit].tolist()]

    def column(self, name: str) -> ColumnLoad:
        """One column of all brokers; at a thousand brokers, far less than all their rows."""
        s, name = self.snapshot, self.known(name)
        m = self._measured[name]
        order = np.lexsort((np.arange(s.n_brokers), s.broker_rack)).tolist()
        figures = [
            _figure(m.amount, m.capacity, m.share, b) if self._tells(name, b) else None
            for b in order
        ]
        states = {str(s.broker_ids[b].item()): state_name(s, b) for b in order}
        return ColumnLoad(
            name=name,
            unit=column_unit(name),
            racks=s.racks,
            broker=tuple(s.broker_ids[order].tolist()),
            rack=tuple(s.broker_rack[order].tolist()),
            amount=tuple(None if f is None else f.amount for f in figures),
            of_capacity=tuple(None if f is None else f.of_capacity for f in figures),
            fair_shares=tuple(None if f is None else f.fair_shares for f in figures),
            states={broker: state for broker, state in states.items() if state != "alive"},
        )

    def racks(self) -> list[RackLoad]:
        """Racks by name."""
        s, n = self.snapshot, len(self.snapshot.racks)

        def added(values: Floats | Bools) -> Floats:
            found: Floats = np.bincount(s.broker_rack, values, n).astype(np.float64)
            return found

        sums = {
            name: (
                added(m.amount),
                None if m.capacity is None else added(np.where(self._lives, m.capacity, 0.0)),
                added(m.share),
            )
            for name, m in self._measured.items()
        }
        brokers, lost = added(np.ones(s.n_brokers)), added(~self._lives)
        return [
            RackLoad(
                rack=s.racks[r],
                brokers=int(brokers[r]),
                not_alive=int(lost[r]),
                figures={name: _figure(*of, r) for name, of in sums.items()},
            )
            for r in range(n)
        ]

    def disks(self, broker: int | str | None = None) -> list[DiskLoad]:
        """The disks of a broker, or of all; empty if the snapshot has none."""
        s = self.snapshot
        if not s.n_disks:
            return []
        placed = s.replica_disk >= 0
        on = s.replica_disk[placed]
        held = np.bincount(on, minlength=s.n_disks)
        used = [None] * s.n_disks
        if "disk" in s.resources:
            used = np.bincount(on, self._replica_load("disk")[placed], s.n_disks).tolist()
        if broker is None:
            chosen = np.arange(s.n_disks)
        else:
            chosen = np.flatnonzero(s.disk_broker == self.broker_index(broker))
        cordoned = s.disk_cordoned if len(s.disk_cordoned) else np.zeros(s.n_disks, np.bool_)
        return [
            DiskLoad(
                broker=s.broker_ids[s.disk_broker[d]].item(),
                path=s.disk_path[d],
                state="offline" if not s.disk_alive[d] else "cordoned" if cordoned[d] else "alive",
                capacity=float(s.disk_capacity[d]),
                used=used[d],
                replicas=int(held[d]),
            )
            for d in chosen.tolist()
        ]

    def topics(
        self,
        *,
        sort: str | None = None,
        limit: int | None = None,
        broker: int | str | None = None,
    ) -> list[TopicLoad]:
        """The topics that carry most.

        Parameters
        ----------
        sort
            The column to order by; by default the first resource.
        limit
            Maximum number of rows.
        broker
            Count only the replicas on this broker; topics without any are left out.
        """
        s = self.snapshot
        sort = self.known(sort or self.columns[0])
        here = np.ones(s.n_replicas, np.bool_)
        if broker is not None:
            here = s.replica_broker == self.broker_index(broker)
        n = len(s.topics)
        topic = s.partition_topic[s.replica_partition[here]]
        sums = {
            name: np.bincount(topic, self._replica_load(name)[here], n).astype(np.float64)
            for name in self.columns
        }
        # what a broker that is not trusted carries is an estimate, whatever it is made of
        known = here & ~self.estimated[s.replica_partition]
        if broker is not None:
            known &= ~self._untrusted[s.replica_broker]
        told = np.bincount(s.partition_topic[s.replica_partition], known, n) > 0
        for name in sums.keys() - _TOLD:
            sums[name][~told] = -np.inf
        held = np.bincount(topic, minlength=n)
        size = np.bincount(s.partition_topic, minlength=n)
        order = np.argsort(-sums[sort], kind="stable")
        order = order[held[order] > 0] if broker is not None else order
        totals = {name: float(m.amount.sum()) for name, m in self._measured.items()}
        return [
            TopicLoad(
                topic=s.topics[t],
                partitions=int(size[t]),
                replicas=int(held[t]),
                amounts={name: float(v[t]) for name, v in sums.items() if v[t] >= 0},
                of_cluster={
                    name: float(v[t] / totals[name]) if totals[name] else 0.0
                    for name, v in sums.items()
                    if v[t] >= 0
                },
            )
            for t in order[:limit].tolist()
        ]

    def partitions(
        self,
        *,
        sort: str | None = None,
        limit: int | None = None,
        broker: int | str | None = None,
        topic: str | None = None,
    ) -> list[PartitionLoad]:
        """The partitions whose replicas carry most, all or on one broker.

        Parameters
        ----------
        sort
            The column to order by; by default the first resource.
        limit
            Maximum number of rows.
        broker
            Only partitions with a replica on this broker, by what that replica carries.
        topic
            Only partitions of this topic.
        """
        s = self.snapshot
        by = self.known(sort or self.columns[0])
        load = self._replica_load(by)
        here = np.ones(s.n_replicas, np.bool_)
        if broker is not None:
            here = s.replica_broker == self.broker_index(broker)
        of = s.replica_partition
        total = np.bincount(of[here], load[here], s.n_partitions).astype(np.float64)
        if by not in _TOLD:
            total[self.estimated] = -1.0
        wanted = np.bincount(of[here], minlength=s.n_partitions) > 0
        if broker is None:
            wanted[:] = True
        if topic is not None:
            one_of("topic", topic, s.topics, InputError)
            wanted &= s.partition_topic == s.topics.index(topic)
        chosen = np.flatnonzero(wanted)
        if limit is not None and limit < len(chosen):
            # ties are broken by name, as without a limit
            least = np.partition(-total[chosen], limit - 1)[limit - 1] if limit else -np.inf
            chosen = chosen[-total[chosen] <= least]
        order = chosen[np.argsort(-total[chosen], kind="stable")][:limit]
        return [self._partition(p) for p in order.tolist()]

    def known(self, column: str) -> str:
        """The column itself; ``replicas`` and ``leaders`` are short names.

        Raises
        ------
        InputError
            If there is no such column; the message names the nearest.
        """
        column = {"replicas": "replica_count", "leaders": "leader_count"}.get(column, column)
        return one_of("resource", column, self.columns, InputError)

    def broker_index(self, broker: int | str) -> int:
        """The row of a broker; its id may be given as text."""
        ids = [str(id_) for id_ in self.snapshot.broker_ids.tolist()]
        return ids.index(one_of("broker", str(broker), ids, InputError))

    @cached_property
    def estimated(self) -> Bools:
        """(P,) partitions whose measured loads nobody knows: the snapshot has estimates."""
        s = self.snapshot
        found = named_partitions(s, tuple(self._distrust.unknown))
        led = s.replica_is_leader & self._untrusted[s.replica_broker]
        found[s.replica_partition[led]] = True
        return found

    @cached_property
    def _untrusted(self) -> Bools:
        return np.isin(self.snapshot.broker_ids, list(self._distrust.brokers))

    def _tells(self, column: str, broker: int) -> bool:
        """Whether a figure of a broker is more than an estimate."""
        return column in _TOLD or not self._untrusted[broker]

    @cached_property
    def _lives(self) -> Bools:
        return ~dead_brokers(self.snapshot)

    @cached_property
    def _measured(self) -> dict[str, _Measured]:
        s = self.snapshot
        lives = self._lives & s.broker_open
        leads = lives & (s.broker_state != BrokerState.DEMOTED)
        cluster = Cluster(Placement(s), lives, leads, ~self._lives)
        found = {}
        for i, name in enumerate(self.columns):
            resource = i < len(s.resources)
            amount = np.bincount(s.replica_broker, self._replica_load(name), s.n_brokers)
            found[name] = _Measured(
                amount.astype(np.float64),
                s.capacity[:, i] if resource else None,
                cluster.fair_share(Column(LOAD, name) if resource else name),
            )
        return found

    def _replica_load(self, column: str) -> Floats:
        """(N,) what each replica adds to a column."""
        s = self.snapshot
        if column == "replica_count":
            return np.ones(s.n_replicas)
        leads = s.replica_is_leader
        if column == "leader_count":
            return leads.astype(np.float64)
        r, of = s.resource(column), s.replica_partition
        found: Floats = np.where(leads, s.leader_load[of, r], s.follower_load[of, r])
        return found

    def _rank(self, column: str) -> Floats:
        """(B,) what brokers are ordered by: the share of capacity if there is one."""
        m = self._measured[column]
        found = m.amount
        if m.capacity is not None and (m.capacity > 0).all():
            found = m.amount / m.capacity
        return found if column in _TOLD else np.where(self._untrusted, -np.inf, found)

    def _broker(self, b: int) -> BrokerLoad:
        s = self.snapshot
        return BrokerLoad(
            broker=s.broker_ids[b].item(),
            rack=s.racks[s.broker_rack[b]],
            host=s.hosts[s.broker_host[b]],
            state=state_name(s, b),
            capacity={name: float(s.capacity[b, i]) for i, name in enumerate(s.resources)},
            figures={
                name: _figure(m.amount, m.capacity, m.share, b)
                for name, m in self._measured.items()
                if self._tells(name, b)
            },
        )

    def _partition(self, p: int) -> PartitionLoad:
        s = self.snapshot
        first, last = int(s.replica_offset[p]), int(s.replica_offset[p + 1])
        holders = s.broker_ids[s.replica_broker[first:last]].tolist()
        leader = int(s.leader[p])
        amounts = [
            {
                name: float(load[p, i])
                for i, name in enumerate(s.resources)
                if name in _TOLD or not self.estimated[p]
            }
            for load in (s.leader_load, s.follower_load)
        ]
        return PartitionLoad(
            partition=f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}",
            leader=holders[leader] if leader >= 0 else None,
            replicas=tuple(holders),
            leader_amounts=amounts[0],
            follower_amounts=amounts[1],
        )


def state_name(snapshot: Snapshot, broker: int) -> str:
    """The state of a broker in words; one whose disks are all offline is dead."""
    if dead_brokers(snapshot)[broker]:
        return "dead"
    return BrokerState(int(snapshot.broker_state[broker])).name.lower().replace("_", " ")


def _figure(amount: Any, capacity: Any, share: Any, row: int) -> Figure:
    """The figure of one row of arrays."""
    known = capacity is not None and capacity[row] > 0
    return Figure(
        amount=float(amount[row]),
        of_capacity=float(amount[row] / capacity[row]) if known else None,
        fair_shares=float(amount[row] / share[row]) if share[row] > 0 else None,
    )
