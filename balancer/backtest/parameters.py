"""The tunable numbers of advice from a history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AdviceParameters:
    """How advice is given.

    Parameters
    ----------
    relief
        Share of the most overloaded broker-hours that any configuration avoided; of those that
        avoid as much, the one that copies least is recommended.
    ahead
        How many days ahead the number of brokers is computed for.
    seconds
        Limit on the search for a number of brokers; None for none.
    days
        The last days that show today's growth.
    fewest_days
        Whole days that are needed to tell.
    known_share
        Share of the partitions whose loads have to be known in a window.
    whole_day
        Known hours that make a day whole.
    busy
        Share of the busiest weekday's load from which on a weekday is busy.
    resamples
        Histories drawn at random that the intervals are taken from.
    longest_memory
        Largest share of a day's error that is left on the next day in these.
    interval
        Share of these that an interval holds.
    horizon
        How many days ahead a date may be.
    seed
        Of the random histories.
    """

    relief: float = 0.95
    ahead: float = 91.0
    seconds: float | None = 60.0
    days: int = 56
    fewest_days: int = 8
    known_share: float = 0.95
    whole_day: int = 20
    busy: float = 0.9
    resamples: int = 400
    longest_memory: float = 0.95
    interval: float = 0.8
    horizon: int = 3650
    seed: int = 0
