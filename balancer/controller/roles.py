"""What the controller asks of the parts it is given; anything that answers will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from balancer.plan import Plan
from cluster_model.snapshot import Snapshot

Clock = Callable[[], float]


class Model(Protocol):
    """The cluster as it is."""

    def snapshot(self, min_ratio: float = 0.95) -> Snapshot:
        """Placement and loads; an InputError where fewer partitions are known."""

    def staleness(self) -> Mapping[int, float] | None:
        """Seconds since the newest record of each broker; None where none are expected."""

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        """Further metrics by name and broker; empty where nothing is new since the last call."""

    def since(self) -> float | None:
        """From when on the loads were measured, seconds since 1970; None where always now."""

    def noise(self) -> Mapping[str, float]:
        """By resource, how uncertain a broker's load is: a standard error, in mean loads."""

    def refresh(self) -> None:
        """Look at the placement anew, now; an InputError where it cannot be read."""


class Outcome(Protocol):
    """How an execution ended."""

    @property
    def state(self) -> Literal["done", "stopped", "rolled back", "failed"]:
        """In one word."""

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
        """How long it took."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong."""

    @property
    def differences(self) -> tuple[str, ...]:
        """Where the cluster is not as planned."""


class Executor(Protocol):
    """What carries plans out."""

    def execute(self, plan: Plan) -> Outcome:
        """Carry the plan out; returns when it is done, stopped or failed."""

    def recover(self) -> Outcome | None:
        """Finish or undo what an execution that died left behind; None where nothing is left."""

    def stop(self) -> None:
        """End an execution soon; from any thread."""


class Vote(Protocol):
    """Whether this controller is the one that acts."""

    @property
    def acting(self) -> bool:
        """True only while it is certain."""


class Notifier(Protocol):
    """Who is told of decisions; must return at once and never raise."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Tell of an event: ``text``, and the data behind it."""


class Alone:
    """A controller without others acts always."""

    acting = True
