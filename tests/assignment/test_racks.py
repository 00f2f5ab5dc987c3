"""Rack-aware exchange of tasks: KIP-925's costs, Kafka's own results, what must never change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from assignment_cases import configs

from balancer.assignment import ApplicationState, StateDocument, build_state
from balancer.assignment.client_tags import ClientTags
from balancer.assignment.draft import Draft
from balancer.assignment.rack_flow import exchange
from balancer.assignment.racks import (
    STATEFUL_COSTS,
    STATELESS_COSTS,
    optimize_active,
    optimize_standbys,
    traffic,
)
from cluster_model.snapshot import Ints

# Racks of the replicas of what each task reads, as in Kafka's unit tests.
REPLICAS = {"0_0": ["r0", "r1"], "0_1": ["r1", "r2"], "1_0": ["r0", "r2"], "1_1": ["r1", "r3"]}
STRATEGIES = ("min_traffic", "balance_subtopology")


def application(stateful: bool, tasks: list[str], instances: Mapping[str, str]) -> ApplicationState:
    """An application whose instances are given with their racks."""
    return build_state(
        StateDocument.model_validate(
            {
                "instances": [{"id": i, "rack": rack} for i, rack in instances.items()],
                "tasks": [{"id": t, "stateful": stateful, "sources": [REPLICAS[t]]} for t in tasks],
            }
        )
    )


def cost(draft: Draft, before: Mapping[int, int]) -> int:
    """KIP-925's cost of the active tasks, whose instances were others before."""
    tasks = np.arange(draft.state.n_tasks)
    stateful = bool(draft.state.stateful[0])
    per_partition, per_move = STATEFUL_COSTS if stateful else STATELESS_COSTS
    moved = sum(draft.active[t] != i for t, i in before.items())
    remote = int(traffic(draft.state, tasks, draft.active).sum())
    return int(per_partition * remote + per_move * moved)


def placed(held: Mapping[str, list[str]], instances: Mapping[str, str], **options: object) -> Draft:
    """A draft in which instances have tasks."""
    tasks = sorted(t for own in held.values() for t in own)
    stateful = bool(options.pop("stateful"))
    state = application(stateful, tasks, instances)
    draft = Draft(state, configs(0, 1, 0, **options))
    index = {str(state.task(t)): t for t in range(state.n_tasks)}
    for i, own in held.items():
        at = np.array([index[t] for t in own], np.int64)
        draft.place(at, np.full(len(at), state.instances.index(i)))
    return draft


def held_by(draft: Draft) -> dict[str, list[str]]:
    """The active tasks of each instance that has some."""
    state = draft.state
    return {
        i: own
        for n, i in enumerate(state.instances)
        if (own := [str(state.task(t)) for t in np.flatnonzero(draft.active == n).tolist()])
    }


THREE = {"P1": "r0", "P2": "r1", "P3": "r2"}
ROWS = {
    "R-1": (
        {"P1": ["0_1", "1_1"], "P2": ["1_0"], "P3": ["0_0"]},
        (40, 4),
        {"P1": ["0_0", "1_0"], "P2": ["1_1"], "P3": ["0_1"]},
        (4, 0),
    ),
    "R-2": ({"P2": ["1_0"], "P3": ["0_0"]}, (20, 2), {"P2": ["0_0"], "P3": ["1_0"]}, (2, 0)),
    "R-3": (
        {"P2": ["0_1", "1_0"], "P3": ["0_0"]},
        (20, 2),
        {"P2": ["0_0", "0_1"], "P3": ["1_0"]},
        (2, 0),
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("row", ROWS)
def test_tasks_are_exchanged_as_kafka_exchanges_them(
    row: str, stateful: bool, strategy: str
) -> None:
    before, cost_before, after, cost_after = ROWS[row]
    draft = placed(before, THREE, stateful=stateful, rack_aware_assignment_strategy=strategy)
    own = dict(enumerate(draft.active.tolist()))
    assert cost(draft, own) == cost_before[not stateful]
    optimize_active(draft, np.arange(draft.state.n_tasks))
    assert held_by(draft) == after
    assert cost(draft, own) == cost_after[not stateful]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("stateful", [True, False])
def test_what_cannot_cost_less_stays_unless_its_first_flow_is_another(
    stateful: bool, strategy: str
) -> None:
    """R-4."""
    racks = {"P2": "r1", "P5": "r4"}
    before = {"P2": ["0_0", "1_1"], "P5": ["0_1"]}
    draft = placed(before, racks, stateful=stateful, rack_aware_assignment_strategy=strategy)
    own = dict(enumerate(draft.active.tolist()))
    optimize_active(draft, np.arange(draft.state.n_tasks))
    other = not stateful and strategy == "balance_subtopology"
    assert held_by(draft) == ({"P2": ["0_0", "0_1"], "P5": ["1_1"]} if other else before)
    assert cost(draft, own) == (10 if stateful else 1)


STANDBYS = {
    "P1": ("r0", "0_0", ["0_1", "1_1"]),
    "P2": ("r1", "0_1", ["0_0", "1_0"]),
    "P3": ("r2", "1_0", ["0_0", "0_2"]),
    "P4": ("r3", "1_1", ["0_1", "1_2"]),
    "P6": ("r0", "0_2", ["1_0", "1_2"]),
    "P7": ("r1", "1_2", ["0_2", "1_1"]),
}
# Racks of the replicas of the changelogs.
CHANGELOGS = {**REPLICAS, "0_2": ["r1", "r2"], "1_2": ["r0", "r1"]}


@pytest.mark.parametrize(("tags", "after"), [(False, 20), (True, 50)])
def test_standbys_are_exchanged_between_racks(tags: bool, after: int) -> None:
    """R-5: freely, and without two copies of a task in one rack."""
    state = build_state(
        StateDocument.model_validate(
            {
                "instances": [
                    {"id": i, "rack": rack, "tags": {"rack": rack}}
                    for i, (rack, _, _) in STANDBYS.items()
                ],
                "tasks": [
                    {"id": t, "sources": [r], "changelogs": [r]} for t, r in CHANGELOGS.items()
                ],
            }
        )
    )
    draft = Draft(state, configs(0, 1, 2, rack_aware_assignment_strategy="min_traffic"))
    index = {str(state.task(t)): t for t in range(state.n_tasks)}
    for i, (_, active, standbys) in enumerate(STANDBYS.values()):
        draft.place(np.array([index[active]]), np.array([i]))
        for t in standbys:
            draft.standbys[index[t]].append(i)

    def cost() -> int:
        tasks, instances = draft.standby_pairs()
        return 10 * int(traffic(state, tasks, instances).sum())

    count = np.bincount(draft.standby_pairs()[1])
    assert cost() == 60
    optimize_standbys(draft, ClientTags(draft).may_move if tags else None)
    assert cost() == after
    assert np.bincount(draft.standby_pairs()[1]).tolist() == count.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_without_a_cost_of_traffic_nothing_moves(seed: int) -> None:
    """R-6."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, 7, 40)
    cost_of_moves = np.ones((40, 7), np.int64)
    cost_of_moves[np.arange(40), owner] = 0
    assert exchange(cost_of_moves, owner).tolist() == owner.tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(8))
def test_an_exchange_costs_no_more_and_keeps_the_numbers_of_tasks(seed: int, strategy: str) -> None:
    rng = np.random.default_rng(seed)
    n, m, sizes = 40, 9, (13, 20, 7)
    owner = rng.integers(0, m, n)
    costs = 10 * rng.integers(0, 3, (n, m)) + 1
    costs[np.arange(n), owner] -= 1
    bounds = [0, *np.cumsum(sizes).tolist()]
    found = exchange(costs, owner, bounds if strategy == "balance_subtopology" else None)
    count = np.bincount(owner, minlength=m)
    assert np.bincount(found, minlength=m).tolist() == count.tolist()
    if strategy == "min_traffic":
        before, after = (costs[np.arange(n), o].sum() for o in (owner, found))
        assert after <= before
        assert after == least_cost(costs, count)
    else:
        for first, size in zip(bounds, sizes, strict=False):
            share = np.bincount(found[first : first + size], minlength=m)
            assert (share <= np.ceil(count / n * size)).all()


def least_cost(costs: Ints, count: Ints) -> int:
    """Least cost at which instances get their numbers of tasks, by another method."""
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    for i, number in enumerate(count.tolist()):
        graph.add_node(f"i{i}", demand=number)
    for t, row in enumerate(costs.tolist()):
        graph.add_node(f"t{t}", demand=-1)
        for i, cost_there in enumerate(row):
            graph.add_edge(f"t{t}", f"i{i}", weight=cost_there, capacity=1)
    return int(networkx.min_cost_flow_cost(graph))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"strategy": "none"}, "the strategy is none"),
        ({"racks": {"P1": "r0", "P2": None, "P3": "r2"}}, "an instance has no rack"),
        ({"no_replicas": True}, "a partition's racks are unknown"),
    ],
)
def test_nothing_is_exchanged_where_racks_are_unknown(changed: dict[str, object], why: str) -> None:
    racks = changed.get("racks", THREE)
    assert isinstance(racks, dict)
    replicas = dict(REPLICAS)
    if changed.get("no_replicas"):
        replicas["1_1"] = []
    state = build_state(
        StateDocument.model_validate(
            {
                "instances": [{"id": i, "rack": rack} for i, rack in racks.items()],
                "tasks": [{"id": t, "sources": [r]} for t, r in replicas.items()],
            }
        )
    )
    strategy = str(changed.get("strategy", "min_traffic"))
    draft = Draft(state, configs(0, 1, 0, rack_aware_assignment_strategy=strategy))
    draft.place(np.arange(4), np.array([2, 0, 1, 0]))
    optimize_active(draft, np.arange(4))
    assert draft.active.tolist() == [2, 0, 1, 0], why
