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
from cluster_model.placement import Batch, Placement
from cluster_model.snapshot import Ints

ProgressCallback = Callable[[str, int, int, int], None]
"""Called with the phase, how many goals the best plan so far meets, of how many, and its actions.

The number of all goals is 0 where the first is not known. In the phase ``order``, which comes last,
the first two count actions: those that have their place in the order, and all."""


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
        of a soft tier's penalty that it must remove, or by which it must raise the lowest score.
    actions
        How many actions were tried and kept, for progress reports.
    exhausted
        The limit that ended the work early, or ``stopped`` if :attr:`Problem.stop` did.
    known
        Safe single steps, in order, that lead to `placement` or near it; a replica may stop on the
        way. They are taken where planning by itself finds no safe order; None if none are known.
        Slots are those at the start.
    unreached
        A placement that meets more hard goals, to which no safe steps were found; None if none
        is known. It has the slots of `placement`.
    longer
        What makes the strategy try more. It is the remedy of goals that single actions would
        still help; empty if nothing is known to.
    """

    placement: Placement
    rules: Rules | None = None
    group: Ints | None = None
    trivial_share: float = 0.01
    actions: int = 0
    exhausted: Literal["seconds", "budget", "stopped"] | None = None
    known: Batch | None = None
    unreached: Placement | None = None
    longer: str = ""

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

    A class may declare more, by class variables that need not be there:

    ``summary``
        One line that ``counterpoise strategies list`` prints.
    ``universal``
        True if it takes every cluster and every operation. For operations that need no loads
        (healing, emptying, demoting) a controller uses the default strategy instead of one that
        does not declare this.
    ``takes_search_parameters``
        True if its options include some of :class:`balancer.search.parameters.SearchParameters`.
        What a goals file sets under ``search`` is then their default.
    """

    @property
    def name(self) -> str:
        """The name that users refer to."""

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        """Find a better placement.

        Parameters
        ----------
        problem
            The problem to solve. Its placement may be modified: it is not read afterwards. A
            strategy that looks at its ``stop`` now and then can be stopped early.
        limits
            What the plan may move and copy, and how many seconds are left.
        seed
            Seed of random choices: equal problems, limits and seeds give equal proposals.
        progress
            Called often, if given; before and after a program that a solver works on.

        Raises
        ------
        InputError
            If the strategy does not apply to the problem, in one sentence.
        """


def is_universal(strategy: Strategy) -> bool:
    """Whether a strategy declares that it takes every cluster and every operation."""
    return bool(getattr(strategy, "universal", False))


def search_options(strategy: Strategy) -> frozenset[str]:
    """The parameters of the search that a strategy declares as its options, by name."""
    if not getattr(strategy, "takes_search_parameters", False):
        return frozenset()
    return frozenset(getattr(type(strategy), "model_fields", ()))
