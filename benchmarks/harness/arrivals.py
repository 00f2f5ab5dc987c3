"""Events of published arrival traces: when each arrives, and in which partition."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cluster_model.snapshot import Floats, Ints

# Events per second, by the second; from GitHub, MazenEzzeddine,
# LeastLoadedKafkaautoscalingSimulatorV2 (defaultArrivalRatesm.csv and 2h.csv): the first workload
# of seed 003 and, very probably, its second, whose origin the repository does not state.
_TRACES = Path(__file__).parents[1] / "published"


class Events(NamedTuple):
    """Events in the order of their arrival."""

    arrival: Floats
    partition: Ints
    partitions: int


def rates(name: str) -> Floats:
    """(N,) events per second of a trace, ``10min`` or ``2h``."""
    with (_TRACES / f"arrivals-{name}.csv").open(encoding="utf-8", newline="") as file:
        return np.array([float(row[1]) for row in csv.reader(file) if row])


def shares(*, skewed: bool) -> Floats:
    """(P,) share of each partition: 5 equal ones or, skewed, 9 of which two receive half."""
    return np.array([0.25, 0.25, *[0.5 / 7] * 7]) if skewed else np.full(5, 0.2)


def events(name: str, *, skewed: bool, batches: bool, seed: int) -> Events:
    """Draw the events of a trace: each second as many as it says (seed 003, Section 5.1).

    Parameters
    ----------
    name
        The trace, ``10min`` or ``2h``.
    skewed
        Whether partitions differ.
    batches
        Whether the events of a second come together, when it begins, and in exact shares, as in
        the paper's experiments; otherwise at random times, in random partitions.
    seed
        Seed of times and partitions.
    """
    rng = np.random.default_rng(seed)
    total = np.round(np.cumsum(rates(name))).astype(np.int64)
    count = np.diff(total, prepend=0)
    second = np.repeat(np.arange(len(count)), count).astype(np.float64)
    share = shares(skewed=skewed)
    if not batches:
        arrival = np.sort(second + rng.random(len(second)))
        return Events(arrival, rng.choice(len(share), len(second), p=share), len(share))
    # multiples of the golden ratio are spread evenly: any row of events has the exact shares
    place = (np.arange(len(second)) * (5**0.5 - 1) / 2) % 1.0
    partition = np.searchsorted(np.cumsum(share)[:-1], place, "right")
    return Events(second, partition.astype(np.int64), len(share))
