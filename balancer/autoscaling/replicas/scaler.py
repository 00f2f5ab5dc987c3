"""Carries decisions out within limits: bounds, cool-downs, one change at a time, a dry run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas.protocols import Count, Replicas
from metrics_reporter.quantities import plural


@dataclass(frozen=True)
class ScalingLimits:
    """Limits on how the number of consumers may change.

    Parameters
    ----------
    minimum, maximum
        Bounds of the number.
    up_cooldown, down_cooldown
        Seconds after any change before more, or fewer, consumers are asked for. A start counts as
        a change for fewer: what was before is not known. A number that someone else has set stays
        for the longer of the two, and 0 until it is set to another.
    change_seconds
        Time for a change to be carried out. Until then there is no other one; after it, the
        change is reported as late, and the next one may come.
    """

    minimum: int = 1
    maximum: int = 100
    up_cooldown: float = 0.0
    down_cooldown: float = 120.0
    change_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum:
            raise AutoscalingError(
                f"consumers: at least {self.minimum} and at most {self.maximum} found, numbers "
                "from 0 in ascending order expected"
            )
        for name in ("up_cooldown", "down_cooldown", "change_seconds"):
            if not getattr(self, name) >= 0:
                raise AutoscalingError(
                    f"{name}: {getattr(self, name)} found, at least 0 seconds expected"
                )


@dataclass(frozen=True)
class Outcome:
    """What became of a decision.

    Parameters
    ----------
    kind
        ``changed``, ``dry run`` (would have been), ``kept`` (nothing to change) or ``held``.
    consumers
        The number asked for, within the bounds.
    reason
        One sentence.
    ready
        Of the consumers asked for before, those that run.
    """

    kind: Literal["changed", "dry run", "kept", "held"]
    consumers: int
    reason: str
    ready: int = 0


class Scaler:
    """Asks for the number of consumers that was decided, when that is allowed.

    Parameters
    ----------
    replicas
        What runs the consumers.
    limits
        Bounds and cool-downs.
    dry_run
        Say what would be changed, and change nothing.
    may_write
        Asked before every change: whether this process is still the one that may.
    overruled
        Whether another process has become the one that may since this one was.
    clock
        Seconds that never go back.

    Examples
    --------
    >>> class Fixed:
    ...     name = "fixed"
    ...     def count(self): return Count(3, 3, 3, True)
    ...     def request(self, consumers, seen, leaving=()): print("ask for", consumers)
    ...     def close(self): pass
    >>> Scaler(Fixed(), ScalingLimits(maximum=4)).apply(9)
    ask for 4
    Outcome(kind='changed', consumers=4, reason='3 -> 4 consumers, at most 4 allowed', ready=3)
    """

    def __init__(
        self,
        replicas: Replicas,
        limits: ScalingLimits | None = None,
        dry_run: bool = False,
        may_write: Callable[[], bool] = lambda: True,
        overruled: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replicas = replicas
        self.limits = limits or ScalingLimits()
        self.dry_run = dry_run
        self._may_write, self._overruled = may_write, overruled
        self._clock = clock
        self._started = clock()
        # when the last change was asked for; None before the first one
        self._changed: float | None = None
        # what it asked for, or someone else since, and whether that was someone else
        self._asked: int | None = None
        self._foreign = False

    @property
    def requested(self) -> int:
        """The number that was asked for last, by this scaler or somebody else."""
        return self.replicas.count().requested

    def stand_down(self) -> bool:
        """End consumers of this process if another one starts its own; whether there were any."""
        if self._changed is None or not self._overruled():
            return False
        # what it has asked for is no longer its number
        self._started, self._changed, self._asked, self._foreign = self._clock(), None, None, False
        return self.replicas.stand_down()

    def apply(self, consumers: int, leaving: Sequence[str] = ()) -> Outcome:
        """Ask for a number of consumers, unless a limit says that it must wait.

        Parameters
        ----------
        consumers
            The decision.
        leaving
            Names of the consumers that it ends.
        """
        if consumers < 0:
            raise AutoscalingError(f"{consumers} consumers found, at least 0 expected")
        seen = self.replicas.count()
        outcome = self._applied(consumers, seen, leaving)
        reason = f"{outcome.reason}; {seen.problem}" if seen.problem else outcome.reason
        return replace(outcome, reason=reason, ready=min(seen.ready, seen.requested))

    def _applied(self, consumers: int, seen: Count, leaving: Sequence[str]) -> Outcome:
        self._notice(seen)
        allowed, bound = self._bounded(consumers)
        change = f"{seen.requested} -> {plural(allowed, 'consumer')}{bound}"
        if allowed == seen.requested:
            return Outcome("kept", allowed, f"{plural(allowed, 'consumer')}, as decided{bound}")
        if (held := self._held(allowed, seen)) is not None:
            return Outcome("held", seen.requested, f"{change}: {held}")
        if self.dry_run:
            return Outcome("dry run", allowed, f"{change}: a dry run, nothing is changed")
        if not self._may_write():
            return Outcome("held", seen.requested, f"{change}: another controller acts")
        # as many leave as become fewer, whatever the bounds made of the decision
        self.replicas.request(allowed, seen, leaving[: max(0, seen.requested - allowed)])
        self._foreign = False
        self._changed, self._asked = self._clock(), allowed
        return Outcome("changed", allowed, change)

    def _notice(self, seen: Count) -> None:
        """See whether someone else has set the number since this did."""
        if self._asked is not None and seen.requested != self._asked:
            self._asked, self._changed, self._foreign = seen.requested, self._clock(), True

    def _bounded(self, consumers: int) -> tuple[int, str]:
        least, most = self.limits.minimum, self.limits.maximum
        if consumers > most:
            return most, f", at most {most} allowed"
        return (least, f", at least {least} allowed") if consumers < least else (consumers, "")

    def _held(self, consumers: int, seen: Count) -> str | None:
        """Why a change must wait; None if it need not."""
        limits, now = self.limits, self._clock()
        more = consumers > seen.requested
        # the change of someone else has as much time as one of ours
        last = self._started if self._changed is None else self._changed
        if not seen.settled and now - last < limits.change_seconds:
            return f"the last change is being carried out, {seen.ready} of {seen.requested} ready"
        if more and self._changed is None:
            return None
        if self._foreign and seen.requested == 0:
            return "someone else has set it to 0, which pauses it until there is another number"
        cooldown, whose = limits.up_cooldown if more else limits.down_cooldown, ""
        if self._foreign:
            cooldown = max(limits.up_cooldown, limits.down_cooldown)
            whose = f"someone else has set {seen.requested}, "
        left = cooldown - (now - last)
        return f"{whose}cooling down for another {left:.0f} s" if left > 0 else None
