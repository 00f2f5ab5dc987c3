"""Parameters of search, planning and allocation: documented, applied, and reported when wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, small
from command_line import invoke
from pydantic import BaseModel, ValidationError

import balancer
from balancer import Balancer, Budget, LocalSearch, Milp, Plan, PlanningParameters
from balancer.allocation.parameters import AllocationParameters
from balancer.collocation.parameters import CollocationParameters
from balancer.collocation.strategy import Albic
from balancer.search.parameters import SearchParameters
from balancer.strategies import load_strategy
from cluster_model import Snapshot, save_snapshot, synthetic_snapshot
from goals import GoalError

MODELS = [SearchParameters, PlanningParameters, AllocationParameters, CollocationParameters]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in Path(balancer.__file__).parent.rglob("*.py")
    if path.name != "parameters.py"
)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return synthetic_snapshot(brokers=8, partitions=200, racks=4, seed=3)


@pytest.fixture(scope="module")
def few(snapshot: Snapshot) -> str:
    """The plan of a search with little effort."""
    return planned(snapshot, {"profile": "default", "search": FEW})


def goals_file(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"profile: default\n{text}\n")
    return path


def planned(snapshot: Snapshot, goals: Any = "default", **options: Any) -> str:
    return Balancer(goals, **options).propose(snapshot).to_json()


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_documented_and_read(model: type[BaseModel]) -> None:
    documented = set(re.findall(r"\w+", model.__doc__ or ""))
    own = {name for name in model.model_fields if name in model.__annotations__}
    assert own <= documented
    assert [name for name in sorted(own) if f".{name}" not in SOURCES] == []


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_frozen_and_named_exactly(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(model(), next(iter(model.model_fields)), 1)
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({"no_such_parameter": 1})


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (SearchParameters, {"passes": 0}),
        (SearchParameters, {"widening": ()}),
        (SearchParameters, {"widening": (4, 1)}),
        (SearchParameters, {"destination_parcels": (0.1, 0.2)}),
        (SearchParameters, {"kept_gain": float("nan")}),
        (SearchParameters, {"most_candidates": 10**30}),
        (PlanningParameters, {"examined_actions": 0}),
        (AllocationParameters, {"smallest_leap": 0.5}),
        (AllocationParameters, {"shortest_stay": 9}),
        (AllocationParameters, {"price_factor": 1.0}),
        (AllocationParameters, {"price_factor": "1.5"}),
        (SearchParameters, {"widening": ("1", 4)}),
        (SearchParameters, {"widening": (True, 4)}),
        (SearchParameters, {"passes": np.True_}),
        (CollocationParameters, {"fewest_looks": 2_000}),
    ],
)
def test_values_that_an_algorithm_cannot_work_with(
    model: type[BaseModel], wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(wrong)


FEW = {"candidates_per_broker": 1, "least_candidates": 200, "idle_rounds": 1, "passes": 1}


def test_a_goals_file_sets_parameters_of_the_search(
    snapshot: Snapshot, few: str, tmp_path: Path
) -> None:
    text = "search: {" + ", ".join(f"{name}: {value}" for name, value in FEW.items()) + "}"
    own = goals_file(tmp_path, text)
    assert few == planned(snapshot, own) != planned(snapshot)


@pytest.mark.parametrize(
    "changed",
    [
        {"least_per_cell": 200},
        {"least_sampled": 1},
        {"least_destinations": 1},
        {"action_overhead": 1e6},
        {"most_lower_tier_gain": 0},
    ],
    ids=str,
)
def test_parameters_of_effort_and_worth_are_obeyed(
    changed: dict[str, Any], snapshot: Snapshot, few: str
) -> None:
    assert planned(snapshot, {"profile": "default", "search": FEW | changed}) != few


def test_an_option_of_the_strategy_takes_precedence(tmp_path: Path) -> None:
    own = goals_file(tmp_path, "search: {passes: 7, idle_rounds: 2}")
    for strategy in ({"strategy": "goals", "passes": 5}, LocalSearch(passes=5)):
        found = Balancer(own, strategy=strategy).strategy
        assert isinstance(found, LocalSearch)
        assert (found.passes, found.idle_rounds, found.stall_rounds) == (5, 2, 12)


def test_extreme_parameters_still_give_safe_plans() -> None:
    from balancer.verification.checker import check_plan

    for options in (
        {name: 1 for name, value in SearchParameters() if type(value) is int}
        | {"group_members": 2, "widening": (1,), "destination_parcels": (1.0,)},
        {"trivial_share": 0, "stall_gain": 0, "kept_gain": 0, "least_saving": 0},
        {"trivial_share": 1, "stall_gain": 1, "kept_gain": 1, "least_saving": 1},
    ):
        tiny = synthetic_snapshot(brokers=4, partitions=8, racks=2, seed=1)
        for cluster in (small(partitions=30), tiny):
            made = Balancer(strategy=QUICK | options).propose(cluster)
            assert check_plan(cluster, made.document()).ok


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("search: {passes: 0}", "search, option passes: 0 found; input should be greater than"),
        (
            "search: {pases: 3}",
            "search: option 'pases' found, one of passes, candidates_per_broker, least_candidates, "
            "most_candidates, least_per_cell, least_sampled, least_destinations, "
            f"least_swaps_per_broker and {len(SearchParameters.model_fields) - 8} more expected; "
            "did you mean 'passes'?",
        ),
        ("search: {passes: '3'}", "search, option passes: '3' found; a number expected"),
        ("search: {passes: true}", "search, option passes: True found; a number expected"),
        ("planning: {refill: 1}", "planning, option refill: 1 found; true or false expected"),
        ("search: 3", "search: 3 found, a mapping of parameters to values expected"),
        ("planning: {detour_rounds: x}", "planning, option detour_rounds: 'x' found; "),
    ],
)
def test_a_wrong_parameter_in_a_goals_file(text: str, said: str, tmp_path: Path) -> None:
    own = goals_file(tmp_path, text)
    with pytest.raises(GoalError) as wrong:
        Balancer(own)
    assert str(wrong.value).startswith("goals file ")
    assert f"{own.name}" in str(wrong.value).partition(": ")[0]
    assert str(wrong.value).partition(": ")[2].startswith(said)


def test_a_goals_file_sets_parameters_of_planning(tmp_path: Path) -> None:
    own = goals_file(tmp_path, "planning: {detour_rounds: 3, futile_rounds: 1}")
    assert Balancer(own).planning == PlanningParameters(detour_rounds=3, futile_rounds=1)
    given = Balancer(own, planning=PlanningParameters(detour_rounds=9)).planning
    assert (given.detour_rounds, given.futile_rounds) == (9, 1)


def test_parameters_of_a_search_that_does_not_happen_are_reported() -> None:
    single = synthetic_snapshot(brokers=6, partitions=60, replication_factor=1, racks=3)
    goals = {"goals": ["ReplicaCapacity"], "search": {"passes": 5}}
    options: dict[str, Any] = {"budget": Budget(moves=9)}
    said = "search: passes given together with the goals, but strategy milp does not use them"
    plan: Plan = Balancer(goals, strategy=Milp(rounds=50), **options).propose(single)
    assert said in plan.warnings
    assert Balancer(goals, **options).propose(single).warnings == ()


def test_the_allocations_parameters_are_options_of_its_strategies() -> None:
    found = load_strategy({"strategy": "albic", "starts": 2, "locality_passes": 0})
    assert isinstance(found, Albic)
    assert (found.starts, found.locality_passes, found.pairs) == (2, 0, 1)
    single = synthetic_snapshot(brokers=6, partitions=60, replication_factor=1, racks=3)
    for milp in (Milp(rounds=50, starts=1, start_share=0.01, proof_size=0), Milp(rounds=50)):
        plan = Balancer([], strategy=milp).propose(single)
        assert plan.allocation is not None
        assert plan.allocation.distance_bound <= plan.allocation.distance_after


def test_options_of_the_search_on_the_command_line(
    snapshot: Snapshot, few: str, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(snapshot, path)

    def run(*args: object) -> Any:
        return invoke(args)

    options = [
        word for pair in FEW.items() for word in ("--strategy-option", "{}={}".format(*pair))
    ]
    done = run("propose", path, "--strategy", "goals", *options, "--json")
    assert done.stdout == few
    shown = run("strategies", "show", "goals").stdout
    assert "Maximum number of passes over all tiers." in shown
    assert re.search(r"passes +int +3 *\n", shown)
    wrong = run("propose", path, "--strategy-option", "passes=0")
    assert wrong.exit_code == 2
    assert "strategy goals, option passes: 0 found; " in wrong.stderr
