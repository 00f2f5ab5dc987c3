"""Balances one resource of single-replica partitions with a mixed-integer program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from balancer.allocation.parameters import AllocationParameters
from balancer.allocation.result import AllocationResult
from balancer.problem.budget import Budget
from balancer.problem.deadline import Deadline
from balancer.problem.disks import pick_disk
from balancer.problem.movement_cost import copy_cost
from balancer.problem.problem import Problem
from balancer.problem.resolution import resolve
from balancer.problem.rules import Rules
from balancer.search.spending import moves_bind
from balancer.strategies.strategy import ProgressCallback, Proposal, StrategyError
from cluster_model.placement import Placement
from cluster_model.snapshot import Floats, Ints
from goals.terms import Limit

if TYPE_CHECKING:
    from balancer.allocation.problem import Solution
    from balancer.allocation.units import Units

_TINY = 1e-9


class Milp(AllocationParameters):
    """Balance one resource under the budget: the MILP of seed 001, Section 4.3.1.

    For partitions with one replica (key groups). Goals judge the result: steps that a hard
    goal vetoes are dropped, and the plan states the gain of each goal.

    Parameters
    ----------
    resource
        The resource to balance; by default the bottleneck.
    rounds
        Effort, see :func:`balancer.allocation.solver.solve`.
    max_distance
        maxLD: a load distance, in percentage points, that is good enough while brokers are
        emptied, and (ALBIC) that collocation may not exceed.
    """

    summary: ClassVar[str] = (
        "Balance one resource of single-replica partitions with a mixed-integer program."
    )

    resource: str | None = None
    rounds: int = Field(default=10_000, ge=0)
    max_distance: float = Field(default=10.0, ge=0)

    @property
    def name(self) -> str:
        """``milp``."""
        return "milp"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        """Allocate key groups; the budget's moves or cost limit the migration.

        Of both, the one that allows fewer copies of the mean replica is a constraint.

        Raises
        ------
        InputError
            If snapshot, operation or limits do not fit, or a package is missing.
        """
        deadline = Deadline.after(limits.seconds, problem.stop)
        try:
            from balancer.allocation.units import units_of

            start = problem.start
            if limits.cost is not None and len(start.snapshot.move_cost):
                raise StrategyError(
                    f"strategy {self.name}: a budget of cost found together with costs that depend "
                    "on the destination, only one of them expected; the strategy goals takes both"
                )
            moves, cost = (np.inf if x is None else x for x in (limits.moves, limits.cost))
            by_moves = limits.cost is None or moves_bind(start, moves, cost)
            by_cost: Floats | None = None if by_moves else copy_cost(start)[0]
            budget = moves if by_moves else cost
            units = units_of(
                start.snapshot,
                problem.operation,
                budget=budget,
                cost="count" if by_cost is None else by_cost,
                resource=self.resource,
                most=_hard_limits(problem),
            )
            if progress is not None:
                progress("program", 0, 0, 0)
            solution, group = self.solved(units, deadline, seed)
        except ModuleNotFoundError as error:
            raise StrategyError(
                f"strategy {self.name}: the package {error.name} is missing; install "
                "counterpoise[collocation]"
            ) from None
        placement = start.copy()
        placement.invalidate_sums()
        placement.brokers[:, 0] = units.unfold(solution.node)
        if len(placement.replica_disk):
            moved = np.flatnonzero(placement.replica_broker != start.replica_broker)
            placement.replica_disk[moved] = pick_disk(start, placement.replica_broker[moved])
        actions = int((placement.brokers != start.brokers).sum())
        if progress is not None:
            progress("program", 0, 0, actions)
        label = np.arange(start.snapshot.n_partitions) + len(group)
        label[units.partition] = group
        still = solution.node == units.problem.node
        left = units.problem.budget - solution.cost
        spent = bool(still.any() and units.problem.cost[still].min() > left + _TINY)
        exhausted: Literal["seconds", "budget", "stopped"] | None = "budget" if spent else None
        if deadline.stopped:
            exhausted = "stopped"
        elif deadline.earlier((1 - self.search_share) * (limits.seconds or 0.0)).passed:
            exhausted = "seconds"
        return _Allocated(
            placement=placement,
            rules=_integrated(problem),
            group=label,
            actions=actions,
            exhausted=exhausted,
            strategy=self.name,
            units=units,
            bound=solution.bound,
            max_distance=self.max_distance,
        )

    def solved(self, units: Units, deadline: Deadline, seed: int) -> tuple[Solution, Ints]:
        """An allocation of the units, and (U,) the set that each unit migrates with."""
        from balancer.allocation.solver import solve

        found = solve(
            units.problem,
            good=self.max_distance,
            rounds=self.rounds,
            deadline=deadline,
            seed=seed,
            parameters=self,
        )
        return found, np.arange(len(units.problem.load))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Allocated(Proposal):
    """The result of an allocation."""

    strategy: str
    units: Units
    bound: float
    max_distance: float

    def improves(self, ended: Placement) -> bool:
        """Whether brokers are emptied, or balance improves, or it suffices and more is local."""
        p, units = self.units.problem, self.units
        before, after = p.node, self._node(ended)
        left = [float(p.load[p.removed[node]].sum()) for node in (before, after)]
        nearer = p.distance(before) - p.distance(after)
        if left[1] < left[0] or nearer > _TINY:
            return True
        more = units.local(after) - units.local(before)
        if more > _TINY:
            return nearer >= -_TINY or p.distance(after) <= self.max_distance + _TINY
        even = sum(p.sides(after)) < sum(p.sides(before)) - _TINY
        return nearer >= -_TINY and more >= -_TINY and even

    def allocation(self, ended: Placement) -> AllocationResult:
        """Load distances, their bound, and what stays local."""
        p, after = self.units.problem, self._node(ended)
        return AllocationResult(
            strategy=self.strategy,
            resource=self.units.resource,
            distance_before=p.distance(p.node),
            distance_after=p.distance(after),
            # a difference due to rounding proves nothing
            distance_bound=min(self.bound, p.distance(after)),
            local_before=self.units.local(p.node),
            local_after=self.units.local(after),
        )

    def _node(self, placement: Placement) -> Ints:
        node: Ints = placement.location[self.units.partition]
        return node


def _hard_limits(problem: Problem) -> dict[str, Floats]:
    """(B,) the lowest limit of hard goals by resource: a step beyond it would be left out."""
    found: dict[str, Floats] = {}
    for goal in (*problem.goals, *problem.vetoes):
        with problem.cluster.placement.locked():
            terms = goal.terms(problem.cluster) if goal.hard else None
        for term in terms or ():
            if isinstance(term, Limit) and not term.former:
                name = term.resource
                found[name] = np.minimum(found.get(name, np.inf), term.most)
    return found


def _integrated(problem: Problem) -> Rules:
    """Rules that let every replica move while brokers are emptied, not only the replicas there."""
    rules = problem.rules
    if not problem.resolved.emptied.any():
        return rules
    rest = problem.operation.model_copy(update={"kind": "rebalance", "brokers": (), "options": {}})
    free = resolve(problem.start.snapshot, rest).rules
    return replace(rules, slots=rules.slots | free.slots, movable=free.movable)
