"""The rules of KIP-441 for one assignment, written from its text; shares no code with ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Copies = Mapping[str, Mapping[str, Sequence[str]]]


class Given(NamedTuple):
    """An application as plain records, see the state file, and what counts as caught up."""

    instances: Sequence[Mapping[str, Any]]
    tasks: Sequence[Mapping[str, Any]]
    acceptable: int
    standbys: int
    warmups: int


def rank(given: Given, task: Mapping[str, Any], instance: Mapping[str, Any]) -> int:
    """How far from caught up an instance is with a task; 0 within the acceptable lag."""
    lag = instance["lags"].get(task["id"], "unknown")
    if lag == "running":
        return 0
    if lag == "unknown":
        lag = task.get("end_offset", 0)
    return 0 if lag <= given.acceptable else int(lag)


def broken_rules(given: Given, found: Copies) -> list[str]:
    """Rules that an assignment breaks, each as a sentence."""
    broken = []
    if set(found) != {i["id"] for i in given.instances}:
        broken.append("each instance has an entry")
    active = Counter(t for of in found.values() for t in of["active"])
    for task in given.tasks:
        id_ = task["id"]
        if active[id_] != 1:
            broken.append(f"{id_} is active once")
            continue
        (runs,) = (i for i in given.instances if id_ in found[i["id"]]["active"])
        standby = [i for i in given.instances if id_ in found[i["id"]]["standby"]]
        warms = [i for i in given.instances if id_ in found[i["id"]]["warmup"]]
        holders = [i["id"] for i in (runs, *standby, *warms)]
        if len(set(holders)) < len(holders):
            broken.append(f"{id_} has one copy per instance")
        if not task.get("stateful", True):
            if len(holders) > 1:
                broken.append(f"{id_} has no state to stand by with")
            continue
        ranks = {i["id"]: rank(given, task, i) for i in given.instances}
        if ranks[runs["id"]] > min(ranks.values()):
            broken.append(f"{id_} is active on one of the most caught-up instances")
        without = [r for i, r in ranks.items() if i not in holders]
        if any(ranks[i["id"]] > r for i in standby for r in without):
            broken.append(f"{id_} stands by on the next most caught-up instances")
        if len(standby) != min(given.standbys, len(given.instances) - 1):
            broken.append(f"{id_} has its standbys")
    if sum(len(of["warmup"]) for of in found.values()) > given.warmups:
        broken.append("there are at most so many warm-ups")
    known = {t["id"] for t in given.tasks}
    if any(set(tasks) - known for of in found.values() for tasks in of.values()):
        broken.append("only the application's tasks are assigned")
    return broken


def spread(given: Given, found: Copies, tasks: Sequence[str]) -> int:
    """Between the instances with the most and the fewest of some active tasks."""
    wanted = set(tasks)
    counts = [len(wanted & set(found[i["id"]]["active"])) for i in given.instances]
    return max(counts) - min(counts)
