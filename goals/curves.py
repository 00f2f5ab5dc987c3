"""Contentment curves: map a value and its limits to a score in [0, 1]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from metrics_reporter.arrays import Floats

# Sums of a million float64 loads differ in their last digits with the order of
# addition: a value this close to a limit counts as equal to it.
TOLERANCE = 1e-9


def at_most(value: npt.ArrayLike, limit: npt.ArrayLike) -> Floats:
    """1 up to the limit, then limit / value.

    If the limit is 0 or less, 1 / (1 + ln(1 + value)), and less than 1 for any value above 0:
    whether little or much is left there, what leaves counts by its share of it.

    Examples
    --------
    >>> at_most([5, 10, 20], 10)
    array([1. , 1. , 0.5])
    """
    value, limit = np.asarray(value, np.float64), np.asarray(limit, np.float64)
    over = np.asarray(value > limit * (1 + TOLERANCE))
    score = np.ones(over.shape)
    if over.any():
        value, limit = (np.broadcast_to(x, over.shape)[over] for x in (value, limit))
        above = limit / value
        if (none := limit <= 0).any():
            above[none] = np.minimum(1 / (1 + np.log1p(value[none])), 1 - TOLERANCE)
        score[over] = above
    return score


def at_least(value: npt.ArrayLike, limit: npt.ArrayLike) -> Floats:
    """1 from the limit on, below it (1 + value) / (1 + limit).

    Examples
    --------
    >>> at_least([0, 1, 3], 3)
    array([0.25, 0.5 , 1.  ])
    """
    value, limit = np.asarray(value, np.float64), np.asarray(limit, np.float64)
    return np.where(value >= limit * (1 - TOLERANCE), 1.0, (1 + value) / (1 + limit))


def distance(ua: npt.ArrayLike, bound: npt.ArrayLike, var: npt.ArrayLike) -> Floats:
    """The distribution score of seed 004, "Broker scores for a single objective".

    Parameters
    ----------
    ua
        Distance from the average, at least 0.
    bound
        1 up to here.
    var
        Linear from 1 to 0.1 between `bound` and `var` (> 1, > bound), then
        0.1 / log_var(ua).

    Examples
    --------
    >>> distance([5, 10, 55, 100, 10000], bound=10, var=100)
    array([1.  , 1.  , 0.55, 0.1 , 0.05])
    """
    ua, bound, var = (np.asarray(x, np.float64) for x in (ua, bound, var))
    score = np.asarray(ua - bound)
    score *= 0.9
    score /= var - bound
    np.subtract(1.0, score, out=score)
    np.minimum(score, 1.0, out=score)
    if (far := ua > var).any():
        ua, var = (np.broadcast_to(x, score.shape)[far] for x in (ua, var))
        score[far] = 0.1 * np.log(var) / np.log(ua)
    return score


def band(
    value: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike, share: npt.ArrayLike
) -> Floats:
    """1 between two limits; outside, the seed's curve of the distance in percent of `share`.

    Linear down to 0.1 where the value is a whole fair share outside its limits.

    Examples
    --------
    >>> band([100, 109, 159, 309], lower=91, upper=109, share=100)
    array([1.       , 1.       , 0.55     , 0.0869176])
    """
    value, lower, upper, share = (np.asarray(x, np.float64) for x in (value, lower, upper, share))
    outside = np.maximum(value - upper, lower - value)
    outside = np.maximum(outside - TOLERANCE * share, 0.0)
    percent = 100.0 * outside / np.where(share > 0, share, 1.0)
    return distance(percent, 0.0, 100.0)
