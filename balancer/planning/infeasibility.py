"""Explains unmet goals: by proof where possible, otherwise by what stops the actions that help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from balancer.planning.additions import Additions, destinations, misplaced, partition_goals
from balancer.planning.blocked_actions import CHUNK, BlockedActions
from balancer.planning.document import Unmet, limit_reached
from balancer.planning.figures import goal_scores
from balancer.planning.further_actions import PlanEnd, display_name, listed
from balancer.planning.parameters import PlanningParameters
from balancer.planning.unreached import Unreached
from balancer.problem.empty_brokers import EmptyBrokers
from balancer.problem.problem import Problem
from balancer.problem.replication_factor import ReplicationFactor
from balancer.problem.rules import Rules
from balancer.search.scorer import Scorer
from balancer.search.transition import Transition
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.scopes import BROKER
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, EligibleLeaders, Goal, Infeasibility, OnlineReplicas
from goals.capacity import Ceiling
from goals.curves import TOLERANCE
from goals.goal import proofs_of
from goals.infeasibility import named, too_large
from metrics_reporter.quantities import distinct, plural


def unmet(
    problem: Problem,
    end: PlanEnd,
    exhausted: str | None,
    left_out: int,
    origin: Cluster,
    parameters: PlanningParameters | None = None,
    unreached: Unreached | None = None,
    longer: str = "",
) -> list[Unmet]:
    """The goals a plan does not reach, and why.

    Parameters
    ----------
    problem
        Its goals are reported, as they are configured, and are the first of the scorer.
    end
        Where the plan ends, with all goals and vetoes, and what may be touched.
    exhausted
        The budget that ran out; None for none.
    left_out
        Number of actions without a safe order.
    origin
        The cluster before any move, as the goals were prepared: proofs do not depend on
        where the plan ends.
    parameters
        How many actions to examine; None for the defaults.
    unreached
        A placement that meets more, but has no safe order; None if none is known.
    longer
        What makes the strategy try more; empty if unknown.
    """
    parameters, proofs = parameters or PlanningParameters(), dict[int, list[Infeasibility]]()
    goals = [problem.as_configured(used) for used in problem.goals]
    scores = goal_scores(problem, problem.goals, end.scorer)
    for i, goal in enumerate(goals):
        if (scores[i] < 1).any():
            proofs[i] = proofs_of(goal, origin)
            if isinstance(goal, ReplicationFactor):
                proofs[i] += _too_large(problem, end, np.flatnonzero(scores[i] < 1))
    impossible = [i for i, found in proofs.items() if found]
    share = parameters.sampled_actions // max(1, len(proofs) - len(impossible))
    parameters = parameters.model_copy(update={"sampled_actions": max(1, share)})
    blocked = BlockedActions(end, impossible, parameters, longer)
    return [
        one
        for i, found in proofs.items()
        for one in [_proven(goals[i], proof) for proof in found]
        or [
            _within_used_limit(problem, goals[i], int((scores[i] < 1).sum()))
            if end.scorer.met(i)
            else _unproven(i, scores[i], end, blocked, exhausted, left_out, parameters, unreached)
        ]
    ]


def _within_used_limit(problem: Problem, goal: Goal, cells: int) -> Unmet:
    """What is said of a limit that could be kept only because replicas stayed or were not added."""
    limit = problem.relaxed[goal.name][1]
    configured, used = distinct(limit.configured, limit.used)
    why = f"no placement of all requested replicas keeps {configured}"
    if limit.healing:
        why = f"{configured} yields to what is on dead brokers and disks"
    return Unmet(
        goal=goal.name,
        hard=goal.hard,
        proven=False,
        reason=f"{plural(cells, goal.scope.noun)} not content: the steps of this plan keep "
        f"{limit.parameter} {used}, because {why}",
        remedy=_HEALED if limit.healing else "rebalance after this plan",
    )


def _too_large(problem: Problem, end: PlanEnd, cells: Ints) -> list[Infeasibility]:
    """The proof, if any, that a replica to add is larger than what any broker may hold."""
    rules, cluster = end.rules, end.scorer.cluster
    cells = cells[~(rules.lost | rules.frozen)[cells]]
    have = (end.scorer.placement.brokers >= 0).sum(1)[cells]
    lacking = have < problem.resolved.factor[cells]
    cells, first = cells[lacking], (have == 0)[lacking]
    topics, row = np.unique(cluster.snapshot.partition_topic[cells], return_inverse=True)
    takes = np.tile(rules.receives, (len(topics), 1))
    if rules.permitted is not None:
        takes &= rules.permitted[topics]
    for goal in end.scorer.goals:
        if not (goal.hard and isinstance(goal, Ceiling) and goal.scope == BROKER):
            continue
        lead, follow = end.scorer.placement.contribution(goal.column)
        size = np.where(first, lead[cells], follow[cells])
        # a broker above its limit may be filled again up to what it held at the start
        most = np.maximum(goal.prepared_limit, problem.start.sums(BROKER, goal.column))
        largest = np.where(takes, most, 0.0).max(1, initial=0.0)[row]
        over = np.flatnonzero(size > largest * (1 + TOLERANCE))
        if len(over):
            over = over[np.argsort(-size[over], kind="stable")]
            top = over[0]
            names = named(cluster, cells[over])
            return [too_large(names, goal.column, float(size[top]), float(largest[top]))]
    return []


def _proven(goal: Goal, proof: Infeasibility) -> Unmet:
    return Unmet(
        goal=goal.name,
        hard=goal.hard,
        proven=True,
        reason=proof.reason,
        remedy=proof.remedy,
        brokers_to_add=proof.brokers_to_add,
        racks_to_add=proof.racks_to_add,
        broker_set=proof.broker_set,
    )


def _unproven(
    i: int,
    scores: Floats,
    end: PlanEnd,
    blocked: BlockedActions,
    exhausted: str | None,
    left_out: int,
    parameters: PlanningParameters,
    unreached: Unreached | None,
) -> Unmet:
    scorer, rules, goal = end.scorer, end.rules, end.scorer.goals[i]
    cells = np.flatnonzero(scores < 1)
    what = f"{plural(len(cells), goal.scope.noun)} not content"
    if goal.scope.of_partitions:
        what += f" ({named(scorer.cluster, cells)})"
    proven, limit = False, ""
    if exhausted is not None:
        limit = limit_reached(exhausted, end.budget, end.moves)
    if goal.scope.of_partitions and rules.frozen[cells].all():
        reason, remedy = _left_alone(cells, scorer)
    elif isinstance(goal, OnlineReplicas | EmptyBrokers) and rules.lost[cells].all():
        reason, remedy, proven = (*_NOTHING_LEFT, True)
    elif isinstance(goal, EligibleLeaders) and _all_cold(cells, scorer.placement, rules):
        reason, remedy = _WARMING
    elif isinstance(goal, ReplicationFactor) and limit:
        reason, remedy = limit, _MORE
    elif isinstance(goal, ReplicationFactor):
        most = parameters.examined_actions
        reason, remedy, proven = _no_room(cells, goal.too_many(scorer.cluster), scorer, rules, most)
    else:
        reason, remedy = blocked.reason(i, cells)
        if limit:
            reason, remedy = f"{limit}; {reason}", _MORE
        elif unreached is not None and i in unreached.met:
            way = f" ({unreached.blocked})" if unreached.blocked else ""
            reason, remedy = f"{NO_ORDER}{way}; {reason}", _UNLOCK
    if left_out and not proven:
        cut = exhausted in ("stopped", "seconds")
        why = "were left out before a safe order was found" if cut else _NO_SAFE_ORDER
        reason += f"; {plural(left_out, 'action')} {why}"
    return Unmet(
        goal=goal.name, hard=goal.hard, proven=proven, reason=f"{what}: {reason}", remedy=remedy
    )


NO_ORDER = "a placement meets it, but no safe order of steps to it was found"
_HEALED = "add brokers, or raise the limit"
_NO_SAFE_ORDER = "had no safe order and were left out"
_UNLOCK = "allow more where the steps are blocked while the plan runs, or add brokers with room"
_MORE = "allow more, or plan again"
_NOTHING_LEFT = (
    "every replica is on a dead broker or a dead disk",
    "bring one of them back: there is nothing left to copy from",
)
_WARMING = (
    "the replicas that could lead are still warming up",
    "plan again when their lag is acceptable, or accept more",
)


def _all_cold(partitions: Ints, placement: Placement, rules: Rules) -> bool:
    """Whether partitions have replicas on brokers that may lead, and all of them are cold."""
    able = np.append(rules.leads, False)[placement.brokers[partitions]]
    cold = rules.are_cold(placement)[partitions]
    return bool((able & cold).any(1).all() and not (able & ~cold).any())


def _left_alone(partitions: Ints, scorer: Scorer) -> tuple[str, str]:
    """Why frozen partitions stay as they are, and what to do."""
    if scorer.cluster.snapshot.partition_settled[partitions].any():
        return "the operation leaves them alone", ""
    return "Kafka is reassigning all of them", "plan again when it is done"


def _no_room(
    cells: Ints, many: Bools, scorer: Scorer, rules: Rules, most: int
) -> tuple[str, str, bool]:
    """Why replicas were not added: what vetoes them at every destination."""
    frozen, cells = cells[rules.frozen[cells]], cells[~(rules.lost | rules.frozen)[cells]]
    if not len(cells):
        return (*_left_alone(frozen, scorer), False) if len(frozen) else (*_NOTHING_LEFT, True)
    placement = scorer.placement
    cells = cells[(placement.brokers[cells] < 0).any(1) & ~many[cells]]
    if not len(cells):
        return (
            "the last living replica is kept until the others are restored from it",
            "plan again after this plan",
            False,
        )
    receivers = np.flatnonzero(rules.receives)
    brokers, disks = destinations(placement, receivers)
    looked_at = cells[:: _stride(cells, brokers, most)]
    empty = looked_at * placement.slots + (placement.brokers[looked_at] < 0).argmax(1)
    found = Counter[str]()
    sums = [k for k, g in enumerate(scorer.goals) if g.hard and not g.scope.of_partitions]
    for at, broker, disk in _pairs(empty, brokers, disks):
        batch = Batch.of(MOVE, at // placement.slots, at % placement.slots, broker, disk)
        batch = batch[~(placement.brokers[batch.partition] == batch.target[:, None]).any(1)]
        if rules.permitted is not None:
            topic = placement.snapshot.partition_topic[batch.partition]
            batch = batch[rules.permitted[topic, batch.target]]
        vetoes = _vetoes(scorer, sums, Additions(scorer.cluster, batch))
        of_racks = zip(partition_goals(scorer), misplaced(scorer, batch, rules), strict=True)
        vetoes |= {goal.name: wrong for goal, wrong in of_racks}
        if len(batch) and not np.any(list(vetoes.values()), axis=0).all():
            return (
                "no room was found for them before other replicas were moved",
                "plan again after this plan",
                False,
            )
        found.update({name: int(vetoed.sum()) for name, vetoed in vetoes.items()})
    where = plural(len(receivers), "broker") + " that may receive replicas"
    reason = f"none of the {where} can take one more"
    if ranked := _ranked(found):
        reason += f" within {listed(ranked)}"
    if len(looked_at) < len(cells):
        reason += f" ({len(looked_at)} of {len(cells)} partitions examined)"
    return reason, "add brokers, raise the limits, or ask for fewer replicas", False


def _vetoes(scorer: Scorer, goals: Sequence[int], transition: Transition) -> dict[str, Bools]:
    """(C,) which actions are vetoed, by the veto's displayed name."""
    return {display_name(scorer.goals[k].name): scorer.diff(k, transition)[1] for k in goals}


def _ranked(vetoes: Counter[str]) -> list[str]:
    """The names of the vetoes, those that veto most actions first."""
    return sorted((+vetoes).keys(), key=lambda name: (-vetoes[name], name))


def _stride(replicas: Ints, destinations: Ints, most: int) -> int:
    """The step of the sample of replicas, which limits the pairs to `most`; 1 examines all."""
    return max(1, -(-len(replicas) * len(destinations) // most))


def _pairs(at: Ints, brokers: Ints, disks: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Every replica with every destination, in chunks."""
    size, n = max(1, CHUNK // max(1, len(brokers))), len(brokers)
    for i in range(0, len(at), size):
        part = at[i : i + size]
        yield np.repeat(part, n), np.tile(brokers, len(part)), np.tile(disks, len(part))
