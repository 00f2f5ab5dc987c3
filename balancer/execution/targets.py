"""Works out what a plan asks of each partition, given the replicas in Kafka now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from balancer.execution.cluster import ClusterView, HeldReplica, Key, PartitionView
from balancer.planning.document import Action, PlanDocument, PlanError
from balancer.planning.plan import Plan
from metrics_reporter.documents import Number, Whole, WholeKey, shown


class Target(BaseModel):
    """A partition with its original and its target state.

    Parameters
    ----------
    topic, partition
        The partition.
    origin, origin_leader, origin_dirs
        Original replicas in preference order, leader, and log directory by broker.
    target, leader, dirs
        The same after the plan; a leader of None and a missing directory are left to Kafka.
    steps
        For each step that adds or removes a replica: its place in the plan, and the replicas
        after it.
    place
        Place in the plan of the first step of any kind.
    size
        Bytes of one replica; 0 if the plan does not know them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    partition: Whole
    origin: Annotated[tuple[Whole, ...], Field(min_length=1)]
    origin_leader: Whole | None = None
    origin_dirs: dict[WholeKey, str] = {}
    target: Annotated[tuple[Whole, ...], Field(min_length=1)]
    leader: Whole | None = None
    dirs: dict[WholeKey, str] = {}
    steps: tuple[tuple[Whole, tuple[Whole, ...]], ...] = ()
    place: Whole = 0
    size: Number = 0.0

    @property
    def key(self) -> Key:
        """The partition."""
        return Key(self.topic, self.partition)

    @property
    def undone(self) -> Target:
        """The reverse target; it elects the original leader only if that was the preferred one."""
        led = self.origin_leader if self.origin_leader == self.origin[0] else None
        changed = led if led != self.leader else None
        return self.model_copy(update={"target": self.origin, "leader": changed, "dirs": {}})


class PlanReading(NamedTuple):
    """What a plan asks of the partitions that exist, and what no longer applies."""

    targets: list[Target]
    problems: list[str]
    gone: list[str]


def read_plan(plan: Plan | PlanDocument, view: ClusterView) -> PlanReading:
    """What a plan asks, partition by partition, in the plan's order.

    A partition's leader comes first in its preference order, replicas on demoted brokers
    last. Partitions whose replicas are neither those the plan was made for nor those after one
    of its steps are reported as problems, deleted ones as gone; if no partition of the plan
    exists, all are problems.

    Parameters
    ----------
    plan
        The plan, as proposed or as loaded from its file.
    view
        Every partition of the plan; of all topics if the plan demotes brokers.
    """
    document = plan.document() if isinstance(plan, Plan) else plan
    _check_ids(document)
    _check_added(document, view)
    demoted = demoted_brokers(plan)
    in_bytes = document.summary.cost_unit == "bytes"
    steps: dict[Key, list[tuple[int, Action]]] = {}
    for place, action in enumerate(document.actions):
        steps.setdefault(Key(action.topic, action.partition), []).append((place, action))
    reading = PlanReading([], [], [])
    for key, actions in steps.items():
        found = view.partitions.get(key)
        if found is None:
            reading.gone.append(f"{key}: no longer exists, so there is nothing left to do for it")
            continue
        try:
            made_for = document.replicas.get(str(key))
            reading.targets.append(
                _requested(key, found, actions, _numbers(made_for), demoted, in_bytes)
            )
        except _Stale as stale:
            reading.problems.append(f"{key} left as it is: {stale}")
    if not reading.targets:
        # The plan may be for another cluster: then nothing that it asks for has been done.
        reading.problems.extend(reading.gone)
        reading.gone.clear()
    for key, found in view.partitions.items():
        last = _ordered(found.settled, None, demoted)
        if key not in steps and demoted and last != found.settled and found.leader is not None:
            reading.targets.append(
                Target(
                    topic=key.topic,
                    partition=key.partition,
                    origin=found.settled,
                    origin_leader=found.leader,
                    target=_ordered(found.settled, found.leader, demoted),
                    place=len(document.actions),
                )
            )
    return reading


def changed_since(plan: PlanDocument, reading: PlanReading, view: ClusterView) -> list[str]:
    """Why a plan cannot be executed exactly as it is, one sentence each; empty if it can.

    Parameters
    ----------
    plan
        The plan.
    reading
        The plan as :func:`read_plan` reads it.
    view
        The same as for :func:`read_plan`.
    """
    found = [*reading.problems, *reading.gone]
    receiving = {a.destination for a in plan.actions if isinstance(a.destination, int)}
    found += [
        f"broker {broker}, which the plan moves replicas or leaders to, is not there"
        for broker in sorted(receiving - view.brokers)
    ]
    for target in reading.targets:
        now, made_for = view.partitions[target.key], plan.replicas.get(str(target.key))
        if now.moving:
            found.append(f"{target.key}: something else is reassigning it")
        elif made_for is not None and {*made_for} != {*now.settled}:
            found.append(
                f"{target.key}: the plan was made for replicas on "
                f"{_list(_numbers(made_for) or ())}, but they are on {_list(now.settled)}"
            )
    return found


def _check_ids(document: PlanDocument) -> None:
    """Raise PlanError for a plan whose brokers have names: Kafka's brokers have numbers."""
    named = [b for a in document.actions for b in (a.source, a.destination) if isinstance(b, str)]
    named += [b for brokers in document.replicas.values() for b in brokers if isinstance(b, str)]
    if named:
        raise PlanError(
            f"plan: broker {shown(named[0])} found, a number expected: only plans for Kafka, "
            "whose brokers have numbers, can be executed"
        )


def _check_added(document: PlanDocument, view: ClusterView) -> None:
    """Raise PlanError for a plan on brokers that it proposes to add and that do not exist."""
    added = () if document.sizing is None else document.sizing.added
    absent = [b for b in added if b not in view.brokers]
    if absent:
        raise PlanError(
            f"plan: broker {shown(absent[0])} is one that the plan proposes to add, and is not in "
            "the cluster: add the brokers, then plan again"
        )


def _numbers(brokers: Sequence[int | str] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(int(b) for b in brokers)


def demoted_brokers(plan: Plan | PlanDocument) -> frozenset[int]:
    """Brokers whose replicas come last in the preference order."""
    return frozenset(int(b) for b in plan.demoted)


def rollback_targets(done: Iterable[Target], view: ClusterView) -> list[Target]:
    """Targets that reverse the completed moves, from the current state; last in, first out."""
    found = []
    for place, w in enumerate(reversed(list(done))):
        now = view.partitions.get(w.key)
        if now is None:
            continue
        # A leader that was not the preferred one cannot be elected back; the order is restored.
        leader = w.origin_leader if w.origin_leader == w.origin[0] else None
        found.append(
            w.model_copy(
                update={
                    "origin": now.settled,
                    "origin_leader": now.leader,
                    "origin_dirs": w.dirs,
                    "target": w.origin,
                    "leader": leader,
                    "dirs": {
                        b: d
                        for b, d in w.origin_dirs.items()
                        if b in w.dirs or b not in now.settled
                    },
                    "steps": tuple((place, r) for r in _between(now.settled, w.origin)),
                    "place": place,
                }
            )
        )
    return found


def differences(
    requested: Iterable[Target], view: ClusterView, held: Mapping[tuple[Key, int], HeldReplica]
) -> list[str]:
    """How Kafka's state differs from the targets; deleted topics are no difference."""
    found = []
    for w in requested:
        now = view.partitions.get(w.key)
        if now is None:
            continue
        if now.moving or now.replicas != w.target:
            state = " and still moving" if now.moving else ""
            found.append(
                f"{w.key}: replicas {_list(w.target)} planned, {_list(now.replicas)}{state} found"
            )
        if w.leader is not None and now.leader != w.leader:
            led = "none" if now.leader is None else str(now.leader)
            found.append(f"{w.key}: leader {w.leader} planned, {led} found")
        for broker, log_dir in w.dirs.items():
            there = held.get((w.key, broker))
            if there is not None and broker in w.target and there.log_dir != log_dir:
                found.append(
                    f"{w.key}: {log_dir} planned on broker {broker}, {there.log_dir} found"
                )
    return found


class _Stale(Exception):
    """The plan's step does not fit what Kafka reports."""


def _requested(
    key: Key,
    found: PartitionView,
    actions: Sequence[tuple[int, Action]],
    made_for: Sequence[int] | None,
    demoted: frozenset[int],
    in_bytes: bool,
) -> Target:
    replicas, leader = list(found.settled), found.leader
    led_by_plan = False
    dirs: dict[int, str] = {}
    steps: list[tuple[int, tuple[int, ...]]] = []
    done = _done(replicas, [a for _, a in actions], made_for)
    for number, (place, a) in enumerate(actions):
        before = tuple(replicas)
        source, destination = _source(a), _destination(a)
        if number >= done:
            if not _applies(a, replicas):
                raise _Stale(
                    f"step {place + 1} {_reported(a)}, but its replicas are on {_list(before)}"
                )
            replicas = _after(a, replicas)
        # A step that is done does not show which broker led before it.
        followed = leader == source and (number >= done or led_by_plan)
        if a.kind == "leadership" or (a.kind == "move" and (a.leader or followed)):
            leader, led_by_plan = destination, True
        if a.destination_disk is not None and destination is not None:
            dirs[destination] = a.destination_disk
        if tuple(replicas) != before:
            steps.append((place, tuple(replicas)))
    if not replicas:
        raise _Stale("the plan would leave it without replicas")
    target = _ordered(tuple(replicas), leader if leader in replicas else None, demoted)
    if steps:
        steps[-1] = (steps[-1][0], target)
    return Target(
        topic=key.topic,
        partition=key.partition,
        origin=found.settled,
        origin_leader=found.leader,
        target=target,
        leader=leader if led_by_plan else None,
        dirs={b: d for b, d in dirs.items() if b in replicas},
        steps=tuple(steps),
        place=actions[0][0],
        size=max((a.cost for _, a in actions), default=0.0) if in_bytes else 0.0,
    )


def _done(found: Sequence[int], actions: Sequence[Action], made_for: Sequence[int] | None) -> int:
    """How many of a partition's first steps are already done, for example by a stopped execution.

    Raises
    ------
    _Stale
        If the replicas are neither those the plan was made for nor those after one of its steps.
    """
    changing = [n + 1 for n, a in enumerate(actions) if a.kind in ("move", "add", "remove")]
    if made_for is None:
        # The plan does not state its start: undoing the steps done must lead to a start from
        # which all of them apply.
        return next((n for n in reversed(changing) if _leads_here(actions, n, found)), 0)
    after, replicas = {0: set(made_for)}, list(made_for)
    for n, a in enumerate(actions):
        if not _applies(a, replicas):
            raise _Stale(f"the plan's steps do not fit its own replicas, {_list(made_for)}")
        replicas = _after(a, replicas)
        after[n + 1] = set(replicas)
    for n in (*reversed(changing), 0):
        if after[n] == set(found):
            return n
    raise _Stale(
        f"the plan was made for replicas on {_list(made_for)}, but they are on {_list(found)}"
    )


def _leads_here(actions: Sequence[Action], done: int, found: Sequence[int]) -> bool:
    """Whether some first steps can have led to these replicas, with the rest still applicable."""
    replicas = list(found)
    for a in reversed(actions[:done]):
        if a.kind not in ("move", "add", "remove"):
            continue
        if (_destination(a) is not None and _destination(a) not in replicas) or _source(
            a
        ) in replicas:
            return False
        replicas = [b for b in replicas if b != _destination(a)]
        source = _source(a)
        replicas += [] if source is None else [source]
    replicas = list(found)
    for a in actions[done:]:
        if not _applies(a, replicas):
            return False
        replicas = _after(a, replicas)
    return True


def _applies(a: Action, replicas: Sequence[int]) -> bool:
    """Whether a step applies to a partition with these replicas."""
    if a.kind in ("leadership", "move_disk"):
        return _destination(a) in replicas
    gives = a.kind == "add" or _source(a) in replicas
    return gives and (a.kind == "remove" or _destination(a) not in replicas)


def _after(a: Action, replicas: Sequence[int]) -> list[int]:
    """A partition's replicas after a step that applies."""
    changed = list(replicas)
    source, destination = _source(a), _destination(a)
    if a.kind == "move" and source is not None and destination is not None:
        changed[changed.index(source)] = destination
    elif a.kind == "add" and destination is not None:
        changed.append(destination)
    elif a.kind == "remove" and source is not None:
        changed.remove(source)
    return changed


def _source(a: Action) -> int | None:
    return None if a.source is None else int(a.source)


def _destination(a: Action) -> int | None:
    return None if a.destination is None else int(a.destination)


def _reported(a: Action) -> str:
    if a.kind == "move":
        return f"moves a replica from {_source(a)} to {_destination(a)}"
    if a.kind == "add":
        return f"adds a replica on {_destination(a)}"
    if a.kind == "remove":
        return f"removes the replica on {_source(a)}"
    if a.kind == "leadership":
        return f"lets {_destination(a)} lead"
    return f"moves a replica between disks of {_destination(a)}"


def _ordered(
    replicas: tuple[int, ...], leader: int | None, demoted: frozenset[int]
) -> tuple[int, ...]:
    return tuple(sorted(replicas, key=lambda b: (b != leader, b in demoted)))


def _between(now: tuple[int, ...], then: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Replica lists between the two, changing one replica at a time."""
    new = [b for b in then if b not in now]
    old = [b for b in now if b not in then]
    lists, current = [], list(now)
    for i in range(max(len(new), len(old))):
        if i < len(new) and i < len(old):
            current[current.index(old[i])] = new[i]
        elif i < len(new):
            current.append(new[i])
        else:
            current.remove(old[i])
        lists.append(tuple(current))
    if lists:
        lists[-1] = then
    return lists


def _list(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
