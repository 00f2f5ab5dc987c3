"""The budget of warm-ups counts bytes as well as copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from balancer.assignment import (
    AssignmentConfigs,
    StateDocument,
    TaskAssignment,
    TaskAssignor,
    build_state,
)

END = 1_000_000


def joined(
    sizes: Sequence[float | None],
    max_bytes: int | None,
    lags: dict[str, int] | None = None,
    *,
    refined: bool = False,
) -> TaskAssignment:
    """Tasks of these sizes run on A when B joins, where every second one is to go."""
    names = [f"0_{t}" for t in range(len(sizes))]
    document: dict[str, Any] = {
        "instances": [
            {"id": "A", "lags": dict.fromkeys(names, "running")},
            {"id": "B", "lags": lags or {}},
        ],
        "tasks": [
            {"id": name, "end_offset": END, "state_bytes": size}
            for name, size in zip(names, sizes, strict=True)
        ],
    }
    configs = AssignmentConfigs(max_warmup_replicas=10, max_warmup_bytes=max_bytes)
    assignor = TaskAssignor(configs, refined=refined)
    return assignor.assign(build_state(StateDocument.model_validate(document)))


def warmed(found: TaskAssignment) -> list[str]:
    return [str(t) for t in found.tasks_by_instance()["B"]["warmup"]]


def test_without_a_limit_all_warm_up() -> None:
    assert warmed(joined([7e9] * 6, None)) == ["0_1", "0_3", "0_5"]


def test_copies_restore_at_most_the_limit_together() -> None:
    assert warmed(joined([7e9] * 6, 14_000_000_000)) == ["0_1", "0_3"]
    # What does not fit is left for later; a smaller one may go first.
    assert warmed(joined([1e9, 6e9, 1e9, 7e9, 1e9, 2e9], 8_000_000_000)) == ["0_1", "0_5"]


def test_the_refiner_keeps_within_the_limit_too() -> None:
    assert warmed(joined([7e9] * 6, None, refined=True)) == ["0_1", "0_3", "0_5"]
    assert warmed(joined([7e9] * 6, 14_000_000_000, refined=True)) == ["0_1", "0_3"]


def test_a_single_copy_may_exceed_the_limit() -> None:
    assert warmed(joined([7e9] * 6, 1)) == ["0_1"]


def test_only_what_is_missing_counts() -> None:
    half = {"0_1": END // 2, "0_3": END // 2}
    assert warmed(joined([8e9] * 6, 8_000_000_000, half)) == ["0_1", "0_3"]


def test_a_size_that_is_not_known_counts_as_none() -> None:
    assert warmed(joined([None, None, 1.0, 5e9, 1.0, 5e9], 1_000)) == ["0_1", "0_3"]
    assert warmed(joined([None] * 6, 1)) == ["0_1", "0_3", "0_5"]


@given(st.lists(st.sampled_from((0.0, 1.0, 30.0, 400.0)), max_size=20), st.integers(0, 1_000))
def test_the_limit_is_exceeded_by_a_single_copy_only(sizes: list[float], limit: int) -> None:
    found = joined(sizes, limit)
    warm = found.standby_task[found.warmup].tolist()
    restored = [sizes[t] for t in warm if sizes[t]]
    assert len(restored) <= 1 or sum(restored) <= limit
    assert bool(warm) == (len(sizes) > 1)
