"""Goals that relate topics: scored as a naive count says, mended by a plan, and checked."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from balancer_cases import QUICK
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Operation
from balancer.search.scorer import Scorer
from balancer.verification.checker import check_plan
from cluster_model import InputError, Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from cluster_model.scopes import BROKER, RACK, PerTopic, Spread
from cluster_model.snapshot import BrokerState
from goals import (
    Apart,
    Cluster,
    Goal,
    GoalError,
    MinTopicLeaders,
    Near,
    PreferredLeaderRack,
    ReplicaDistribution,
    SpreadAcross,
    State,
    at_most,
    load_goals,
)


def unchecked(snapshot: Snapshot, plan: Any, goal: Goal) -> list[str]:
    """What the checker says it cannot check about a goal."""
    report = check_plan(snapshot, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    return [
        str(u) for u in report.unchecked if goal.name in str(u) or type(goal).__name__ in str(u)
    ]


def tenants(seed: int = 0, brokers: int = 9, **arguments: Any) -> Snapshot:
    """Topics of five tenants, some without one, with needs, home racks and numbers of zones."""
    size: dict[str, Any] = {"partitions": 60, "topics": 20, "racks": 3, "replication_factor": 1}
    s = synthetic_snapshot(brokers=brokers, seed=seed, **size | arguments)
    rng, topics = np.random.default_rng(seed), len(s.topics)
    needs = [
        None if i < 6 else ", ".join(s.topics[j] for j in rng.choice(6, 1 + i % 2, replace=False))
        for i in range(topics)
    ]
    return replace(
        s,
        broker_attributes={"zone": [("a", "b", None)[i % 3] for i in range(brokers)]},
        topic_attributes={
            "tenant": [None if i % 6 == 5 else f"tenant-{i % 6}" for i in range(topics)],
            "needs": needs,
            "home": [None if i % 4 == 3 else s.racks[i % 3] for i in range(topics)],
            "zones": [None if i % 3 == 2 else 1.0 + i % 3 for i in range(topics)],
        },
    )


def gathered(seed: int) -> Snapshot:
    """The same, with all replicas of a topic on one broker."""
    s = tenants(seed)
    return replace(s, replica_broker=(s.partition_topic[s.replica_partition] + 1) % s.n_brokers)


class Gathered(Goal):
    """All replicas of a topic are on one broker."""

    scope: ClassVar = Spread(PerTopic(BROKER))

    def score(self, state: State) -> Any:
        return at_most(state.group_count, 1)


# hard goals that a single copy of each partition may meet
MENDED: list[Goal] = [
    SpreadAcross(attribute="zone", at_least=2, topics="topic-0[0-4]"),
    SpreadAcross(attribute="zone", at_least="zones"),
    SpreadAcross(attribute="broker", topics="topic-0.*"),
    Apart(by="topic", at_most=2),
    Apart(by="tenant", at_most=3),
    Apart(by="tenant", attribute="rack", at_most=7),
    Near(attribute="zone"),
    Near(attribute="rack"),
    PreferredLeaderRack(attribute="home"),
    PreferredLeaderRack(attribute="home", followers=True),
]


def where_of(s: Snapshot, attribute: str, broker: int) -> str:
    if attribute == "broker":
        return str(broker)
    if attribute == "rack":
        return str(s.broker_rack[broker])
    return str(s.broker_attributes[attribute][broker])


def naive(goal: Any, placement: Placement) -> Iterator[float]:
    """Scores of the cells that are less than content, in any order."""
    s = placement.snapshot
    topic = [s.topics[t] for t in s.partition_topic]
    held = [
        (topic[p], int(b), f == placement.leader[p], p)
        for p, row in enumerate(placement.brokers)
        for f, b in enumerate(row)
        if b >= 0
    ]
    texts = {k: dict(zip(s.topics, v.tolist(), strict=True)) for k, v in s.topic_attributes.items()}
    if isinstance(goal, PreferredLeaderRack):
        racks, led = defaultdict(set), {}
        for t, b, leads, p in held:
            racks[p].add(s.racks[s.broker_rack[b]])
            if leads:
                led[p] = t, s.racks[s.broker_rack[b]]
        for p, (t, rack) in led.items():
            home = texts["home"][t]
            if home and rack != home:
                part = 1.0 if goal.followers else 0.5
                if home not in racks[p] or not goal.followers:
                    yield part if home in racks[p] else 0.0
        return
    places = [(t, where_of(s, goal.attribute, b)) for t, b, _, _ in held]
    places = [(t, where) for t, where in places if where]
    if isinstance(goal, SpreadAcross):
        for t in s.topics:
            groups = len({where for other, where in places if other == t})
            least: Any = texts["zones"][t] if goal.at_least == "zones" else goal.at_least
            if (goal.topics == ".*" or int(t[6:]) < 10) and groups < least:
                yield (1 + groups) / (1 + least)
    if isinstance(goal, Apart):
        values = [(t if goal.by == "topic" else texts[goal.by][t], where) for t, where in places]
        for (value, _), count in Counter(values).items():
            if value and count > goal.at_most:
                yield goal.at_most / count
    if isinstance(goal, Near):
        there, lacking = set(places), Counter[tuple[str, str]]()
        for t, where in places:
            for needed in texts["needs"][t].split(", "):
                if needed and needed != t and (needed, where) not in there:
                    lacking[needed, where] += 1
        for count in lacking.values():
            yield 1 / (1 + count)


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_scores_are_those_of_a_naive_count(seed: int, factor: int) -> None:
    cluster = Cluster(Placement(tenants(seed, replication_factor=factor)))
    goals = [g for g in MENDED if "[0-4]" not in g.name]
    scorer = Scorer(cluster, [goal.prepared(cluster) for goal in goals])
    for goal, scores in zip(goals, scorer.scores, strict=True):
        expected = sorted(naive(goal, cluster.placement))
        assert sorted(scores[scores < 1].tolist()) == pytest.approx(expected), goal.name


@pytest.mark.parametrize("hard", [pytest.param(False, marks=pytest.mark.soak), True])
@pytest.mark.parametrize("goal", MENDED, ids=lambda goal: goal.name)
def test_a_plan_mends_it_and_is_checked(goal: Goal, hard: bool) -> None:
    snapshot = gathered(1)
    ours = goal.model_copy(update={"hard": hard})
    plan = Balancer([ours, ReplicaDistribution(tier=1)]).propose(snapshot)
    result = next(r for r in plan.goal_results if r.goal == goal.name)
    assert (result.met_before, result.met_after) == (False, True), plan.unmet
    assert not unchecked(snapshot, plan, goal)


@pytest.mark.parametrize("goal", MENDED, ids=lambda goal: goal.name)
@pytest.mark.parametrize("kind", ["remove_brokers", "change_replication_factor"])
def test_it_holds_through_other_operations(goal: Goal, kind: str) -> None:
    """Brokers are emptied and replicas added; no step makes the hard goal worse."""
    snapshot = tenants(2)
    given: dict[str, Any] = {"brokers": (int(snapshot.broker_ids[0]),)}
    if kind == "change_replication_factor":
        given = {"replication_factor": {".*": 2}}
    goals = [goal.model_copy(update={"hard": True}), ReplicaDistribution(tier=1)]
    plan = Balancer(goals, strategy=QUICK).propose(snapshot, Operation(kind=kind, **given))
    unchecked(snapshot, plan, goal)


def test_a_worse_step_is_found_by_the_checker() -> None:
    """A plan for other goals breaks these; the checker says so if the plan claims them."""
    snapshots = [tenants(seed) for seed in range(1, 4)]
    bad = [Balancer([Gathered()], strategy=QUICK).propose(s).document().actions for s in snapshots]
    for goal in MENDED:
        ours: list[Goal] = [goal.model_copy(update={"hard": True}), ReplicaDistribution(tier=1)]
        for snapshot, actions in zip(snapshots, bad, strict=True):
            good = Balancer(ours, strategy=QUICK).propose(snapshot).document()
            mixed = good.model_copy(update={"actions": actions})
            if "hard goal" in {f.kind for f in check_plan(snapshot, mixed).violations}:
                break
        else:
            pytest.fail(goal.name)


def test_a_goal_of_another_package_may_count_groups() -> None:
    snapshot = tenants(1)
    plan = Balancer([Gathered()]).propose(snapshot)
    (result,) = (r for r in plan.goal_results if r.goal == "Gathered")
    assert result.unmet_cells_after < result.unmet_cells_before / 2
    assert check_plan(snapshot, plan.document()).ok


@pytest.mark.parametrize(
    ("goal", "reason", "more"),
    [
        (SpreadAcross(attribute="rack", at_least=4), "4 racks needed, and 3 can hold", (0, 1)),
        (SpreadAcross(attribute="zone", at_least=4), "4 zone values needed, and 2 can", (0, 0)),
        (SpreadAcross(attribute="broker", at_least=50), "replicas, and 50 brokers needed", (0, 0)),
        (Apart(by="tenant"), r"tenant tenant-\d: \d+ replicas, and 9 brokers may hold 1", None),
        (Apart(by="topic", attribute="rack"), r"\d+ replicas, and 3 racks may hold 1 each", None),
        (Near(attribute="rack", needs="lost"), "topic topic-07 needs topic gone, which", (0, 0)),
        (PreferredLeaderRack(attribute="away"), "no broker in rack nowhere may lead", (0, 0)),
        (
            PreferredLeaderRack(attribute="away", followers=True),
            "no broker in rack nowhere may hold a replica",
            (0, 0),
        ),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_what_no_placement_meets_is_proven(
    goal: Goal, reason: str, more: tuple[int, int] | None
) -> None:
    s = tenants(4)
    odd = {"lost": [None] * 7 + ["gone"] + [None] * 12, "away": ["nowhere"] + [None] * 19}
    s = replace(s, topic_attributes={**s.topic_attributes, **odd})
    proofs = goal.infeasibilities(Cluster(Placement(s)))
    match = [p for p in proofs if re.search(reason, p.reason)]
    assert match, [p.reason for p in proofs]
    if more is not None:
        assert (match[0].brokers_to_add, match[0].racks_to_add) == more
    plan = Balancer([goal]).propose(s)
    assert all(u.proven for u in plan.unmet if u.goal == goal.name)
    assert check_plan(s, plan.document()).ok


def test_a_remedy_of_more_brokers_holds() -> None:
    """With one broker fewer than certified, some placement of another size does meet it."""
    s = tenants(4)
    (proof,) = Apart(by="tenant").infeasibilities(Cluster(Placement(s)))
    enough = tenants(4, brokers=9 + proof.brokers_to_add)
    assert not Apart(by="tenant").infeasibilities(Cluster(Placement(enough)))
    assert Balancer([Apart(by="tenant", hard=True)]).propose(enough).ok


def test_a_closed_rack_may_keep_what_it_has() -> None:
    """Racks that take no more replicas count for topics that are there already."""
    s = tenants(5)
    state = s.broker_state.copy()
    state[s.broker_rack == 0] = BrokerState.DEMOTED
    cluster = Cluster(Placement(replace(s, broker_state=state)), eligible=s.broker_rack != 0)
    spread = SpreadAcross(attribute="rack", at_least=3)
    held = cluster.placement.sums(PerTopic(RACK), "replica_count").reshape(-1, 3)
    reasons = [p.reason for p in spread.infeasibilities(cluster) if "can hold" in p.reason]
    assert len(reasons) == int((held[:, 0] == 0).any())
    assert PreferredLeaderRack(attribute="home").infeasibilities(cluster)


@pytest.mark.parametrize(
    "goal",
    [
        SpreadAcross(attribute="zone", hard=True),
        SpreadAcross(attribute="rack", at_least="zones"),
        Apart(by="topic", at_most=2),
        Apart(by="tenant", attribute="rack", at_most=9),
        Near(attribute="zone"),
        PreferredLeaderRack(attribute="home"),
        MinTopicLeaders(topics="topic-20"),
        MinTopicLeaders(topics=".*", minimum=0),
    ],
    ids=lambda g: g.name,
)
def test_a_topic_without_partitions_needs_nothing(goal: Goal) -> None:
    s = tenants(0)
    more = {"tenant": "tenant-0", "needs": s.topics[0], "home": s.racks[0], "zones": 2.0}
    known = {
        name: [x if x == x and x != "" else None for x in values.tolist()]
        for name, values in s.topic_attributes.items()
    }
    s = replace(
        s,
        topics=(*s.topics, "topic-20"),
        topic_attributes={name: [*known[name], value] for name, value in more.items()},
    )
    plan = Balancer([goal]).propose(s)
    assert not plan.unmet
    assert all(g.met_after for g in plan.goal_results)
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


def test_a_follower_near_its_readers_is_enough_where_goals_say_so() -> None:
    s = tenants(6, replication_factor=2)
    home = np.array([s.racks.index(x) if x else -1 for x in s.topic_attributes["home"].tolist()])
    named = home[s.partition_topic]
    goals = [PreferredLeaderRack(attribute="home", followers=enough) for enough in (False, True)]
    moves = []
    for goal in goals:
        plan = Balancer([goal]).propose(s)
        placement = Placement(plan.final_snapshot())
        near = s.broker_rack[placement.brokers] == named[:, None]
        assert plan.ok
        assert (near.any(1) | (named < 0)).all()
        moves.append(plan.summary.replica_moves + plan.summary.leadership_moves)
    assert moves[1] < moves[0]
    assert goals[0].name != goals[1].name


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        (SpreadAcross(attribute="cage"), "the snapshot has no broker attribute 'cage'"),
        (Apart(by="owner"), "the snapshot has no topic attribute 'owner'"),
        (Near(attribute="rack", needs="owner"), "the snapshot has no topic attribute 'owner'"),
        (PreferredLeaderRack(attribute="owner"), "the snapshot has no topic attribute 'owner'"),
        (SpreadAcross(attribute="rack", at_least="owner"), "no topic attribute 'owner'"),
        (SpreadAcross(attribute="rack", at_least="tenant"), "has the value 'tenant-0', a number"),
        (Near(attribute="rack", needs="zones"), "1 found, names separated by commas expected"),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_unusable_attributes_are_one_sentence(goal: Goal, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Balancer([goal]).propose(tenants())


@pytest.mark.parametrize(
    "fields",
    [
        {"goal": "SpreadAcross", "attribute": "rack", "at_least": 0},
        {"goal": "SpreadAcross", "attribute": "rack", "topics": "("},
        {"goal": "Apart", "by": "topic", "at_most": 0},
        {"goal": "Near"},
        {"goal": "PreferredLeaderRack"},
    ],
    ids=str,
)
def test_unusable_fields_are_one_sentence(fields: dict[str, Any]) -> None:
    with pytest.raises(GoalError, match=r"expected|greater"):
        load_goals({"goals": [fields]})


def test_thousands_of_needs_are_one_attribute() -> None:
    s = synthetic_snapshot(brokers=20, partitions=5000, topics=5000, racks=5, seed=7)
    needs = [None, *(s.topics[i // 2] for i in range(1, 5000))]
    s = replace(s, topic_attributes={"needs": needs})
    cluster = Cluster(Placement(s))
    goal = Near(attribute="rack").prepared(cluster)
    scorer = Scorer(cluster, [goal])
    table = cluster.placement.recompute(goal.scope, "dependent_count")
    assert len(table) == 2500 * 5
    assert scorer.scores[0].shape == table.shape
