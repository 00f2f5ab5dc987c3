"""Standbys spread by tags of instances (KIP-708): Kafka's own results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from assignment_cases import assigned, configs

from balancer.assignment import ApplicationState, StateDocument, build_state
from balancer.assignment.client_tags import ClientTags
from balancer.assignment.draft import Draft
from balancer.assignment.hash_order import tasks_in_hash_order


def application(
    instances: Mapping[str, Mapping[str, str]], tasks: list[str], capacity: int = 1
) -> ApplicationState:
    """An application in which every instance has the state of every task."""
    return build_state(
        StateDocument.model_validate(
            {
                "instances": [
                    {"id": i, "capacity": capacity, "tags": tags, "lags": dict.fromkeys(tasks, 0)}
                    for i, tags in instances.items()
                ],
                "tasks": [{"id": t} for t in tasks],
            }
        )
    )


def spread(
    state: ApplicationState, active: Mapping[str, str], standbys: int, *tags: str
) -> dict[str, list[str]]:
    """The instances of each task's standbys, in the order in which they were chosen."""
    draft = Draft(state, configs(0, 1, standbys, rack_aware_assignment_tags=tags))
    ids = [str(state.task(t)) for t in range(state.n_tasks)]
    draft.place(np.arange(state.n_tasks), np.array([state.instances.index(active[t]) for t in ids]))
    # Kafka's unit tests pass a HashSet of tasks.
    ClientTags(draft).assign_standbys(
        np.array(tasks_in_hash_order(state, np.arange(state.n_tasks)))
    )
    return {
        t: [state.instances[i] for i in own] for t, own in zip(ids, draft.standbys, strict=True)
    }


def zones_and_clusters(*rows: tuple[int, int]) -> dict[str, dict[str, str]]:
    """Instances P1, P2, ... by their zone and cluster."""
    return {
        f"P{n}": {"zone": f"zone{zone}", "cluster": f"cluster{cluster}"}
        for n, (zone, cluster) in enumerate(rows, 1)
    }


def test_two_standbys_go_to_both_other_zones_and_clusters() -> None:
    """T1: the active tasks are all in zone 1, two on each of its instances."""
    instances = zones_and_clusters(*((z, c) for c in (1, 2, 3) for z in (1, 2, 3)))
    tasks = ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    active = {t: f"P{3 * int(t[-1]) + 1}" for t in tasks}
    found = spread(application(instances, tasks, 2), active, 2, "zone", "cluster")
    held = [i for own in found.values() for i in own]
    assert {i: held.count(i) for i in instances} == {
        i: 0 if i in ("P1", "P4", "P7") else 2 for i in instances
    }
    for task, own in found.items():
        copies = [instances[i] for i in (active[task], *own)]
        assert len({c["zone"] for c in copies}) == len({c["cluster"] for c in copies}) == 3
    # The active task is in zone 1 of cluster 1.
    assert {*found["0_0"]} in ({"P5", "P9"}, {"P6", "P8"})
    assert {*found["1_0"]} in ({"P5", "P9"}, {"P6", "P8"})


def test_a_tag_without_unused_values_does_not_count() -> None:
    """T2: two clusters and three zones, so that the second standby only finds another zone."""
    instances = zones_and_clusters((1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2))
    state = application(instances, ["0_0", "1_0"])
    found = spread(state, {"0_0": "P1", "1_0": "P6"}, 2, "zone", "cluster")
    assert found["0_0"][0] == "P5"
    assert found["1_0"][0] == "P2"
    assert found["0_0"][1] in ("P3", "P6")
    assert found["1_0"][1] in ("P4", "P1")


def test_a_tag_with_one_value_does_not_count() -> None:
    """T3: one cluster, so that only zones do."""
    instances = zones_and_clusters((1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (3, 1))
    tasks = [f"{s}_{p}" for s in (0, 1) for p in (0, 1, 2)]
    active = dict(zip(tasks, instances, strict=True))
    found = spread(application(instances, tasks), active, 1, "zone", "cluster")
    assert sorted(i for own in found.values() for i in own) == [*instances]
    for task, (own,) in found.items():
        assert instances[own]["zone"] != instances[active[task]]["zone"]


def test_only_configured_tags_count() -> None:
    """T4."""
    instances = zones_and_clusters((1, 1), (2, 1), (1, 2))
    found = spread(application(instances, ["0_0"]), {"0_0": "P1"}, 1, "cluster")
    assert found == {"0_0": ["P3"]}


def test_without_another_value_standbys_go_to_the_least_loaded() -> None:
    """T5."""
    instances = zones_and_clusters((1, 1), (1, 1), (1, 1), (1, 1))
    tasks = ["0_0", "0_1", "0_2", "1_0"]
    active = dict(zip(tasks, instances, strict=True))
    found = spread(application(instances, tasks), active, 1, "zone", "cluster")
    assert sorted(i for own in found.values() for i in own) == [*instances]
    assert all(active[task] not in own for task, own in found.items())


def test_a_single_instance_has_no_standby() -> None:
    """T6."""
    found = spread(
        application(zones_and_clusters((1, 1)), ["0_0"]), {"0_0": "P1"}, 1, "zone", "cluster"
    )
    assert found == {"0_0": []}


def test_tags_come_before_balance() -> None:
    """X5."""
    state = application(
        {"P1": {"zone": "z1"}, "P2": {"zone": "z1"}, "P3": {"zone": "z2"}}, ["0_0", "0_1"]
    )
    found = assigned(state, 100, 2, 1, rack_aware_assignment_tags=["zone"])
    assert found == ("P1 A{00}; P2 A{01}; P3 S{00,01}", False)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((1, 4), "03 02 01 00"),
        (
            (3, 9),
            "21 08 18 06 28 16 04 26 14 02 24 12 00 22 10 20 07 17 05 27 15 03 25 13 01 23 11",
        ),
    ],
)
def test_tasks_are_taken_in_the_order_of_javas_hash_map(shape: tuple[int, int], order: str) -> None:
    """The orders are those of ``Collectors.toMap`` over sorted ids in Java 17."""
    subtopologies, partitions = shape
    tasks = [f"{s}_{p}" for s in range(subtopologies) for p in range(partitions)]
    state = application({"P1": {}}, tasks)
    found = tasks_in_hash_order(state, np.arange(len(tasks)))
    assert [tasks[t].replace("_", "") for t in found] == order.split()
