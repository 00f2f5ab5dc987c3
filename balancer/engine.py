"""The balancer: goals and an operation in, a plan out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from balancer.planning.additions import admit
from balancer.planning.bounds import bytes_bound, imbalance_bound
from balancer.planning.document import ActionKind, ColumnResult, GoalResult, Remedy, Spread, Summary
from balancer.planning.infeasibility import unmet
from balancer.planning.ordering import Steps, align, order, steps_between, together
from balancer.planning.plan import ActionRows, Plan
from balancer.planning.remedies import RemedyLimits, find_remedy
from balancer.problem.capacity_guards import capacity_guards, implied
from balancer.problem.movement_cost import replica_bytes
from balancer.problem.operation import Operation
from balancer.problem.replication_factor import ReplicationFactor
from balancer.problem.resolution import ResolvedOperation, resolve
from balancer.problem.rules import Rules
from balancer.search.arrays import first_of
from balancer.search.local_search import Search
from balancer.search.scorer import Scorer, improves
from balancer.strategy import Allocated, Limits, Milp, Strategy, allocate, strategy_of
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot
from cluster_model.traffic import connected
from goals import (
    Cluster,
    CollocationGoal,
    Goal,
    GoalError,
    applicable,
    inapplicable,
    load_goals,
    profile_of,
    unmatched,
)
from goals.availability import EligibleLeaders, OnlineReplicas
from goals.patterns import matching

Progress = Callable[[str, int, int, int], None]


class Budget(BaseModel):
    """Limits of one plan; None is no limit.

    Parameters
    ----------
    moves
        Most replicas the plan may move (between brokers or disks, or add).
    bytes
        Most bytes it may copy.
    seconds
        After how long the search stops with the best it has. The only limit that
        makes a plan depend on the clock.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    moves: int | None = Field(default=None, ge=0)
    bytes: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Balancer:
    """Proposes plans that make a cluster meet its goals.

    Parameters
    ----------
    goals
        Goals, or what :func:`goals.load_goals` takes: the name of a profile, a file, a
        mapping.
    budget
        Limits of each plan.
    seed
        Seed of the search's sampling: equal snapshot, goals, operation and seed give
        equal plans, byte for byte.
    strategy
        How a better placement is found: ``goals`` searches for what the goals ask;
        ``milp`` balances the bottleneck resource of partitions with one replica by a
        mixed-integer program, ``albic`` also brings together those that talk to one
        another (or :class:`balancer.strategy.Milp`, :class:`~balancer.strategy.Albic`
        with options). With those two, moves or bytes of the budget bound the program, the
        goals judge what it found, hard ones veto steps, and ``remove_brokers`` may move
        other replicas too.
    remedies
        How long remedies for unmet goals are tried on larger clusters, once
        :attr:`Plan.remedy` is read or the plan is written; by default none is tried, and
        the remedy says no more than certificates do.

    Attributes
    ----------
    strict : bool
        Whether a goal that does not apply to a snapshot is an error. A profile leaves it
        out, and its plans say so.

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
        strategy: Strategy | Milp = "goals",
        remedies: RemedyLimits | None = None,
    ) -> None:
        self.remedies = remedies
        self.strategy = strategy_of(strategy)
        if isinstance(goals, str | Path | Mapping):
            self.goals, self.strict = load_goals(goals), profile_of(goals) is None
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
        progress: Progress | None = None,
    ) -> Plan:
        """Work out a plan; the snapshot is not changed.

        Parameters
        ----------
        snapshot
            The cluster as it is.
        operation
            What is asked; by default a rebalance.
        progress
            Called with (phase, goals met, all goals, actions so far), often.

        Raises
        ------
        InputError
            Where goals or operation do not fit the snapshot, in one sentence.
        """
        operation = operation or Operation()
        started = time.monotonic()
        resolved = resolve(snapshot, operation)
        goals = with_availability(applicable(self.goals, snapshot, strict=self.strict))
        if operation.kind == "change_replication_factor":
            goals = [ReplicationFactor.of(resolved.factor), *goals]
        cluster = resolved.cluster
        prepared = [g.prepared(cluster) for g in [*goals, *capacity_guards(snapshot, goals)]]
        shown = prepared[: len(goals)]
        if self.strategy is not None:
            limits = Limits(self.budget.moves, self.budget.bytes, self.budget.seconds)
            resolved = _integrated(resolved, operation)
            allocated = allocate(self.strategy, resolved, operation, limits, self.seed)
            found = _Found(allocated.placement, allocated=allocated)
            plan = self._plan(operation, resolved, prepared, len(goals), found, progress)
            return replace(plan, trial=self._remedy)
        needed = [g for g in prepared[len(goals) :] if not implied(g, shown)]
        scorer = Scorer(cluster, [*_at_stake(shown, cluster), *needed])
        search = Search(
            scorer,
            resolved.rules,
            serve=len(scorer.tiers) - bool(needed),
            deadline=None if self.budget.seconds is None else started + self.budget.seconds,
            seed=self.seed,
            progress=progress,
        )
        search.run()
        if operation.kind != "change_replication_factor":
            search.reduce(resolved.start)
        found = _Found(scorer.placement, search.actions, search.exhausted)
        plan = self._plan(operation, resolved, prepared, len(goals), found, progress)
        return replace(plan, trial=self._remedy)

    def _remedy(self, plan: Plan) -> Remedy | None:
        """What would make the unmet goals of a plan possible: tried without limits of moves."""
        attempt = self._attempt if self.strategy is None and self.remedies is not None else None
        return find_remedy(plan, attempt, self.remedies or RemedyLimits(), self.budget.seconds)

    def _attempt(self, snapshot: Snapshot, operation: Operation, hard_only: bool) -> Plan:
        """A plan without a limit on moves, with all goals or the hard ones."""
        other = copy(self)
        other.budget = Budget(seconds=self.budget.seconds)
        other.goals = [g for g in self.goals if g.hard or not hard_only]
        return other.propose(snapshot, operation)

    def _warnings(self, snapshot: Snapshot, operation: Operation) -> list[str]:
        """What was asked for and matches nothing: likely a typing error."""
        fitting = applicable(self.goals, snapshot, strict=False)
        return unmatched(fitting, snapshot, self.strict) + [
            f"excluded_topics: {pattern!r} matches none of the snapshot's topics"
            for pattern in operation.excluded_topics
            if not matching(pattern, snapshot.topics).any()
        ]

    def _plan(
        self,
        operation: Operation,
        resolved: ResolvedOperation,
        goals: list[Goal],
        shown: int,
        found: _Found,
        progress: Progress | None,
    ) -> Plan:
        # what is stated, and what is safe, is worked out on exact sums
        start, rules, final = resolved.start.stated(), resolved.rules, found.placement
        walked = _without_removed(start, final)
        align(walked, final)
        if progress is not None:
            progress("order", 0, 0, found.actions)
        cluster = Cluster(
            walked, resolved.cluster.eligible, resolved.cluster.leader_eligible, rules.draining
        )
        added = _added(cluster, goals, final, rules)
        cluster = Cluster(walked.copy(), cluster.eligible, cluster.leader_eligible, rules.draining)
        scorer = Scorer(cluster, goals)
        initial = Scorer(
            Cluster(start.copy(), cluster.eligible, cluster.leader_eligible, rules.draining), goals
        )
        wanted = steps_between(walked, final)
        groups = found.groups(walked, goals)
        steps = order(
            scorer, wanted, rules, None if groups is None else together(walked, wanted, groups)
        )
        rows = _rows(start, walked, added, steps, goals[:shown], rules)
        kept = _within(rows, self.budget)
        exhausted, left_out = "seconds" if found.exhausted else None, steps.left_out
        if kept < len(rows.kind):
            exhausted = "moves or bytes"
        elif steps.left_out and not (
            improves(initial, scorer, len({g.tier for g in goals[:shown]}))
            if found.allocated is None
            else found.allocated.worth(scorer.placement)
        ):
            # what had a safe order is not what would have helped
            kept, left_out = 0, left_out + len(steps.batch)
        if found.allocated is not None and found.allocated.spent:
            exhausted = "moves or bytes"
        if kept < len(rows.kind):
            rows, ended = _truncated(rows, kept, start, walked, steps)
            cluster = Cluster(ended, cluster.eligible, cluster.leader_eligible, rules.draining)
            scorer = Scorer(cluster, goals)
        ended = scorer.placement
        met = [scorer.met(i) for i in range(shown)]
        kinds = np.array(rows.kind)
        origin = Cluster(walked, cluster.eligible, cluster.leader_eligible, rules.draining)
        summary = Summary(
            replica_moves=int((kinds == "move").sum()),
            leadership_moves=int((kinds == "leadership").sum()),
            disk_moves=int((kinds == "move_disk").sum()),
            replicas_added=int((kinds == "add").sum()),
            replicas_removed=int((kinds == "remove").sum()),
            bytes_moved=float(rows.bytes.sum()),
            bytes_bound=bytes_bound(start, goals[:shown], met, initial.cluster)
            if operation.kind != "change_replication_factor"
            else 0.0,
            bytes_total=_bytes_total(start),
            balancedness_before=balancedness(goals[:shown], initial),
            balancedness_after=balancedness(goals[:shown], scorer),
            left_out=left_out,
            exhausted=exhausted,
            group_moves=int(rows.group.max(initial=-1)) + 1,
        )
        return Plan(
            snapshot=start.snapshot,
            placement=ended,
            operation=operation.model_dump(mode="json", exclude_defaults=True)
            | {"kind": operation.kind},
            goals=tuple(
                {"goal": type(g).__name__, "name": g.name, **g.model_dump(mode="json")}
                for g in goals[:shown]
            ),
            goals_left_out=inapplicable(self.goals, start.snapshot),
            warnings=tuple(self._warnings(start.snapshot, operation)),
            summary=summary,
            columns=_columns(initial.cluster, origin, ended, rules),
            goal_results=tuple(
                _goal_result(g, i, initial, scorer) for i, g in enumerate(goals[:shown])
            ),
            unmet=tuple(unmet(goals[:shown], scorer, rules, exhausted, left_out, origin)),
            rows=rows,
            allocation=None if found.allocated is None else found.allocated.result(ended),
        )


def _integrated(resolved: ResolvedOperation, operation: Operation) -> ResolvedOperation:
    """The scene in which all may move while brokers are removed, not what is on those alone."""
    if operation.kind != "remove_brokers":
        return resolved
    rest = operation.model_copy(update={"kind": "rebalance", "brokers": ()})
    free = resolve(resolved.start.snapshot, rest).rules
    slots = resolved.rules.slots | free.slots
    return replace(resolved, rules=replace(resolved.rules, slots=slots, movable=free.movable))


@dataclass(frozen=True, eq=False)
class _Found:
    """Where a strategy wants to go."""

    placement: Placement
    actions: int = 0
    exhausted: bool = False
    allocated: Allocated | None = None

    def groups(self, start: Placement, goals: list[Goal]) -> Ints | None:
        """(P,) the set that each partition moves with; None where there are no sets."""
        if self.allocated is not None:
            return self.allocated.group
        factor = next((g.factor for g in goals if isinstance(g, CollocationGoal)), None)
        if factor is None:
            return None
        traffic, here, there = start.traffic(factor), start.location, self.placement.location
        same = (here[traffic.one] == here[traffic.two]) & (there[traffic.one] == there[traffic.two])
        return connected(len(here), traffic.one[same], traffic.two[same])


def with_availability(goals: list[Goal]) -> list[Goal]:
    """Duties come before every tier, unless the list has them itself."""
    have = {type(g) for g in goals}
    duties: list[Goal] = [
        g for g in (OnlineReplicas(tier=0), EligibleLeaders(tier=0)) if type(g) not in have
    ]
    numbers = sorted({g.tier if g.tier is not None else 0 for g in goals})
    return duties + [
        g.model_copy(update={"tier": 1 + numbers.index(g.tier if g.tier is not None else 0)})
        for g in goals
    ]


def _at_stake(goals: list[Goal], cluster: Cluster) -> list[Goal]:
    """The goals without the duties that are met: no legal action hurts those."""
    return [
        g
        for g in goals
        if not (
            isinstance(g, OnlineReplicas | EligibleLeaders)
            and (g.score(cluster.partition_state()) >= 1).all()
        )
        # the search adds and removes nothing
        and not isinstance(g, ReplicationFactor)
    ]


def _without_removed(start: Placement, final: Placement) -> Placement:
    """The start without the replicas that the final placement has no slot for."""
    walked = start.copy()
    walked._sums.clear()
    removed = final.replica_broker < 0
    walked.replica_broker[removed] = -1
    if len(walked.replica_disk):
        walked.replica_disk[removed] = -1
    return walked


def _added(cluster: Cluster, goals: list[Goal], final: Placement, rules: Rules) -> Ints:
    """Add the new replicas to the cluster's placement; slots of those there is room for.

    The final placement is told where they went, and of those that came to nothing.
    """
    walked = cluster.placement
    wanted = np.flatnonzero((walked.replica_broker < 0) & (final.replica_broker >= 0))
    if not len(wanted):
        return wanted
    added = admit(Scorer(cluster, goals), wanted, final, np.flatnonzero(rules.receives))
    final.replica_broker[wanted] = walked.replica_broker[wanted]
    if len(final.replica_disk):
        final.replica_disk[wanted] = walked.replica_disk[wanted]
    # who was to lead came to nothing, or where nobody may: another may lead, or who did does
    able = np.append(rules.leads, False)[final.brokers]
    if len(final.replica_disk):
        alive = np.append(final.snapshot.disk_alive, True)
        able &= alive[final.replica_disk].reshape(able.shape)
    heir = np.where(able.any(1), able.argmax(1), walked.leader)
    now = final.leader
    unfit = (now != walked.leader) & ~able[np.arange(len(now)), now]
    final.leader = np.where(unfit, heir, now)
    final._sums.clear()
    return added


def _rows(
    start: Placement,
    walked: Placement,
    added: Ints,
    steps: Steps,
    goals: list[Goal],
    rules: Rules,
) -> ActionRows:
    s = start.snapshot
    removed = np.flatnonzero((start.replica_broker >= 0) & (walked.replica_broker < 0))
    none = np.full(len(removed) + len(added), -1, np.int64)
    flat = np.concatenate([removed, added])
    _, size = replica_bytes(start)
    kind_names: dict[int, ActionKind] = {MOVE: "move", LEAD: "leadership"}
    names: list[ActionKind] = ["remove" for _ in removed]
    names += ["add" for _ in added]
    names += [kind_names.get(k, "move_disk") for k in steps.batch.kind.tolist()]
    disks = len(start.replica_disk) > 0
    source_disk = (
        np.concatenate([start.replica_disk[removed], none[: len(added)]]) if disks else none
    )
    target_disk = (
        np.concatenate([none[: len(removed)], walked.replica_disk[added]]) if disks else none
    )
    return ActionRows(
        kind=tuple(names),
        partition=np.concatenate([flat // start.slots, steps.batch.partition]),
        source=np.concatenate([start.replica_broker[removed], none[: len(added)], steps.source]),
        target=np.concatenate(
            [none[: len(removed)], walked.replica_broker[added], steps.batch.target]
        ),
        source_disk=np.concatenate([source_disk, steps.source_disk]),
        target_disk=np.concatenate([target_disk, steps.batch.disk]),
        leads=np.concatenate([np.zeros(len(flat), np.bool_), steps.leads]),
        bytes=np.concatenate([np.zeros(len(removed)), size[added // start.slots], steps.bytes]),
        diff=np.concatenate([np.zeros((len(flat), len(goals))), steps.diff[:, : len(goals)]]),
        names=tuple(g.name for g in goals),
        demoted=~rules.leads & (s.broker_state != BrokerState.DEAD),
        group=np.concatenate([none, steps.group]),
    )


def _within(rows: ActionRows, budget: Budget) -> int:
    """How many of the first actions stay within the budget: any prefix of a plan is a plan."""
    kinds = np.array(rows.kind)
    fits = np.ones(len(kinds), np.bool_)
    if budget.moves is not None:
        fits &= np.cumsum(np.isin(kinds, ("move", "move_disk", "add"))) <= budget.moves
    if budget.bytes is not None:
        fits &= np.cumsum(rows.bytes) <= budget.bytes
    if fits.all():
        return len(fits)
    kept = int(np.argmin(fits))
    # a group goes as a whole
    cut = rows.group[kept]
    return kept if cut < 0 else int(np.argmax(rows.group == cut))


def _truncated(
    rows: ActionRows, n: int, start: Placement, walked: Placement, steps: Steps
) -> tuple[ActionRows, Placement]:
    ended = start.copy()
    changes = len(rows.kind) - len(steps.batch)
    for p, a, b in zip(
        rows.partition[: min(n, changes)].tolist(),
        rows.source[:changes].tolist(),
        rows.target[:changes].tolist(),
        strict=False,
    ):
        held = ended.brokers[p] if b < 0 else walked.brokers[p]
        at = p * ended.slots + int(np.flatnonzero(held == (a if b < 0 else b))[0])
        ended.replica_broker[at] = b
        if len(ended.replica_disk):
            ended.replica_disk[at] = -1 if b < 0 else walked.replica_disk[at]
    ended._sums.clear()
    done: Batch = steps.batch[: max(n - changes, 0)]
    while len(done):
        first = first_of(done.partition)
        ended.apply(done[first])
        rest = np.ones(len(done), np.bool_)
        rest[first] = False
        done = done[rest]
    cut = slice(n)
    return (
        ActionRows(
            rows.kind[:n],
            rows.partition[cut],
            rows.source[cut],
            rows.target[cut],
            rows.source_disk[cut],
            rows.target_disk[cut],
            rows.leads[cut],
            rows.bytes[cut],
            rows.diff[cut],
            rows.names,
            rows.demoted,
            rows.group[cut],
        ),
        ended,
    )


def _bytes_total(start: Placement) -> float:
    """Bytes of all replicas: leaders at their size, followers at theirs."""
    lead, follow = replica_bytes(start)
    followers = np.count_nonzero(start.brokers >= 0, axis=1) - 1
    return float((lead + follow * followers).sum())


def balancedness(goals: list[Goal], scorer: Scorer) -> float:
    weight, total, lost = 1.0, 0.0, 0.0
    for i in reversed(range(len(goals))):
        cost = weight * (1.5 if goals[i].hard else 1.0)
        total += cost
        lost += 0.0 if scorer.met(i) else cost
        weight *= 1.1
    return 100.0 * (1 - lost / total) if total else 100.0


def _columns(
    before: Cluster, after: Cluster, ended: Placement, rules: Rules
) -> dict[str, ColumnResult]:
    names = [*(f"load.{r}" for r in before.snapshot.resources), "replica_count", "leader_count"]
    return {
        name.removeprefix("load."): ColumnResult(
            before=_spread(before.placement.recompute("broker", name), before.fair_share(name)),
            after=_spread(ended.recompute("broker", name), after.fair_share(name)),
            worst_ratio_bound=imbalance_bound(after, rules, name, ended),
        )
        for name in names
    }


def _spread(value: Floats, share: Floats) -> Spread:
    usable = share > 0
    of = value[usable] if usable.any() else value
    ratio = value[usable] / share[usable] if usable.any() else np.ones(1)
    return Spread(
        mean=float(of.mean()),
        max=float(of.max()),
        min=float(of.min()),
        std=float(of.std()),
        worst_ratio=float(ratio.max()),
    )


def _goal_result(goal: Goal, i: int, before: Scorer, after: Scorer) -> GoalResult:
    old, new = before.scores[i], after.scores[i]
    for scores in (old, new):
        if len(scores) and not 0 <= scores.min() <= scores.max() <= 1:
            wrong = scores[~((scores >= 0) & (scores <= 1))][0]
            raise GoalError(f"goal {goal.name}: score {wrong} found, 0 to 1 expected")
    return GoalResult(
        goal=goal.name,
        hard=goal.hard,
        tier=goal.tier or 0,
        weight=goal.weight,
        met_before=before.met(i),
        met_after=after.met(i),
        unmet_cells_before=int((old < 1).sum()),
        unmet_cells_after=int((new < 1).sum()),
        contentment_before=float(old.mean()) if len(old) else 1.0,
        contentment_after=float(new.mean()) if len(new) else 1.0,
    )
