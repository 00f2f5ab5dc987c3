"""Goals that do not come with Counterpoise: what the check of a plan can say about them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, by_hand
from command_line import invoke

from balancer import Balancer, PlanDocument
from balancer.verification.checker import check_plan
from benchmarks.tight import GivenTarget
from cluster_model import synthetic_snapshot
from cluster_model.files import save_snapshot
from goals import Goal, GoalError, ResourceCapacity, State, at_most

SNAPSHOT = synthetic_snapshot(brokers=5, partitions=20, racks=3, replication_factor=2)


class AlwaysContent(Goal):
    """Is met whatever happens: worth nothing as a promise."""

    def score(self, state: Any) -> Any:
        return np.ones_like(state.replica_count)


class FewLeaders(Goal):
    limit: int = 4

    def score(self, state: Any) -> Any:
        return at_most(state.leader_count, self.limit)


class OwnLimit(ResourceCapacity):
    """A limit of another package."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(kind.__name__, f"{__name__}:{kind.__name__}", "counterpoise.goals")
        for kind in (AlwaysContent, FewLeaders, OwnLimit)
    )
    monkeypatch.setattr("metrics_reporter.plugins.entry_points", lambda group: points)


def plan_with(goal: Goal) -> PlanDocument:
    plan = Balancer([goal.model_copy(update={"tier": 0})], strategy=QUICK).propose(SNAPSHOT)
    # without a digest, which would tell of any change
    return plan.document().model_copy(update={"digest": None})


@pytest.mark.parametrize("hard", [True, False])
def test_a_goal_that_is_not_installed_is_unchecked(hard: bool) -> None:
    report = check_plan(SNAPSHOT, plan_with(AlwaysContent(hard=hard)))
    (unchecked,) = (u for u in report.unchecked if "AlwaysContent" in u.field)
    assert unchecked.hard is hard
    assert "not installed" in unchecked.reason
    assert not report.violations + report.mismatches
    assert report.ok is not hard


@pytest.mark.usefixtures("installed")
def test_a_hard_goal_that_only_its_own_code_judges_is_not_taken_for_sound(tmp_path: Path) -> None:
    save_snapshot(SNAPSHOT, tmp_path / "cluster.json")
    plan = Balancer([AlwaysContent(hard=True, tier=0)]).propose(SNAPSHOT)
    plan.save(tmp_path / "plan.json")
    files = [str(tmp_path / "cluster.json"), str(tmp_path / "plan.json")]
    shown = invoke(["verify", *files])
    assert shown.exit_code == 1
    assert "AlwaysContent is hard, and is checked by its own code alone" in shown.stdout
    record = json.loads(invoke(["verify", "--json", *files]).stdout)
    assert not record["ok"]
    assert [u["hard"] for u in record["unchecked"] if "AlwaysContent" in u["field"]] == [True]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("goal", [FewLeaders(), FewLeaders(limit=2, hard=True)])
def test_its_own_code_confirms_a_plan_and_contradicts_a_changed_one(goal: Goal) -> None:
    document = plan_with(goal)
    report = check_plan(SNAPSHOT, document)
    assert not report.violations + report.mismatches
    result = document.goal_results[-1].model_copy(update={"contentment_before": 0.123})
    changed = document.model_copy(update={"goal_results": (*document.goal_results[:-1], result)})
    kinds = {f.kind for f in check_plan(SNAPSHOT, changed).mismatches}
    assert {"contentment"} <= kinds <= {"contentment", "relief"}
    step = next(i for i, a in enumerate(document.actions) if "FewLeaders" in a.helped)
    action = document.actions[step]
    other = action.model_copy(update={"helped": action.helped | {"FewLeaders": 0.999}})
    actions = (*document.actions[:step], other, *document.actions[step + 1 :])
    changed = document.model_copy(update={"actions": actions})
    assert {f.kind for f in check_plan(SNAPSHOT, changed).mismatches} == {"reasons"}


class OffTheScale(Goal):
    # A text, as a field takes no NaN.
    value: str = "2.0"

    def score(self, state: Any) -> Any:
        return np.full(np.shape(state.replica_count), float(self.value))


@pytest.mark.parametrize("value", ["2.0", "-0.5", "nan", "inf"])
def test_a_score_off_the_scale_is_named_and_no_plan_is_made(value: str) -> None:
    with pytest.raises(GoalError, match=rf"^goal OffTheScale: score {value} found, 0 to 1"):
        Balancer([OffTheScale(value=value)]).propose(SNAPSHOT)


class OfAnotherShape(Goal):
    """Scores with an array that does not have one score for each broker."""

    given: str = "None"

    def score(self, state: State) -> Any:
        scores = {"None": None, "one": 1.0, "two": np.ones(2), "column": np.ones((5, 1))}
        return scores[self.given]


@pytest.mark.parametrize("given", ["None", "one", "two", "column"])
def test_scores_of_another_shape_are_named(given: str) -> None:
    said = r"^goal OfAnotherShape: scores of shape .* found, \(5,\) expected: one for each broker$"
    with pytest.raises(GoalError, match=said):
        Balancer([OfAnotherShape(given=given)]).propose(SNAPSHOT)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("more", [0.0, 200.0])
def test_a_limit_may_be_filled_again_up_to_the_start(more: float) -> None:
    # broker 0 holds 950, then 450, then 850, or 1,050; 800 are allowed
    load = [500.0, 450.0, 400.0, 100.0]
    snapshot = by_hand([(0,), (0,), (1,), (2,)], brokers=3, load=load, capacity=2000.0)
    limit = OwnLimit(resource="disk", threshold=0.4, tier=0)
    target = GivenTarget(np.array([[2], [0], [0], [2]]))
    document = Balancer([limit], strategy=target).propose(snapshot).document()
    assert [a.destination for a in document.actions] == [2, 0]
    heavier = snapshot.leader_load.copy()
    heavier[2] += more
    # the checker judges by the goal's own code where nothing else is wrong
    first, second = document.actions
    second = second.model_copy(update={"cost": second.cost + more})
    document = document.model_copy(update={"actions": (first, second)})
    report = check_plan(replace(snapshot, leader_load=heavier), document)
    assert ("hard goal" in {v.kind for v in report.violations}) == (more > 0)
