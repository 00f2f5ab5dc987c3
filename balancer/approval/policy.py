"""Which plans start by themselves, which wait for people, and when anything may start."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator

from metrics_reporter.documents import shown
from metrics_reporter.quantities import WithBytes, WithDuration, cost_amount

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_DAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class MaintenanceWindow(BaseModel):
    """A time of the week in which executions may start.

    Parameters
    ----------
    days
        Days on which it begins.
    start, end
        Local times, ``"22:00"``; an end that is not after the start is on the next day.
    timezone
        Name of a time zone, like ``Europe/Berlin``.

    Examples
    --------
    >>> night = MaintenanceWindow(days=("fri",), start="22:00", end="04:00")
    >>> night.holds(datetime(2026, 11, 28, 3, 0, tzinfo=ZoneInfo("UTC")))
    True
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    days: Annotated[tuple[Weekday, ...], Field(min_length=1)] = _DAYS
    start: time
    end: time
    timezone: str = "UTC"

    @field_validator("start", "end", mode="before")
    @classmethod
    def _time_of_day(cls, value: object) -> object:
        # YAML reads 22:00 as the number 1320, and 22:00:00 as 79200.
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 60 * 60:
            if value > 24 * 60:
                raise ValueError("a time like 22:00 expected, at most 24:00")
            return time(value // 60 % 24, value % 60)
        return time() if value in ("24:00", "24:00:00") else value

    @field_validator("start", "end")
    @classmethod
    def _without_zone(cls, value: time) -> time:
        if value.tzinfo is not None:
            raise ValueError("a local time like 22:00 expected; the time zone is `timezone`")
        return value

    @field_validator("timezone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"{shown(value)} found, the name of a time zone like Europe/Berlin expected"
            ) from None
        return value

    def holds(self, now: datetime) -> bool:
        """Whether an execution may start at a time (with a time zone)."""
        local = now.astimezone(ZoneInfo(self.timezone))
        at, today = local.timetz().replace(tzinfo=None), _DAYS[local.weekday()]
        if self.start < self.end:
            return today in self.days and self.start <= at < self.end
        yesterday = _DAYS[(local - timedelta(days=1)).weekday()]
        return (today in self.days and at >= self.start) or (
            yesterday in self.days and at < self.end
        )


class ApprovalPolicy(BaseModel):
    """Which plans of a controller start by themselves.

    Parameters
    ----------
    mode
        ``automatic``: plans start by themselves, up to `max_moves` and `max_bytes`. ``manual``:
        every plan waits for approval.
    heal
        Whether plans that heal dead brokers and disks start by themselves in either mode, and
        outside of maintenance windows.
    max_moves, max_bytes
        A larger plan waits for approval. None for no limit.
    reviewers
        People that have to approve a plan; who asked for it does not count if it is 2.
    expire_after
        Seconds after which a proposal that was not approved expires, and an approved one that
        could not start.
    windows
        Times in which executions may start; none means at any time.
    keep
        How many proposals to keep.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mode: Literal["automatic", "manual"] = "automatic"
    heal: bool = True
    max_moves: Annotated[int, Field(ge=0)] | None = None
    max_bytes: Annotated[float, WithBytes, Field(ge=0)] | None = None
    reviewers: Annotated[int, Field(ge=1, le=2)] = 1
    expire_after: Annotated[float, WithDuration, Field(gt=0, le=3.2e8)] = 86_400.0
    windows: tuple[MaintenanceWindow, ...] = ()
    keep: Annotated[int, Field(ge=1, le=10_000)] = 100

    def waits(self, *, moves: int, cost: float, unit: str, heals: bool) -> str | None:
        """Why a plan waits for approval; None if it may start by itself.

        Parameters
        ----------
        moves
            Replicas and groups that it moves or adds.
        cost, unit
            What it costs, and in which unit.
        heals
            Whether it heals dead brokers or disks.

        Examples
        --------
        >>> ApprovalPolicy(max_moves=10).waits(moves=11, cost=0.0, unit="bytes", heals=False)
        'it moves 11 replicas, more than 10 (approval.max_moves)'
        """
        if heals and self.heal:
            return None
        if self.mode == "manual":
            return "every plan needs approval (approval.mode)"
        if self.max_moves is not None and moves > self.max_moves:
            return f"it moves {moves:,} replicas, more than {self.max_moves:,} (approval.max_moves)"
        if self.max_bytes is not None:
            if unit != "bytes":
                return f"its cost is in {unit}, which approval.max_bytes cannot limit"
            if cost > self.max_bytes:
                most = cost_amount(self.max_bytes, unit)
                return f"it copies {cost_amount(cost, unit)}, more than {most} (approval.max_bytes)"
        return None

    def may_start(self, now: datetime) -> bool:
        """Whether a maintenance window is open, or none is stated."""
        return not self.windows or any(window.holds(now) for window in self.windows)
