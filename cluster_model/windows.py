"""Load windows: samples of many entities, aggregated over fixed lengths of record time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from cluster_model.errors import InputError
from cluster_model.last_value import rows_of
from cluster_model.snapshot import Bools, Floats, Ints

Number = TypeVar("Number", np.float64, np.int32)
Aggregation = Literal["mean", "max", "latest"]
AGGREGATIONS: tuple[Aggregation, ...] = ("mean", "max", "latest")

# Entities whose windows are aggregated at once, to keep intermediate results small.
_CHUNK = 1 << 16
# Limit on stored sample offsets (4 bytes each), as long as every cell has enough: a single
# reporter that sends too often must not use up the memory.
MOST_OFFSETS = 1 << 27


class WindowsError(InputError):
    """Invalid windows, or samples that do not fit them."""


class RecordOutcome(IntEnum):
    """The outcome of a record."""

    ADDED = 0
    LATE = 1
    FUTURE = 2
    DUPLICATE = 3
    UNKNOWN = 4
    INVALID = 5
    SPLIT = 6
    SUPERSEDED = 7
    AMBIGUOUS = 8
    SURPLUS = 9
    FOLLOWER = 10


class Extrapolation(IntEnum):
    """The origin of a window's value, best first.

    NONE: enough samples. AVG_AVAILABLE: at least half of enough. AVG_ADJACENT: all
    samples of this window and its two neighbours, which have enough (for values
    other than means: the mean of the windows' values).
    FORCED_INSUFFICIENT: the few samples there are. NO_VALID_EXTRAPOLATION: no samples.
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
        Start of each window, ms since 1970.
    value : (E, W, M) float
        The aggregate of the samples by the windows' aggregation, such as the mean; 0 without
        a valid extrapolation.
    kind : (E, W, M) int
        Values of :class:`Extrapolation`.
    """

    start_ms: Ints
    value: Floats
    kind: npt.NDArray[np.int8]

    @property
    def mean(self) -> Floats:
        """(E, M) float: mean over the windows that have a value; nan if none has."""
        return self.over("mean")

    def over(self, aggregation: Aggregation) -> Floats:
        """(E, M) float: one value over the windows that have any; nan if none has.

        Parameters
        ----------
        aggregation
            ``"mean"``, ``"max"`` or ``"latest"``.

        Raises
        ------
        WindowsError
            For another aggregation.
        """
        _require_aggregation(aggregation)
        has = self.kind != Extrapolation.NO_VALID_EXTRAPOLATION
        any_ = has.any(axis=1)
        if aggregation == "max":
            found: Floats = self.value.max(axis=1, where=has, initial=-np.inf)
            found[~any_] = np.nan
            return found
        found = np.full(any_.shape, np.nan)
        if aggregation == "latest":
            for w in range(len(self.start_ms)):
                np.copyto(found, self.value[:, w], where=has[:, w])
            return found
        total = self.value.sum(axis=1, where=has)
        np.divide(total, has.sum(axis=1), out=found, where=any_)
        return found

    def last(self, windows: int) -> LoadWindows:
        """The given number of newest windows."""
        first = max(len(self.start_ms) - windows, 0)
        return LoadWindows(self.start_ms[first:], self.value[:, first:], self.kind[:, first:])

    def since_complete(self, share: float) -> LoadWindows:
        """The windows without the first one if it is incomplete, as when measuring starts.

        The oldest window is left out if it covers fewer entities than this share of
        those covered by the next one: of reporters that start together, some send their
        first records before the end of a window and some after it.
        """
        covered = self.covered.sum(axis=0)
        first = 0
        while first + 1 < len(covered) and covered[first] < share * covered[first + 1]:
            first += 1
        return self.last(len(covered) - first)

    def of(self, metrics: slice) -> LoadWindows:
        """The windows of the selected metrics."""
        return LoadWindows(self.start_ms, self.value[:, :, metrics], self.kind[:, :, metrics])

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

    Besides values and counts, the offsets of all samples are kept, to detect a sample that
    is delivered twice: 4 bytes for each metric of each sample. With very many entities
    there is room for few, and a window takes only its first samples.

    Parameters
    ----------
    entities, metrics
        E and M.
    window_ms
        Length of a window.
    windows
        Complete windows to keep.
    min_samples
        Samples of a metric that a window needs for a value without extrapolation.
    aggregation
        How a window aggregates its samples: their mean, their maximum, or the latest.

    Raises
    ------
    WindowsError
        For an invalid argument: its name, the value found and what was expected.

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
        aggregation: Aggregation = "mean",
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
        _require_aggregation(aggregation)
        self.window_ms = window_ms
        self.windows = windows
        self.min_samples = min_samples
        self.aggregation: Aggregation = aggregation
        self._current: int | None = None
        self._outcomes = np.zeros(len(RecordOutcome), np.int64)
        self._empty = -np.inf if aggregation == "max" else 0.0
        shape = (entities, windows + 1, metrics)
        # Per cell the sum, the maximum or the latest of its samples.
        self._values = np.full(shape, self._empty)
        self._counts = np.zeros(shape, np.int32)
        # Whether the samples of the cell are estimates.
        self._estimated = np.zeros(shape, np.bool_)
        # [E, windows + 1, M, S]: offset of each sample in its window, -1 if unused.
        self._offsets = np.full((*shape, 4), -1, np.int32)

    @property
    def counters(self) -> dict[str, int]:
        """Records by outcome: added, late, future, duplicate."""
        names = (
            RecordOutcome.ADDED,
            RecordOutcome.LATE,
            RecordOutcome.FUTURE,
            RecordOutcome.DUPLICATE,
        )
        return {o.name.lower(): int(self._outcomes[o]) for o in names}

    def add(
        self,
        entity: npt.ArrayLike,
        time_ms: npt.ArrayLike,
        values: npt.ArrayLike,
        not_after_ms: int | None = None,
        *,
        estimated: bool = False,
    ) -> npt.NDArray[np.int8]:
        """Add a batch of n records, which count as arriving at once.

        Parameters
        ----------
        entity : (n,) int
        time_ms : (n,) int
        values : (n, M) float
            nan for a metric that the record lacks.
        not_after_ms
            A later record comes from a wrong clock. It would push all other records
            out of the windows, and is left out.
        estimated
            Whether the values are estimates. A window of a metric has either estimates or
            measurements: the first measurement discards the estimates, and an estimate
            that comes after one is superseded.

        Returns
        -------
        (n,) int8
            Values of :class:`RecordOutcome`. A record is a duplicate if the entity already
            has a sample of that exact time for each of the record's metrics; the first stays.
            It is surplus if its windows already have all the samples they take.

        Raises
        ------
        WindowsError
            For arrays of the wrong shape, an entity out of range, or an infinite value.
        """
        entity, time_ms = np.asarray(entity, np.int64), np.asarray(time_ms, np.int64)
        values = np.asarray(values, np.float64)
        n, (entities, slots, metrics) = len(entity), self._values.shape
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
        outcome = np.full(n, RecordOutcome.ADDED, np.int8)
        if not_after_ms is not None:
            outcome[time_ms > not_after_ms] = RecordOutcome.FUTURE
        taken = outcome == RecordOutcome.ADDED
        if taken.any():
            oldest = self._roll(int(number[taken].max())) - self.windows
            outcome[taken & (number < oldest)] = RecordOutcome.LATE
            taken &= number >= oldest
        row, metric = np.nonzero(~np.isnan(values) & taken[:, None])
        cell = (entity[row] * slots + number[row] % slots) * metrics + metric
        offset = time_ms[row] - number[row] * self.window_ms
        became = np.full(len(cell), RecordOutcome.SUPERSEDED, np.int8)
        requested = self._requested(cell, estimated)
        became[requested] = self._store(
            cell[requested], offset[requested], values[row, metric][requested]
        )
        # A record has the best outcome of its samples.
        for kind in (
            RecordOutcome.SUPERSEDED,
            RecordOutcome.SURPLUS,
            RecordOutcome.DUPLICATE,
            RecordOutcome.ADDED,
        ):
            outcome[row[became == kind]] = kind
        self._outcomes += np.bincount(outcome, minlength=len(RecordOutcome))
        return outcome

    def aggregate(self) -> LoadWindows:
        """The complete windows, from the oldest one that has any sample."""
        entities, slots, metrics = self._values.shape
        number = np.empty(0, np.int64)
        if self._current is not None:
            number = np.arange(self._current - self.windows, self._current)
            filled = [bool(self._counts[:, s].any()) for s in (number % slots).tolist()]
            number = number[filled.index(True) if any(filled) else len(filled) :]
        slot = number % slots
        value = np.empty((entities, len(number), metrics))
        kind = np.empty(value.shape, np.int8)
        for first in range(0, entities, _CHUNK):
            part = slice(first, first + _CHUNK)
            value[part], kind[part] = self._aggregated(
                self._values[part, slot], self._counts[part, slot]
            )
        return LoadWindows(number * self.window_ms, value, kind)

    def estimated(self) -> Bools:
        """(E,) bool: whether any of the complete windows has estimates as samples."""
        if self._current is None:
            return np.zeros(len(self._values), np.bool_)
        number = np.arange(self._current - self.windows, self._current)
        complete = self._estimated[:, number % (self.windows + 1)]
        found: Bools = np.logical_or.reduce(complete, axis=(1, 2))
        return found

    def reindexed(self, entity: npt.ArrayLike) -> Windows:
        """Windows for other entities: row i is that of ``entity[i]`` here; empty for -1."""
        entity = np.asarray(entity, np.int64)
        other = Windows(
            0,
            self._values.shape[2],
            window_ms=self.window_ms,
            windows=self.windows,
            min_samples=self.min_samples,
            aggregation=self.aggregation,
        )
        other._current = self._current
        other._outcomes = self._outcomes.copy()
        other._values = rows_of(self._values, entity, self._empty)
        other._counts = rows_of(self._counts, entity, 0)
        other._estimated = rows_of(self._estimated, entity, False)
        other._offsets = rows_of(self._offsets, entity, -1)
        return other

    def _aggregated(
        self, values: Floats, counts: npt.NDArray[np.int32]
    ) -> tuple[Floats, npt.NDArray[np.int8]]:
        """Values and kinds of extrapolation of windows, from their samples."""
        enough = counts >= self.min_samples
        beside = np.zeros_like(enough)
        beside[:, 1:-1] = enough[:, :-2] & enough[:, 2:]
        # The best kind is written last.
        kind = np.full(counts.shape, Extrapolation.NO_VALID_EXTRAPOLATION, np.int8)
        kind[counts > 0] = Extrapolation.FORCED_INSUFFICIENT
        kind[beside] = Extrapolation.AVG_ADJACENT
        kind[counts >= max(1, self.min_samples // 2)] = Extrapolation.AVG_AVAILABLE
        kind[enough] = Extrapolation.NONE
        # A mean is weighted by samples; a maximum or latest value counts as one.
        weight = counts if self.aggregation == "mean" else (counts > 0).astype(np.int32)
        total = np.where(weight > 0, values, 0.0)
        adjacent = kind == Extrapolation.AVG_ADJACENT
        if adjacent.any():
            total = np.where(adjacent, _with_neighbours(total), total)
            weight = np.where(adjacent, _with_neighbours(weight), weight)
        return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0), kind

    def _roll(self, newest: int) -> int:
        """Make the given window current if it is newer; returns the current one."""
        if self._current is None or newest <= self._current:
            self._current = newest if self._current is None else self._current
            return self._current
        slots = self.windows + 1
        slot = np.arange(max(self._current + 1, newest - self.windows), newest + 1) % slots
        self._values[:, slot] = self._empty
        self._counts[:, slot] = 0
        self._estimated[:, slot] = False
        self._offsets[:, slot] = -1
        self._current = newest
        return newest

    def _requested(self, cell: Ints, estimated: bool) -> Bools:
        """Which cells accept samples that are estimates, or measurements; makes them ready."""
        guessed = self._estimated.reshape(-1)
        if estimated:
            free = self._counts.reshape(-1)[cell] == 0
            requested: Bools = np.logical_or(free, guessed[cell], dtype=np.bool_)
            guessed[cell[requested]] = True
            return requested
        cleared = cell[guessed[cell]]
        if len(cleared):
            guessed[cleared] = False
            self._values.reshape(-1)[cleared] = self._empty
            self._counts.reshape(-1)[cleared] = 0
            self._offsets.reshape(-1, self._width)[cleared] = -1
        return np.ones(len(cell), np.bool_)

    def _store(self, cell: Ints, offset: Ints, value: Floats) -> npt.NDArray[np.int8]:
        """Add values to cells [E, windows + 1, M]; returns the outcome of each."""
        counts, offsets = self._counts.reshape(-1), self._offsets.reshape(-1, self._width)
        key = cell * self.window_ms + offset
        order = np.argsort(key, kind="stable")
        key = key[order]
        again = np.zeros(len(key), np.bool_)
        again[1:] = key[1:] == key[:-1]
        c, o = cell[order], offset[order].astype(np.int32)
        there = offsets[c]
        new = ~again & ~(there == o[:, None]).any(axis=1)
        became = np.full(len(cell), RecordOutcome.DUPLICATE, np.int8)
        became[order[new]] = RecordOutcome.ADDED
        c, o, order, latest = c[new], o[new], order[new], there[new].max(axis=1, initial=-1)
        place = counts[c] + np.arange(len(c)) - np.searchsorted(c, c)
        room = place < self._most
        if not room.all():
            became[order[~room]] = RecordOutcome.SURPLUS
            c, o, order, latest, place = (a[room] for a in (c, o, order, latest, place))
        if len(c) and place.max() >= self._width:
            width = min(max(int(place.max()) + 1, self._width * 3 // 2), self._most)
            grown = np.full((*self._counts.shape, width), -1, np.int32)
            grown[..., : self._width] = self._offsets
            self._offsets = grown
        self._offsets.reshape(-1, self._width)[c, place] = o
        np.add.at(counts, c, np.int32(1))
        held, value = self._values.reshape(-1), value[order]
        if self.aggregation == "mean":
            np.add.at(held, c, value)
        elif self.aggregation == "max":
            np.maximum.at(held, c, value)
        else:
            # Offsets of a cell ascend, and of several assignments to one place the last stays.
            held[c[o > latest]] = value[o > latest]
        return became

    @property
    def _most(self) -> int:
        """Samples that a cell takes."""
        return max(4, self.min_samples, MOST_OFFSETS // max(self._counts.size, 1))

    @property
    def _width(self) -> int:
        return int(self._offsets.shape[3])


def _require_aggregation(aggregation: str) -> None:
    if aggregation not in AGGREGATIONS:
        raise WindowsError(
            f"windows, aggregation: {aggregation!r} found, "
            f"one of {', '.join(AGGREGATIONS)} expected"
        )


def _with_neighbours(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each window's entry plus those of the windows before and after it."""
    total = array.copy()
    total[:, 1:] += array[:, :-1]
    total[:, :-1] += array[:, 1:]
    return total
