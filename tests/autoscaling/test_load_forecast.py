"""Forecasts: steps up and down, together and alone, are believed at once, and noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from balancer.autoscaling.forecast import Forecast
from balancer.autoscaling.past_load import PastLoad


def forecast() -> Forecast:
    return Forecast(4.0, 4.0, noise_seconds=15.0, significance=2.0, step=6.0)


@pytest.mark.parametrize(("before", "after"), [(25.0, 100.0), (100.0, 25.0), (17.0, 42.0)])
def test_a_step_of_all_is_believed_at_once_and_is_no_noise(before: float, after: float) -> None:
    found, rng = forecast(), np.random.default_rng(0)
    for now in range(100):
        rate = rng.poisson(after if now % 50 >= 40 else before, 12).astype(float)
        ahead = found.update(rate, now, 5.0)
        if now in (40, 50, 90):
            assert ahead.sum() == pytest.approx(rate.sum(), rel=0.2)


def test_a_step_of_one_is_its_own() -> None:
    found = forecast()
    for now in range(20):
        found.update(np.full(12, 40.0), now, 5.0)
    ahead = found.update(np.array([170.0] + [40.0] * 11), 20, 5.0)
    assert ahead.tolist() == pytest.approx([170.0] + [40.0] * 11)


def test_a_load_that_was_never_missed_is_not_provided_for_longer() -> None:
    past = PastLoad(300)
    for now in range(200):
        past.note(900.0 if now % 60 >= 50 else 100.0, now, missed=False)
    assert past.returns == 0.0
    past.note(900.0, 230, missed=True)
    # last seen at 179 s, half as long again
    assert past.returns == 1.5 * 51
    assert past.sustained(240, 10, within=1.0) > 500
