"""What a detector sees and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from balancer.problem.operation import Operation
from cluster_model.snapshot import Bools, BrokerState, Snapshot
from cluster_model.trust import Distrust

State = Literal["ripe", "waiting", "notice", "unfixable"]


@dataclass(frozen=True)
class View:
    """The cluster at the moment of a round.

    Parameters
    ----------
    snapshot
        Placement and loads.
    now
        Seconds, by the clock that durations are measured with.
    staleness
        Seconds since each broker's newest record; None where no records are expected.
    signals
        Further broker metrics by name and broker id.
    since
        From when on the loads were measured, by the clock of `now`; None for now.
    noise
        Standard error of brokers' loads by resource, in mean loads.
    distrust
        Whose reports are not believed, and which loads are not known.
    incomplete
        Why the loads can't be relied on; None where they can.
    """

    snapshot: Snapshot
    now: float
    staleness: Mapping[int, float] | None = None
    signals: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    since: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    distrust: Distrust = field(default_factory=Distrust)
    incomplete: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Parameters
    ----------
    kind
        Name of the detector's part of the settings.
    subject
        What it is about, the same from round to round.
    sentence
        For people.
    state
        ``ripe``: may be mended now. ``waiting``: not yet. ``notice``: there's nothing to
        mend, or somebody else must. ``unfixable``: too much is broken.
    since
        When it was first seen: by the clock of the view, and where shown, seconds since 1970.
    operation
        What would mend it.
    alert
        Whether people should be told.
    data
        The figures of the sentence.
    holds
        Whether what looks at loads, or would be undone by healing, waits for this.
    """

    kind: str
    subject: str
    sentence: str
    state: State
    since: float
    operation: Operation | None = None
    alert: bool = True
    data: Mapping[str, Any] = field(default_factory=dict)
    holds: bool = False

    def record(self) -> dict[str, Any]:
        """The finding as JSON takes it."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "sentence": self.sentence,
            "state": self.state,
            "since": self.since,
            "data": dict(self.data),
        }


class Watch(Protocol):
    """A detector; it remembers what it needs from round to round."""

    settings: Any

    def look(self, view: View) -> list[Finding]:
        """What it finds now."""


class FirstSeen:
    """When each of the things that are there now was first seen.

    Examples
    --------
    >>> seen = FirstSeen()
    >>> seen.update(["a"], 10.0), seen.update(["a", "b"], 20.0), seen.update(["b"], 30.0)
    ({'a': 10.0}, {'a': 10.0, 'b': 20.0}, {'b': 20.0})
    """

    def __init__(self) -> None:
        self._since: dict[Any, float] = {}

    def update(self, there: Sequence[Any], now: float) -> dict[Any, float]:
        """Take what is there now; returns since when each is."""
        self._since = {thing: self._since.get(thing, now) for thing in there}
        return dict(self._since)


class Streak:
    """For how many rounds in a row each thing has been there."""

    def __init__(self) -> None:
        self._rounds: dict[Any, int] = {}

    def update(self, there: Sequence[Any]) -> dict[Any, int]:
        """Take what is there now; returns rounds including this one."""
        self._rounds = {thing: self._rounds.get(thing, 0) + 1 for thing in there}
        return dict(self._rounds)


def living(snapshot: Snapshot) -> Bools:
    """(B,) brokers that serve."""
    alive: Bools = snapshot.broker_state != BrokerState.DEAD
    return alive


def replicas_on(snapshot: Snapshot) -> Any:
    """(B,) int: replicas that each broker holds."""
    return np.bincount(snapshot.replica_broker, minlength=snapshot.n_brokers)


def listed(names: Sequence[Any], noun: str = "", most: int = 5) -> str:
    """A few names, for a sentence.

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
    """A length of time, for a sentence.

    Examples
    --------
    >>> span(0.25), span(45), span(1800), span(7200), span(200000)
    ('0.25 s', '45 s', '30 min', '2 h', '2.3 d')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 2):g} s"
