"""The balancer: takes goals and an operation, returns a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, get_args

import numpy as np

from balancer.planning.assembly import assemble
from balancer.planning.document import Remedy
from balancer.planning.least_brokers import least_brokers, needs_of
from balancer.planning.parameters import PlanningParameters
from balancer.planning.plan import Plan
from balancer.planning.proposal_check import check_proposal
from balancer.planning.remedies import RemedyLimits, find_remedy
from balancer.planning.reserve import reserve
from balancer.planning.sizing import Purpose, SizingRequest, check_limits_known, right_sized
from balancer.problem.budget import Budget
from balancer.problem.capacity_guards import capacity_guards
from balancer.problem.deadline import Deadline
from balancer.problem.movement_cost import cost_unit
from balancer.problem.operation import Operation, OperationError
from balancer.problem.operations import RightSize, type_of
from balancer.problem.problem import Problem
from balancer.problem.relaxation import nearest_feasible, relaxation_warning
from balancer.problem.resolution import resolve, with_ids_of
from balancer.problem.room_guards import room_guards
from balancer.problem.tiers import with_availability, with_request
from balancer.search.parameters import SearchParameters
from balancer.strategies import (
    Config,
    ProgressCallback,
    StrategyError,
    load_strategy,
    search_options,
    with_defaults,
    with_search_parameters,
)
from cluster_model.errors import InputError
from cluster_model.snapshot import Snapshot
from goals import (
    Goal,
    GoalError,
    applicable,
    inapplicable,
    load_goals,
    parameters_of,
    profile_of,
    unmatched,
)
from goals.patterns import matching
from metrics_reporter.plugins import fault_of


def _naming_its_errors(progress: ProgressCallback) -> ProgressCallback:
    """The same callback; what it raises is named as its own, not the strategy's."""

    def called(phase: str, met: int, of: int, actions: int) -> None:
        with fault_of("progress failed", InputError):
            progress(phase, met, of, actions)

    return called


def _check_type(name: str, given: object, expected: Any) -> None:
    """Raise InputError unless an argument is of a type."""
    if not isinstance(given, expected) or isinstance(given, bool):
        names = " or ".join(
            "None" if kind is type(None) else kind.__name__
            for kind in get_args(expected) or (expected,)
        )
        raise InputError(f"{name}: {type(given).__name__} found, {names} expected")


class Balancer:
    """Proposes plans that make a cluster meet its goals.

    Parameters
    ----------
    goals
        Goals, or what :func:`goals.load_goals` takes: the name of a profile, a file, a
        mapping. Parameters that these set for search and planning apply.
    budget
        Limits of each plan.
    seed
        Seed of the search's sampling: equal snapshot, goals, operation and seed give
        equal plans, byte for byte.
    strategy
        How a better placement is found: a name, options, or an object (see
        :func:`balancer.strategies.load_strategy`). ``goals`` searches for what the goals ask;
        ``milp`` balances the bottleneck resource of partitions with one replica by a
        mixed-integer program; ``albic`` also brings together those that communicate. With
        the last two, moves or cost of the budget bound the program, the goals judge its
        result, hard ones veto steps, and ``remove_brokers`` may move other replicas too.
    remedies
        How much effort to spend on trying remedies for unmet goals on larger clusters, when
        :attr:`Plan.remedy` is read or the plan is written; by default none is tried, and
        the remedy states only the certificates' lower bound.
    planning
        Effort of ordering and explaining the steps.

    Attributes
    ----------
    search : SearchParameters
        Parameters that the goals' configuration sets for the local search; options of the
        strategy take precedence.
    strict : bool
        Whether a goal that does not apply to a snapshot is an error. A profile leaves it
        out, and its plans report this.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    >>> Balancer("default").propose(snapshot).ok
    True
    """

    def __init__(
        self,
        goals: Iterable[Goal] | str | Path | Mapping[str, Any] = "default",
        *,
        budget: Budget | None = None,
        seed: int = 0,
        strategy: Config = "goals",
        remedies: RemedyLimits | None = None,
        planning: PlanningParameters | None = None,
    ) -> None:
        _check_type("budget", budget, Budget | None)
        _check_type("remedies", remedies, RemedyLimits | None)
        _check_type("planning", planning, PlanningParameters | None)
        _check_type("goals", goals, Iterable | Path)
        _check_type("seed", seed, int | np.integer)
        if seed < 0:
            raise InputError(f"seed: {seed} found, 0 or more expected")
        self.remedies = remedies
        self.strategy = load_strategy(strategy)
        self.search, self.planning = SearchParameters(), planning or PlanningParameters()
        if isinstance(goals, str | Path | Mapping):
            self.goals, self.strict = load_goals(goals), profile_of(goals) is None
            self.search = parameters_of(goals, "search", SearchParameters)
            default = parameters_of(goals, "planning", PlanningParameters)
            self.planning = with_defaults(self.planning, default)
            self.strategy = with_search_parameters(self.strategy, self.search)
        else:
            self.goals, self.strict = list(goals), True
        wrong = [g for g in self.goals if not isinstance(g, Goal)]
        if wrong:
            raise GoalError(f"goals: {wrong[0]!r} found, objects of a Goal class expected")
        names = [g.name for g in self.goals]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise GoalError(f"goals: {min(twice)} is listed twice")
        self.budget = budget or Budget()
        self.seed = seed

    def propose(
        self,
        snapshot: Snapshot,
        operation: Operation | None = None,
        *,
        progress: ProgressCallback | None = None,
        stop: Event | None = None,
    ) -> Plan:
        """Make a plan; the snapshot is not changed.

        Parameters
        ----------
        snapshot
            The current cluster.
        operation
            The request; by default a rebalance.
        progress
            Called often, with the phase, how many goals the best plan so far meets, of how many (0
            if that is not known), and its actions. Planning may still leave out actions.
        stop
            Ends the search when it is set, from any thread: the plan is then the best that was
            found until then, ordered and checked as any plan, and its ``exhausted`` is
            ``stopped``.

        Raises
        ------
        InputError
            If goals or operation do not fit the snapshot, or an argument is of another type, in
            one sentence.
        """
        _check_type("snapshot", snapshot, Snapshot)
        if isinstance(operation, Budget):
            raise InputError(
                "operation: Budget found, an Operation expected; limits are those of "
                "Balancer(budget=...)"
            )
        _check_type("operation", operation, Operation | None)
        _check_type("progress", progress, Callable | None)
        if progress is not None:
            progress = _naming_its_errors(progress)
        if stop is not None and not callable(getattr(stop, "is_set", None)):
            raise InputError(f"stop: {type(stop).__name__} found, Event or None expected")
        operation = with_ids_of(operation or Operation(), snapshot)
        kind = type_of(operation)
        if isinstance(kind, RightSize) and not operation.brokers:
            return self._right_sized(snapshot, operation, kind, progress, stop)
        return self._proposed(snapshot, operation, progress, stop)

    def _proposed(
        self,
        snapshot: Snapshot,
        operation: Operation,
        progress: ProgressCallback | None,
        stop: Event | None,
    ) -> Plan:
        """A plan for the request as it stands."""
        started, deadline = time.monotonic(), Deadline.after(self.budget.seconds, stop)
        with fault_of(f"operation {operation.kind} failed", OperationError, InputError):
            resolved = resolve(snapshot, operation)
        configured = applicable(self.goals, snapshot, strict=self.strict)
        goals = with_availability(resolved.type.judged_by(configured))
        goals = with_request(resolved.goals(), goals)
        cluster = resolved.cluster
        asked = tuple(g.prepared(cluster) for g in goals)
        used, relaxed = nearest_feasible(asked, cluster, self.planning.relaxed_room, resolved.heals)
        problem = Problem(
            operation=operation,
            resolved=resolved,
            goals=used,
            vetoes=(
                *(g.prepared(cluster) for g in capacity_guards(snapshot, goals)),
                *room_guards(asked, used, cluster),
            ),
            relaxed=relaxed,
            stop=stop,
        )
        left = budget = self.budget.in_unit(cost_unit(snapshot))
        if left.seconds is not None:
            most = self.planning.reserved_share * left.seconds
            kept = min(reserve(problem, self.planning, left.limits_moves), most)
            seconds = max(left.seconds - kept - (time.monotonic() - started), 1e-3)
            left = left.model_copy(update={"seconds": seconds})
        origin = problem.cluster.placement.copy()
        with (
            fault_of(f"strategy {self.strategy.name} failed", StrategyError, InputError),
            problem.start.locked(),
        ):
            proposal = self.strategy.propose(problem, left, self.seed, progress)
        check_proposal(problem, origin, proposal, self.strategy.name)
        return assemble(
            problem,
            proposal,
            budget,
            goals_left_out=inapplicable(self.goals, snapshot),
            warnings=[
                *(relaxation_warning(name, found) for name, (_, found) in relaxed.items()),
                *self._warnings(snapshot, operation),
            ],
            remedy=lambda plan: self._remedy(plan, stop),
            parameters=self.planning,
            progress=progress,
            deadline=deadline,
        )

    def _right_sized(
        self,
        snapshot: Snapshot,
        operation: Operation,
        kind: RightSize,
        progress: ProgressCallback | None,
        stop: Event | None,
    ) -> Plan:
        """The plan on the smallest number of brokers that is found to meet all hard goals."""
        started, seconds = time.monotonic(), self.budget.seconds
        with fault_of(f"operation {operation.kind} failed", OperationError, InputError):
            resolved = resolve(snapshot, operation)
        check_limits_known(self.goals, snapshot)
        cluster = resolved.cluster
        goals = with_availability(
            kind.judged_by(applicable(self.goals, snapshot, strict=self.strict))
        )
        candidates = cluster.eligible & resolved.rules.receives
        needs = needs_of([g.prepared(cluster) for g in goals], cluster, candidates)

        def left() -> float | None:
            return None if seconds is None else seconds - (time.monotonic() - started)

        def ended() -> bool:
            # as much time is kept for the plan as the search for a number took
            rest = left()
            return (stop is not None and stop.is_set()) or (
                seconds is not None and rest is not None and rest < seconds / 2
            )

        def plans(of: Snapshot, asked: Operation, purpose: Purpose) -> Plan:
            other, rest = copy(self), left()
            given = None if rest is None else max(rest, 1e-3)
            if purpose == "asked":
                other.budget = self.budget.model_copy(update={"seconds": given})
            else:
                other.goals = [g for g in self.goals if g.hard]
                moves = 0 if purpose == "proofs" else None
                other.budget, other.remedies = Budget(moves=moves, seconds=given), None
            return other._proposed(of, asked, progress, stop)

        return right_sized(
            SizingRequest(
                snapshot=snapshot,
                operation=operation,
                kind=kind,
                cluster=cluster,
                candidates=candidates,
                needs=needs,
                least=least_brokers(needs, cluster, candidates),
                plans=plans,
                ended=ended,
                parameters=self.planning,
            )
        )

    def _remedy(self, plan: Plan, stop: Event | None) -> Remedy | None:
        """What would make the unmet goals of a plan possible, tried without a limit on moves."""
        stopped = plan.summary.exhausted == "stopped" or (stop is not None and stop.is_set())
        attempt = None if self.remedies is None or stopped else partial(self._attempt, stop)
        return find_remedy(plan, attempt, self.remedies or RemedyLimits(), self.budget.seconds)

    def _attempt(
        self, stop: Event | None, snapshot: Snapshot, operation: Operation, hard_only: bool
    ) -> Plan:
        """A plan without a limit on moves, with all goals or the hard ones."""
        other = copy(self)
        other.budget = Budget(seconds=self.budget.seconds)
        other.goals = [g for g in self.goals if g.hard or not hard_only]
        return other._proposed(snapshot, operation, None, stop)

    def _warnings(self, snapshot: Snapshot, operation: Operation) -> list[str]:
        """Parts of the request that match nothing, which are probably typos."""
        fitting = applicable(self.goals, snapshot, strict=False)
        unused = sorted(self.search.model_fields_set - search_options(self.strategy))
        found = []
        if unused:
            found = [
                f"search: {', '.join(unused)} given together with the goals, but strategy "
                f"{self.strategy.name} does not use them"
            ]
        return [*found, *unmatched(fitting, snapshot, self.strict)] + [
            f"excluded_topics: {pattern!r} matches none of the snapshot's topics"
            for pattern in operation.excluded_topics
            if not matching(pattern, snapshot.topics).any()
        ]
