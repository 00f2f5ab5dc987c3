"""Sums of cells that relate topics are exact for every action, swap, group and series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import by_hand, examples
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from balancer.strategies.local_search import LocalSearch
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.columns import Column
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from cluster_model.scopes import (
    BROKER,
    RACK,
    TOPIC,
    Grouping,
    Needs,
    PerAttribute,
    PerTopic,
    Scope,
    Spread,
)
from cluster_model.snapshot import Ints
from goals import Apart, Cluster, Near, ReplicaCapacity, SpreadAcross

ZONE = Grouping("zone")
COLUMNS = {
    TOPIC: ("replica_count", "leader_count", "load.disk"),
    PerAttribute("tenant"): ("replica_count", "load.disk"),
    PerAttribute("tenant", ZONE): ("replica_count", "leader_count"),
    Spread(PerTopic(RACK)): ("group_count", "replica_count", "leader_load.network_in"),
    Spread(PerTopic(ZONE)): ("group_count",),
    Spread(PerAttribute("tenant", BROKER)): ("group_count",),
    Needs("needs", RACK): ("replica_count", "dependent_count"),
    Needs("needs", ZONE): ("dependent_count", "leader_count"),
}


def related(seed: int) -> Snapshot:
    """Seven brokers in three racks and zones a, b and none; topics with tenants and needs."""
    rng = np.random.default_rng(seed)
    s = synthetic_snapshot(
        brokers=7, partitions=24, topics=8, racks=3, replication_factor=2, seed=seed
    )
    names = [*s.topics, "elsewhere"]
    needs = [",".join(rng.choice(names, rng.integers(0, 4), replace=False)) for _ in s.topics]
    return replace(
        s,
        broker_attributes={"zone": [("a", "b", None)[i % 3] for i in range(7)]},
        topic_attributes={
            "tenant": [("shop", "bank", None)[i % 3] for i in range(8)],
            "needs": [needs[0] or "elsewhere", *needs[1:]],
        },
    )


def actions(placement: Placement, partitions: Ints, rng: np.random.Generator) -> Batch:
    """A move or a leadership transfer of each partition."""
    rows = []
    for p in partitions.tolist():
        held = placement.brokers[p]
        slot = int(rng.integers(len(held)))
        if rng.random() < 0.3:
            rows.append((LEAD, p, slot, int(held[slot])))
        else:
            free = np.setdiff1d(np.arange(placement.snapshot.n_brokers), held)
            rows.append((MOVE, p, slot, int(rng.choice(free))))
    kind, p, slot, target = np.array(rows, np.int64).T
    return Batch(kind.astype(np.int8), p, slot, target, np.full(len(p), -1))


def exchanges(placement: Placement, rng: np.random.Generator) -> tuple[Batch, Batch]:
    """Swaps of distinct partitions, some of them of one topic."""
    rows, used = list[tuple[int, ...]](), set[int]()
    brokers = placement.brokers
    for p in rng.permutation(placement.snapshot.n_partitions).tolist():
        for q in rng.permutation(placement.snapshot.n_partitions).tolist():
            i, j = rng.integers(2, size=2)
            here, there = int(brokers[p, i]), int(brokers[q, j])
            if p in used or q in used or p == q or here in brokers[q] or there in brokers[p]:
                continue
            used |= {p, q}
            rows.append((p, int(i), there, q, int(j), here))
    p, i, there, q, j, here = np.array(rows, np.int64).T
    return Batch.of(MOVE, p, i, there), Batch.of(MOVE, q, j, here)


def check(transition: Transition, steps: list[list[Batch]], series: bool) -> None:
    """Compare with carrying out each step, from the start or one after the other."""
    start = transition.placement
    expected = {}
    for scope, columns in COLUMNS.items():
        assert transition.padded(scope) or (transition.cells(scope) >= 0).all()
        for name in columns:
            column = Column.of(name)
            before = transition.before(scope, (column,))[0]
            expected[scope, column] = (
                transition.cells(scope),
                before,
                before + transition.signed_delta(scope, (column,))[0],
            )
            state = transition.after_state(scope).column(column)
            np.testing.assert_allclose(state, expected[scope, column][2])
    now = start.copy()
    for row, step in enumerate(steps):
        if not series:
            now = start.copy()
        then = {key: now.recompute(*key) for key in expected}
        for batch in step:
            now.apply(batch)
        now.check()
        for key, (cells, before, after) in expected.items():
            fresh = now.recompute(*key)
            own = cells[:, row] >= 0
            touched = cells[own, row]
            rounding = 1e-9 * max(1.0, float(then[key].max()))
            np.testing.assert_allclose(before[own, row], then[key][touched], atol=rounding)
            np.testing.assert_allclose(after[own, row], fresh[touched], atol=rounding)
            # each change counts once, and nothing else changes
            total = then[key].copy()
            np.add.at(total, touched, (after - before)[own, row])
            np.testing.assert_allclose(total, fresh, atol=rounding)


@examples(3)
@given(st.integers(0, 10**6))
def test_single_actions_swaps_groups_and_series_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = Cluster(Placement(related(seed % 40)))
    placement = cluster.placement
    n = placement.snapshot.n_partitions
    some = actions(placement, rng.permutation(n)[:8], rng)
    one, two = exchanges(placement, rng)
    unit = np.sort(np.concatenate([np.arange(4), rng.integers(0, 4, len(some) - 4)]))
    rows = [slice(i, i + 1) for i in range(max(len(some), len(one)))]
    singles = [[some[i]] for i in rows[: len(some)]]
    pairs = [[one[i], two[i]] for i in rows[: len(one)]]
    groups = [[some[unit == k]] for k in range(4)]
    check(Transition(cluster, some), singles, False)
    check(Transition(cluster, one, two), pairs, False)
    check(Transition(cluster, some, unit=unit), groups, False)
    check(SequentialTransition(cluster, some), singles, True)
    check(SequentialTransition(cluster, one, two), pairs, True)
    check(SequentialTransition(cluster, some, unit=unit), groups, True)


@pytest.mark.parametrize("scope", COLUMNS, ids=str)
def test_a_naive_count_of_the_start_agrees(scope: Scope) -> None:
    s = related(3)
    placement = Placement(s)
    zone = s.broker_attributes["zone"].tolist()
    tenant, listed = (s.topic_attributes[name].tolist() for name in ("tenant", "needs"))
    found: dict[str, dict[str, object]] = {}
    for p, f in np.ndindex(placement.brokers.shape):
        b, topic = int(placement.brokers[p, f]), int(s.partition_topic[p])
        rack, own = f"rack {s.racks[s.broker_rack[b]]}", f"topic {s.topics[topic]}"
        groups = {RACK: rack, ZONE: f"zone {zone[b]}", BROKER: f"broker {s.broker_ids[b]}"}
        where = groups[(scope.inner or scope).of]  # type: ignore[attr-defined]
        if where == "zone ":
            continue
        by = f"tenant {tenant[topic]}" if "tenant" in str(scope) else own
        if by == "tenant ":
            continue
        cell = by if scope.inner else f"{by} {'on' if 'broker ' in where else 'in'} {where}"
        counts = found.setdefault(cell, {"replica_count": 0, "dependent_count": 0, "groups": set()})
        counts["replica_count"] += 1  # type: ignore[operator]
        counts["groups"].add(where)  # type: ignore[attr-defined]
        for needed in {x for x in listed[topic].split(",") if x} - {s.topics[topic]}:
            cell = f"topic {needed} in {where}"
            counts = found.setdefault(
                cell, {"replica_count": 0, "dependent_count": 0, "groups": set()}
            )
            counts["dependent_count"] += 1  # type: ignore[operator]
    empty: dict[str, object] = {"replica_count": 0, "dependent_count": 0, "groups": set()}
    names = [str(x) for x in COLUMNS[scope] if x in ("replica_count", "dependent_count")]
    for name in names:
        sums = placement.sums(scope, name)
        assert sums.tolist() == [
            found.get(scope.label(s, cell), empty)[name] for cell in range(len(sums))
        ]
    if "group_count" in COLUMNS[scope]:
        sums = placement.sums(scope, "group_count")
        groups_held = [
            len(found.get(scope.label(s, cell), empty)["groups"])  # type: ignore[arg-type]
            for cell in range(len(sums))
        ]
        assert sums.tolist() == groups_held


RELATIONS = {
    # b needs a, which is only in rack 0
    "near": (Near(attribute="rack"), [0, 1, 0], [2, 4, 5], {"needs": [None, "a", None]}),
    "apart": (Apart(by="tenant"), [0, 0, 0], [1, 1, 2], {"tenant": ["x", "x", None]}),
    "spread": (SpreadAcross(attribute="rack", at_least=3, topics="[ab]"), [0] * 3, [2, 3, 2], {}),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_swaps_serve_relations_where_every_broker_is_full(relation: str) -> None:
    goal, of_a, of_b, attributes = RELATIONS[relation]
    # six brokers in three racks, each with as many units as it may hold
    held = [*of_a, *of_b]
    others = [b for b in range(6) for _ in range(12 - held.count(b))]
    s = by_hand(
        [(b,) for b in [*held, *others]],
        brokers=6,
        racks=(0, 0, 1, 1, 2, 2),
        topics=["a"] * 3 + ["b"] * 3 + ["c"] * len(others),
    )
    s = replace(s, topic_attributes=attributes)
    # a hard limit would leave no room for any step
    limit = ReplicaCapacity(limit=12, hard=False, tier=0)
    balancer = Balancer(
        [limit, goal.model_copy(update={"tier": 1})], strategy=LocalSearch(perturbed_replicas=0)
    )
    assert balancer.propose(s).ok
