"""The interfaces between the controller and the parts it works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan
from cluster_model.snapshot import Snapshot
from cluster_model.trust import Distrust

Clock = Callable[[], float]


class LiveCluster(Protocol):
    """The current cluster."""

    def snapshot(self) -> Snapshot:
        """Placement and loads; an InputError if they cannot be relied on."""

    def placement(self) -> Snapshot:
        """Placement and sizes of replicas, when loads cannot be relied on; other loads may be 0."""

    def staleness(self) -> Mapping[int, float] | None:
        """Seconds since the newest record of each broker; None if none are expected."""

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        """Further metrics by name and broker; empty if nothing is new since the last call."""

    def since(self) -> float | None:
        """Start of the load measurement, seconds since 1970; None if loads are always current."""

    def noise(self) -> Mapping[str, float]:
        """By resource, how uncertain a broker's load is: a standard error, in mean loads."""

    def distrust(self) -> Distrust:
        """Reporters that are distrusted, and loads that are unknown."""

    def refresh(self) -> None:
        """Read the placement again now; an InputError if it cannot be read."""


class ExecutionTotals(Protocol):
    """Task counts and bytes of an execution, at its end or so far."""

    @property
    def completed(self) -> int:
        """Completed tasks."""

    @property
    def failed(self) -> int:
        """Tasks that failed."""

    @property
    def cancelled(self) -> int:
        """Tasks not started or undone."""

    @property
    def bytes_moved(self) -> float:
        """Bytes copied."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""


class ExecutionOutcome(ExecutionTotals, Protocol):
    """The outcome of an execution."""

    @property
    def state(self) -> Literal["done", "stopped", "rolled back", "failed", "vote lost"]:
        """The end state."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong."""

    @property
    def differences(self) -> tuple[str, ...]:
        """Where the cluster differs from the plan."""


class ExecutionProgress(ExecutionTotals, Protocol):
    """The progress of an execution."""

    @property
    def total(self) -> int:
        """Tasks."""

    @property
    def running(self) -> int:
        """Tasks in progress."""

    @property
    def bytes_total(self) -> float:
        """Bytes to copy."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the mean rate so far; None while unknown."""

    @property
    def waiting(self) -> int:
        """Tasks that wait for a temporary obstacle."""

    @property
    def waits_for(self) -> str:
        """What that is; empty if none waits."""


class PlanExecutor(Protocol):
    """Executes plans; each call reports its progress repeatedly.

    If its ``vote`` is the controller's, it proves the vote before each write, and is not
    stopped if the vote lapses for a moment.
    """

    def execute(
        self, plan: Plan, *, progress: Callable[[ExecutionProgress], None] | None = None
    ) -> ExecutionOutcome:
        """Execute the plan; returns when it is done, stopped or failed."""

    def recover(
        self, *, progress: Callable[[ExecutionProgress], None] | None = None
    ) -> ExecutionOutcome | None:
        """Finish or undo what an execution that died left behind; None if nothing is left."""

    def left(self) -> Sequence[str] | None:
        """What ended executions left in the cluster, one sentence each; tidies up.

        Moves that have ended since lose their throttle. Does not wait; None if an execution
        has not ended, which requires :meth:`recover`.
        """

    def stop(self) -> None:
        """Stop an execution soon; from any thread."""


@runtime_checkable
class ExactExecutor(Protocol):
    """What else an executor needs so that people can approve plans."""

    def execute_exactly(
        self,
        plan: PlanDocument,
        *,
        progress: Callable[[ExecutionProgress], None] | None = None,
    ) -> ExecutionOutcome:
        """Execute the whole plan or nothing.

        A :class:`balancer.execution.ChangedClusterError` if the cluster has changed since the plan
        was made.
        """


class ControllerVote(Protocol):
    """Whether this controller is the one that acts.

    If it also has ``resign()`` and ``rejoin()``, it is given up while the controller is paused,
    from its creation on; if it has a ``holder``, decisions on standby name that.
    """

    @property
    def acting(self) -> bool:
        """True only while it is certain."""


class Notifier(Protocol):
    """Receives decisions; must return at once and never raise."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Send an event: ``text``, and the data behind it."""


class DeliveryError(Exception):
    """A notification that was not accepted. Its text is logged: it must not hold a secret."""


class NotifierPlugin(Protocol):
    """Delivers events: what another package implements as a notifier.

    It may take its time and may raise: it is called from its own thread, one event at a time.
    Of errors only the class is logged, as their text may hold a secret; of a `DeliveryError` the
    text, too. A method ``close`` without arguments, if there is one, is called at the end.
    """

    def send(self, event: Mapping[str, Any]) -> None:
        """Deliver an event; return once it is delivered, raise if it cannot be.

        Parameters
        ----------
        event
            ``event``: the kind of a decision, ``finding`` or ``over``. ``text``: a sentence. With a
            decision also its record, with the other two ``finding`` and ``time``.
        """


class AlwaysActing:
    """The vote of a controller without others: it always acts."""

    acting = True
