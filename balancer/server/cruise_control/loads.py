"""Loads of brokers and partitions as Cruise Control states them: MB, KB/s and percent."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from balancer.inspection.load import state_name
from balancer.server.cruise_control.answers import Answer, LongAnswer, table, table_line
from balancer.server.errors import RequestError
from balancer.server.patterns import partitions_of_topics
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot

MB = 1024.0**2
KB = 1024.0
_PERCENT_PER_CORE = 100.0
RESOURCES = {"cpu": "cpu", "nw_in": "network_in", "nw_out": "network_out", "disk": "disk"}
# Partitions that are read, written and sent at once.
_PART = 2000
_COUNTS = ("Leaders", "Replicas")
_CAPACITIES = ("DiskCapacityMB", "NetworkInCapacity", "NetworkOutCapacity", "NumCore")
_RATES = {"CpuPct", "LeaderNwInRate", "FollowerNwInRate", "NwOutRate", "PnwOutRate"}
_COLUMNS = {
    "DISK(MB)": "DiskMB",
    "DISK(%)": "DiskPct",
    "CPU(%)": "CpuPct",
    "LEADER_NW_IN(KB/s)": "LeaderNwInRate",
    "FOLLOWER_NW_IN(KB/s)": "FollowerNwInRate",
    "NW_OUT(KB/s)": "NwOutRate",
    "PNW_OUT(KB/s)": "PnwOutRate",
    "LEADERS": "Leaders",
    "REPLICAS": "Replicas",
}


def broker_stats(
    s: Snapshot,
    *,
    untrusted: Collection[int] = (),
    disks: bool = False,
    capacity_only: bool = False,
) -> Answer:
    """Loads and capacities of hosts and brokers; what the snapshot does not state is left out.

    Parameters
    ----------
    s
        The cluster.
    untrusted
        Ids of brokers whose reports are not trusted: their rates and cpu are left out.
    disks
        Whether to state each disk.
    capacity_only
        Whether to leave the loads out.
    """
    columns = _columns(s)
    for name in _RATES & columns.keys():
        columns[name][np.isin(s.broker_ids, list(untrusted))] = np.nan
    if capacity_only:
        columns = {k: v for k, v in columns.items() if k in _CAPACITIES}
    of_disks = _disks(s) if disks else []
    brokers = [
        {
            "Broker": s.broker_ids[b].item(),
            "Host": s.hosts[s.broker_host[b]],
            "Rack": s.racks[s.broker_rack[b]],
            "BrokerState": state_name(s, b).upper().replace(" ", "_"),
            **_row(columns, b),
            **({"DiskState": of_disks[b]} if of_disks else {}),
        }
        for b in range(s.n_brokers)
    ]
    sums: dict[str, Floats] = {
        name: np.bincount(s.broker_host, values, len(s.hosts)).astype(np.float64)
        for name, values in columns.items()
    }
    if "DiskPct" in columns:
        with np.errstate(divide="ignore", invalid="ignore"):
            sums["DiskPct"] = 100 * sums["DiskMB"] / sums["DiskCapacityMB"]
    hosts = [{"Host": name, **_row(sums, h)} for h, name in enumerate(s.hosts)]

    def text() -> str:
        return "\n\n".join(
            table(
                [*(k.upper() for k in keys), *_COLUMNS],
                [[row[k] for k in keys] + [row.get(c) for c in _COLUMNS.values()] for row in rows],
            )
            for keys, rows in ((("Host",), hosts), (("Host", "Broker"), brokers))
        )

    return Answer({"hosts": hosts, "brokers": brokers}, text)


def partition_load(
    s: Snapshot,
    *,
    resource: str,
    entries: int | None,
    topic: str | None,
    partition: str | None,
    brokers: tuple[int | str, ...],
    estimated: Bools | None = None,
) -> LongAnswer:
    """Partitions by what their leaders carry, the most first.

    Parameters
    ----------
    s
        The cluster.
    resource
        What to sort by: ``cpu``, ``nw_in``, ``nw_out`` or ``disk``.
    entries
        How many to state; None for all.
    topic
        Regular expression of topics.
    partition
        A number, or a range of numbers like ``0-3``.
    brokers
        Only partitions with a replica on one of these; empty for all.
    estimated
        (P,) partitions to leave out, because nobody knows their loads; None for no such ones.
    """
    name = RESOURCES.get(resource.lower())
    if name is None or name not in s.resources:
        known = ", ".join(k for k, v in RESOURCES.items() if v in s.resources)
        raise RequestError(f"parameter resource: {resource[:100]!r} found, one of {known} expected")
    chosen = np.ones(s.n_partitions, np.bool_)
    if topic is not None:
        chosen &= partitions_of_topics(topic, s)
    if partition is not None:
        if not (found := re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", partition)):
            raise RequestError("parameter partition: a number or a range like 0-3 expected")
        low, high = int(found[1]), int(found[2] or found[1])
        chosen &= (s.partition_number >= low) & (s.partition_number <= high)
    if brokers:
        here = np.isin(s.replica_broker, s.broker_index(brokers))
        chosen &= np.bincount(s.replica_partition[here], minlength=s.n_partitions) > 0
    if estimated is not None:
        chosen &= ~estimated
    rows = np.flatnonzero(chosen)
    order = np.argsort(-s.leader_load[rows, s.resource(name)], kind="stable")
    chosen_rows = rows[order][:entries]

    def parts() -> Iterator[list[dict[str, Any]]]:
        for first in range(0, len(chosen_rows), _PART):
            yield _partitions(s, chosen_rows[first : first + _PART])

    return LongAnswer("records", parts, lambda: _lines(s, parts()))


_PARTITION = {
    "cpu": ("cpu", 1.0),
    "disk": ("disk", MB),
    "networkInbound": ("network_in", KB),
    "networkOutbound": ("network_out", KB),
}


def _partitions(s: Snapshot, rows: Ints) -> list[dict[str, Any]]:
    """Some partitions, by their rows."""
    loads = {
        title: (s.leader_load[rows, s.resource(name)] / unit).tolist()
        for title, (name, unit) in _PARTITION.items()
        if name in s.resources
    }
    topics, numbers = s.partition_topic[rows].tolist(), s.partition_number[rows].tolist()
    size = s.replica_offset[rows + 1] - s.replica_offset[rows]
    ends = np.cumsum(size)
    replicas = np.repeat(s.replica_offset[rows] - ends + size, size) + np.arange(size.sum())
    holders = s.broker_ids[s.replica_broker[replicas]].tolist()
    found, start = [], 0
    for place, (leader, end) in enumerate(zip(s.leader[rows].tolist(), ends.tolist(), strict=True)):
        held = holders[start:end]
        start = end
        found.append(
            {
                "topic": s.topics[topics[place]],
                "partition": numbers[place],
                "leader": held[leader] if leader >= 0 else None,
                "followers": held[:leader] + held[leader + 1 :] if leader >= 0 else held,
                **{title: values[place] for title, values in loads.items()},
                "msg_in": None,
            }
        )
    return found


def _lines(s: Snapshot, parts: Iterable[list[dict[str, Any]]]) -> Iterator[str]:
    """The partitions as a table, whose columns are as wide as any partition's values may be."""
    heads = ["topic", "partition", "leader", "followers", *_PARTITION]
    identity = max(len(str(b)) for b in s.broker_ids.tolist())
    most = int(s.replication_factor.max(initial=1)) - 1
    wide = {
        "topic": max(map(len, s.topics), default=0),
        "partition": len(str(s.partition_number.max(initial=0))),
        "leader": identity,
        "followers": 2 + most * (identity + 2),
        **{
            title: len(f"{s.leader_load[:, s.resource(name)].max(initial=0.0) / unit:.3f}")
            for title, (name, unit) in _PARTITION.items()
            if name in s.resources
        },
    }
    widths = [max(len(head), wide.get(head, 0)) for head in heads]
    yield table_line([head.upper() for head in heads], widths) + "\n"
    for records in parts:
        yield "".join(table_line([r.get(h) for h in heads], widths) + "\n" for r in records)


def _columns(s: Snapshot) -> dict[str, Floats]:
    """Figures of brokers by Cruise Control's names."""
    leads, of, on = s.replica_is_leader, s.replica_partition, s.replica_broker

    def summed(values: Any) -> Floats:
        found: Floats = np.bincount(on, values, s.n_brokers).astype(np.float64)
        return found

    def carried(name: str) -> Floats:
        r = s.resource(name)
        found: Floats = np.where(leads, s.leader_load[of, r], s.follower_load[of, r])
        return found

    found: dict[str, Floats] = {
        "Leaders": summed(leads),
        "Replicas": summed(np.ones(s.n_replicas)),
    }
    if "disk" in s.resources:
        used, room = summed(carried("disk")), s.capacity[:, s.resource("disk")]
        with np.errstate(divide="ignore", invalid="ignore"):
            found |= {
                "DiskMB": used / MB,
                "DiskCapacityMB": room / MB,
                "DiskPct": 100 * used / room,
            }
    if "cpu" in s.resources:
        cores = s.capacity[:, s.resource("cpu")]
        with np.errstate(divide="ignore", invalid="ignore"):
            found |= {
                "CpuPct": 100 * summed(carried("cpu")) / cores,
                "NumCore": np.floor(cores / _PERCENT_PER_CORE),
            }
    if "network_in" in s.resources:
        load = carried("network_in")
        found |= {
            "LeaderNwInRate": summed(load * leads) / KB,
            "FollowerNwInRate": summed(load * ~leads) / KB,
            "NetworkInCapacity": s.capacity[:, s.resource("network_in")] / KB,
        }
    if "network_out" in s.resources:
        r = s.resource("network_out")
        found |= {
            "NwOutRate": summed(carried("network_out")) / KB,
            "PnwOutRate": summed(s.leader_load[of, r]) / KB,
            "NetworkOutCapacity": s.capacity[:, r] / KB,
        }
    return found


def _row(columns: dict[str, Floats], place: int) -> dict[str, float | int]:
    return {
        name: int(values[place]) if name in (*_COUNTS, "NumCore") else float(values[place])
        for name, values in columns.items()
        if np.isfinite(values[place])
    }


def _disks(s: Snapshot) -> list[dict[str, Any]]:
    """For each broker, its disks by path."""
    found: list[dict[str, Any]] = [{} for _ in range(s.n_brokers)]
    if not s.n_disks:
        return found
    placed = s.replica_disk >= 0
    on, leads = s.replica_disk[placed], s.replica_is_leader[placed]
    held, led = np.bincount(on, minlength=s.n_disks), np.bincount(on, leads, s.n_disks)
    sized = "disk" in s.resources
    used = np.zeros(s.n_disks)
    if sized:
        r, of = s.resource("disk"), s.replica_partition
        size = np.where(s.replica_is_leader, s.leader_load[of, r], s.follower_load[of, r])
        used += np.bincount(on, size[placed], s.n_disks)
    for d in range(s.n_disks):
        alive, room = bool(s.disk_alive[d]), float(s.disk_capacity[d])
        figures: dict[str, Any] = {
            "NumReplicas": int(held[d]),
            "NumLeaderReplicas": int(led[d]),
        }
        if not alive or sized:
            figures["DiskMB"] = float(used[d] / MB) if alive else "DEAD"
        if not alive or (sized and room > 0):
            figures["DiskPct"] = float(100 * used[d] / room) if alive else "DEAD"
        found[int(s.disk_broker[d])][s.disk_path[d]] = figures
    return found
