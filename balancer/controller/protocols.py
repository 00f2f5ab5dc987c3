"""What the controller asks of the parts it is given; anything that answers will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from balancer.planning.plan import Plan
from cluster_model.snapshot import Snapshot
from cluster_model.trust import Distrust

Clock = Callable[[], float]


class Model(Protocol):
    """The cluster as it is."""

    def snapshot(self, min_ratio: float = 0.95) -> Snapshot:
        """Placement and loads; an InputError where fewer partitions are known."""

    def placement(self) -> Snapshot:
        """Placement alone, for healing where loads cannot be worked out; loads may be 0."""

    def staleness(self) -> Mapping[int, float] | None:
        """Seconds since the newest record of each broker; None where none are expected."""

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        """Further metrics by name and broker; empty where nothing is new since the last call."""

    def since(self) -> float | None:
        """From when on the loads were measured, seconds since 1970; None where always now."""

    def noise(self) -> Mapping[str, float]:
        """By resource, how uncertain a broker's load is: a standard error, in mean loads."""

    def distrust(self) -> Distrust:
        """Whose reports are not believed, and which loads are not known."""

    def refresh(self) -> None:
        """Look at the placement again, now; an InputError where it cannot be read."""


class Tally(Protocol):
    """What was done of an execution, at its end or so far."""

    @property
    def completed(self) -> int:
        """Tasks done."""

    @property
    def failed(self) -> int:
        """Tasks that could not be done."""

    @property
    def cancelled(self) -> int:
        """Tasks not begun or taken back."""

    @property
    def bytes_moved(self) -> float:
        """Bytes copied."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""


class Outcome(Tally, Protocol):
    """How an execution ended."""

    @property
    def state(self) -> Literal["done", "stopped", "rolled back", "failed", "vote lost"]:
        """In one word."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong."""

    @property
    def differences(self) -> tuple[str, ...]:
        """Where the cluster is not as planned."""


class Progress(Tally, Protocol):
    """How far an execution is."""

    @property
    def total(self) -> int:
        """Tasks."""

    @property
    def running(self) -> int:
        """Tasks under way."""

    @property
    def bytes_total(self) -> float:
        """Bytes to copy."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the mean rate so far; None while unknown."""

    @property
    def waiting(self) -> int:
        """Tasks that wait for something that may pass."""

    @property
    def waits_for(self) -> str:
        """What that is; empty where none waits."""


class Executor(Protocol):
    """What carries plans out; each call reports its progress again and again.

    One whose ``vote`` is the controller's proves it before each write, and is not stopped
    where that lapses for a moment.
    """

    def execute(self, plan: Plan, *, progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Carry the plan out; returns when it is done, stopped or failed."""

    def recover(self, *, progress: Callable[[Progress], None] | None = None) -> Outcome | None:
        """Finish or undo what an execution that died left behind; None where nothing is left."""

    def left(self) -> Sequence[str] | None:
        """What ended executions left under way in the cluster, a sentence each; tidies up.

        Moves that have ended since lose their throttle. Waits for nothing; None where an
        execution has not ended, which takes :meth:`recover`.
        """

    def stop(self) -> None:
        """End an execution soon; from any thread."""


class Vote(Protocol):
    """Whether this controller is the one that acts.

    One that also has ``resign()`` and ``rejoin()`` is given up while the controller is paused,
    from its making on; of one that has a ``holder``, decisions on standby name that.
    """

    @property
    def acting(self) -> bool:
        """True only while it is certain."""


class Notifier(Protocol):
    """Receives decisions; must return at once and never raise."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Send an event: ``text``, and the data behind it."""


class Alone:
    """A controller without others acts always."""

    acting = True
