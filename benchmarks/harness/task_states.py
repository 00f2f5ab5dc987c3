"""Random states of stream applications, with a configuration for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from balancer.assignment import StateDocument

# Lags whose ranks meet: the boundary of what is acceptable, and both sides of it.
_ACCEPTABLE = (0, 1, 10, 100, 10_000, 2**63 - 1)
_INSTANCES = (1, 2, 3, 4, 6, 9, 12, 25, 40)
_SHARES = (0.05, 0.15, 0.25, 0.25, 0.15, 0.08, 0.04, 0.02, 0.01)
_STRATEGIES = ("none", "min_traffic", "balance_subtopology")
_TAGS = ("cluster", "zone", "size")


def random_document(rng: np.random.Generator, *, racks: bool = True) -> StateDocument:
    """A state of up to forty instances, mostly of a few, and some dozens of tasks.

    Instances differ in threads or do not; lags are codes, small, at the boundary or large; some
    tasks have no state or no changelog; some states have racks, tags, standbys, or no end offsets.

    Parameters
    ----------
    rng
        The source of randomness.
    racks
        Whether some states have racks, and with them a strategy of rack awareness.
    """
    n = int(rng.choice(_INSTANCES, p=_SHARES))
    acceptable = int(rng.choice(len(_ACCEPTABLE), p=(0.2, 0.1, 0.25, 0.25, 0.15, 0.05)))
    configs: dict[str, Any] = {
        "acceptable_recovery_lag": _ACCEPTABLE[acceptable],
        "max_warmup_replicas": int(rng.choice((1, 2, 3, 5, 50))),
        "num_standby_replicas": int(rng.choice((0, 1, 2, 3), p=(0.4, 0.35, 0.15, 0.1))),
        # As in Kafka's assignor.
        "unknown_lag_is_caught_up": True,
    }
    n_racks = int(rng.integers(2, 5))
    with_racks = racks and rng.random() < 0.5
    if with_racks:
        configs["rack_aware_assignment_strategy"] = str(rng.choice(_STRATEGIES))
        if rng.random() < 0.4:
            configs["rack_aware_assignment_traffic_cost"] = int(rng.integers(0, 12))
            configs["rack_aware_assignment_non_overlap_cost"] = int(rng.integers(0, 12))
    keys = [key for key in _TAGS if rng.random() < 0.6] if rng.random() < 0.35 else []
    if keys:
        some = [key for key in keys if rng.random() < 0.8]
        configs["rack_aware_assignment_tags"] = some
    tasks = _tasks(rng, n_racks if with_racks else 0)
    return StateDocument.model_validate(
        {
            "configs": configs,
            "tasks": tasks,
            "offsets_known": bool(rng.random() < 0.9),
            "instances": _instances(
                rng, n, tasks, _ACCEPTABLE[acceptable], n_racks if with_racks else 0, keys
            ),
        }
    )


def _tasks(rng: np.random.Generator, n_racks: int) -> list[dict[str, Any]]:
    tasks = []
    ties = rng.random() < 0.5
    for subtopology in range(int(rng.integers(1, 5))):
        stateful = bool(rng.random() < 0.75)
        logged = not stateful or bool(rng.random() < 0.9)
        # The topics that this subtopology reads, and its changelogs.
        reads, stores = int(rng.integers(1, 3)), int(rng.integers(1, 3))
        for partition in range(int(rng.integers(1, 13 if rng.random() < 0.9 else 50))):
            if rng.random() < 0.05:
                continue
            end = 1_000 if ties else int(rng.choice((0, 5, 100, 1_000, 50_000)))
            task: dict[str, Any] = {
                "id": f"{subtopology}_{partition}",
                "stateful": stateful,
                "logged": stateful and logged,
                "end_offset": end if stateful and logged else 0,
            }
            if n_racks:
                task["sources"] = _replicas(rng, reads, n_racks)
                task["changelogs"] = _replicas(rng, stores, n_racks) if stateful else []
            tasks.append(task)
    return tasks


def _replicas(rng: np.random.Generator, partitions: int, n_racks: int) -> list[list[str]]:
    copies = int(rng.integers(1, 4))
    return [
        [f"r{rack}" for rack in rng.choice(n_racks, min(copies, n_racks), replace=False)]
        for _ in range(partitions)
    ]


def _instances(
    rng: np.random.Generator,
    n: int,
    tasks: list[dict[str, Any]],
    acceptable: int,
    n_racks: int,
    keys: list[str],
) -> list[dict[str, Any]]:
    threads = rng.choice((1, 2, 3, 5), n) if rng.random() < 0.5 else np.ones(n, np.int64)
    known = float(rng.choice((0.0, 0.2, 0.5, 0.9)))
    edge = min(acceptable, 60_000)
    instances: list[dict[str, Any]] = []
    for i in range(n):
        instance: dict[str, Any] = {
            "id": f"p{i:03}",
            "capacity": int(threads[i]),
            "active": [],
            "standby": [],
            "lags": {},
        }
        if n_racks and rng.random() < 0.995:
            instance["rack"] = f"r{rng.integers(n_racks)}"
        instance["tags"] = {key: f"{key}{rng.integers(3)}" for key in keys if rng.random() < 0.95}
        instances.append(instance)
    spread = rng.random() < 0.6
    for task in tasks:
        name, end = task["id"], task["end_offset"]
        owner = int(rng.integers(n if spread else min(n, 2)))
        if rng.random() < 0.8:
            instances[owner]["active"].append(name)
        else:
            owner = -1
        if not task["stateful"]:
            continue
        for i, instance in enumerate(instances):
            if i == owner:
                lag = -2 if rng.random() < 0.9 else 0
            elif rng.random() >= known:
                continue
            else:
                lag = int(rng.choice((0, 1, edge, edge + 1, end, end // 2, -3, -2)))
                lag = int(rng.integers(0, end + 1)) if rng.random() < 0.3 else lag
                if rng.random() < 0.5:
                    instance["standby"].append(name)
            instance["lags"][name] = lag
    return instances
