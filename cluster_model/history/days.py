"""UTC days of times: their numbers and names, and how far a record may be from its arrival."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

DAY_MS = 86_400_000
_FIRST = date(1970, 1, 1)
# Days are dates from 1970 to the year 9999; a time beyond counts as the nearest.
LAST_DAY = (date.max - _FIRST).days


class Reach(NamedTuple):
    """How many days before and after the day of its arrival a record may be from and count.

    Parameters
    ----------
    before, after
        Numbers of days. What is from an earlier day is late, what is from a later one is future.
    """

    before: int
    after: int

    @classmethod
    def of(cls, window_ms: int, windows: int) -> Reach:
        """The days that this many windows and one window ahead can touch, at least one each.

        Examples
        --------
        >>> Reach.of(300_000, 5), Reach.of(DAY_MS, 3)
        (Reach(before=1, after=1), Reach(before=3, after=1))
        """
        return cls(max(1, -(-windows * window_ms // DAY_MS)), max(1, -(-window_ms // DAY_MS)))

    def home(self, at_ms: Column | str, arrived_ms: Column | str) -> Column:
        """The day to which a record belongs: its own, or out of reach that of its arrival."""
        day, arrival = day_number(at_ms), day_number(arrived_ms)
        near = day.between(arrival - self.before, arrival + self.after)
        return f.when(near, day).otherwise(arrival)


def day_number(at_ms: Column | str) -> Column:
    """The number of a time's day since 1970; 0 for an unknown time."""
    days = f.floor((f.col(at_ms) if isinstance(at_ms, str) else at_ms) / DAY_MS)
    near = f.greatest(f.least(days, f.lit(LAST_DAY)), f.lit(0))
    return f.when(days.isNull(), 0).otherwise(near).cast("long")


def day_text(number: Column) -> Column:
    """The date of a day, as in 2025-03-01."""
    return f.date_add(f.lit("1970-01-01").cast("date"), number.cast("int")).cast("string")


def day_name(number: int) -> str:
    """The date of a day.

    Examples
    --------
    >>> day_name(20_148), day_of_name("2025-03-01")
    ('2025-03-01', 20148)
    """
    return (_FIRST + timedelta(days=max(0, min(number, LAST_DAY)))).isoformat()


def day_of_name(name: str) -> int:
    """The number of the day with this date."""
    return (date.fromisoformat(name) - _FIRST).days
