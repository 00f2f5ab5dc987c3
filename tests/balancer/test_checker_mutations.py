"""Every kind of field of a plan is changed, one at a time, and the check finds each change.

It may miss only what its report lists as unchecked. The digest, which reveals any change, is
removed from the plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK
from pydantic import ValidationError

from balancer import Balancer, Budget, Operation, PlanDocument
from balancer.planning.remedies import RemedyLimits
from balancer.verification.checker import check_plan
from balancer.verification.report import CheckReport
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState
from goals import load_goals

Path = tuple[str | int, ...]


def small(**changes: Any) -> Snapshot:
    arguments: dict[str, Any] = {
        "brokers": 4,
        "partitions": 8,
        "topics": 2,
        "racks": 3,
        "replication_factor": 2,
        "utilization": 0.4,
    }
    s = synthetic_snapshot(**(arguments | changes))
    return replace(s, follower_load=0.7 * s.leader_load)


def talking() -> Snapshot:
    s = small(replication_factor=1, partitions=16)
    one = np.arange(8)
    return replace(s, traffic_from=one, traffic_to=one + 8, traffic_rate=np.full(8, 100.0))


def dead() -> Snapshot:
    return small(dead_brokers=1, disks_per_broker=2)


def scarce() -> Snapshot:
    s = small(racks=1, utilization=0.55)
    state = s.broker_state.copy()
    state[0] = BrokerState.DEMOTED
    return replace(s, broker_state=state)


def priced() -> Snapshot:
    s = small(partitions=16, heterogeneity=0.5, seed=2)
    return replace(
        s,
        broker_attributes={"price": [1.0, 4.0, 2.0, 3.0], "zone": ["a", "b", "a", "b"]},
        topic_attributes={"size": [1.0, 2.0]},
    )


FEW_GOALS = load_goals(
    {
        "goals": [
            "RackAwareness",
            {"goal": "ResourceCapacity", "resource": "disk"},
            {"goal": "UsageDistribution", "resource": "disk", "threshold": 1.001},
            "ReplicaDistribution",
        ]
    }
)
CASES: dict[str, tuple[Callable[[], Snapshot], Any, dict[str, Any], Budget]] = {
    "rebalance": (small, "default", {}, Budget(moves=3)),
    "all met": (small, "autobalancer", {}, Budget()),
    "disks": (
        dead,
        load_goals({"goals": ["DiskCapacity", "DiskUsageDistribution", "PreferredLeader"]}),
        {"kind": "fix_offline_replicas"},
        Budget(moves=4),
    ),
    "unmet": (scarce, "cruise-control", {}, Budget(moves=3)),
    "remove": (small, FEW_GOALS, {"kind": "remove_brokers", "brokers": (2,)}, Budget(moves=3)),
    "remove beside the dead": (
        dead,
        FEW_GOALS,
        {"kind": "remove_brokers", "brokers": (2,)},
        Budget(moves=3),
    ),
    "demote": (small, FEW_GOALS, {"kind": "demote_brokers", "brokers": (2,)}, Budget()),
    "more replicas": (
        small,
        "autobalancer",
        {"kind": "change_replication_factor", "replication_factor": {"topic-0": 3}},
        Budget(),
    ),
    "fewer replicas": (
        small,
        "autobalancer",
        {"kind": "change_replication_factor", "replication_factor": {"topic-0": 1}},
        Budget(),
    ),
    "groups": (
        talking,
        load_goals(
            {"goals": ["CollocationGoal", "ReplicaDistribution", "TopicLeaderDistribution"]}
        ),
        {},
        Budget(moves=4),
    ),
    "costs": (
        priced,
        load_goals(
            {
                "goals": [
                    {"goal": "TransientCapacity", "resource": "disk"},
                    {"goal": "RackFailureCapacity", "resource": "cpu", "limit": 0.7},
                    {"goal": "LoadCost", "resource": "disk", "above": 0.3, "tier": 2},
                    {"goal": "BalanceCost", "resource": "cpu", "other": "disk", "ratio": 1e9},
                    {"goal": "Price", "attribute": "price", "tier": 2},
                    {
                        "goal": "MoveCost",
                        "cost": "topic attribute size",
                        "by": "broker attribute zone",
                        "factors": {"a": {"b": 2.0}},
                        "weight": 0.01,
                        "tier": 2,
                    },
                ]
            }
        ),
        {},
        Budget(moves=6),
    ),
}


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a document, containers too."""
    yield path, value
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))


def mutants(value: Any) -> list[Any]:
    """What a value might be instead."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [1.1 * value + 1e-3, 0.9 * value - 1e-3]
    if isinstance(value, str):
        return [value + "x", ""]
    if value is None:
        return [3, "seconds"]
    if isinstance(value, list):
        middle = len(value) // 2
        one = value[middle : middle + 1]
        before, after = value[:middle], value[middle + 1 :]
        return [[*before, *after], [*before, *one, *one, *after], value[::-1]] if value else []
    fewer = [{k: v for k, v in value.items() if k != key} for key in value]
    return [*fewer, value | {"surprise": 0.5}]


def mutated(document: dict[str, Any], start: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Documents with one change each and what is changed; of records alike, one is changed.

    Of the two ways to change a number or a text, plans take turns.
    """
    found: dict[tuple[str, int], list[tuple[Path, Any]]] = {}
    for path, value in leaves(document):
        others = mutants(value)
        if not isinstance(value, dict | list):
            others = others[(start + len(path)) % len(others) :][:1]
        for number, other in enumerate(others):
            # a key that is left out is named, not what held it
            gone = {*value} - {*other} if isinstance(value, dict) else set()
            name = named((*path, *gone))
            if other != value:
                found.setdefault((name, 0 if gone else number), []).append((path, other))
    for place, ((name, _), choices) in enumerate(found.items()):
        path, other = choices[(start + place) % len(choices)]
        yield name, replaced(document, path, other)


def replaced(value: Any, path: Path, other: Any) -> Any:
    """A document with another value at a path; it shares the rest with the one before."""
    if not path:
        return other
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], other)
    return copied


def named(path: Path) -> str:
    """A path as reports of unchecked fields write it."""
    text = ""
    for before, key in zip(("", *path), path, strict=False):
        inside = isinstance(key, int) or before in ("columns", "helped", "hurt")
        text += "[]" if inside else f".{key}" if text else str(key)
    return text


def fields_of(report: CheckReport) -> list[str]:
    return [re.sub(r"goals\[.+\]", "goals[]", u.field) for u in report.unchecked]


@cache
def planned(case: str) -> tuple[Snapshot, PlanDocument]:
    """A plan without its digest, which its check takes for sound."""
    build, goals, operation, budget = CASES[case]
    s = build()
    plan = (
        Balancer(goals, budget=budget, strategy=QUICK).propose(s, Operation(**operation)).document()
    )
    assert check_plan(s, plan).ok, [str(f) for f in check_plan(s, plan).mismatches]
    return s, plan.model_copy(update={"digest": None})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_changed_field_is_found_or_listed_as_unchecked(case: str) -> None:
    s, plan = planned(case)
    document = plan.model_dump(mode="json")
    listed = fields_of(check_plan(s, plan))
    survivors = set()
    for name, changed in mutated(document, [*CASES].index(case)):
        if any(name.startswith(field) for field in listed if field != "digest"):
            continue  # raised bounds, forged proofs and other requests have tests of their own
        try:
            read = PlanDocument.model_validate(changed)
        except ValidationError:
            continue  # load_plan refuses it
        if read.model_dump(mode="json") == document:
            continue  # a default left out is the same document
        # another order of steps that is as safe and has the same effects is as good a plan
        if name == "actions" and len(changed["actions"]) == len(document["actions"]):
            continue
        report = check_plan(s, read)
        # what is left out altogether is listed field by field
        said = any(name.startswith(f) or f.startswith(f"{name}.") for f in fields_of(report))
        if report.ok and not said:
            survivors.add(name)
    assert not survivors


def changed_plan(plan: PlanDocument, **changes: Any) -> PlanDocument:
    return PlanDocument.model_validate(plan.model_dump(mode="json") | changes)


def kinds(s: Snapshot, plan: PlanDocument) -> set[str]:
    report = check_plan(s, plan)
    return {f.kind for f in (*report.violations, *report.mismatches)}


def above(bound: float, reached: float) -> float:
    """A bound that is too high, yet below what was reached where there is room."""
    return (bound + reached) / 2 if reached > 1.01 * bound else 1.01 * bound + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_raised_bound_is_found(case: str) -> None:
    s, plan = planned(case)
    summary = plan.summary
    raised = above(summary.cost_bound, summary.cost)
    content = summary.model_dump() | {"cost_bound": raised}
    assert kinds(s, changed_plan(plan, summary=content)) == {"cost_bound"}
    for name, column in plan.columns.items():
        raised = above(column.worst_ratio_bound, column.after.worst_ratio)
        other = column.model_copy(update={"worst_ratio_bound": raised})
        columns = {k: c.model_dump() for k, c in (plan.columns | {name: other}).items()}
        assert kinds(s, changed_plan(plan, columns=columns)) == {"worst_ratio_bound"}, name


FORGED: dict[str, Any] = {
    "reason": "every broker is full, believe me",
    "remedy": "buy the premium edition",
    "brokers_to_add": 7,
    "racks_to_add": 7,
    "broker_set": "gold",
}


@cache
def hopeless() -> tuple[Snapshot, PlanDocument]:
    """Two replicas and one rack: a proof, and beside it goals without one."""
    s = scarce()
    plan = Balancer(FEW_GOALS, strategy=QUICK).propose(s).document()
    assert check_plan(s, plan).ok
    assert {u.proven for u in plan.unmet} == {True, False}
    return s, plan.model_copy(update={"digest": None})


@pytest.mark.parametrize("field", FORGED)
@pytest.mark.parametrize("proven", [True, False])
def test_a_forged_proof_or_reason_is_found(proven: bool, field: str) -> None:
    s, plan = hopeless()
    for place, entry in enumerate(plan.unmet):
        if entry.proven is proven:
            unmet = [u.model_dump() for u in plan.unmet]
            unmet[place][field] = FORGED[field]
            assert kinds(s, changed_plan(plan, unmet=unmet)) & {"proven", "unmet"}


def test_a_proof_that_the_goal_does_not_give_is_found() -> None:
    s, plan = hopeless()
    proof = next(u for u in plan.unmet if u.proven)
    unmet = [u.model_dump() for u in plan.unmet]
    for entry in unmet:
        entry |= {"proven": True, "reason": proof.reason, "remedy": proof.remedy}
    assert "proven" in kinds(s, changed_plan(plan, unmet=unmet))
    for entry in unmet:
        entry |= {"proven": False}
    assert "proven" in kinds(s, changed_plan(plan, unmet=unmet))


def test_a_forged_remedy_is_found() -> None:
    s, plan = hopeless()
    untried = plan.remedy
    assert untried is not None
    assert not untried.tried
    tried = Balancer(FEW_GOALS, remedies=RemedyLimits(), strategy=QUICK).propose(s).document()
    found = tried.remedy
    assert found is not None
    assert found.tried
    tried = tried.model_copy(update={"digest": None})
    assert check_plan(s, tried).ok
    for document, remedy in ((plan, untried), (tried, found)):
        for field, value in {
            "goals": ["ReplicaDistribution"],
            "brokers": remedy.brokers + 1,
            "racks": remedy.racks + 1,
            "tried": not remedy.tried,
            "text": "add 9 brokers in rack nowhere",
        }.items():
            forged = remedy.model_dump() | {field: value}
            assert kinds(s, changed_plan(document, remedy=forged)) == {"remedy"}, field
    assert kinds(s, changed_plan(plan, remedy=None)) == {"remedy"}


def test_another_request_is_found_where_the_plan_does_not_fit_it() -> None:
    s, plan = planned("remove")
    move = next(a for a in plan.actions if a.kind == "move")
    here = f"{move.topic}-{move.partition}"
    asked = {"kind": "remove_brokers", "brokers": [2]}
    unmatched = asked | {"excluded_topics": ["nothing-like-it"]}
    assert "operation" in kinds(s, changed_plan(plan, operation=unmatched))
    allowed = unmatched | {"allow_unmatched": True}
    assert kinds(s, changed_plan(plan, operation=allowed)) == {"warnings"}
    others = sorted({*s.broker_ids.tolist()} - {2, move.destination})
    for operation in (
        {"kind": "rebalance"},
        {"kind": "add_brokers", "brokers": [2]},
        {"kind": "demote_brokers", "brokers": [2]},
        {"kind": "fix_offline_replicas"},
        {"kind": "change_replication_factor", "replication_factor": {".*": 1}},
        asked | {"brokers": [1]},
        asked | {"brokers": [1, 2]},
        asked | {"brokers": []},
        asked | {"brokers": [77]},
        asked | {"frozen_partitions": [here]},
        asked | {"destinations": others},
        asked | {"excluded_brokers_for_replicas": [move.destination]},
        asked | {"excluded_brokers_for_leadership": others},
        asked | {"allow_unmatched": 1},
        asked | {"surprise": 1},
    ):
        assert kinds(s, changed_plan(plan, operation=operation)), operation
    s, plan = planned("rebalance")
    move = next(a for a in plan.actions if a.kind == "move")
    here = f"{move.topic}-{move.partition}"
    for operation in (
        {"kind": "rebalance", "excluded_topics": [move.topic]},
        {"kind": "rebalance", "excluded_partitions": [here]},
        {"kind": "rebalance", "frozen_partitions": [here]},
    ):
        assert kinds(s, changed_plan(plan, operation=operation)), operation


def test_other_goals_are_found_where_the_plan_does_not_fit_them() -> None:
    s, plan = planned("unmet")
    place = {str(g["goal"]): i for i, g in enumerate(plan.goals)}
    for kind, changes in (
        ("RackAwareness", {"hard": False}),
        ("RackAwareness", {"weight": 2.0}),
        ("RackAwareness", {"tier": 9}),
        ("ReplicaCapacity", {"limit": 1}),
        ("ReplicaCapacity", {"limit": -1}),
        ("ReplicaCapacity", {"surprise": 1}),
        ("ResourceCapacity", {"threshold": 0.01}),
        ("ResourceCapacity", {"resource": "luck"}),
        ("ReplicaDistribution", {"threshold": 9.0}),
        ("ReplicaDistribution", {"name": "Other"}),
        ("UsageDistribution", {"margin": 0.01}),
        ("UsageDistribution", {"goal": "ReplicaDistribution"}),
        ("OnlineReplicas", {"goal": "RackAwareness"}),
    ):
        goals = [dict(g) for g in plan.goals]
        goals[place[kind]] |= changes
        assert kinds(s, changed_plan(plan, goals=goals)), (kind, changes)
    goals = [dict(g) for g in plan.goals]
    for other in (goals[1:], goals[:-1], [*goals, goals[-1]], goals[::-1]):
        assert kinds(s, changed_plan(plan, goals=other))


def test_a_step_on_a_frozen_partition_is_found() -> None:
    s, plan = planned("rebalance")
    step, action = next((i, a) for i, a in enumerate(plan.actions) if a.kind == "move")
    operation = {"kind": "rebalance", "frozen_partitions": [f"{action.topic}-{action.partition}"]}
    report = check_plan(s, changed_plan(plan, operation=operation))
    assert [f.step for f in report.violations if f.kind == "frozen"] == [step]


def test_fewer_than_no_actions_left_out_are_found() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    plan = Balancer().propose(s).document()
    forged = plan.model_copy(
        update={"summary": plan.summary.model_copy(update={"left_out": -1}), "digest": None}
    )
    assert any("left_out" in m.text for m in check_plan(s, forged).mismatches)


@pytest.mark.parametrize(
    ("goal", "changes", "sentence"),
    [
        ("LoadCost", {"scale": 3.0}, "field scale: 3 found, at least"),
        ("LoadCost", {"above": "zone"}, "attribute zone: 'a' found, a number of at least 0"),
        ("Price", {"attribute": "zone"}, "attribute zone: 'a' found, a number of at least 0"),
        ("MoveCost", {"factors": {"a": {"c": 2.0}}}, "'c' found, the name of a zone"),
        ("MoveCost", {"cost": "topic attribute age"}, "no topic attribute 'age'"),
    ],
)
def test_a_cost_that_does_not_fit_the_cluster_is_found(
    goal: str, changes: dict[str, Any], sentence: str
) -> None:
    s, plan = planned("costs")
    goals = [g | (changes if g["goal"] == goal else {}) for g in plan.goals]
    report = check_plan(s, changed_plan(plan, goals=goals))
    assert any(sentence in f.text for f in report.mismatches if f.kind == "goals")
