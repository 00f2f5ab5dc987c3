"""Keeps the newest value of each of many entities, in rows that follow new metadata."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cluster_model.snapshot import Floats, Ints

Kind = TypeVar("Kind", bound=np.generic)

# Rows copied at once, to keep intermediate results small.
_CHUNK = 1 << 16


class LastValue:
    """The newest value of each of n entities; nan before the first.

    Attributes
    ----------
    value : (n,) float
    """

    def __init__(self, n: int) -> None:
        self.value = np.full(n, np.nan)
        self._time = np.full(n, -1, np.int64)

    def add(self, entity: Ints, time_ms: Ints, value: Floats) -> None:
        """Add a batch of values, with times of at least 0; among equal times the first stays."""
        # Among equal times the first arrival is sorted last, where it is picked.
        order = np.lexsort((-np.arange(len(entity)), time_ms, entity))
        entity, time_ms, value = entity[order], time_ms[order], value[order]
        newest = np.ones(len(entity), np.bool_)
        newest[:-1] = entity[1:] != entity[:-1]
        newest &= time_ms > self._time[entity]
        self.value[entity[newest]] = value[newest]
        self._time[entity[newest]] = time_ms[newest]

    def reindexed(self, entity: Ints) -> LastValue:
        """Values for other entities: row i is that of ``entity[i]`` here; nan for -1."""
        other = LastValue(0)
        other.value = rows_of(self.value, entity, np.nan)
        other._time = rows_of(self._time, entity, -1)
        return other


def rows_of(array: npt.NDArray[Kind], row: Ints, otherwise: float) -> npt.NDArray[Kind]:
    """Rows of an array in another order, with `otherwise` where row is -1."""
    rows = np.full((len(row), *array.shape[1:]), otherwise, array.dtype)
    for first in range(0, len(row), _CHUNK):
        part = row[first : first + _CHUNK]
        known = part >= 0
        rows[first : first + _CHUNK][known] = array[part[known]]
    return rows
