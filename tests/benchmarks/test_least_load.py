"""What the fullest instance has at least is the least of all placements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from balancer.assignment.targets.goals import least_fullest
from benchmarks.harness.least_load import proven_least


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_the_least_of_all_placements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instances, tasks = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    load = rng.lognormal(0.0, 0.7, tasks)
    least = min(
        np.bincount(placement, weights=load, minlength=instances).max()
        for placement in product(range(instances), repeat=tasks)
    )
    assert least_fullest(load, np.ones(instances)) <= least * (1 + 1e-9)
    assert proven_least(load, instances) == pytest.approx(least)


def test_instances_of_different_sizes() -> None:
    # 6 on the instance of 4, or all 8 over both.
    assert least_fullest(np.array([6.0, 2.0]), np.array([1.0, 4.0])) == 1.6
    assert least_fullest(np.array([8.0]), np.array([1.0, 4.0])) == 2.0
