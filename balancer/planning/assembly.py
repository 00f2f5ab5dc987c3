"""Turns a proposal into a plan: safe order of steps, cut to the budget, bounds and reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from balancer.planning.action_rows import action_rows, affordable_first, truncated, within
from balancer.planning.additions import admit
from balancer.planning.bounds import cost_bound
from balancer.planning.document import RelaxedLimit, Remedy, Summary
from balancer.planning.figures import balancedness, columns, cost_total, goal_result, goal_scores
from balancer.planning.further_actions import PlanEnd
from balancer.planning.infeasibility import unmet
from balancer.planning.ordering import Steps, align, grouped, order, steps_between
from balancer.planning.parameters import PlanningParameters
from balancer.planning.plan import ActionRows, Plan
from balancer.planning.relief import relief_points
from balancer.planning.unreached import Unreached
from balancer.problem.budget import Budget
from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.movement_cost import cost_unit
from balancer.problem.problem import Problem
from balancer.problem.rules import Rules
from balancer.problem.verdict import Verdict
from balancer.search.scorer import Scorer, improves
from balancer.search.spending import moves_bind
from balancer.strategies.strategy import ProgressCallback, Proposal
from cluster_model.placement import Placement
from cluster_model.snapshot import Ints
from cluster_model.traffic import connected
from goals import Cluster, Goal, pairs_of
from metrics_reporter.quantities import plural


def assemble(
    problem: Problem,
    proposal: Proposal,
    budget: Budget,
    *,
    goals_left_out: dict[str, str],
    warnings: Sequence[str],
    remedy: Callable[[Plan], Remedy | None],
    parameters: PlanningParameters | None = None,
    progress: ProgressCallback | None = None,
    deadline: Deadline = NEVER,
) -> Plan:
    """Make a plan from what a strategy proposes.

    Every step is legal and safe for the goals and vetoes of the problem; steps without a
    safe order are left out. All stated figures are computed from exact sums.
    Parameters
    ----------
    problem
        The problem that the strategy solved.
    proposal
        The placement that the strategy aims at.
    budget
        Limits the steps that are kept: any prefix of a plan is a plan.
    goals_left_out, warnings
        Copied into the plan as they are.
    remedy
        Finds what would make unmet goals possible, when first requested.
    parameters
        How much effort to spend; None for the defaults.
    progress
        Called as the work proceeds.
    deadline
        After it no detours or other orders are tried.
    """
    goals = [*problem.goals, *problem.vetoes]
    shown = goals[: len(problem.goals)]
    kind, asked = problem.resolved.type, problem.operation
    start, final = problem.start.stated(), proposal.placement
    rules = proposal.rules or problem.rules
    own = problem.cluster

    def cluster_at(placement: Placement) -> Cluster:
        return Cluster(placement, own.eligible, own.leader_eligible, rules.draining)

    _lead_first(start, final)
    initial = Scorer(cluster_at(start.copy()), goals)
    walked = _without_removed(initial.placement, final)
    align(walked, final)
    if progress is not None:
        progress("order", 0, proposal.actions, proposal.actions)
    added = _added(cluster_at(walked), goals, final, rules, parameters)
    added = affordable_first(start, walked, added, budget)
    arena = cluster_at(walked.copy())
    same = np.array_equal(start.replica_broker, walked.replica_broker)
    scorer = initial.copy(arena) if same else Scorer(arena, goals)
    targets = steps_between(walked, final)
    groups = _groups(proposal, cluster_at(walked), goals)
    begin = initial.copy(cluster_at(start.copy())) if proposal.unreached is not None else None
    if proposal.exhausted:
        # No time is left for other orders.
        parameters = (parameters or PlanningParameters()).model_copy(update={"explored_orders": 0})
    moves, cost = (math.inf if x is None else x for x in (budget.moves, budget.cost))
    steps = order(
        scorer,
        targets,
        rules,
        None if groups is None else grouped(walked, targets, groups),
        parameters,
        proposal.known,
        None
        if progress is None
        else lambda done, of: progress("order", done, of, proposal.actions),
        deadline,
        per_move=proposal.exhausted == "budget" and moves_bind(start, moves, cost),
    )
    beyond, exhausted = None, proposal.exhausted
    if steps.left_out and exhausted is None and deadline.passed:
        # Whether there is a safe order was not looked at to the end.
        exhausted = "stopped" if deadline.stopped else "seconds"
    if steps.left_out and not exhausted:
        beyond = Unreached.of(problem, scorer, cluster_at(final), steps.blocked)
    elif begin is not None and proposal.unreached is not None:
        there = proposal.unreached
        align(start, there)
        way = order(begin, steps_between(start, there), rules, None, parameters, deadline=deadline)
        if way.left_out and not deadline.passed:
            beyond = Unreached.of(problem, scorer, cluster_at(there), way.blocked)
    rows = action_rows(start, walked, added, steps, shown, rules)
    kept = within(rows, budget, start.snapshot)
    if kept < len(rows.kind) and proposal.improves(walked) is not None:
        # A limit may end a plan within a detour.
        tries = (parameters or PlanningParameters()).shorter_plans
        kept = _improving(proposal, kept, start, walked, steps, rows, tries)
    left_out = steps.left_out
    if kept < len(rows.kind):
        exhausted = "stopped" if exhausted == "stopped" else "budget"
    elif steps.left_out:
        better = proposal.improves(scorer.placement)
        if better is None:
            tiers = len({g.tier for g in shown})
            better = improves(initial, scorer, tiers, proposal.trivial_share)
        if not better:
            # the steps that have a safe order improve nothing without the others
            kept, left_out = 0, left_out + len(steps.batch)
    # replicas added and removed come first
    changes = len(rows.kind) - len(steps.batch)
    if kept < len(rows.kind):
        rows, ended = truncated(rows, kept, start, walked, steps)
        scorer = Scorer(cluster_at(ended), goals)
    ended = scorer.placement
    if exhausted:
        beyond = None
    before, after = (goal_scores(problem, shown, x) for x in (initial, scorer))
    met_before, met = ([bool((x >= 1).all()) for x in scores] for scores in (before, after))
    kinds, hard = np.array(rows.kind), [g.hard for g in shown]
    origin = cluster_at(walked if kept >= changes else ended)
    summary = Summary(
        replica_moves=int((kinds == "move").sum()),
        leadership_moves=int((kinds == "leadership").sum()),
        disk_moves=int((kinds == "move_disk").sum()),
        replicas_added=int((kinds == "add").sum()),
        replicas_removed=int((kinds == "remove").sum()),
        cost=float(rows.cost.sum()),
        cost_bound=0.0
        if kind.changes_replication_factor or problem.resolved.adds
        else cost_bound(start, shown, met, initial.cluster),
        cost_total=cost_total(start),
        cost_unit=cost_unit(start.snapshot),
        balancedness_before=balancedness(hard, met_before),
        balancedness_after=balancedness(hard, met),
        left_out=left_out,
        blocked=steps.blocked,
        exhausted=exhausted,
        group_moves=int(rows.group.max(initial=-1)) + 1,
    )
    results = tuple(
        goal_result(g, old, new, _relaxed(problem, g))
        for g, old, new in zip(shown, before, after, strict=True)
    )
    end = PlanEnd(scorer, rules, asked, budget, summary.limited_moves, summary.cost, start)
    return Plan(
        snapshot=start.snapshot,
        placement=ended,
        operation=asked.model_dump(mode="json", exclude_defaults=True) | {"kind": asked.kind},
        end=end,
        goals=tuple(
            {"goal": type(g).__name__, "name": g.name, **g.model_dump(mode="json")}
            for g in map(problem.as_configured, shown)
        ),
        goals_left_out=goals_left_out,
        warnings=tuple(warnings),
        summary=summary,
        columns=columns(initial.cluster, origin, ended, rules),
        goal_results=results,
        unmet=tuple(
            unmet(problem, end, exhausted, left_out, origin, parameters, beyond, proposal.longer)
        ),
        unreached={} if beyond is None else beyond.difference(ended),
        rows=rows,
        demoted=tuple(start.snapshot.broker_ids[rows.demoted & ~rules.draining].tolist()),
        verdict=_verdict(problem, initial.cluster, ended),
        allocation=proposal.allocation(ended),
        trial=remedy,
        relief=relief_points(problem, shown, results, initial, rows, steps.batch[: len(rows.kind)]),
    )


def _verdict(problem: Problem, before: Cluster, ended: Placement) -> Verdict | None:
    """Whether the operation is fulfilled: not if partitions lack replicas that it should add."""
    resolved, rules = problem.resolved, problem.rules
    found = resolved.type.verdict(before, ended, resolved.named)
    if not resolved.type.moves_replicas or resolved.type.changes_replication_factor:
        return found
    lacking = (ended.brokers >= 0).sum(axis=1) < resolved.factor
    count = int((lacking & ~(rules.lost | rules.frozen)).sum())
    if not count:
        return found
    text = plural(count, "partition has", "partitions have") + " fewer replicas than asked for"
    if found is not None:
        text, count = f"{found.sentence}; {text}", count + found.remaining
    return Verdict(fulfilled=False, remaining=count, sentence=text)


def _improving(
    proposal: Proposal,
    kept: int,
    start: Placement,
    walked: Placement,
    steps: Steps,
    rows: ActionRows,
    tries: int,
) -> int:
    """How many of the first actions, of those kept, improve by the proposal's own judgement."""
    for fewer in range(kept, max(kept - tries, 0), -1):
        inside = fewer < kept and rows.group[fewer] >= 0
        if inside and rows.group[fewer] == rows.group[fewer - 1]:
            continue
        if proposal.improves(truncated(rows, fewer, start, walked, steps)[1]):
            return fewer
    return 0


def _relaxed(problem: Problem, goal: Goal) -> RelaxedLimit | None:
    if goal.name not in problem.relaxed:
        return None
    return RelaxedLimit(**vars(problem.relaxed[goal.name][1]))


def _groups(proposal: Proposal, start: Cluster, goals: list[Goal]) -> Ints | None:
    """(P,) the set that each partition moves with; None if there are no sets."""
    if proposal.group is not None:
        return proposal.group
    pairs = pairs_of(goals, start)
    if pairs is None:
        return None
    one, two = pairs
    here, there = start.placement.location, proposal.placement.location
    same = (here[one] == here[two]) & (there[one] == there[two])
    return connected(len(here), one[same], two[same])


def _lead_first(start: Placement, final: Placement) -> None:
    """Put the leader of each partition without replicas into the slot that leads at the start."""
    rows = np.flatnonzero((start.brokers < 0).all(1) & (final.leader != start.leader))
    there, lead = final.leader[rows], start.leader[rows]
    tables = [final.brokers]
    if len(final.replica_disk):
        tables.append(final.replica_disk.reshape(final.brokers.shape))
    for table in tables:
        table[rows, lead], table[rows, there] = table[rows, there], table[rows, lead]
    final.leader[rows] = lead
    if len(rows):
        final.invalidate_sums()


def _without_removed(start: Placement, final: Placement) -> Placement:
    """The start without the replicas that have no slot in the final placement."""
    walked = start.copy()
    removed = (final.replica_broker < 0) & (start.replica_broker >= 0)
    if not removed.any():
        return walked
    walked.invalidate_sums()
    walked.replica_broker[removed] = -1
    if len(walked.replica_disk):
        walked.replica_disk[removed] = -1
    return walked


def _added(
    cluster: Cluster,
    goals: list[Goal],
    final: Placement,
    rules: Rules,
    parameters: PlanningParameters | None,
) -> Ints:
    """Add new replicas to the cluster's placement if there is room; returns their slots.

    Updates the final placement with where they went, and drops those without room.
    """
    walked = cluster.placement
    missing = np.flatnonzero((walked.replica_broker < 0) & (final.replica_broker >= 0))
    if not len(missing):
        return missing
    added = admit(Scorer(cluster, goals), missing, final, rules, parameters)
    final.replica_broker[missing] = walked.replica_broker[missing]
    if len(final.replica_disk):
        final.replica_disk[missing] = walked.replica_disk[missing]
    # a new leader without a replica or permission to lead: another replica leads, or the old leader
    able = np.append(rules.leads, False)[final.brokers]
    if len(final.replica_disk):
        alive = np.append(final.snapshot.disk_alive, True)
        able &= alive[final.replica_disk].reshape(able.shape)
    able &= ~rules.are_cold(final)
    heir = np.where(able.any(1), able.argmax(1), walked.leader)
    now = final.leader
    unfit = (now != walked.leader) & ~able[np.arange(len(now)), now]
    final.leader = np.where(unfit, heir, now)
    final.invalidate_sums()
    return added
