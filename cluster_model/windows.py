"""Load windows: samples of many entities averaged over fixed lengths of record time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_model.errors import InputError
from cluster_model.snapshot import Bools, Floats, Ints


class WindowsError(InputError):
    """Windows that cannot be, or samples that do not fit them."""


class Outcome(IntEnum):
    """What became of a record."""

    ADDED = 0
    LATE = 1
    FUTURE = 2
    DUPLICATE = 3
    UNKNOWN = 4
    INVALID = 5


class Extrapolation(IntEnum):
    """Where the value of a window comes from, best first.

    NONE: enough samples. AVG_AVAILABLE: at least half of enough. AVG_ADJACENT: all
    samples of this and the two neighbouring windows, which have enough.
    FORCED_INSUFFICIENT: the few there are. NO_VALID_EXTRAPOLATION: there are none.
    """

    NONE = 0
    AVG_AVAILABLE = 1
    AVG_ADJACENT = 2
    FORCED_INSUFFICIENT = 3
    NO_VALID_EXTRAPOLATION = 4


@dataclass(frozen=True, eq=False)
class LoadWindows:
    """The complete windows of E entities and M metrics at one moment, oldest first.

    Parameters
    ----------
    start_ms : (W,) int
        When each window starts, ms since 1970.
    value : (E, W, M) float
        Mean of the samples; 0 where there is no valid extrapolation.
    kind : (E, W, M) int
        Values of :class:`Extrapolation`.
    """

    start_ms: Ints
    value: Floats
    kind: npt.NDArray[np.int8]

    @property
    def mean(self) -> Floats:
        """(E, M) float: mean over the windows that have a value; nan where none has."""
        has = self.kind != Extrapolation.NO_VALID_EXTRAPOLATION
        count = has.sum(axis=1)
        total = self.value.sum(axis=1, where=has)
        mean: Floats = np.full(total.shape, np.nan)
        np.divide(total, count, out=mean, where=count > 0)
        return mean

    @property
    def covered(self) -> Bools:
        """(E, W) bool: whether every metric of the entity has a value in the window."""
        ok: Bools = (self.kind != Extrapolation.NO_VALID_EXTRAPOLATION).all(axis=2)
        return ok

    def valid(self, max_extrapolations: int = 5) -> Bools:
        """(E,) bool: covered in every window, and extrapolated in few enough of them."""
        extrapolated = (self.kind != Extrapolation.NONE).any(axis=2).sum(axis=1)
        if not len(self.start_ms):
            return np.zeros(len(self.value), np.bool_)
        ok: Bools = self.covered.all(axis=1) & (extrapolated <= max_extrapolations)
        return ok


class Windows:
    """Samples of E entities and M metrics in a cyclic buffer of windows.

    A window is ``window_ms`` of record time, starting at a multiple of it. The window
    of the newest sample is the current one; it is not complete and not aggregated. The
    `windows` before it are kept, and what is older is late.

    Beside sums and counts the offsets of all samples are kept, to know a sample that
    is delivered twice: 4 bytes for each metric of each sample.

    Parameters
    ----------
    entities, metrics
        E and M.
    window_ms
        Length of a window.
    windows
        Complete windows to keep.
    min_samples
        Samples of a metric that make a window's mean good without extrapolation.

    Raises
    ------
    WindowsError
        Naming the argument, the value found and what was expected.

    Examples
    --------
    >>> w = Windows(1, 1, window_ms=1000, windows=2, min_samples=1)
    >>> _ = w.add([0, 0, 0], [100, 900, 1500], [[4.0], [8.0], [50.0]])
    >>> w.aggregate().value.tolist()
    [[[6.0]]]
    """

    def __init__(
        self,
        entities: int,
        metrics: int,
        *,
        window_ms: int = 300_000,
        windows: int = 5,
        min_samples: int = 3,
    ) -> None:
        for name, value, low in (
            ("entities", entities, 0),
            ("metrics", metrics, 1),
            ("window_ms", window_ms, 1),
            ("windows", windows, 1),
            ("min_samples", min_samples, 1),
        ):
            if not low <= value < 2**31:
                raise WindowsError(f"windows, {name}: {value} found, {low} to 2147483647 expected")
        self.window_ms = window_ms
        self.windows = windows
        self.min_samples = min_samples
        self._current: int | None = None
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._sums = np.zeros((entities, windows + 1, metrics))
        self._counts = np.zeros((entities, windows + 1, metrics), np.int64)
        # [E, windows + 1, M, S]: offset of each sample in its window, -1 not used yet.
        self._offsets = np.full((entities, windows + 1, metrics, 4), -1, np.int32)

    @property
    def counters(self) -> dict[str, int]:
        """Records by what became of them: added, late, future, duplicate."""
        names = (Outcome.ADDED, Outcome.LATE, Outcome.FUTURE, Outcome.DUPLICATE)
        return {o.name.lower(): int(self._outcomes[o]) for o in names}

    def add(
        self,
        entity: npt.ArrayLike,
        time_ms: npt.ArrayLike,
        values: npt.ArrayLike,
        not_after_ms: int | None = None,
    ) -> npt.NDArray[np.int8]:
        """Add a batch of n records, which count as arrived at once.

        Parameters
        ----------
        entity : (n,) int
        time_ms : (n,) int
        values : (n, M) float
            nan for a metric that the record does not give.
        not_after_ms
            A later record is from a clock that is wrong; it would push everything
            else out of the windows, and is left out.

        Returns
        -------
        (n,) int8
            Values of :class:`Outcome`. A record is a duplicate if the entity has a
            sample of that very time for each of the record's metrics; the first stays.

        Raises
        ------
        WindowsError
            For arrays of other shapes, an entity out of range, an infinite value.
        """
        entity, time_ms = np.asarray(entity, np.int64), np.asarray(time_ms, np.int64)
        values = np.asarray(values, np.float64)
        n, (entities, slots, metrics) = len(entity), self._sums.shape
        if time_ms.shape != (n,) or values.shape != (n, metrics):
            raise WindowsError(
                f"samples: {n} entities, times of shape {time_ms.shape} and values of shape "
                f"{values.shape} found, {(n,)} and {(n, metrics)} expected"
            )
        if n and not (entity.min() >= 0 and entity.max() < entities):
            raise WindowsError(
                f"samples: entities {entity.min()} to {entity.max()} found, 0 to {entities - 1} "
                "expected"
            )
        if np.isinf(values).any():
            raise WindowsError("samples: an infinite value found, finite values expected")
        number = time_ms // self.window_ms
        outcome = np.full(n, Outcome.ADDED, np.int8)
        if not_after_ms is not None:
            outcome[time_ms > not_after_ms] = Outcome.FUTURE
        taken = outcome == Outcome.ADDED
        if taken.any():
            oldest = self._roll(int(number[taken].max())) - self.windows
            outcome[taken & (number < oldest)] = Outcome.LATE
            taken &= number >= oldest
        row, metric = np.nonzero(~np.isnan(values) & taken[:, None])
        cell = (entity[row] * slots + number[row] % slots) * metrics + metric
        offset = (time_ms[row] - number[row] * self.window_ms).astype(np.int32)
        fresh = self._store(cell, offset, values[row, metric])
        new = np.bincount(row[fresh], minlength=n)
        outcome[np.bincount(row, minlength=n) > new] = Outcome.DUPLICATE
        outcome[new > 0] = Outcome.ADDED
        self._outcomes += np.bincount(outcome, minlength=len(Outcome))
        return outcome

    def aggregate(self) -> LoadWindows:
        """The complete windows, from the oldest kept one that has any sample."""
        shape = (len(self._sums), 0, self._sums.shape[2])
        if self._current is None:
            return LoadWindows(np.empty(0, np.int64), np.empty(shape), np.empty(shape, np.int8))
        number = np.arange(self._current - self.windows, self._current)
        slot = number % (self.windows + 1)
        filled = np.flatnonzero(self._counts[:, slot].any(axis=(0, 2)))
        first = filled[0] if len(filled) else self.windows
        number, slot = number[first:], slot[first:]
        sums, counts = self._sums[:, slot], self._counts[:, slot]
        enough = counts >= self.min_samples
        beside = np.zeros_like(enough)
        beside[:, 1:-1] = enough[:, :-2] & enough[:, 2:]
        kind = np.select(
            [enough, counts >= max(1, self.min_samples // 2), beside, counts > 0],
            [
                Extrapolation.NONE,
                Extrapolation.AVG_AVAILABLE,
                Extrapolation.AVG_ADJACENT,
                Extrapolation.FORCED_INSUFFICIENT,
            ],
            Extrapolation.NO_VALID_EXTRAPOLATION,
        ).astype(np.int8)
        adjacent = kind == Extrapolation.AVG_ADJACENT
        total = np.where(adjacent, _with_neighbours(sums), sums)
        samples = np.where(adjacent, _with_neighbours(counts), counts)
        value = np.divide(total, samples, out=np.zeros_like(total), where=samples > 0)
        return LoadWindows(number * self.window_ms, value, kind)

    def reindexed(self, entity: npt.ArrayLike) -> Windows:
        """Windows of other entities: row i is that of ``entity[i]`` here; empty for -1."""
        entity = np.asarray(entity, np.int64)
        other = Windows(
            len(entity),
            self._sums.shape[2],
            window_ms=self.window_ms,
            windows=self.windows,
            min_samples=self.min_samples,
        )
        other._current = self._current
        other._outcomes = self._outcomes.copy()
        other._offsets = np.full((len(entity), *self._offsets.shape[1:]), -1, np.int32)
        known = entity >= 0
        other._sums[known] = self._sums[entity[known]]
        other._counts[known] = self._counts[entity[known]]
        other._offsets[known] = self._offsets[entity[known]]
        return other

    def _roll(self, newest: int) -> int:
        """Make the window of that number current if it is newer; returns the current one."""
        if self._current is None or newest <= self._current:
            self._current = newest if self._current is None else self._current
            return self._current
        slots = self.windows + 1
        slot = np.arange(max(self._current + 1, newest - self.windows), newest + 1) % slots
        self._sums[:, slot] = 0.0
        self._counts[:, slot] = 0
        self._offsets[:, slot] = -1
        self._current = newest
        return newest

    def _store(self, cell: Ints, offset: npt.NDArray[np.int32], value: Floats) -> Bools:
        """Add values to cells [E, windows + 1, M] unless there; returns which were not."""
        counts, offsets = self._counts.reshape(-1), self._offsets.reshape(-1, self._width)
        order = np.lexsort((offset, cell))
        c, o = cell[order], offset[order]
        again = np.zeros(len(c), np.bool_)
        again[1:] = (c[1:] == c[:-1]) & (o[1:] == o[:-1])
        new = ~again & ~(offsets[c] == o[:, None]).any(axis=1)
        c, o = c[new], o[new]
        place = counts[c] + np.arange(len(c)) - np.searchsorted(c, c)
        if len(c) and place.max() >= self._width:
            grown = np.full((*self._counts.shape, 2 * int(place.max())), -1, np.int32)
            grown[..., : self._width] = self._offsets
            self._offsets = grown
        self._offsets.reshape(-1, self._width)[c, place] = o
        np.add.at(counts, c, 1)
        np.add.at(self._sums.reshape(-1), c, value[order][new])
        fresh = np.zeros(len(cell), np.bool_)
        fresh[order[new]] = True
        return fresh

    @property
    def _width(self) -> int:
        return int(self._offsets.shape[3])


class Newest:
    """The newest value of each of n entities; nan before the first.

    Attributes
    ----------
    value : (n,) float
    """

    def __init__(self, n: int) -> None:
        self.value = np.full(n, np.nan)
        self._time = np.full(n, -1, np.int64)

    def add(self, entity: Ints, time_ms: Ints, value: Floats) -> None:
        """Take a batch of values, with times of at least 0; of equal times the first stays."""
        # Among equal times the first to arrive comes last, where it is picked.
        order = np.lexsort((-np.arange(len(entity)), time_ms, entity))
        entity, time_ms, value = entity[order], time_ms[order], value[order]
        newest = np.ones(len(entity), np.bool_)
        newest[:-1] = entity[1:] != entity[:-1]
        newest &= time_ms > self._time[entity]
        self.value[entity[newest]] = value[newest]
        self._time[entity[newest]] = time_ms[newest]

    def reindexed(self, entity: Ints) -> Newest:
        """Values of other entities: row i is that of ``entity[i]`` here; nan for -1."""
        other = Newest(len(entity))
        known = entity >= 0
        other.value[known] = self.value[entity[known]]
        other._time[known] = self._time[entity[known]]
        return other


def _with_neighbours(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each window's entry plus those of the windows before and after it."""
    total = array.copy()
    total[:, 1:] += array[:, :-1]
    total[:, :-1] += array[:, 1:]
    return total
