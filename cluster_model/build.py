"""Builds the canonical arrays of a snapshot from records in any order (a document, an API)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, StrictBool

from cluster_model.attributes import valid_name, valid_value
from cluster_model.errors import SnapshotError
from cluster_model.snapshot import BrokerState, Snapshot
from metrics_reporter.documents import BrokerId, Number, Whole

Item = TypeVar("Item")
# Only the first of many wrong items is reported, and none is kept.
Items = Annotated[tuple[Item, ...], FailFast()]
# Attributes of a broker or a topic: text or numbers.
OwnAttributes = dict[
    Annotated[str, AfterValidator(valid_name)], Annotated[Any, AfterValidator(valid_value)]
]


class _SnapshotRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DiskRecord(_SnapshotRecord):
    """One disk of a broker; a cordoned one gets no new replicas."""

    path: str
    capacity: Number = Field(ge=0)
    alive: StrictBool = True
    cordoned: StrictBool = False


class BrokerRecord(_SnapshotRecord):
    """One broker; its rack defaults to the host's name, its host to the broker's own.

    With `may_hold` it may hold replicas of the named topics only.
    """

    id: BrokerId
    capacity: dict[str, Number]
    rack: str | None = None
    host: str | None = None
    state: Literal["alive", "new", "dead", "demoted", "bad_disks"] = "alive"
    broker_set: str | None = None
    disks: Items[DiskRecord] = ()
    attributes: OwnAttributes = {}
    may_hold: tuple[str, ...] | None = None


class CopyRecord(_SnapshotRecord):
    """How many records a broker's copy of a partition is behind, replica or not."""

    broker: BrokerId
    lag: Number = Field(ge=0)


class PartitionRecord(_SnapshotRecord):
    """One partition; replicas are broker ids in preference order, the leader a broker id.

    ``state_size`` is what a move costs, ``move_cost`` what it costs to the brokers (by id)
    where that differs, both in the document's ``cost_unit``.

    During a reassignment both are the future ones. If it cannot finish, the replicas are
    the previous ones, and there is no leader.

    Replicas of a creatable partition need no source to be copied from; it may have none yet.
    With `replication_factor` a partition gets that many if it has fewer. The brokers of
    `warming` hold replicas that are not ready to lead.
    """

    topic: str
    partition: Whole
    replicas: Items[BrokerId] = ()
    leader: BrokerId | None = None
    leader_load: dict[str, Number] = {}
    follower_load: dict[str, Number] = {}
    log_dirs: tuple[str | None, ...] | None = None
    state_size: Number | None = Field(default=None, ge=0)
    move_cost: dict[str, Annotated[Number, Field(ge=0)]] = {}
    lag: Number | None = Field(default=None, ge=0)
    reassigning: StrictBool = False
    creatable: StrictBool | None = None
    replication_factor: Whole | None = Field(default=None, ge=1)
    copies: Items[CopyRecord] = ()
    warming: Items[BrokerId] = ()


class TrafficRecord(_SnapshotRecord):
    """Communication between two partitions, each as (topic, number)."""

    source: tuple[str, Whole]
    target: tuple[str, Whole]
    rate: Number = Field(ge=0)


class SnapshotDocument(_SnapshotRecord):
    """A whole cluster as records: the shape of a JSON snapshot.

    Its `creatable` applies to the partitions that do not state their own.
    """

    resources: Items[str]
    brokers: Items[BrokerRecord] = Field(min_length=1)
    partitions: Items[PartitionRecord] = ()
    topics: Items[str] = ()
    topic_attributes: dict[str, OwnAttributes] = {}
    traffic: Items[TrafficRecord] = ()
    creatable: StrictBool = False
    cost_unit: str | None = None
    cluster_id: str | None = None
    taken_ms: Whole | None = None
    metadata_version: Whole | None = None


def build_snapshot(document: SnapshotDocument) -> Snapshot:
    """Build the arrays from records in any order.

    Raises
    ------
    SnapshotError
        For a broker or partition that contradicts the rest, by name.
    """
    resources = document.resources
    if len({type(b.id) for b in document.brokers}) > 1:
        raise SnapshotError("brokers: ids that are numbers and ids that are names found")
    brokers = sorted(document.brokers, key=_broker_id)
    partitions = sorted(document.partitions, key=lambda p: (p.topic, p.partition))
    for one, next_ in pairwise(brokers):
        if one.id == next_.id:
            raise SnapshotError(f"brokers: broker {one.id} is listed twice")
    index = {b.id: i for i, b in enumerate(brokers)}
    host = [b.host if b.host is not None else f"broker-{b.id}" for b in brokers]
    rack = [b.rack if b.rack is not None else h for b, h in zip(brokers, host, strict=True)]
    hosts, racks = sorted(set(host)), sorted(set(rack))
    sets = sorted({b.broker_set for b in brokers if b.broker_set is not None})
    topics = sorted({p.topic for p in partitions} | set(document.topics))
    topic_index = {t: i for i, t in enumerate(topics)}
    disks = {
        (i, d.path): (k, d)
        for k, (i, d) in enumerate((i, d) for i, b in enumerate(brokers) for d in b.disks)
    }
    if len(disks) != sum(len(b.disks) for b in brokers):
        raise SnapshotError("brokers: two disks of one broker have the same path")

    replica_broker: list[int] = []
    replica_disk: list[int] = []
    leader: list[int] = []
    creatable: list[bool] = []
    warming: list[bool] = []
    for p in partitions:
        where = f"partition {p.topic}-{p.partition}"
        creatable.append(document.creatable if p.creatable is None else p.creatable)
        if not p.replicas and not creatable[-1]:
            raise SnapshotError(
                f"{where}: no replicas found, at least one expected of a partition that is not "
                "creatable"
            )
        for id_ in p.replicas:
            if id_ not in index:
                raise SnapshotError(f"{where}: replica on broker {id_}, which is not in brokers")
        replica_broker += (index[i] for i in p.replicas)
        for id_ in p.warming:
            if id_ not in p.replicas or id_ == p.leader:
                raise SnapshotError(
                    f"{where}: warming replica on broker {id_} found, one of its followers expected"
                )
        warming += (id_ in p.warming for id_ in p.replicas)
        for copy in p.copies:
            if copy.broker not in index:
                raise SnapshotError(f"{where}: copy on broker {copy.broker}, not in brokers")
        if p.leader is not None and p.leader not in p.replicas:
            raise SnapshotError(f"{where}: leader {p.leader} is not among replicas {p.replicas}")
        leader.append(-1 if p.leader is None else p.replicas.index(p.leader))
        if disks:
            replica_disk += _disks_of(p, where, index, disks)
        elif p.log_dirs is not None and any(p.log_dirs):
            raise SnapshotError(f"{where}: log_dirs given, but no broker lists its disks")
    strange = document.topic_attributes.keys() - topic_index.keys()
    if strange:
        raise SnapshotError(f"topic_attributes: topic {min(strange)} is not in topics")
    copies = [(i, index[c.broker], c.lag) for i, p in enumerate(partitions) for c in p.copies]
    number = {(p.topic, p.partition): i for i, p in enumerate(partitions)}
    costs = _move_costs(partitions, index)
    ends = [(_known(number, t.source), _known(number, t.target)) for t in document.traffic]
    return Snapshot(
        resources=resources,
        broker_ids=np.array([b.id for b in brokers]),
        racks=tuple(racks),
        broker_rack=np.array([racks.index(r) for r in rack]),
        hosts=tuple(hosts),
        broker_host=np.array([hosts.index(h) for h in host]),
        broker_state=np.array([BrokerState[b.state.upper()] for b in brokers]),
        capacity=_matrix([(f"broker {b.id} capacity", b.capacity) for b in brokers], resources),
        topics=tuple(topics),
        partition_topic=np.array([topic_index[p.topic] for p in partitions], np.int64),
        partition_number=np.array([p.partition for p in partitions], np.int64),
        leader_load=_matrix(
            [(f"partition {p.topic}-{p.partition} leader_load", p.leader_load) for p in partitions],
            resources,
            missing=0.0,
        ),
        follower_load=_matrix(
            [
                (f"partition {p.topic}-{p.partition} follower_load", p.follower_load)
                for p in partitions
            ],
            resources,
            missing=0.0,
        ),
        replica_offset=np.cumsum([0, *(len(p.replicas) for p in partitions)]),
        replica_broker=np.array(replica_broker, np.int64),
        leader=np.array(leader, np.int64),
        broker_sets=tuple(sets),
        broker_set=np.array(
            [-1 if b.broker_set is None else sets.index(b.broker_set) for b in brokers]
            if sets
            else [],
            np.int64,
        ),
        disk_broker=np.array([i for i, _ in disks], np.int64),
        disk_path=tuple(path for _, path in disks),
        disk_capacity=np.array([d.capacity for _, d in disks.values()], np.float64),
        disk_alive=np.array([d.alive for _, d in disks.values()], np.bool_),
        replica_disk=np.array(replica_disk, np.int64),
        traffic_from=np.array([a for a, _ in ends], np.int64),
        traffic_to=np.array([b for _, b in ends], np.int64),
        traffic_rate=np.array([t.rate for t in document.traffic], np.float64),
        state_size=_optional("state_size", [p.state_size for p in partitions]),
        move_cost_partition=np.array(costs[0], np.int64),
        move_cost_broker=np.array(costs[1], np.int64),
        move_cost=np.array(costs[2], np.float64),
        lag=_optional("lag", [p.lag for p in partitions]),
        reassigning=np.array([p.reassigning for p in partitions], np.bool_),
        disk_cordoned=np.array([d.cordoned for _, d in disks.values()], np.bool_),
        broker_attributes=_by_name([b.attributes for b in brokers]),
        topic_attributes=_by_name([document.topic_attributes.get(t, {}) for t in topics]),
        creatable=np.array(creatable, np.bool_),
        target_replicas=np.array([p.replication_factor or 0 for p in partitions], np.int64),
        warming=np.array(warming, np.bool_),
        copy_partition=np.array([p for p, _, _ in copies], np.int64),
        copy_broker=np.array([b for _, b, _ in copies], np.int64),
        copy_lag=np.array([lag for _, _, lag in copies], np.float64),
        may_hold=_may_hold(brokers, topic_index),
        cost_unit=document.cost_unit,
        cluster_id=document.cluster_id,
        taken_ms=document.taken_ms,
        metadata_version=document.metadata_version,
    )


def _broker_id(broker: BrokerRecord) -> Any:
    return broker.id


def _move_costs(
    partitions: list[PartitionRecord], index: dict[int | str, int]
) -> tuple[list[int], list[int], list[float]]:
    """Partitions, brokers and costs of the destinations that have their own cost."""
    by_text = {str(id_): b for id_, b in index.items()}
    rows: list[tuple[int, int, float]] = []
    for i, p in enumerate(partitions):
        for broker, cost in p.move_cost.items():
            if broker not in by_text:
                raise SnapshotError(
                    f"partition {p.topic}-{p.partition}, move_cost: broker {broker} found, "
                    "which is not in brokers"
                )
            rows.append((i, by_text[broker], cost))
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def to_document(snapshot: Snapshot) -> dict[str, Any]:
    """The records of a snapshot; :func:`build_snapshot` turns them back into equal arrays."""
    s = snapshot
    disks: list[list[dict[str, Any]]] = [[] for _ in range(s.n_brokers)]
    for k, (b, path, capacity, alive) in enumerate(
        zip(
            s.disk_broker.tolist(),
            s.disk_path,
            s.disk_capacity.tolist(),
            s.disk_alive.tolist(),
            strict=True,
        )
    ):
        disk = {"path": path, "capacity": capacity, "alive": alive}
        cordoned = len(s.disk_cordoned) and s.disk_cordoned[k]
        disks[b].append(disk | ({"cordoned": True} if cordoned else {}))
    brokers = []
    for i, broker in enumerate(s.broker_ids.tolist()):
        record: dict[str, Any] = {
            "id": broker,
            "rack": s.racks[s.broker_rack[i]],
            "host": s.hosts[s.broker_host[i]],
            "state": BrokerState(s.broker_state[i]).name.lower(),
            "capacity": dict(zip(s.resources, s.capacity[i].tolist(), strict=True)),
        }
        if s.broker_sets and s.broker_set[i] >= 0:
            record["broker_set"] = s.broker_sets[s.broker_set[i]]
        if disks[i]:
            record["disks"] = disks[i]
        if own := s.attributes("broker").of_row(i):
            record["attributes"] = own
        if s.may_hold.size and not s.may_hold[:, i].all():
            record["may_hold"] = [s.topics[t] for t in np.flatnonzero(s.may_hold[:, i]).tolist()]
        brokers.append(record)
    ids = s.broker_ids[s.replica_broker].tolist()
    special: dict[int, dict[str, float]] = {}
    for q, b, cost in zip(
        s.move_cost_partition.tolist(),
        s.move_cost_broker.tolist(),
        s.move_cost.tolist(),
        strict=True,
    ):
        special.setdefault(q, {})[str(s.broker_ids[b])] = cost
    offset = s.replica_offset.tolist()
    leader_load, follower_load = s.leader_load.tolist(), s.follower_load.tolist()
    copies: dict[int, list[dict[str, Any]]] = {}
    all_ids = s.broker_ids.tolist()
    for p, b, lag in zip(
        s.copy_partition.tolist(), s.copy_broker.tolist(), s.copy_lag.tolist(), strict=True
    ):
        copies.setdefault(p, []).append({"broker": all_ids[b], "lag": lag})
    partitions = []
    for p, (topic, number, lead) in enumerate(
        zip(s.partition_topic.tolist(), s.partition_number.tolist(), s.leader.tolist(), strict=True)
    ):
        replicas = ids[offset[p] : offset[p + 1]]
        record = {
            "topic": s.topics[topic],
            "partition": number,
            "replicas": replicas,
            "leader": None if lead < 0 else replicas[lead],
            "leader_load": dict(zip(s.resources, leader_load[p], strict=True)),
            "follower_load": dict(zip(s.resources, follower_load[p], strict=True)),
        }
        if s.n_disks:
            on = s.replica_disk[offset[p] : offset[p + 1]].tolist()
            record["log_dirs"] = [None if k < 0 else s.disk_path[k] for k in on]
        if len(s.state_size):
            record["state_size"] = float(s.state_size[p])
        if p in special:
            record["move_cost"] = special[p]
        if len(s.lag):
            record["lag"] = float(s.lag[p])
        if len(s.reassigning) and s.reassigning[p]:
            record["reassigning"] = True
        if len(s.creatable) and s.creatable[p]:
            record["creatable"] = True
        if len(s.target_replicas) and s.target_replicas[p]:
            record["replication_factor"] = int(s.target_replicas[p])
        if len(s.warming) and (warm := s.warming[offset[p] : offset[p + 1]]).any():
            record["warming"] = [id_ for id_, is_ in zip(replicas, warm, strict=True) if is_]
        if p in copies:
            record["copies"] = copies[p]
        partitions.append(record)
    name = [(record["topic"], record["partition"]) for record in partitions]
    traffic = [
        {"source": name[a], "target": name[b], "rate": rate}
        for a, b, rate in zip(
            s.traffic_from.tolist(), s.traffic_to.tolist(), s.traffic_rate.tolist(), strict=True
        )
    ]
    identity = {
        "cost_unit": s.cost_unit,
        "cluster_id": s.cluster_id,
        "taken_ms": s.taken_ms,
        "metadata_version": s.metadata_version,
    }
    of_topics = {t: own for i, t in enumerate(s.topics) if (own := s.attributes("topic").of_row(i))}
    return {
        **{name: value for name, value in identity.items() if value is not None},
        "resources": list(s.resources),
        "brokers": brokers,
        "topics": list(s.topics),
        **({"topic_attributes": of_topics} if of_topics else {}),
        "partitions": partitions,
        "traffic": traffic,
    }


def _by_name(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Attributes by name, from those of each broker or topic; None for one without it."""
    names = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def _matrix(
    rows: list[tuple[str, dict[str, float]]],
    resources: tuple[str, ...],
    missing: float | None = None,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    matrix = np.zeros((len(rows), len(resources)))
    for i, (where, values) in enumerate(rows):
        unknown = values.keys() - set(resources)
        if unknown:
            raise SnapshotError(
                f"{where}: resource {min(unknown)!r} found, one of "
                f"{', '.join(resources) or 'none'} expected"
            )
        for r, resource in enumerate(resources):
            value = values.get(resource, missing)
            if value is None:
                raise SnapshotError(f"{where}: no value for resource {resource!r}")
            if not (np.isfinite(value) and value >= 0):
                raise SnapshotError(
                    f"{where}, {resource}: {value} found, a finite number of at least 0 expected"
                )
            matrix[i, r] = value
    return matrix


def _disks_of(
    p: PartitionRecord,
    where: str,
    index: dict[int | str, int],
    disks: dict[tuple[int, str], tuple[int, DiskRecord]],
) -> list[int]:
    if p.log_dirs is None:
        return [-1] * len(p.replicas)
    if len(p.log_dirs) != len(p.replicas):
        raise SnapshotError(
            f"{where}: {len(p.log_dirs)} log_dirs found, {len(p.replicas)} (one each) expected"
        )
    found = []
    for broker, path in zip(p.replicas, p.log_dirs, strict=True):
        if path is not None and (index[broker], path) not in disks:
            raise SnapshotError(f"{where}: broker {broker} has no disk {path!r}")
        found.append(-1 if path is None else disks[index[broker], path][0])
    return found


def _may_hold(
    brokers: list[BrokerRecord], topics: dict[str, int]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(T, B) which topics each broker may hold; empty if no broker names any."""
    if all(b.may_hold is None for b in brokers):
        return np.empty((0, 0), np.bool_)
    table = np.ones((len(topics), len(brokers)), np.bool_)
    for i, broker in enumerate(brokers):
        if broker.may_hold is None:
            continue
        unknown = set(broker.may_hold) - topics.keys()
        if unknown:
            raise SnapshotError(
                f"broker {broker.id} may_hold: topic {min(unknown)!r} found, one of the "
                "snapshot's topics expected"
            )
        table[:, i] = False
        table[[topics[name] for name in broker.may_hold], i] = True
    return table


def _known(number: dict[tuple[str, int], int], name: tuple[str, int]) -> int:
    if name not in number:
        raise SnapshotError(f"traffic: partition {name[0]}-{name[1]} is not in partitions")
    return number[name]


def _optional(name: str, values: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    given = [v for v in values if v is not None]
    if given and len(given) != len(values):
        raise SnapshotError(f"{name}: given for {len(given)} of {len(values)} partitions only")
    return np.array(given, np.float64)
