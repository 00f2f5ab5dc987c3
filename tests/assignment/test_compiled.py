"""Compiled loops make the assignment that the ones in Python make."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    build_state,
)
from benchmarks.harness.task_states import random_document

ARRAYS = ("active", "target", "standby_task", "standby_instance", "warmup")


def assert_same(state: ApplicationState, configs: AssignmentConfigs) -> TaskAssignment:
    found, expected = (TaskAssignor(configs, compiled=c).assign(state) for c in (True, False))
    for name in ARRAYS:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert found.movements == expected.movements
    assert found.probing_rebalance == expected.probing_rebalance
    return found


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    pytest.importorskip("numba")
    TaskAssignor(compiled=True)


@pytest.mark.parametrize("unknown_is_caught_up", [True, False])
def test_random_states(unknown_is_caught_up: bool) -> None:
    moved = 0
    for number in range(150):
        document = random_document(np.random.default_rng((23, number)), racks=number % 5 == 0)
        update = {"unknown_lag_is_caught_up": unknown_is_caught_up}
        found = assert_same(build_state(document), document.configs.model_copy(update=update))
        moved += found.movements
    assert moved > 100


@st.composite
def applications(draw: Callable[..., Any]) -> tuple[ApplicationState, AssignmentConfigs]:
    """Instances of few kinds, so that loads and ranks are often equal; lags at the boundary."""
    seed = draw(st.integers(0, 2**32))
    n, tasks = draw(st.integers(1, 40)), draw(st.integers(1, 60))
    rng = np.random.default_rng(seed)
    with_state = rng.random((tasks, n)) < draw(st.sampled_from([0.05, 0.3, 0.9]))
    task, instance = with_state.nonzero()
    state = ApplicationState(
        instances=tuple(f"i{i:02}" for i in range(n)),
        capacity=rng.integers(1, draw(st.integers(2, 4)), n),
        subtopology=np.zeros(tasks, np.int64),
        partition=np.arange(tasks),
        stateful=rng.random(tasks) < 0.9,
        end_offset=rng.choice([0, 10, 11, 1000], tasks, p=[0.1, 0.1, 0.1, 0.7]),
        lag_offset=np.searchsorted(task, np.arange(tasks + 1)),
        lag_instance=instance,
        lag=rng.choice([-3, -2, 0, 10, 11, 500], len(task)),
        state_bytes=rng.choice([np.nan, 0.0, 1e6, 3e6], tasks),
    )
    stateless = ~state.stateful
    state = replace(state, end_offset=np.where(stateless, 0, state.end_offset))
    configs = AssignmentConfigs(
        acceptable_recovery_lag=10,
        max_warmup_replicas=draw(st.integers(1, 20)),
        max_warmup_bytes=draw(st.sampled_from([None, 1, 2_000_000])),
        num_standby_replicas=draw(st.integers(0, 6)),
        unknown_lag_is_caught_up=draw(st.booleans()),
    )
    return state, configs


@given(applications())
def test_any_state(case: tuple[ApplicationState, AssignmentConfigs]) -> None:
    assert_same(*case)


@pytest.mark.parametrize("tasks", [400, 700])
def test_queues_that_are_followed_and_ones_that_are_not(tasks: int) -> None:
    """Movements times instances below and above 200,000, from where it is not followed."""
    n = 400
    rng = np.random.default_rng(tasks)
    instance = np.sort(np.stack([rng.integers(0, n // 2, tasks), rng.integers(n // 2, n, tasks)]).T)
    state = ApplicationState(
        instances=tuple(f"i{i:03}" for i in range(n)),
        capacity=np.ones(n, np.int64),
        subtopology=np.zeros(tasks, np.int64),
        partition=np.arange(tasks),
        stateful=np.ones(tasks, np.bool_),
        end_offset=np.full(tasks, 100_000),
        lag_offset=2 * np.arange(tasks + 1),
        lag_instance=instance.ravel(),
        lag=rng.choice([0, 20_000], 2 * tasks),
    )
    found = assert_same(state, AssignmentConfigs(num_standby_replicas=1))
    assert found.movements > tasks // 2


def test_without_numba_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name == "balancer.assignment" and "compiled" in more[2]:
            raise ImportError("No module named 'numba'")
        return loaded(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TaskAssignmentError, match=r"No module named 'numba'.*counterpoise\[fast\]"):
        TaskAssignor(compiled=True)


def test_capacities_that_no_float_holds() -> None:
    """Copies per thread are divided in the same way, also where integers are rounded."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        n, tasks = int(rng.integers(2, 12)), int(rng.integers(1, 30))
        task, instance = (rng.random((tasks, n)) < 0.4).nonzero()
        state = ApplicationState(
            instances=tuple(f"i{i:02}" for i in range(n)),
            capacity=rng.choice([1, 2**53, 2**53 + 1, 2**63 - 1], n),
            subtopology=np.zeros(tasks, np.int64),
            partition=np.arange(tasks),
            stateful=np.ones(tasks, np.bool_),
            end_offset=np.full(tasks, 2**63 - 1),
            lag_offset=np.searchsorted(task, np.arange(tasks + 1)),
            lag_instance=instance,
            lag=rng.choice([0, 11, 2**53 + 1, 2**63 - 1], len(task)),
        )
        assert_same(state, AssignmentConfigs(acceptable_recovery_lag=10, num_standby_replicas=1))


def test_without_tasks() -> None:
    nothing = np.zeros(0, np.int64)
    state = ApplicationState(
        instances=("i0",),
        capacity=np.ones(1, np.int64),
        subtopology=nothing,
        partition=nothing,
        stateful=np.zeros(0, np.bool_),
        end_offset=nothing,
        lag_offset=np.zeros(1, np.int64),
    )
    for standbys in (0, 2):
        assert not len(assert_same(state, AssignmentConfigs(num_standby_replicas=standbys)).active)
