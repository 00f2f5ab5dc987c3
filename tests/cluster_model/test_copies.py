"""The lag of copies of partitions on brokers: in snapshots, files and goals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer import Balancer
from balancer.verification.checker import check_plan
from cluster_model import (
    Snapshot,
    SnapshotDocument,
    SnapshotError,
    build_snapshot,
    load_snapshot,
    save_snapshot,
    synthetic_snapshot,
)
from cluster_model.build import to_document
from goals import Goal, GoalError, State


def with_copies(seed: int, share: float = 0.5) -> Snapshot:
    """A random part of all pairs of partitions and brokers, in random order."""
    s = synthetic_snapshot(brokers=6, partitions=60, replication_factor=3, racks=3, seed=seed)
    rng = np.random.default_rng(seed)
    pairs = np.flatnonzero(rng.random(s.n_partitions * s.n_brokers) < share)
    rng.shuffle(pairs)
    return replace(
        s,
        copy_partition=pairs // s.n_brokers,
        copy_broker=pairs % s.n_brokers,
        copy_lag=rng.integers(0, 1000, len(pairs)).astype(np.float64),
    )


class LeaderCaughtUp(Goal):
    """The leader's copy is at most 100 records behind."""

    scope: ClassVar = "partition"
    requires: ClassVar[tuple[str, ...]] = ("copies",)

    def score(self, state: State) -> Any:
        """1 if it is, else 0."""
        lag = np.take_along_axis(state.replica_lag, state.leader[..., None], -1)[..., 0]
        return np.where(lag <= 100, 1.0, 0.0)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([".json", ".npz"]), st.floats(0.0, 1.0))
def test_files_keep_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, suffix: str, share: float
) -> None:
    s = with_copies(seed, share)
    path = tmp_path_factory.mktemp("copies") / f"cluster{suffix}"
    save_snapshot(s, path)
    again = load_snapshot(path)
    assert again == s
    assert again.digest() == s.digest()


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_every_pair_is_found_and_no_other(seed: int) -> None:
    s = with_copies(seed)
    table = np.full((s.n_partitions, s.n_brokers), np.inf)
    table[s.copy_partition, s.copy_broker] = s.copy_lag
    p, b = np.divmod(np.arange(table.size), s.n_brokers)
    assert np.array_equal(s.lag_of(p, b), table.ravel())
    assert np.isinf(s.lag_of(np.arange(s.n_partitions), np.full(s.n_partitions, -1))).all()


def test_a_goal_may_require_them() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3)
    with pytest.raises(GoalError, match="LeaderCaughtUp: the snapshot has no lag of copies"):
        Balancer([LeaderCaughtUp()]).propose(s)


def test_an_unknown_lag_is_infinite() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3)
    assert np.isinf(s.lag_of(np.arange(9), s.replica_broker[s.replica_offset[:-1]])).all()


def test_the_search_leads_where_a_goal_on_lag_says() -> None:
    s = with_copies(1, 1.0)
    before = s.lag_of(np.arange(60), s.replica_broker[s.replica_offset[:-1] + s.leader])
    plan = Balancer([LeaderCaughtUp(tier=1)]).propose(s)
    ended = plan.final_snapshot()
    after = s.lag_of(np.arange(60), ended.replica_broker[ended.replica_offset[:-1] + ended.leader])
    assert (before > 100).any()
    assert (after <= 100).sum() > (before <= 100).sum()
    assert not check_plan(s, plan.document()).violations


def test_a_document_lists_copies_by_broker() -> None:
    document = {
        "resources": ["disk"],
        "brokers": [{"id": 7, "capacity": {"disk": 1}}, {"id": 9, "capacity": {"disk": 1}}],
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [7], "copies": [{"broker": 9, "lag": 4.0}]}
        ],
    }
    s = build_snapshot(SnapshotDocument.model_validate(document))
    assert s.lag_of(np.array([0, 0]), np.array([0, 1])).tolist() == [np.inf, 4.0]
    assert to_document(s)["partitions"][0]["copies"] == [{"broker": 9, "lag": 4.0}]
    document["partitions"][0]["copies"][0]["broker"] = 8  # type: ignore[index]
    with pytest.raises(SnapshotError, match="partition t-0: copy on broker 8, not in brokers"):
        build_snapshot(SnapshotDocument.model_validate(document))


def test_a_pair_that_is_listed_twice_is_an_error() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3)
    with pytest.raises(SnapshotError, match=r"copy_broker, row 1: .* found twice"):
        replace(
            s,
            copy_partition=np.array([1, 1]),
            copy_broker=np.array([2, 2]),
            copy_lag=np.array([1.0, 2.0]),
        )


def test_without_copies_nothing_changes() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3)
    assert "copies" not in to_document(s)["partitions"][0]
    none = np.empty(0, np.int64)
    assert replace(s, copy_partition=none).digest() == s.digest()
