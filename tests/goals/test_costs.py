"""Goals whose contentment is a cost, against definitions written out partition by partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import examples
from clusters import cluster, scores, snapshot
from hypothesis import given
from hypothesis import strategies as st

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from goals import (
    BalanceCost,
    Cluster,
    Goal,
    GoalError,
    LoadCost,
    MoveCost,
    Price,
    RackFailureCapacity,
    TransientCapacity,
    inapplicable,
    load_goals,
)

ZONES = {"a": {"b": 3.0}, "b": {"a": 0.5, "b": 0.25}}


def attributed(seed: int) -> Snapshot:
    """Brokers with a price, a safe amount and mostly a zone; topics with a size."""
    s = synthetic_snapshot(
        brokers=6, partitions=40, topics=5, racks=3, replication_factor=2, seed=seed % 40
    )
    rng = np.random.default_rng(seed)
    return replace(
        s,
        broker_attributes={
            "price": rng.integers(0, 4, 6).astype(float).tolist(),
            "safe": (rng.random(6) * s.capacity[:, s.resource("disk")]).tolist(),
            "zone": ["a", "b", None, "a", "b", "b"],
        },
        topic_attributes={"size": rng.random(5).tolist()},
        move_cost_partition=np.arange(40),
        move_cost_broker=rng.integers(0, 6, 40),
        move_cost=rng.random(40) * 1e12,
        state_size=rng.random(40) * 1e11,
        cost_unit="records",
    )


def walked(s: Snapshot, seed: int, steps: int = 60) -> Cluster:
    """The cluster after random moves and leadership transfers, some of them back home."""
    rng, placement = np.random.default_rng(seed), Placement(s)
    for _ in range(steps):
        p = int(rng.integers(s.n_partitions))
        held = placement.brokers[p]
        slot = int(rng.integers(len(held)))
        if rng.random() < 0.3:
            action = (LEAD, p, slot, int(held[slot]))
        else:
            free = np.setdiff1d(np.arange(s.n_brokers), held)
            action = (MOVE, p, slot, int(rng.choice(free)))
        if action[0] == MOVE or slot != placement.leader[p]:
            kind, *row = action
            placement.apply(Batch.of(kind, *(np.array([x]) for x in row)))
    return Cluster(placement)


def held_by(c: Cluster) -> list[dict[int, bool]]:
    """For each partition: broker -> whether its replica there leads."""
    placement = c.placement
    return [
        {int(b): i == placement.leader[p] for i, b in enumerate(row) if b >= 0}
        for p, row in enumerate(placement.brokers)
    ]


def loads(c: Cluster, resource: str) -> list[float]:
    s = c.snapshot
    r, found = s.resource(resource), [0.0] * s.n_brokers
    for p, held in enumerate(held_by(c)):
        for b, leads in held.items():
            found[b] += float((s.leader_load if leads else s.follower_load)[p, r])
    return found


def load_above_share(c: Cluster) -> list[float]:
    s = c.snapshot
    capacity = s.capacity[:, s.resource("disk")]
    return [max(0.0, x - 0.3 * most) for x, most in zip(loads(c, "disk"), capacity, strict=True)]


def load_above_attribute(c: Cluster) -> list[float]:
    safe = c.broker_attribute("safe")
    return [max(0.0, x - most) for x, most in zip(loads(c, "disk"), safe, strict=True)]


def lacking(c: Cluster) -> list[float]:
    s = c.snapshot
    free = [
        [most - x for x, most in zip(loads(c, r), s.capacity[:, s.resource(r)], strict=True)]
        for r in ("network_in", "network_out")
    ]
    return [max(0.0, 2.5 * one - two) for one, two in zip(*free, strict=True)]


def priced(c: Cluster) -> list[float]:
    replicas = np.bincount(c.placement.replica_broker[c.placement.replica_broker >= 0], minlength=6)
    price = c.broker_attribute("price")
    return [x * n / (n + 0.1) for x, n in zip(price, replicas.tolist(), strict=True)]


def moved(c: Cluster, each: Callable[[int, int, bool], float]) -> list[float]:
    s, found = c.snapshot, []
    for p, held in enumerate(held_by(c)):
        first = s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]].tolist()
        found.append(sum(each(p, b, leads) for b, leads in held.items() if b not in first))
    return found


def copied(c: Cluster) -> Callable[[int, int, bool], float]:
    s = c.snapshot
    own = {
        (int(p), int(b)): float(x)
        for p, b, x in zip(s.move_cost_partition, s.move_cost_broker, s.move_cost, strict=True)
    }

    def each(p: int, b: int, leads: bool) -> float:
        return own.get((p, b), float(s.state_size[p]))

    return each


def moved_records(c: Cluster) -> list[float]:
    return moved(c, copied(c))


def moved_bytes(c: Cluster) -> list[float]:
    r = c.snapshot.resource("disk")
    of_role = c.snapshot.follower_load, c.snapshot.leader_load
    return moved(c, lambda p, b, leads: float(of_role[int(leads)][p, r]))


def moved_replicas(c: Cluster) -> list[float]:
    return moved(c, lambda p, b, leads: 1.0)


def moved_sizes_between_zones(c: Cluster) -> list[float]:
    s = c.snapshot
    zone = s.attributes("broker")["zone"].tolist()
    size = s.attributes("topic")["size"]

    def each(p: int, b: int, leads: bool) -> float:
        origin = int(s.replica_broker[s.replica_offset[p] + max(int(s.leader[p]), 0)])
        factor = ZONES.get(zone[origin], {}).get(zone[b], 1.0)
        return float(size[s.partition_topic[p]]) * factor

    return moved(c, each)


CASES: list[tuple[Any, Callable[[Cluster], list[float]]]] = [
    (LoadCost(resource="disk", above=0.3), load_above_share),
    (LoadCost(resource="disk", above="safe"), load_above_attribute),
    (BalanceCost(resource="network_in", other="network_out", ratio=2.5), lacking),
    (Price(attribute="price"), priced),
    (MoveCost(), moved_records),
    (MoveCost(), moved_bytes),
    (MoveCost(cost="replica"), moved_replicas),
    (
        MoveCost(cost="topic attribute size", by="broker attribute zone", factors=ZONES),
        moved_sizes_between_zones,
    ),
]


@pytest.mark.parametrize(("goal", "cost"), CASES, ids=lambda x: getattr(x, "name", ""))
@examples(8)
@given(st.integers(0, 10**6))
def test_a_contentment_is_an_affine_function_of_the_cost(
    goal: Any, cost: Callable[[Cluster], list[float]], seed: int
) -> None:
    s = attributed(seed)
    if cost is moved_bytes:
        own = ("state_size", "move_cost", "move_cost_partition", "move_cost_broker")
        none: dict[str, Any] = dict.fromkeys(own, np.empty(0))
        s = replace(s, cost_unit=None, **none)
    prepared = goal.prepared(Cluster(Placement(s)))
    for steps in (0, 20, 60):
        now = walked(s, seed, steps)
        state = now.partition_state() if goal.scope.of_partitions else now.state("broker")
        scale = prepared._scale
        expected = 1 - np.array(cost(now)) / scale
        assert prepared.score(state) == pytest.approx(expected, abs=1e-9)
        assert expected.min() >= -1e-12
        # and with a scale of its own
        wide = goal.model_copy(update={"scale": 4 * scale}).prepared(Cluster(Placement(s)))
        assert 1 - wide.score(state) == pytest.approx((1 - expected) / 4, abs=1e-9)


@given(st.integers(0, 10**6))
def test_goals_of_a_family_score_together_as_they_do_alone(seed: int) -> None:
    now = walked(attributed(seed), seed)
    for family in (
        [LoadCost(resource=r, above=0.3) for r in ("cpu", "disk")],
        [TransientCapacity(resource=r, limit=0.7) for r in ("cpu", "disk")],
    ):
        prepared: list[Goal] = [goal.prepared(now) for goal in family]
        together = type(family[0]).score_batch(prepared)  # type: ignore[arg-type]
        state = now.state("broker")
        assert np.array_equal(together(state), np.stack([g.score(state) for g in prepared]))


@given(st.integers(0, 10**6))
def test_a_transient_use_is_of_what_is_there_or_was(seed: int) -> None:
    s = attributed(seed)
    goal = TransientCapacity(resource="disk", limit=0.5).prepared(Cluster(Placement(s)))
    now = walked(s, seed)
    use, r = loads(now, "disk"), s.resource("disk")
    for p, held in enumerate(held_by(now)):
        for row in range(s.replica_offset[p], s.replica_offset[p + 1]):
            b = int(s.replica_broker[row])
            if b not in held:
                leads = row - s.replica_offset[p] == max(int(s.leader[p]), 0)
                use[b] += float((s.leader_load if leads else s.follower_load)[p, r])
    limit = 0.5 * s.capacity[:, r]
    expected = np.where(np.array(use) <= limit, 1.0, limit / np.maximum(use, 1e-300))
    assert goal.score(now.state("broker")) == pytest.approx(expected)


def test_a_replica_created_from_nothing_costs_nothing() -> None:
    s = snapshot([[0, 1], [1]], brokers=3)
    s = replace(
        s,
        replica_offset=np.array([0, 2, 2]),
        replica_broker=np.array([0, 1]),
        leader=np.array([0, -1]),
        creatable=np.array([False, True]),
    )
    placement = Placement(s)
    goal = MoveCost(cost="replica").prepared(Cluster(placement))
    placement.brokers[1, 0] = 2
    placement.brokers[0, 1] = 2
    assert goal.score(Cluster(placement).partition_state()).tolist() == [0.5, 1.0]


def test_all_load_of_a_broker_that_is_emptied_is_above_the_safe_amount() -> None:
    loads: dict[str, Any] = {"load": [3.0, 5.0], "capacity": 10.0, "brokers": 2}
    dead = cluster([[0], [1]], broker_state=np.array([2, 0]), leader=np.array([-1, 0]), **loads)
    # scale 8: a broker that is emptied has no safe amount
    assert scores(LoadCost(resource="disk", above=0.5), dead).tolist() == [1 - 3 / 8, 1.0]


def test_an_empty_broker_costs_no_price() -> None:
    s = snapshot([[0], [0]], brokers=3, broker_attributes={"price": [2.0, 4.0, 0.0]})
    found = scores(Price(attribute="price"), Cluster(Placement(s)))
    assert found == pytest.approx([1 - (2 * 2 / 2.1) / 4, 1.0, 1.0])


PRICED: dict[str, Any] = {
    "broker_attributes": {"price": [1.0, -1.0], "zone": ["a", "b"], "cost": [1.0, None]}
}


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        (
            Price(attribute="price"),
            r"goal Price\[price\]: broker 1, attribute price: -1.0 found, a number of at least 0",
        ),
        (Price(attribute="zone"), r"broker 0, attribute zone: 'a' found, a number of at least 0"),
        (LoadCost(resource="disk", above="cost"), r"broker 1, attribute cost: none found"),
        (
            LoadCost(resource="disk", above=0.5, scale=1.0),
            r"goal LoadCost\[disk\], field scale: 1 found, at least 3 expected",
        ),
        (
            MoveCost(by="rack", factors={"r0": {"r7": 2.0}}),
            r"goal MoveCost\[movement by rack\], field factors: 'r7' found, the name of a rack",
        ),
    ],
)
def test_what_does_not_fit_the_cluster_is_one_sentence(goal: Goal, sentence: str) -> None:
    c = cluster([[0], [1], [0]], brokers=2, load=[2.0, 2.0, 4.0], capacity=10.0, **PRICED)
    with pytest.raises(GoalError, match=sentence):
        goal.prepared(c)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"goal": "MoveCost", "cost": "bytes"}, "field cost: 'bytes' found; movement, replica or"),
        ({"goal": "MoveCost", "by": "rack"}, "by and factors expected together"),
        (
            {"goal": "MoveCost", "by": "topic", "factors": {"a": {"b": 2}}},
            "'topic' found, a scope of brokers expected",
        ),
        (
            {"goal": "MoveCost", "by": "rack", "factors": {"a": {"b": -2}}},
            "a factor from 0 to 1e[+]09 expected",
        ),
        ({"goal": "LoadCost", "resource": "disk"}, "field above: none found"),
        (
            {"goal": "LoadCost", "resource": "disk", "above": 80},
            "goal LoadCost, field above: 80 found; a share of the capacity",
        ),
        ({"goal": "BalanceCost", "resource": "cpu", "other": "disk", "ratio": 0}, "field ratio"),
        ({"goal": "Price", "attribute": "price", "scale": 0}, "field scale"),
    ],
)
def test_a_wrong_field_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GoalError, match=sentence):
        load_goals({"goals": [fields]})


@pytest.mark.parametrize(
    ("goal", "lack"),
    [
        (Price(attribute="price"), "no broker attribute 'price'"),
        (LoadCost(resource="disk", above="safe"), "no broker attribute 'safe'"),
        (BalanceCost(resource="disk", other="gpu", ratio=1.0), "no resource 'gpu'"),
        (MoveCost(cost="topic attribute size"), "no topic attribute 'size'"),
        (
            MoveCost(by="broker attribute zone", factors={"a": {"b": 2.0}}),
            "no broker attribute 'zone'",
        ),
    ],
)
def test_what_a_snapshot_lacks_is_stated(goal: Goal, lack: str) -> None:
    (reason,) = inapplicable([goal], synthetic_snapshot(brokers=3)).values()
    assert lack in reason


def test_a_broker_that_is_too_full_at_the_start_stays_too_full_until_the_plan_is_done() -> None:
    goal = TransientCapacity(resource="disk", limit=0.5)
    full = cluster([[0], [0], [1]], brokers=3, load=[4.0, 4.0, 1.0], capacity=10.0)
    (proof,) = goal.infeasibilities(full)
    assert proof.reason == (
        "broker 0: what is there at the start uses 8 B until the plan is done, more than the "
        "limit, 5 B"
    )
    # a role that is lighter relieves it, if there are followers
    light = cluster([[0, 1], [0, 1], [1]], brokers=3, load=[4, 4, 1.0], follower=0, capacity=10.0)
    assert scores(goal, light)[0] < 1
    assert not goal.infeasibilities(light)


@given(st.integers(0, 10**6), st.floats(0.2, 1.0))
def test_if_every_broker_keeps_room_the_others_carry_what_any_rack_carried(
    seed: int, limit: float
) -> None:
    s = attributed(seed)
    rng, r = np.random.default_rng(seed), s.resource("disk")
    s = replace(s, capacity=s.capacity * rng.uniform(0.5, 4.0, (6, 1)))
    now = walked(s, seed)
    goal = RackFailureCapacity(resource="disk", limit=limit).prepared(now)
    score = goal.score(now.state("broker"))
    load, capacity = np.array(loads(now, "disk")), s.capacity[:, r]
    # each rack fails, with every broker at its limit or below it
    capacity_of = [capacity[s.broker_rack == rack].sum() for rack in range(len(s.racks))]
    full = limit * (1 - max(capacity_of) / capacity.sum())
    assert (score < 1).tolist() == (load > full * capacity * (1 + 1e-9)).tolist()
    for held in (full * capacity, np.minimum(load, full * capacity)):
        for rack in range(len(s.racks)):
            left = s.broker_rack != rack
            taken = held[~left].sum() / capacity[left].sum()
            assert ((held / capacity)[left] + taken <= limit * (1 + 1e-9)).all()
    for proof in goal.infeasibilities(now):
        if "needed" in proof.reason:
            assert load.sum() > limit * (capacity.sum() - max(capacity_of))


def test_a_single_rack_has_nothing_left_when_it_fails() -> None:
    one = cluster([[0], [1]], brokers=3, racks=[0, 0, 1], broker_state=np.array([0, 0, 2]))
    (proof,) = RackFailureCapacity(resource="disk").infeasibilities(one)
    assert proof.reason == "all brokers that stay are in rack r0: nothing is left if it fails"
    assert (proof.brokers_to_add, proof.racks_to_add) == (1, 1)
    idle = cluster([[0], [1]], brokers=2, racks=[0, 0], load=[0.0, 0.0])
    assert scores(RackFailureCapacity(resource="disk"), idle).tolist() == [1.0, 1.0]
    assert not RackFailureCapacity(resource="disk").infeasibilities(idle)
