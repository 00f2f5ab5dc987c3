"""Sets replication throttles as Kafka's own tool does, and restores the previous values.

Kafka does not record who set a throttle. So an executor with an owner's name adds an extra
entry to a list of throttled replicas, a mark: entries before it existed already, those after it
are the execution's. The mark's partition is a number derived from the name that no topic has,
so it throttles nothing; its broker is the rate, in KiB/s. If executors vote, a second entry
with the same partition follows, whose broker is the epoch of the vote.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from balancer.execution.cluster import ClusterClient, ConfigResource, Key, PartitionView
from balancer.execution.limits import Limits
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
# Brokers pass a change on to each other within moments: seconds between two looks.
_PAUSE = 0.2


class ThrottleConfig(BaseModel):
    """A config of a topic or broker: the value found, and the value set by the execution."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    name: str
    key: str
    found: str | None
    ours: str

    @property
    def resource(self) -> ConfigResource:
        """The topic or broker that is configured."""
        return ConfigResource(self.kind, self.name)


class Flow(NamedTuple):
    """Brokers that a partition is copied from and to."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def flow(found: PartitionView, target: Iterable[int] | None = None) -> Flow:
    """Sources and destinations of a reassignment; without a target, of the ongoing one."""
    to = found.settled if target is None else tuple(target)
    return Flow(found.before, tuple(b for b in to if b not in found.before))


def flows(moves: Iterable[Task]) -> dict[Key, Flow]:
    """Sources and destinations of moves, combined for each partition."""
    found: dict[Key, Flow] = {}
    for task in moves:
        before = found.get(task.key, Flow((), ()))
        # A replica that one move creates may be the source of the next.
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
    """Rates by broker: for all sources and destinations, if anything is copied at all."""
    brokers = sorted({b for f in flows.values() for b in (*f.sources, *f.destinations)})
    return {b: {LEADER_RATE: str(int(rate)), FOLLOWER_RATE: str(int(rate))} for b in brokers}


def settings(
    cluster: ClusterClient,
    flows: Mapping[Key, Flow],
    rate: float | None,
    disk_brokers: Iterable[int] = (),
    disk_rate: float | None = None,
    known: Iterable[ThrottleConfig] = (),
    *,
    shared: bool = False,
    owner: str | None = None,
    epoch: int | None = None,
) -> list[ThrottleConfig]:
    """What to set, together with the values found now.

    Parameters
    ----------
    flows
        The moves to throttle. Kafka's tool includes those of others, since it overwrites
        their throttles; here the settings of others are kept and stay theirs.
    rate, disk_rate
        Bytes/s between brokers and between a broker's disks; None for no throttle.
    disk_brokers
        Brokers that copy between their disks.
    known
        Settings of this execution that are in place: the values they found still count.
    shared
        Whether others move replicas too: then none of their rates is raised.
    owner
        Owner of the mark, by which :func:`marked` recognises the throttle; the rate is then
        rounded down to KiB/s, the unit of the mark.
    epoch
        Epoch of the vote under which it is set; None without one.
    """
    mark = None
    if rate is not None and owner is not None:
        rate = rate // _KIB * _KIB
        mark = _mark(owner, rate, epoch)
    requested: dict[ConfigResource, dict[str, str]] = {}
    if rate is not None:
        for topic, lists in throttled_replicas(flows).items():
            requested[ConfigResource("topic", topic)] = lists
        for broker, both in rates(flows, rate).items():
            requested[ConfigResource("broker", str(broker))] = both
    if disk_rate is not None:
        for broker in disk_brokers:
            at = requested.setdefault(ConfigResource("broker", str(broker)), {})
            at[LOG_DIR_RATE] = str(int(disk_rate))
    found = cluster.configs({r: list(values) for r, values in requested.items()})
    known = list(known)
    before = {(s.resource, s.key): s for s in known}
    # A journal may have lost its record of a throttle, as in a power loss; the mark remains.
    dead = {
        (r, key): mine
        for r, values in found.items()
        for key in values
        if key in LISTS and (r, key) not in before and owner is not None
        if (mine := marked(values[key], owner)) is not None
    }
    marks = [marked(s.ours, owner) for s in known if s.key in LISTS and owner is not None]
    dead_rates = {str(mine.rate) for mine in (*dead.values(), *marks) if mine is not None}
    # If another broker already had the same rate, it is an operator's.
    dead_rates -= {s.found for s in known if s.found is not None}
    made = []
    for r, values in requested.items():
        for key, value in values.items() if r in found else ():
            own = before.get((r, key))
            now = found[r][key] if own is None else own.found
            was, ours = now, value
            if key in LISTS:
                ours = _with(now if own is None else own.ours, value, mark)
                was = dead[r, key].found if (r, key) in dead else now
            elif own is None and key in (LEADER_RATE, FOLLOWER_RATE) and now in dead_rates:
                was = None
            elif shared and now is not None and float(now) < float(value):
                ours = now
            made.append(ThrottleConfig(kind=r.kind, name=r.name, key=key, found=was, ours=ours))
    others = {ConfigResource("broker", str(b)) for mine in dead.values() for _, b in mine.replicas}
    keys = (LEADER_RATE, FOLLOWER_RATE)
    for r, rated in cluster.configs(dict.fromkeys(sorted(others - requested.keys()), keys)).items():
        made += [
            ThrottleConfig(kind=r.kind, name=r.name, key=key, found=None, ours=str(rated[key]))
            for key in keys
            if (r, key) not in before and rated[key] in dead_rates
        ]
    return made


_UNTHROTTLED = {
    "broker": "while it is down it copies nothing, but once back it may copy without this limit",
    "topic": "its moves may copy without a limit",
}


def apply(cluster: ClusterClient, requested: Iterable[ThrottleConfig]) -> list[str]:
    """Apply the settings; returns a sentence for each topic or broker that refuses."""
    values: dict[ConfigResource, dict[str, str | None]] = {}
    for s in requested:
        values.setdefault(s.resource, {})[s.key] = s.ours
    return [
        f"throttle of {r.kind} {r.name} not set: {why}; {_UNTHROTTLED[r.kind]}"
        for r, why in cluster.set_configs(values).items()
    ]


def remove(
    cluster: ClusterClient,
    ours: Iterable[ThrottleConfig],
    lasting: Mapping[Key, Flow] | None = None,
    limits: Limits | None = None,
) -> tuple[list[ThrottleConfig], list[str]]:
    """Restore the values found.

    A value that was changed by others meanwhile stays; of a list of throttled replicas, what
    is not ours stays. Configs of deleted topics are gone with them.

    Parameters
    ----------
    lasting
        Moves that continue: they stay throttled.
    limits
        How long Kafka is asked; by default as for any execution.

    Returns
    -------
    left
        Settings that remain, for moves that continue, or because their broker does not
        answer or refuses.
    problems
        Values of others that were left alone, and refusals, as sentences.
    """
    limits = limits or Limits()
    stays = {s: _lasting(s, lasting or {}) for s in ours}
    todo = {s for s, kept in stays.items() if kept != s}
    problems: dict[ThrottleConfig, str] = {}
    refused: dict[ConfigResource, str] = {}
    clean, failed = Counter[ConfigResource](), Counter[ConfigResource]()
    for look in range(limits.throttle_looks):
        # A broker that does not answer now won't do so in a second, and costs a timeout.
        open_ = [s for s in stays if s in todo and failed[s.resource] < limits.throttle_attempts]
        if not open_:
            break
        if look:
            time.sleep(_PAUSE)
        asked: dict[ConfigResource, list[str]] = {}
        for s in open_:
            asked.setdefault(s.resource, []).append(s.key)
        found = cluster.configs(asked)
        values: dict[ConfigResource, dict[str, str | None]] = {}
        changed: set[ConfigResource] = set()
        for s in open_:
            if s.resource not in found:
                continue
            now = found[s.resource][s.key]
            after = _without(s, now, stays[s])
            if now != after:
                changed.add(s.resource)
            if now not in (s.ours, s.found) and now == after and s.key not in LISTS:
                problems[s] = (
                    f"{s.key} of {s.kind} {s.name} was changed to {now} by another client: left so"
                )
                continue
            # Even if it seems done: a value set just before may not be visible yet.
            values.setdefault(s.resource, {})[s.key] = after
        said = cluster.set_configs(values)
        gone = {r for r, why in said.items() if _deleted(r, why)}
        refused |= {r: why for r, why in said.items() if r not in gone}
        failed.update(r for r in asked if r not in found or r in said)
        clean.update(r for r in asked if r in found and r not in changed and r not in said)
        for r in changed:
            clean[r] = 0
        enough = limits.throttle_confirming_looks
        todo = {s for s in todo if s.resource not in gone and clean[s.resource] < enough}
    over = [s for s in stays if s in todo]
    left = [kept for s, kept in stays.items() if s not in todo and kept is not None]
    return [*over, *left], [*problems.values(), *_unreached(over, refused)]


class MarkedList(NamedTuple):
    """A list of throttled replicas with an owner's mark.

    Parameters
    ----------
    found
        The previous value; None for nothing.
    replicas
        Partition and broker of the entries that the execution added.
    rate
        Bytes/s.
    epoch
        Epoch of the vote under which it was set; None without a vote.
    """

    found: str | None
    replicas: frozenset[tuple[int, int]]
    rate: int
    epoch: int | None = None


def marked(value: str | None, owner: str) -> MarkedList | None:
    """The parts of a list that an execution of that owner marked; None without such a mark.

    Examples
    --------
    >>> cluster_setting = _with("7:9", "0:1,0:2", _mark("me", 51200, 17))
    >>> marked(cluster_setting, "me")
    MarkedList(found='7:9', replicas=frozenset({(0, 1), (0, 2)}), rate=51200, epoch=17)
    >>> marked(cluster_setting, "you") is None
    True
    """
    entries = _entries(value)
    at, end = _place(entries, _number(owner))
    if at == end:
        return None
    rate, *epoch = (int(entry.partition(":")[2]) for entry in entries[at:end])
    pairs = (entry.partition(":")[::2] for entry in entries[end:])
    return MarkedList(
        ",".join(entries[:at]) or None,
        frozenset((int(partition), int(broker)) for partition, broker in pairs),
        rate * _KIB,
        epoch[0] if epoch else None,
    )


def _number(owner: str) -> str:
    return str(_MARKS + zlib.crc32(owner.encode()) % _MARKS)


def _mark(owner: str, rate: float, epoch: int | None = None) -> str:
    number = _number(owner)
    mark = f"{number}:{int(rate // _KIB)}"
    return mark if epoch is None else f"{mark},{number}:{epoch}"


def _place(entries: list[str], number: str) -> tuple[int, int]:
    """Start and end of the mark with that number, for any rate and epoch."""
    found = [i for i, e in enumerate(entries) if e.startswith(f"{number}:")]
    return (found[0], found[-1] + 1) if found else (len(entries), len(entries))


def _unreached(left: Iterable[ThrottleConfig], refused: Mapping[ConfigResource, str]) -> list[str]:
    resources = sorted({s.resource for s in left})
    return [
        f"throttle of {r.kind} {r.name} not yet removed: "
        f"{refused.get(r, 'it does not answer')}; recover once it is back"
        for r in resources
    ]


def _entries(value: str | None) -> list[str]:
    return [e for e in (value or "").split(",") if e]


def _with(found: str | None, value: str, mark: str | None = None) -> str:
    """A list of throttled replicas with more of them; ``*`` already throttles all."""
    entries = _entries(found)
    if "*" in entries:
        return found or ""
    if mark is None:
        return ",".join(sorted({*entries, *_entries(value)}))
    at, end = _place(entries, mark.partition(":")[0])
    before, ours = entries[:at], entries[end:]
    return ",".join([*before, mark, *sorted({*ours, *_entries(value)} - {*before})])


def _without(s: ThrottleConfig, now: str | None, stays: ThrottleConfig | None) -> str | None:
    """The value of a config after the execution, apart from what stays of it."""
    if now in (s.ours, s.found):
        return s.found if stays is None else stays.ours
    if s.key not in LISTS:
        return now
    mine = set(_entries(s.ours)) - set(_entries(s.found))
    mine -= set() if stays is None else set(_entries(stays.ours))
    rest = [e for e in _entries(now) if e not in mine]
    return ",".join(rest) or None


def _lasting(s: ThrottleConfig, flows: Mapping[Key, Flow]) -> ThrottleConfig | None:
    """The part of a setting that is still needed while these moves continue."""
    if s.key not in LISTS:
        brokers = {str(b) for f in flows.values() for b in (*f.sources, *f.destinations)}
        return s if s.kind == "broker" and s.name in brokers and s.key != LOG_DIR_RATE else None
    at = LISTS.index(s.key)
    needed = {f"{k.partition}:{b}" for k, f in flows.items() if k.topic == s.name for b in f[at]}
    found = set(_entries(s.found))
    added = [e for e in _entries(s.ours) if e not in found]
    if not needed & set(added):
        return None
    # The mark stays as long as the entries that it marks.
    kept = {e for e in added if e in needed or int(e.partition(":")[0]) >= _MARKS}
    entries = [e for e in _entries(s.ours) if e in found or e in kept]
    return s.model_copy(update={"ours": ",".join(entries)})


def _deleted(resource: ConfigResource, why: str) -> bool:
    """Whether a topic refuses because it no longer exists, in the wording of any client."""
    said = "".join(c for c in why.lower() if c.isalpha())
    return resource.kind == "topic" and "unknowntopic" in said
