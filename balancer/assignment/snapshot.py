"""An application as a cluster: instances are brokers, subtopologies topics, tasks partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.assignment.absence import awaited_copies
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.lags import Lags
from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState
from cluster_model.snapshot import SMALLEST, Bools, BrokerState, Floats, Ints, Snapshot

# The resource of what was measured, in tasks of mean load; and of the bytes of state.
LOAD, STATE = "load", "state_bytes"
# The resource of an application whose load was not measured: each task counts as 1.
TASKS = "tasks"
# Where no capacity is stated, a thread could carry everything so many times.
_AMPLE = 4.0
# What the core does not accept in the name of an attribute.
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
# More copies than any thread has: what sharing a rack counts for.
_CROWDED = 1e9


@dataclass(frozen=True, eq=False, kw_only=True)
class ApplicationSnapshot:
    """An application as the core sees it: where its copies are now, and what others would cost.

    Parameters
    ----------
    snapshot
        Active tasks are leaders, standbys are followers, those that have not caught up are
        warming, and a move costs what has to be restored. Copies that only exist to move a task
        are no replicas; the state that they have makes moves to them cheaper. Missing copies are
        where there is least to do.
    task : (P,) int
        The task of each partition.
    """

    snapshot: Snapshot
    task: Ints


def application_snapshot(
    state: ApplicationState, configs: AssignmentConfigs
) -> ApplicationSnapshot:
    """The snapshot of an application from which a better placement of its tasks is sought."""
    s, lags = state, Lags(state, configs)
    of = np.repeat(np.arange(s.n_tasks), np.diff(s.lag_offset))
    numbers = np.unique(s.subtopology)
    names = [f"subtopology-{n}" for n in numbers.tolist()]
    topics = sorted(names)
    place = np.array([topics.index(name) for name in names], np.int64)
    topic = place[np.searchsorted(numbers, s.subtopology)]
    ordered, has = numbers[np.argsort(place)].tolist(), set(s.subtopology[s.stateful].tolist())
    task = np.lexsort((s.partition, topic))
    partition = np.argsort(task)
    factor = np.where(s.stateful, min(1 + configs.num_standby_replicas, s.n_instances), 1)
    resources, capacity, lead, follow = _loads(s)
    racks, rack = _racks(s, configs)
    known = s.lag != UNKNOWN
    size, cost, unit = _costs(s, configs, of)
    copies, anywhere = _copies(s, lags, of, factor, awaited_copies(s, configs))
    weighs = resources.index(LOAD) if LOAD in resources else 0
    _complete(s, lags, copies, factor, lead[:, weighs], rack)
    # where all would have to restore everything, no place costs more than another
    size = np.where(anywhere, 0.0, size)
    held = [copies[t] for t in task.tolist()]
    offset = np.concatenate([[0], np.cumsum([len(h) for h in held])])
    broker = np.array([i for h in held for i in h], np.int64)
    of_replica = np.repeat(task, np.diff(offset))
    warming = lags.behind(of_replica, broker)
    warming[offset[:-1]] = False
    return ApplicationSnapshot(
        snapshot=Snapshot(
            resources=resources,
            broker_ids=np.array(s.instances),
            racks=racks,
            broker_rack=rack,
            hosts=s.instances,
            broker_host=np.arange(s.n_instances),
            broker_state=np.full(s.n_instances, BrokerState.ALIVE),
            capacity=capacity,
            topics=tuple(topics),
            partition_topic=topic[task],
            partition_number=s.partition[task],
            leader_load=lead[task],
            follower_load=follow[task],
            replica_offset=offset,
            replica_broker=broker,
            warming=warming,
            leader=np.zeros(s.n_tasks, np.int64),
            state_size=size[task],
            move_cost_partition=partition[of],
            move_cost_broker=s.lag_instance,
            move_cost=cost,
            cost_unit=unit,
            copy_partition=partition[of[known]],
            copy_broker=s.lag_instance[known],
            copy_lag=np.maximum(s.lag[known], 0).astype(np.float64),
            broker_attributes=_attributes(s),
            topic_attributes={"stateful": ["yes" if n in has else "no" for n in ordered]},
        ),
        task=task,
    )


def _to_restore(s: ApplicationState, configs: AssignmentConfigs) -> Ints:
    """(K,) records that each copy with state has to restore; none if it has caught up."""
    of = np.repeat(np.arange(s.n_tasks), np.diff(s.lag_offset))
    behind = np.where(s.lag == UNKNOWN, s.end_offset[of], s.lag)
    caught_up = (behind == RUNNING) | (behind <= configs.acceptable_recovery_lag)
    return np.where(caught_up & (s.lag != UNKNOWN), 0, behind)


def _bytes_per_record(s: ApplicationState) -> Floats:
    """(T,) bytes of state for each record of the changelogs; empty if some sizes are unknown."""
    if not len(s.state_bytes) or np.isnan(s.state_bytes[s.stateful]).any():
        return np.zeros(0)
    size = np.where(s.stateful, s.state_bytes, 0.0)
    return np.divide(size, s.end_offset, out=np.zeros(len(size)), where=s.end_offset > 0)


def _copies(
    s: ApplicationState, lags: Lags, of: Ints, factor: Ints, awaited: Ints
) -> tuple[list[list[int]], Bools]:
    """The instances of each task's copies, the active one first, and whether it has none.

    The active copy stays where it was unless another has caught up more. Standbys are those that
    were or instances with state on disk, the most caught up first. For awaited copies `factor`
    becomes smaller, but no copy that was and has caught up is given up for them.
    """
    found: list[list[int]] = []
    # by task: instance -> (how it was, lag); the active copy was 0, a standby 1, other state 2
    known: list[dict[int, tuple[int, int]]] = [{} for _ in range(s.n_tasks)]
    ready: list[set[int]] = [set() for _ in range(s.n_tasks)]
    kept = lags.of(of, s.lag_instance) < s.end_offset[of]
    before = np.where(s.previous_active, 0, 1)
    for task, instance, was in (
        (of[kept], s.lag_instance[kept], np.full(int(kept.sum()), 2)),
        (s.previous_task, s.previous_instance, before),
    ):
        behind = lags.behind(task, instance)
        lag = np.where(behind, lags.of(task, instance), 0)
        for t, i, w, b, r in zip(
            task.tolist(),
            instance.tolist(),
            was.tolist(),
            behind.tolist(),
            lag.tolist(),
            strict=True,
        ):
            known[t][i] = (w, r)
            if not b:
                ready[t].add(i)
    surplus: dict[int, int] = {}
    for t, (copies, able, most) in enumerate(zip(known, ready, factor.tolist(), strict=True)):
        if not able:
            found.append([])
            continue
        active = min(able, key=lambda i: (copies[i][0], i))
        rest = sorted(copies.keys() - {active}, key=lambda i: (copies[i][1], copies[i][0] == 2, i))
        equal = sum(1 for i in rest if i in able and copies[i][0] < 2)
        if awaited[t]:
            most = factor[t] = max(most - int(awaited[t]), min(most, 1 + equal))
        if equal >= most > 1:
            surplus[t] = most
        found.append([active, *rest][: max(most, 1 + equal) if most > 1 else 1])
    _drop(s, found, surplus)
    return found, np.array([not copies for copies in found], np.bool_)


def _drop(s: ApplicationState, copies: list[list[int]], surplus: dict[int, int]) -> None:
    """Give up standbys beyond what is asked, those on the instances with the most copies."""
    size = s.capacity.astype(np.float64)
    count = np.bincount([i for held in copies for i in held], minlength=s.n_instances) / size
    for t, most in surplus.items():
        held = copies[t]
        while len(held) > most:
            given_up = max(held[1:], key=lambda i: (count[i], i))
            held.remove(given_up)
            count[given_up] -= 1 / size[given_up]


def _complete(
    s: ApplicationState, lags: Lags, copies: list[list[int]], factor: Ints, load: Floats, rack: Ints
) -> None:
    """Add missing copies: active ones where least load is, standbys where the fewest copies are.

    The largest come first. A standby goes to another rack than the task's other copies if it can.
    """
    size = s.capacity.astype(np.float64)
    used = np.zeros(s.n_instances)
    for t, held in enumerate(copies):
        if held:
            used[held[0]] += load[t]
    missing = [t for t, held in enumerate(copies) if not held]
    everywhere = np.arange(s.n_instances)
    first = s.lag_offset
    for t in sorted(missing, key=lambda t: (-load[t], t)):
        open_ = used + load[t]
        if first[t] < first[t + 1]:
            behind = lags.behind(np.full(s.n_instances, t), everywhere)
            open_ = np.where(behind, np.inf, open_)
        least = int(np.argmin(open_ / size))
        copies[t].append(least)
        used[least] += load[t]
    count = np.bincount([i for held in copies for i in held], minlength=s.n_instances) / size
    for t, held in enumerate(copies):
        for _ in range(int(factor[t]) - len(held)):
            cost = count + _CROWDED * np.isin(rack, rack[held])
            cost[held] = np.inf
            least = int(np.argmin(cost))
            held.append(least)
            count[least] += 1 / size[least]


def _loads(s: ApplicationState) -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    """Resources, capacities, and the loads of active tasks and of standbys."""
    threads = s.capacity[:, None].astype(np.float64)
    names, load = list(s.resources), s.load
    if not names:
        names, load = [TASKS], np.ones((s.n_tasks, 1))
    total = load.sum(0)
    capacity = threads * _AMPLE * np.where(total > SMALLEST, total, 1.0)
    says = np.ones(len(names), np.bool_)
    if s.instance_capacity.size:
        stated = np.isfinite(s.instance_capacity)
        capacity = np.where(stated, s.instance_capacity, capacity)
        says = np.asarray(stated.any(0))
    follow = np.zeros_like(load)
    if s.resources and LOAD not in names:
        # each resource in tasks of mean load; their mean is the load of the task. How large an
        # instance is, is what it states.
        unit = np.where(total > SMALLEST, total / max(s.n_tasks, 1), 1.0)
        names.append(LOAD)
        capacity = np.column_stack([capacity, (capacity / unit)[:, says].mean(1)])
        load = np.column_stack([load, (load / unit).mean(1)])
        follow = np.column_stack([follow, np.zeros(s.n_tasks)])
    size = s.state_bytes
    if len(size) and not np.isnan(size[s.stateful]).any() and STATE not in names:
        size = np.where(s.stateful, size, 0.0)
        names.append(STATE)
        ample = np.full(s.n_instances, _AMPLE * (float(size.sum()) or 1.0) * s.n_instances)
        capacity = np.column_stack([capacity, ample])
        load, follow = np.column_stack([load, size]), np.column_stack([follow, size])
    return tuple(names), capacity, load, follow


def _racks(s: ApplicationState, configs: AssignmentConfigs) -> tuple[tuple[str, ...], Ints]:
    """Where copies of a task should not be together: the tags of the configuration, or racks.

    Instances of which neither is known are each by themselves.
    """
    tags = [key for key in configs.rack_aware_assignment_tags if key in s.tags]
    names = []
    for i, instance in enumerate(s.instances):
        known = [f"{key}={s.tags[key][i]}" for key in tags if s.tags[key][i] is not None]
        if tags:
            names.append(",".join(known) or f"instance {instance}")
        else:
            known_rack = len(s.rack) and s.rack[i] >= 0
            names.append(s.racks[s.rack[i]] if known_rack else f"instance {instance}")
    racks = sorted(set(names))
    return tuple(racks), np.searchsorted(racks, names)


def _costs(s: ApplicationState, configs: AssignmentConfigs, of: Ints) -> tuple[Floats, Floats, str]:
    """(T,) cost of restoring all state, (K,) of what copies lack, and the unit of both."""
    records, lacks = s.end_offset.astype(np.float64), _to_restore(s, configs).astype(np.float64)
    per = _bytes_per_record(s)
    if not len(per):
        return records, lacks, "records"
    return records * per, lacks * per[of], "bytes"


def _attributes(s: ApplicationState) -> dict[str, Any]:
    """What goals may read of the instances: tags, further attributes, and threads.

    Tags and attributes may have names that no goal can state.
    """
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for key, values in {**s.tags, **s.attributes}.items():
        name = _NOT_IN_A_NAME.sub("_", key) or "_"
        if name in origin:
            raise TaskAssignmentError(
                f"tags or attributes {origin[name]!r} and {key!r} found, which goals both know as "
                f"{name!r}"
            )
        origin[name], found[name] = key, values
    found.setdefault("threads", tuple(s.capacity.tolist()))
    return found
