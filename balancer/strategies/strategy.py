"""The interface of a strategy: from a problem to a better placement."""

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
    """A strategy that cannot be used as asked."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal:
    """Where a strategy goes; planning then finds a safe order of steps that lead there.

    Parameters
    ----------
    placement
        The better placement: replicas keep the slots that they have at the start of
        :attr:`Problem.cluster`.
    rules
        Which steps are legal; None for those of the problem.
    group : (P,) int or None
        Number of the set that each partition moves with, all of it or nothing; None where
        the goals say what belongs together.
    actions
        How many actions were tried and kept, for progress.
    exhausted
        Which limit ended the work before it was done.
    """

    placement: Placement
    rules: Rules | None = None
    group: Ints | None = None
    actions: int = 0
    exhausted: Literal["seconds", "moves or bytes"] | None = None

    def improves(self, ended: Placement) -> bool | None:
        """Whether it is better to end there than to stay; None: the goals decide.

        Asked where some steps have no safe order, so that the plan ends elsewhere.
        """
        return None

    def allocation(self, ended: Placement) -> AllocationResult | None:
        """What a plan that ends there has reached by the strategy's own measure."""
        return None


@runtime_checkable
class Strategy(Protocol):
    """A way to find a better placement.

    Options are attributes of the object. A class that pydantic can make from a mapping (a
    ``BaseModel``) can be chosen by name with options, from files and the command line.
    """

    @property
    def name(self) -> str:
        """What users call it."""

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: Progress | None = None
    ) -> Proposal:
        """Find a better placement.

        Parameters
        ----------
        problem
            What is asked. Its placement may be changed: nobody reads it afterwards.
        limits
            What the plan may move and copy, and how many seconds are left.
        seed
            Of what is random: equal problems, limits and seeds give equal proposals.
        progress
            Called often, where it is given.

        Raises
        ------
        InputError
            Where the problem is not one for this strategy, in one sentence.
        """
