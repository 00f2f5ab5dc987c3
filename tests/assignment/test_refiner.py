"""The refiner of KIP-1071: cases, and what Kafka's own fuzz tests demand of it."""

from __future__ import annotations

import numpy as np
import pytest
from assignment_cases import application, configs, shown
from hypothesis import given
from hypothesis import strategies as st

from balancer.assignment import (
    RUNNING,
    ApplicationState,
    StateDocument,
    TaskAssignment,
    TaskAssignor,
    build_state,
)
from balancer.assignment.refiner import refine
from benchmarks.harness.task_states import random_document


def refined(state: ApplicationState, lag: int = 10, warmups: int = 2, standbys: int = 0) -> str:
    found = TaskAssignor(configs(lag, warmups, standbys), refined=True).assign(state)
    return shown(found)


def test_a_task_stays_on_its_owner_while_its_target_warms_up() -> None:
    lags = {"00": RUNNING, "01": RUNNING}
    state = application("00 01", {"P1": {"active": ["0_0", "0_1"], "lags": lags}, "P2": {}})
    assert refined(state) == "P1 A{00,01}; P2 S{01}"


def test_a_target_that_has_caught_up_gets_its_task() -> None:
    lags = {"00": RUNNING, "01": RUNNING}
    state = application(
        "00 01",
        {
            "P1": {"active": ["0_0", "0_1"], "lags": lags},
            "P2": {"standby": ["0_1"], "lags": {"01": 10}},
        },
    )
    assert refined(state) == "P1 A{00}; P2 A{01}"


def test_beyond_the_budget_tasks_are_parked() -> None:
    state = application(
        "00 01 02 03",
        {"P1": {"active": ["0_0", "0_1", "0_2", "0_3"], "lags": RUNNING}, "P2": {}},
    )
    assert refined(state, warmups=1) == "P1 A{00,01,02,03}; P2 S{01}"


def test_a_warm_up_that_goes_on_comes_before_a_new_one() -> None:
    state = application(
        "00 01 02 03",
        {
            "P1": {"active": ["0_0", "0_1", "0_2", "0_3"], "lags": RUNNING},
            "P2": {"standby": ["0_3"], "lags": {"03": 5_000}},
        },
    )
    assert refined(state, warmups=1) == "P1 A{00,01,02,03}; P2 S{03}"


def test_a_caught_up_copy_takes_over_from_a_lost_owner() -> None:
    state = application("00", {"P1": {}, "P2": {"standby": ["0_0"], "lags": 3}})
    assert refined(state) == "P1 S{00}; P2 A{00}"


def test_a_standby_that_takes_over_costs_no_warm_up() -> None:
    state = application(
        "00", {"P1": {}, "P2": {"active": ["0_0"], "lags": RUNNING}, "P3": {}}, end_offset=100
    )
    found = TaskAssignor(configs(10, 2, 1), refined=True).assign(state)
    assert shown(found) == "P1 S{00}; P2 A{00}"
    assert not found.warmup.any()


def test_without_a_copy_that_has_caught_up_the_target_restores() -> None:
    state = application("00", {"P1": {"lags": 80}, "P2": {"lags": 20}}, end_offset=100)
    assert refined(state) == "P1 A{00}"


def target_of(state: ApplicationState, document: StateDocument) -> TaskAssignment:
    """The target alone: where all copies are caught up, nothing is in its way."""
    return TaskAssignor(
        document.configs.model_copy(
            update={"acceptable_recovery_lag": 2**63 - 1, "unknown_lag_is_caught_up": False}
        )
    ).assign(state)


def copies(assignment: TaskAssignment) -> list[set[int]]:
    """The instances of each task's copies besides the active one."""
    found: list[set[int]] = [set() for _ in range(assignment.state.n_tasks)]
    for t, i in zip(
        assignment.standby_task.tolist(), assignment.standby_instance.tolist(), strict=True
    ):
        assert i not in found[t]
        found[t].add(i)
    return found


@given(seed=st.integers(0, 2**32 - 1), budget=st.integers(0, 5))
def test_what_kafkas_fuzz_tests_demand(seed: int, budget: int) -> None:
    document = random_document(np.random.default_rng(seed), racks=False)
    state = build_state(document)
    plain = target_of(state, document)
    target = TaskAssignment(**{**vars(plain), "configs": document.configs, "target": plain.active})
    found = refine(target, budget)
    if budget == 0:
        assert found is target
        return
    before, after = copies(target), copies(found)
    lag = np.array(
        [
            state.lag_of(np.full(state.n_instances, t), np.arange(state.n_instances))
            for t in range(state.n_tasks)
        ]
    ).reshape(state.n_tasks, state.n_instances)
    acceptable = document.configs.acceptable_recovery_lag
    caught_up = (lag == RUNNING) | (lag >= 0) & (lag <= acceptable)
    if acceptable == 2**63 - 1:
        caught_up[:] = True
    owner = np.full(state.n_tasks, -1)
    owner[state.previous_task[state.previous_active]] = state.previous_instance[
        state.previous_active
    ]

    # Each task is active exactly once, and no instance has two copies of one.
    assert ((found.active >= 0) & (found.active < state.n_instances)).all()
    assert all(found.active[t] not in after[t] for t in range(state.n_tasks))
    # Stateless tasks are where they are to be, and have no other copy.
    stateless = ~state.stateful
    assert (found.active[stateless] == target.active[stateless]).all()
    assert not any(after[t] for t in np.flatnonzero(stateless).tolist())
    # Warm-ups are on the target's owner, at most as many as allowed.
    warm = [
        *zip(found.standby_task[found.warmup], found.standby_instance[found.warmup], strict=True)
    ]
    assert len(warm) <= budget
    assert all(target.active[t] == i != found.active[t] for t, i in warm)
    for t in range(state.n_tasks):
        held_back = found.active[t] != target.active[t]
        # At most one copy more than in the target, and none that nobody asked for.
        assert len(after[t]) <= len(before[t]) + 1
        assert after[t] <= before[t] | {int(target.active[t])}
        if held_back:
            # Only where the state is.
            assert caught_up[t, found.active[t]]
            assert not caught_up[t, target.active[t]]
            # Parked only if there are no more warm-ups.
            if target.active[t] not in after[t]:
                assert len(warm) == budget
        elif state.stateful[t]:
            assert after[t] == before[t]
            # What runs, caught up, does not go where it would be restored.
            hot = owner[t] >= 0 and caught_up[t, owner[t]]
            assert not hot or owner[t] == found.active[t] or caught_up[t, found.active[t]]
    assert found.probing_rebalance == bool((found.active != target.active).any())


@pytest.mark.parametrize("seed", range(10))
def test_where_nothing_diverges_the_target_is_returned(seed: int) -> None:
    document = random_document(np.random.default_rng(seed), racks=False)
    state = build_state(document)
    plain = target_of(state, document)
    found = refine(plain)
    assert found.active.tolist() == plain.active.tolist()
    assert copies(found) == copies(plain)
    assert not found.probing_rebalance


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_input_does_not_matter(seed: int) -> None:
    document = random_document(np.random.default_rng(seed), racks=False)
    other = document.model_copy(
        update={"instances": document.instances[::-1], "tasks": document.tasks[::-1]}
    )
    one, two = (
        shown(TaskAssignor(d.configs, refined=True).assign(build_state(d)))
        for d in (document, other)
    )
    assert one == two
