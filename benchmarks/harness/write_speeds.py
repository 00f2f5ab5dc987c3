"""Streams of write speeds, drawn as the authors of Modified Any Fit drew theirs (seed 000)."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Floats


def write_speeds(
    partitions: int, measurements: int, delta: int, *, seed: int, start: int | None = None
) -> Floats:
    """(measurements, partitions) whole percent of a consumer's capacity (seed 000, Section VI-B).

    Each speed is the one before it plus a whole number drawn from -delta to delta, kept between 0
    and 100. The text of the paper does not mention the upper limit and the rounding; the authors'
    published program has both.

    Parameters
    ----------
    partitions, measurements
        Size of the stream.
    delta
        Greatest change from one measurement to the next, in percent of the capacity.
    seed
        Seed of the stream.
    start
        First speed of all partitions; None draws each from 0 to 100.
    """
    rng = np.random.default_rng(seed)
    speed = rng.integers(0, 101, partitions) if start is None else np.full(partitions, start)
    stream = [speed]
    for _ in range(measurements - 1):
        speed = np.clip(speed + rng.integers(-delta, delta + 1, partitions), 0, 100)
        stream.append(speed)
    return np.array(stream, np.float64)
