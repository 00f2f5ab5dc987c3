"""The input of a detector (a view of the cluster) and its output (findings)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from balancer.problem.operation import Operation
from cluster_model.snapshot import Bools, BrokerState, Snapshot
from cluster_model.trust import Distrust

FindingState = Literal["ripe", "waiting", "notice", "unfixable"]


@dataclass(frozen=True)
class View:
    """The cluster at the moment of a round.

    Parameters
    ----------
    snapshot
        Placement and loads.
    now
        Seconds, on the clock that measures durations.
    staleness
        Seconds since each broker's newest record; None if no records are expected.
    signals
        Further broker metrics by name and broker id.
    since
        Start of the measurement of the loads, on the clock of `now`; None for now.
    noise
        Standard error of brokers' loads by resource, in mean loads.
    distrust
        Reporters that are distrusted, and loads that are unknown.
    incomplete
        Why the loads can't be relied on; None if they can. The snapshot then has only the
        resources whose loads are known without measuring.
    """

    snapshot: Snapshot
    now: float
    staleness: Mapping[int, float] | None = None
    signals: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    since: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    distrust: Distrust = field(default_factory=Distrust)
    incomplete: str | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem that a detector found.

    Parameters
    ----------
    kind
        Name of the detector in the settings.
    subject
        The thing concerned; the same from round to round.
    sentence
        Description for people.
    state
        ``ripe``: may be fixed now. ``waiting``: not yet. ``notice``: there is nothing to
        fix, or a person has to. ``unfixable``: too much is broken.
    since
        When it was first seen: on the clock of the view; for display, seconds since 1970.
    operation
        The operation that would fix it.
    alert
        Whether people should be notified.
    data
        The figures in the sentence.
    holds
        Whether detectors that look at loads, or whose work healing would undo, wait for this.
    added
        Whether a detector of another package found it: then no exception from a limit applies.

    Notes
    -----
    A detector of another package need not state `kind`, `since` and `added`: the controller does.
    """

    subject: str
    sentence: str
    kind: str = ""
    state: FindingState = "ripe"
    since: float = 0.0
    operation: Operation | None = None
    alert: bool = True
    data: Mapping[str, Any] = field(default_factory=dict)
    holds: bool = False
    added: bool = False

    def record(self) -> dict[str, Any]:
        """The finding as JSON-compatible data."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "sentence": self.sentence,
            "state": self.state,
            "since": self.since,
            "data": dict(self.data),
        }


class Detector(Protocol):
    """A detector; it remembers what it needs from round to round."""

    settings: Any

    def look(self, view: View) -> list[Finding]:
        """The current findings."""


class FirstSeen:
    """When each of the current things was first seen.

    Examples
    --------
    >>> seen = FirstSeen()
    >>> seen.update(["a"], 10.0), seen.update(["a", "b"], 20.0), seen.update(["b"], 30.0)
    ({'a': 10.0}, {'a': 10.0, 'b': 20.0}, {'b': 20.0})
    """

    def __init__(self) -> None:
        self._since: dict[Any, float] = {}

    def update(self, there: Sequence[Any], now: float) -> dict[Any, float]:
        """Record the current things; returns since when each has been present."""
        self._since = {thing: self._since.get(thing, now) for thing in there}
        return dict(self._since)


class Streak:
    """For how many consecutive rounds each thing has been present."""

    def __init__(self) -> None:
        self._rounds: dict[Any, int] = {}

    def update(self, there: Sequence[Any]) -> dict[Any, int]:
        """Record the current things; returns rounds including this one."""
        self._rounds = {thing: self._rounds.get(thing, 0) + 1 for thing in there}
        return dict(self._rounds)


def living(snapshot: Snapshot) -> Bools:
    """(B,) brokers that are alive."""
    alive: Bools = snapshot.broker_state != BrokerState.DEAD
    return alive


def replicas_on(snapshot: Snapshot) -> Any:
    """(B,) int: replicas that each broker holds."""
    return np.bincount(snapshot.replica_broker, minlength=snapshot.n_brokers)


def listed(names: Sequence[Any], noun: str = "", most: int = 5) -> str:
    """A few names, for use in a sentence.

    Examples
    --------
    >>> listed([3], "broker"), listed([3, 4], "broker"), listed([1, 2, 3, 4], most=2)
    ('broker 3', 'brokers 3 and 4', '1, 2 and 2 more')
    """
    shown = [str(name) for name in names[:most]]
    if len(names) > most:
        text = ", ".join(shown) + f" and {len(names) - most} more"
    else:
        text = " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
    return f"{noun}{'s' if len(names) > 1 else ''} {text}" if noun else text


def span(seconds: float) -> str:
    """A duration, for use in a sentence.

    Examples
    --------
    >>> span(0.25), span(45), span(1800), span(7200), span(200000)
    ('0.25 s', '45 s', '30 min', '2 h', '2.3 d')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 2):g} s"
