"""The interface of a strategy: takes a problem, returns a better placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from balancer.allocation.result import AllocationResult
from balancer.problem.budget import Budget
from balancer.problem.problem import Problem
from balancer.problem.rules import Rules
from cluster_model.errors import InputError
from cluster_model.placement import Placement
from cluster_model.snapshot import Ints

Progress = Callable[[str, int, int, int], None]
"""Called with (phase, goals met, all goals, actions so far)."""


class StrategyError(InputError):
    """A strategy that cannot be used as requested."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal:
    """The placement a strategy aims at; planning then finds a safe order of steps to it.

    Parameters
    ----------
    placement
        The better placement: replicas keep the slots they have at the start of
        :attr:`Problem.cluster`.
    rules
        Which steps are legal; None for those of the problem.
    group : (P,) int or None
        Number of the set that each partition moves with, all or nothing; None if the goals
        define the sets.
    trivial_share
        If steps have no safe order, and the goals judge whether the rest is worthwhile: the share
        of a soft tier's penalty that it must remove.
    actions
        How many actions were tried and kept, for progress reports.
    exhausted
        The limit that ended the work early.
    """

    placement: Placement
    rules: Rules | None = None
    group: Ints | None = None
    trivial_share: float = 0.01
    actions: int = 0
    exhausted: Literal["seconds", "budget"] | None = None

    def improves(self, ended: Placement) -> bool | None:
        """Whether ending there is better than staying; None leaves it to the goals.

        Called if some steps have no safe order and the plan therefore ends elsewhere.
        """
        return None

    def allocation(self, ended: Placement) -> AllocationResult | None:
        """What a plan that ends there achieves, measured in the strategy's own terms."""
        return None


@runtime_checkable
class Strategy(Protocol):
    """A way to find a better placement.

    Options are attributes of the object. A class that pydantic can make from a mapping (a
    ``BaseModel``) can be chosen by name with options, from files and the command line.
    """

    @property
    def name(self) -> str:
        """The name that users refer to."""

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: Progress | None = None
    ) -> Proposal:
        """Find a better placement.

        Parameters
        ----------
        problem
            The problem to solve. Its placement may be modified: it is not read afterwards.
        limits
            What the plan may move and copy, and how many seconds are left.
        seed
            Seed of random choices: equal problems, limits and seeds give equal proposals.
        progress
            Called often, if given.

        Raises
        ------
        InputError
            If the strategy does not apply to the problem, in one sentence.
        """
