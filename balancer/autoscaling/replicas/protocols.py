"""What starts and ends consumers: the protocol of scaling backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Count:
    """Consumers of a group, as what runs them says.

    Parameters
    ----------
    requested
        Asked for by the last change, by this scaler or somebody else.
    ready
        Running and able to work.
    running
        Running, those included that start or end.
    settled
        Whether the last change has been carried out.
    problem
        What keeps consumers from starting, in one sentence; empty if nothing does.
    """

    requested: int
    ready: int
    running: int
    settled: bool
    problem: str = ""


class Replicas(Protocol):
    """Starts and ends the consumers of one group."""

    @property
    def name(self) -> str:
        """What runs the consumers, for messages."""

    def count(self) -> Count:
        """How many there are now.

        Raises
        ------
        AutoscalingError
            If it is not known.
        """

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        """Ask for a number of consumers; returns before they run.

        Parameters
        ----------
        consumers
            How many there are to be.
        seen
            The count that the decision was based on.
        leaving
            Names of the consumers that are to end, if there are to be fewer. Not every backend
            can choose.

        Raises
        ------
        AutoscalingError
            If it is refused, or someone else has changed the number since it was seen.
        """

    def stand_down(self) -> bool:
        """End consumers that another controller, which acts now, cannot see; whether there are any.

        It runs its own, and theirs would have the same names.
        """

    def close(self) -> None:
        """Let go of what this object holds; consumers that it owns end."""
