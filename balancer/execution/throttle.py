"""Replication throttles as Kafka's own tool sets them, and what was there before put back.

Kafka keeps no note of who set a throttle. So an executor with an owner's name writes an entry
more into a list of throttled replicas, a mark: what stands before it was found, what follows it
is the execution's. The mark's partition is a number that only the name gives and no topic has,
so it throttles nothing; its broker is the rate, in KiB/s.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from balancer.execution.cluster import Cluster, Key, PartitionView, Resource
from balancer.execution.tasks import Task

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
_KIB = 1024
# Half of what Kafka reads as a partition's number; topics stay far below.
_MARKS = 2**30
# Brokers pass a change on to each other within moments.
_LOOKS, _PAUSE = 10, 0.2


class Setting(BaseModel):
    """A config of a topic or broker: what was found, and what the execution made of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    name: str
    key: str
    found: str | None
    ours: str

    @property
    def resource(self) -> Resource:
        """What is configured."""
        return Resource(self.kind, self.name)


class Flow(NamedTuple):
    """Brokers that a partition is copied from and to."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def flow(found: PartitionView, target: Iterable[int] | None = None) -> Flow:
    """Sources and destinations of a reassignment; of the ongoing one without a target."""
    to = found.settled if target is None else tuple(target)
    return Flow(found.before, tuple(b for b in to if b not in found.before))


def flows(moves: Iterable[Task]) -> dict[Key, Flow]:
    """Sources and destinations of moves, a partition's moves taken together."""
    found: dict[Key, Flow] = {}
    for task in moves:
        before = found.get(task.key, Flow((), ()))
        # What one move brings to a broker, the next may be copied from.
        found[task.key] = Flow(
            tuple(dict.fromkeys((*before.sources, *task.origin))),
            tuple(dict.fromkeys((*before.destinations, *task.added))),
        )
    return found


def throttled_replicas(flows: Mapping[Key, Flow]) -> dict[str, dict[str, str]]:
    """Topic to the values of its two lists of throttled replicas.

    Examples
    --------
    >>> lists = throttled_replicas({Key("a", 0): Flow((1, 2), (3,))})["a"]
    >>> lists[LEADER_REPLICAS], lists[FOLLOWER_REPLICAS]
    ('0:1,0:2', '0:3')
    """
    lists: dict[str, dict[str, list[str]]] = {}
    for key, f in flows.items():
        for name, brokers in zip(LISTS, f, strict=True):
            entries = [f"{key.partition}:{b}" for b in brokers]
            lists.setdefault(key.topic, {}).setdefault(name, []).extend(entries)
    return {
        topic: {name: ",".join(sorted(entries)) for name, entries in both.items() if entries}
        for topic, both in lists.items()
    }


def rates(flows: Mapping[Key, Flow], rate: float) -> dict[int, dict[str, str]]:
    """Broker to its rates: all that are copied from or to, where anything is copied at all."""
    brokers = sorted({b for f in flows.values() for b in (*f.sources, *f.destinations)})
    return {b: {LEADER_RATE: str(int(rate)), FOLLOWER_RATE: str(int(rate))} for b in brokers}


def settings(
    cluster: Cluster,
    flows: Mapping[Key, Flow],
    rate: float | None,
    disk_brokers: Iterable[int] = (),
    disk_rate: float | None = None,
    known: Iterable[Setting] = (),
    *,
    shared: bool = False,
    owner: str | None = None,
) -> list[Setting]:
    """What to set, beside what is found there now.

    Parameters
    ----------
    flows
        The moves to throttle. Kafka's tool adds those that others began, since it
        overwrites their throttles; here what others set is kept, and stays theirs.
    rate, disk_rate
        Bytes/s between brokers and between a broker's disks; None throttles nothing.
    disk_brokers
        Brokers that copy between their disks.
    known
        Settings of this execution that are in place: what they found still counts.
    shared
        Whether others move replicas too: then no rate of theirs is raised.
    owner
        Whose mark to set, so that :func:`marked` knows the throttle again; the rate is then
        rounded down to KiB/s, as the mark tells it.
    """
    mark = None
    if rate is not None and owner is not None:
        rate = rate // _KIB * _KIB
        mark = f"{_mark(owner)}:{int(rate // _KIB)}"
    wanted: dict[Resource, dict[str, str]] = {}
    if rate is not None:
        for topic, lists in throttled_replicas(flows).items():
            wanted[Resource("topic", topic)] = lists
        for broker, both in rates(flows, rate).items():
            wanted[Resource("broker", str(broker))] = both
    if disk_rate is not None:
        for broker in disk_brokers:
            at = wanted.setdefault(Resource("broker", str(broker)), {})
            at[LOG_DIR_RATE] = str(int(disk_rate))
    found = cluster.configs({r: list(values) for r, values in wanted.items()})
    before = {(s.resource, s.key): s for s in known}
    made = []
    for r, values in wanted.items():
        for key, value in values.items() if r in found else ():
            own = before.get((r, key))
            now = found[r][key] if own is None else own.found
            ours = value
            if key in LISTS:
                ours = _with(now if own is None else own.ours, value, mark)
            elif shared and now is not None and float(now) < float(value):
                ours = now
            made.append(Setting(kind=r.kind, name=r.name, key=key, found=now, ours=ours))
    return made


def apply(cluster: Cluster, wanted: Iterable[Setting]) -> list[str]:
    """Set what is wanted; returns a sentence for each topic or broker that refuses."""
    values: dict[Resource, dict[str, str | None]] = {}
    for s in wanted:
        values.setdefault(s.resource, {})[s.key] = s.ours
    return [
        f"{r.kind} {r.name} could not be throttled: {why}"
        for r, why in cluster.set_configs(values).items()
    ]


def remove(cluster: Cluster, ours: Iterable[Setting]) -> tuple[list[Setting], list[str]]:
    """Put back what was found.

    A value that somebody else changed meanwhile stays; in a list of throttled replicas
    it keeps what is not ours.

    Returns
    -------
    left
        Settings that are still there, since their broker does not answer or refuses.
    problems
        Values of others that were left alone, and refusals, in sentences.
    """
    left, problems = list(ours), dict[Setting, str]()
    clean = 0
    for look in range(_LOOKS):
        if not left:
            break
        if look:
            time.sleep(_PAUSE)
        asked: dict[Resource, list[str]] = {}
        for s in left:
            asked.setdefault(s.resource, []).append(s.key)
        found = cluster.configs(asked)
        values: dict[Resource, dict[str, str | None]] = {}
        changed = 0
        for s in left:
            if s.resource not in found:
                continue
            now = found[s.resource][s.key]
            after = _without(s, now)
            changed += now != after
            if now not in (s.ours, s.found) and now == after and s.key not in LISTS:
                problems[s] = (
                    f"{s.key} of {s.kind} {s.name} was changed to {now} by another: left so"
                )
                continue
            # Also where it seems done: what was set just before may not be seen yet.
            values.setdefault(s.resource, {})[s.key] = after
        refused = cluster.set_configs(values)
        clean = 0 if changed else clean + 1
        if clean > 1:
            gone = {r for r in asked if r in found and r not in refused}
            left = [s for s in left if s.resource not in gone]
            return left, [*problems.values(), *_unreached(left, refused)]
    return left, [*problems.values(), *_unreached(left, {})]


class Marked(NamedTuple):
    """A list of throttled replicas with an owner's mark.

    Parameters
    ----------
    found
        What was there before; None for nothing.
    replicas
        Partition and broker of what the execution added.
    rate
        Bytes/s.
    """

    found: str | None
    replicas: frozenset[tuple[int, int]]
    rate: int


def marked(value: str | None, owner: str) -> Marked | None:
    """What an execution of that owner made of a list; None where it has no mark of it.

    Examples
    --------
    >>> cluster_setting = _with("7:9", "0:1,0:2", f"{_mark('me')}:50")
    >>> marked(cluster_setting, "me").found, marked(cluster_setting, "me").rate
    ('7:9', 51200)
    >>> marked(cluster_setting, "you") is None
    True
    """
    entries = _entries(value)
    at = _place(entries, _mark(owner))
    if at is None:
        return None
    pairs = (entry.partition(":")[::2] for entry in entries[at + 1 :])
    return Marked(
        ",".join(entries[:at]) or None,
        frozenset((int(partition), int(broker)) for partition, broker in pairs),
        int(entries[at].partition(":")[2]) * _KIB,
    )


def _mark(owner: str) -> int:
    return _MARKS + zlib.crc32(owner.encode()) % _MARKS


def _place(entries: list[str], mark: int | str) -> int | None:
    """Where the mark stands, whatever its rate."""
    return next((i for i, e in enumerate(entries) if e.startswith(f"{mark}:")), None)


def _unreached(left: Iterable[Setting], refused: Mapping[Resource, str]) -> list[str]:
    resources = sorted({s.resource for s in left})
    return [
        f"throttle of {r.kind} {r.name} not yet removed: "
        f"{refused.get(r, 'it does not answer')}; recover once it is back"
        for r in resources
    ]


def _entries(value: str | None) -> list[str]:
    return [e for e in (value or "").split(",") if e]


def _with(found: str | None, value: str, mark: str | None = None) -> str:
    """A list of throttled replicas with more of them; ``*`` throttles all already."""
    entries = _entries(found)
    if "*" in entries:
        return found or ""
    if mark is None:
        return ",".join(sorted({*entries, *_entries(value)}))
    at = _place(entries, mark.partition(":")[0])
    before, ours = (entries, []) if at is None else (entries[:at], entries[at + 1 :])
    return ",".join([*before, mark, *sorted({*ours, *_entries(value)} - {*before})])


def _without(s: Setting, now: str | None) -> str | None:
    """What a config is to be when the execution is over."""
    if now in (s.ours, s.found):
        return s.found
    if s.key not in LISTS:
        return now
    mine = set(_entries(s.ours)) - set(_entries(s.found))
    rest = [e for e in _entries(now) if e not in mine]
    return ",".join(rest) or None
