"""Measures what consumers process and how long rebalances take, from looks at a group.

Nothing here knows Kafka: a look is what was read there, and when. What has not been measured is
unknown, never 0.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from balancer.autoscaling.errors import check_above_zero

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]


@dataclass(frozen=True)
class MeasurementSettings:
    """Tunable numbers of what is measured of a group.

    Parameters
    ----------
    difference
        Share by which the measured capacity may differ from the stated one without a warning.
    commits
        A window is at least so many times as long as what the committed offsets at its start may be
        late by, and at least so many looks in it find more.
    most_of_median
        What a look finds counts as at most so many times the median rate of its window: offsets
        that leap were skipped, not processed.
    silent_seconds, silent_gaps
        A consumer that commits nothing for so long is measured again. One that has committed
        rarely before may be silent for so many times its longest time between two commits, and at
        most for `remembered_seconds`.
    remembered_seconds
        Of the windows of a consumer in so long before its last one, the one with the highest rate
        counts; none of one that has read nothing for so long.
    most_of_usual
        What a consumer reports itself is not believed if it is more than so many times the median
        of all; of an even number, the geometric mean of the two in the middle.
    rebalances
        The median of the last so many rebalances counts; of an even number, the lower one.
    longest_rebalance_seconds
        What takes longer is an outage, and does not count.
    default_rebalance_seconds
        How long a rebalance takes until one was seen.
    rebalance_look_seconds
        Between two looks while the group rebalances.
    once_looks
        After so many looks, a command that decides once gives up: what it waits for, as the lag of
        a group that always keeps up, may never come.
    """

    difference: float = 0.2
    commits: int = 6
    most_of_median: float = 2.0
    silent_seconds: float = 60.0
    silent_gaps: float = 2.0
    remembered_seconds: float = 600.0
    most_of_usual: float = 20.0
    rebalances: int = 10
    longest_rebalance_seconds: float = 60.0
    default_rebalance_seconds: float = 2.0
    rebalance_look_seconds: float = 1.0
    once_looks: int = 30

    def __post_init__(self) -> None:
        check_above_zero(self, *vars(self))


class Reports(Protocol):
    """What consumers have measured themselves; a group controller collects it."""

    def capacities(self) -> Mapping[str, float]:
        """Events/s that consumers can process, by name; without those that do not know it."""

    def rebalance_seconds(self) -> float | None:
        """How long partitions are not read when their consumers change; None until one was."""


class RebalanceTimes:
    """How long the last rebalances have taken.

    Parameters
    ----------
    settings
        Tunable numbers.

    Examples
    --------
    >>> times = RebalanceTimes()
    >>> times.median is None
    True
    >>> for seconds in (0.5, 3.0, 1.0, 1000.0):
    ...     times.add(seconds)
    >>> times.median
    1.0
    """

    def __init__(self, settings: MeasurementSettings | None = None) -> None:
        s = settings or MeasurementSettings()
        self._most = s.longest_rebalance_seconds
        self._seconds: deque[float] = deque(maxlen=s.rebalances)
        # whether the group was stable when it was seen last, and since when it rebalances
        self._stable = False
        self._since: float | None = None

    @property
    def median(self) -> float | None:
        """The median of the last ones; None if none was seen."""
        return statistics.median_low(self._seconds) if self._seconds else None

    def add(self, seconds: float) -> None:
        """Note one, unless it is too long for a rebalance, or no time at all."""
        if 0 < seconds <= self._most:
            self._seconds.append(seconds)

    def look(self, at: float, stable: bool | None) -> None:
        """Note whether the group is stable at a time; None if it has no members, or was not seen.

        A rebalance counts from the first look that sees it to the first that sees the group stable.
        What was before the first one is missed, and up to one look is too much. That of a group
        which was not seen stable before may be its start, and does not count.
        """
        if stable is False:
            if self._stable:
                self._since = at
            self._stable = False
            return
        if stable and self._since is not None:
            self.add(at - self._since)
        self._since, self._stable = None, stable is True


class _Mark(NamedTuple):
    """A look that found more committed than the one before that did so.

    Parameters
    ----------
    at
        Its time.
    late
        How many seconds before it what was committed may have been processed.
    seconds, events
        Since the mark before it: the time, and the events that were processed.
    certain
        Whether all offsets in between are known to be events.
    """

    at: float
    late: float
    seconds: float
    events: int
    certain: bool


@dataclass
class _Stretch:
    """A time in which a consumer reads the same partitions.

    Parameters
    ----------
    at, asked, committed, end
        The first look, or the last one that found more committed: its time, when it began, and
        offsets.
    silent
        Seconds without more, after which it is measured again.
    more
        The last look that found more, or the first one.
    marks
        The last looks that found more committed.
    busy
        Those of them since which the consumer always had lag.
    """

    at: float
    asked: float
    committed: dict[Partition, int]
    end: dict[Partition, int]
    silent: float
    more: float
    marks: deque[_Mark] = field(default_factory=deque)
    busy: deque[_Mark] = field(default_factory=deque)


class ConsumptionEstimator:
    """What consumers can process, from the offsets that they commit while they have lag.

    A consumer is busy between two looks if it has committed more of a partition, and less than was
    there at the first look: then it always had something to process until that commit. What it
    processes in a window of such looks is a lower bound of what it can process (seed 003, Eq. 1).
    Offsets are committed late: those at the start of the window may be as old as the look before,
    so this time counts as part of the window. The window is at least `commits` times as long,
    so the bound is too low by at most one part in `commits` + 1 for that reason.

    What a consumer processes without being busy says nothing, unless it is more than it has
    processed while it was: then this counts, too.

    Parameters
    ----------
    settings
        Tunable numbers.

    Examples
    --------
    A consumer has 1,000 events and commits 100 every second:

    >>> estimator, p = ConsumptionEstimator(MeasurementSettings(commits=3)), ("orders", 0)
    >>> for second in range(6):
    ...     committed = {p: 100 * second}
    ...     estimator.look(second, {"a": [p]}, committed, {p: 0}, {p: 1000})
    >>> estimator.capacities()
    {'a': 75.0}
    """

    def __init__(self, settings: MeasurementSettings | None = None) -> None:
        self._settings = settings or MeasurementSettings()
        self._stretches: dict[str, _Stretch] = {}
        # time and rate of windows
        self._found: dict[str, deque[tuple[float, float]]] = {}

    def interrupt(self) -> None:
        """Note that partitions may have had other consumers since the last look."""
        self._stretches.clear()

    def capacities(self) -> dict[str, float]:
        """Events/s that consumers can process at least; without those that are not known."""
        return {name: max(rate for _, rate in found) for name, found in self._found.items()}

    def look(
        self,
        at: float,
        reads: Mapping[str, Iterable[Partition]],
        committed: Offsets,
        start: Offsets,
        end: Offsets,
        *,
        took: float = 0.0,
        gaps: Offsets | None = None,
    ) -> None:
        """Take note of a look.

        Parameters
        ----------
        at
            Its time in seconds, when the last answer was there.
        reads
            The partitions of each consumer.
        committed, start, end
            Offsets: what is committed, the oldest record, and the end of what can be consumed.
        took
            Seconds between the question for the committed offsets and `at`.
        gaps
            Offsets below which some may be no events, as a topic is compacted.
        """
        for table in (self._stretches, self._found):
            for name in table.keys() - reads.keys():
                del table[name]
        s = self._settings
        for name, partitions in reads.items():
            known = [p for p in partitions if p in committed and p in start and p in end]
            if not known:
                self._forget_old(name, at)
            now = {p: committed[p] for p in known}
            ends = {p: end[p] for p in known}
            stretch = self._stretches.get(name)
            if stretch is None or not _goes_on(stretch, at, now):
                self._stretches[name] = _Stretch(at, at - took, now, ends, s.silent_seconds, at)
                continue
            late = at > stretch.at + stretch.silent
            more = any(offset > stretch.committed[p] for p, offset in now.items())
            if more:
                gap = s.silent_gaps * (at - stretch.more)
                stretch.silent = max(stretch.silent, min(gap, s.remembered_seconds))
                stretch.more = at
            if late:
                stretch.marks.clear()
                stretch.busy.clear()
            elif more:
                self._mark(stretch, at, now, start, gaps or {})
            if late or more:
                stretch.at, stretch.asked = at, at - took
                stretch.committed, stretch.end = now, ends
                self._conclude(name, stretch)

    def _forget_old(self, name: str, at: float) -> None:
        """Forget what a consumer without partitions could process: it cannot be measured again."""
        found = self._found.get(name)
        if found and at > found[-1][0] + self._settings.remembered_seconds:
            del self._found[name]

    def _mark(
        self, stretch: _Stretch, at: float, now: Offsets, start: Offsets, gaps: Offsets
    ) -> None:
        """Add a look that found more committed."""
        before, commits = stretch.committed, self._settings.commits
        mark = _Mark(
            at=at,
            late=at - stretch.asked,
            seconds=at - stretch.at,
            # what has expired was skipped, not processed
            events=sum(max(0, offset - max(before[p], start[p])) for p, offset in now.items()),
            certain=not any(before[p] < min(offset, gaps.get(p, 0)) for p, offset in now.items()),
        )
        if not any(before[p] < offset < stretch.end[p] for p, offset in now.items()):
            stretch.busy.clear()
        for marks in (stretch.marks, stretch.busy):
            marks.append(mark)
            while len(marks) > commits + 1 and at - marks[1].at >= commits * marks[1].late:
                marks.popleft()

    def _conclude(self, name: str, stretch: _Stretch) -> None:
        """Note what the consumer processes if it was busy, or processes more than it ever was."""
        rates = []
        if (rate := self._rate(stretch.busy)) > 0:
            rates.append(rate)
        known = self._found.get(name)
        if known and (rate := self._rate(stretch.marks)) > max(r for _, r in known):
            rates.append(rate)
        if rates:
            found = self._found.setdefault(name, deque())
            found.append((stretch.at, max(rates)))
            while found[0][0] < stretch.at - self._settings.remembered_seconds:
                found.popleft()

    def _rate(self, marks: Sequence[_Mark]) -> float:
        """Events/s from the first to the last of some marks; 0 if that is not known."""
        s = self._settings
        if len(marks) <= s.commits:
            return 0.0
        first, *later = marks
        seconds = later[-1].at - first.at
        if seconds < s.commits * first.late or not all(mark.certain for mark in later):
            return 0.0
        most = s.most_of_median * statistics.median(mark.events / mark.seconds for mark in later)
        count = sum(min(mark.events, most * mark.seconds) for mark in later)
        return count / (seconds + first.late)


def _goes_on(stretch: _Stretch, at: float, now: Offsets) -> bool:
    """Whether a later look is of the same partitions, none of them set back."""
    return (
        now.keys() == stretch.committed.keys()
        and all(offset >= stretch.committed[p] for p, offset in now.items())
        and stretch.at < at
    )
