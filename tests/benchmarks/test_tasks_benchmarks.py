"""The benchmarks of stateful tasks: Kafka's bounds hold, and their figures agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    TaskAssignment,
    TaskAssignor,
)
from balancer.assignment.scenario import ScenarioDocument, build_scenario
from balancer.assignment.simulation import simulate
from benchmarks import tasks_convergence
from benchmarks.harness.task_assignors import KAFKA
from benchmarks.registry import BenchmarkError, Options, Row, find
from benchmarks.tasks_downtime import _CASES, _figures, scenario


def measured(name: str, *sizes: str, rounds: int, subject: str = KAFKA) -> dict[str, float]:
    options = Options(subjects=(subject,), rounds=rounds, log=lambda _: None)
    rows: Iterable[Row] = find(name, sizes).run(sizes, options)
    return {row.metric: row.value for row in rows}


@pytest.mark.parametrize(("size", "bound"), [("add", 6), ("drop", 8)])
def test_a_change_needs_no_more_rounds_than_in_kafkas_own_test(size: str, bound: int) -> None:
    found = measured("tasks-convergence", size, rounds=7)
    assert found["rounds, worst"] <= bound
    assert found["unconverged"] == found["beyond the bound of rounds"] == 0
    assert found["with task counts more than 1 apart"] == 0


def test_an_application_that_stays_as_it_is_needs_one_round() -> None:
    found = measured("tasks-convergence", "static", rounds=1)
    assert found["events"] == found["beyond the bound of rounds"] == 0


def test_random_events_converge_within_their_bounds() -> None:
    found = measured("tasks-convergence", "random", rounds=60)
    assert found["events"] > 60
    assert found["unconverged"] == found["beyond the bound of rounds"] == 0
    assert found["with missing copies"] == found["with task counts more than 1 apart"] == 0
    assert found["records restored per event"] == 150_000 * found["copies moved per event"]


def test_no_task_stands_still_while_instances_join() -> None:
    found = measured("tasks-downtime", "scale-out", rounds=1)
    assert found["task-seconds without an active"] == 0
    assert found["restoring the last records"] == 0
    assert found["came to rest"] == 1
    assert found["handed over"] > 0


def test_the_figures_of_a_task_that_moves_are_those_by_hand() -> None:
    document = {
        "instances": [{"id": name} for name in "ab"],
        "tasks": [{"id": "0_0", "end_offset": 100_000, "load": {"records": 10}}],
        "changes": [{"at": 3600, "leave": "a"}],
        "restore_rate": 1_000,
    }
    case = build_scenario(ScenarioDocument.model_validate(document))
    found = {name: value for name, value, _ in _figures(simulate(case, TaskAssignor()))}
    # 100 s to restore 100,000 records, of which the last 10,000 are within the acceptable lag.
    assert found == pytest.approx(
        {
            "task-seconds without an active": 90.0,
            "while a copy was within the lag": 0.0,
            "restoring the last records": 10.0,
            "handed over": 0.0,
            "records restored": 100_000.0,
            "copies restored": 1,
            "rebalances": 1,
            "hours until at rest": 100 / 3600,
            "hours until even in load": 0.0,
            "fullest instance over what tasks allow, at last": 1.0,
            "came to rest": 1.0,
        }
    )


def test_sizes_follow_zipfs_law() -> None:
    made = scenario(_CASES["scale-out"], 3)
    sizes = sorted(made.state.end_offset.tolist(), reverse=True)
    assert sizes[:4] == [20_000_000, 10_000_000, 6_666_667, 5_000_000]
    assert made.write_rate.sum() == pytest.approx(20_000.0)


def test_an_unknown_subject_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'x'"):
        measured("tasks-downtime", "scale-in", rounds=1, subject="x")


class Restless:
    """Puts all tasks on one instance, without standbys, and always asks for one more rebalance."""

    def __init__(self, configs: AssignmentConfigs) -> None:
        self._configs = configs

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign everything to the last instance."""
        nothing = np.zeros(0, np.int64)
        last = np.full(state.n_tasks, state.n_instances - 1)
        return TaskAssignment(
            state=state,
            configs=self._configs,
            active=last,
            target=last,
            standby_task=nothing,
            standby_instance=nothing,
            warmup=np.zeros(0, np.bool_),
            movements=0,
            probing_rebalance=True,
        )


def test_an_assignor_that_breaks_the_rules_is_counted_as_such() -> None:
    case = tasks_convergence._case("drop", 0)
    configs = case.configs.model_copy(update={"num_standby_replicas": 1})
    tally = tasks_convergence._Tally(1)
    tasks_convergence._run(replace(case, configs=configs), Restless(configs), tally)
    found = {metric: value for metric, value, _ in tasks_convergence._rows(tally, own_time=False)}
    # at the start, and after an instance has gone
    assert found["unconverged"] == found["beyond the bound of rounds"] == 2
    assert found["with missing copies"] == found["with task counts more than 1 apart"] == 2
    assert found["rounds, worst"] == 80
    assert found["fullest instance beyond what tasks allow"] > 100
