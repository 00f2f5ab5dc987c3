"""Ways to find a better placement: goals alone, or an allocation of key groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from balancer.planning.document import AllocationResult
from balancer.problem.disks import pick_disk
from balancer.problem.movement_cost import replica_bytes
from balancer.problem.operation import Operation
from balancer.problem.resolution import ResolvedOperation
from cluster_model.errors import InputError
from cluster_model.placement import Placement
from cluster_model.snapshot import Floats, Ints

if TYPE_CHECKING:
    from balancer.collocation.units import Units

_TINY = 1e-9


class StrategyError(InputError):
    """A strategy that cannot be used as asked."""


class Milp(BaseModel):
    """Balance one resource under the budget: the MILP of seed 001, Section 4.3.1.

    For partitions with one replica (key groups). Goals then judge: a step that a hard one
    vetoes is not made, and the plan tells what each of them gains.

    Parameters
    ----------
    resource
        What is balanced; by default the bottleneck.
    rounds
        Effort, see :func:`balancer.allocation.solver.solve`.
    max_distance
        maxLD: a load distance, in percent points, that is good enough while brokers are
        emptied, and (ALBIC) that is kept for all collocation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    resource: str | None = None
    rounds: int = Field(default=10_000, ge=0)
    max_distance: float = Field(default=10.0, ge=0)

    @property
    def name(self) -> str:
        """What the strategy is called."""
        return type(self).__name__.lower()


class Albic(Milp):
    """The same, while key groups that talk to one another come together (Section 4.3.2).

    Parameters
    ----------
    resource, rounds, max_distance
        As for the MILP.
    max_group_load, step, score_factor, pairs
        maxPL, stepPL and sF, and how many pairs to bring together, see
        :func:`balancer.collocation.albic.albic`.
    """

    max_group_load: float = Field(default=25.0, ge=0)
    step: float = Field(default=5.0, gt=0)
    score_factor: float = Field(default=1.5, ge=0)
    pairs: int = Field(default=1, ge=0)


Strategy = Literal["goals", "milp", "albic"]


def strategy_of(strategy: Strategy | Milp) -> Milp | None:
    """The strategy with its options; None for goals alone.

    Raises
    ------
    StrategyError
        For a name that is not one.
    """
    if isinstance(strategy, Milp):
        return strategy
    known: dict[str, Milp | None] = {"goals": None, "milp": Milp(), "albic": Albic()}
    if strategy not in known:
        raise StrategyError(f"strategy {strategy!r} found, one of {', '.join(known)} expected")
    return known[strategy]


class Limits(NamedTuple):
    """Of a plan: most moves, most bytes, and when to stop; None is no limit."""

    moves: int | None
    bytes: float | None
    seconds: float | None


@dataclass(frozen=True, eq=False)
class Allocated:
    """What came of an allocation.

    Parameters
    ----------
    placement
        Where it ends.
    group : (P,) int
        The set that each partition migrates with.
    spent
        Whether the budget has nothing left for another partition.
    """

    placement: Placement
    group: Ints
    spent: bool
    strategy: Milp
    units: Units
    bound: float

    def worth(self, ended: Placement) -> bool:
        """Whether to end there is better than to stay: what must go has gone, or balance gained."""
        p = self.units.problem
        before, after = p.node, self._node(ended)
        left = [float(p.load[p.removed[node]].sum()) for node in (before, after)]
        return left[1] < left[0] or p.distance(after) <= p.distance(before) + _TINY

    def result(self, ended: Placement) -> AllocationResult:
        """What a plan that ends there achieved, and could at best."""
        p, after = self.units.problem, self._node(ended)
        return AllocationResult(
            strategy="albic" if isinstance(self.strategy, Albic) else "milp",
            resource=self.units.resource,
            distance_before=p.distance(p.node),
            distance_after=p.distance(after),
            # what is off by rounding alone proves nothing
            distance_bound=min(self.bound, p.distance(after)),
            local_before=self.units.local(p.node),
            local_after=self.units.local(after),
        )

    def _node(self, placement: Placement) -> Ints:
        node: Ints = placement.location[self.units.partition]
        return node


def allocate(
    strategy: Milp, resolved: ResolvedOperation, operation: Operation, limits: Limits, seed: int
) -> Allocated:
    """Find a placement by allocating key groups.

    Parameters
    ----------
    strategy
        Which, and its options.
    scene
        The operation laid over the snapshot.
    operation
        What is asked.
    limits
        Moves or bytes are what migrations may cost; at most one of them is given.
    seed
        Of what is random.

    Raises
    ------
    InputError
        Where snapshot, operation or limits do not fit, or a package is missing.
    """
    if limits.moves is not None and limits.bytes is not None:
        raise StrategyError(
            f"strategy {strategy.name}: a budget of moves or of bytes expected, both given"
        )
    try:
        from balancer.allocation.solver import solve
        from balancer.collocation.albic import albic
        from balancer.collocation.units import units_of
    except ModuleNotFoundError as error:
        raise StrategyError(
            f"strategy {strategy.name}: the package {error.name} is missing; install "
            "counterpoise[collocation]"
        ) from None
    start = resolved.start
    by_bytes: Floats | None = None if limits.bytes is None else replica_bytes(start)[0]
    budget = limits.moves if by_bytes is None else limits.bytes
    units = units_of(
        start.snapshot,
        operation,
        budget=np.inf if budget is None else budget,
        cost="count" if by_bytes is None else by_bytes,
        resource=strategy.resource,
    )
    problem = units.problem
    rounds, seconds = strategy.rounds, limits.seconds
    if isinstance(strategy, Albic):
        options = strategy.model_dump(exclude={"resource", "rounds"})
        found = albic(units, **options, rounds=rounds, seconds=seconds, seed=seed)
        solution, group = found.solution, found.group
    else:
        solution = solve(
            problem, good=strategy.max_distance, rounds=rounds, seconds=seconds, seed=seed
        )
        group = np.arange(len(problem.load))
    placement = start.copy()
    placement._sums.clear()
    placement.brokers[:, 0] = units.unfold(solution.node)
    if len(placement.replica_disk):
        moved = np.flatnonzero(placement.replica_broker != start.replica_broker)
        placement.replica_disk[moved] = pick_disk(start, placement.replica_broker[moved])
    label = np.arange(start.snapshot.n_partitions) + len(group)
    label[units.partition] = group
    still = solution.node == problem.node
    left = problem.budget - solution.cost
    spent = bool(still.any() and problem.cost[still].min() > left + _TINY)
    return Allocated(placement, label, spent, strategy, units, solution.bound)
