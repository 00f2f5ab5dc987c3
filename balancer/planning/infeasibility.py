"""Explains unmet goals: by proof where possible, otherwise by what vetoes the helpful actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from balancer.planning.additions import Additions, destinations, misplaced, partition_goals
from balancer.planning.document import Unmet, limit_reached
from balancer.planning.parameters import PlanningParameters
from balancer.problem.replication_factor import ReplicationFactor
from balancer.problem.rules import Rules
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.transition import Transition
from cluster_model.errors import InputError
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.scopes import Divided
from cluster_model.snapshot import Bools, Ints
from goals import Cluster, EligibleLeaders, Goal, GoalError, OnlineReplicas
from goals.infeasibility import named
from metrics_reporter.plugins import fault_of
from metrics_reporter.quantities import plural

# actions scored at once: more would only take more memory
CHUNK = 1 << 15


def unmet(
    goals: Sequence[Goal],
    scorer: Scorer,
    rules: Rules,
    exhausted: str | None,
    left_out: int,
    origin: Cluster,
    parameters: PlanningParameters | None = None,
) -> list[Unmet]:
    """The goals a plan does not reach, and why.

    Parameters
    ----------
    goals
        The goals to report, which are the first of the scorer.
    scorer
        All goals and vetoes, at the end of the plan.
    rules
        What may be touched.
    exhausted
        The budget that ran out; None for none.
    left_out
        Number of actions without a safe order.
    origin
        The cluster before any move, as the goals were prepared: proofs do not depend on
        where the plan ends.
    parameters
        How many actions to examine; None for the defaults.
    """
    found, most = [], (parameters or PlanningParameters()).examined_actions
    for i, goal in enumerate(goals):
        if scorer.met(i):
            continue
        with fault_of(f"goal {goal.name}: infeasibilities failed", GoalError, InputError):
            proofs = goal.infeasibilities(origin)
        found += [
            Unmet(
                goal=goal.name,
                hard=goal.hard,
                proven=True,
                reason=o.reason,
                remedy=o.remedy,
                brokers_to_add=o.brokers_to_add,
                racks_to_add=o.racks_to_add,
                broker_set=o.broker_set,
            )
            for o in proofs
        ] or [_unproven(i, goal, scorer, rules, exhausted, left_out, most)]
    return found


def _unproven(
    i: int,
    goal: Goal,
    scorer: Scorer,
    rules: Rules,
    exhausted: str | None,
    left_out: int,
    most: int,
) -> Unmet:
    cells = np.flatnonzero(scorer.scores[i] < 1)
    what = f"{plural(len(cells), goal.scope.noun)} not content"
    if goal.scope.of_partitions:
        what += f" ({named(scorer.cluster, cells)})"
    proven = False
    if exhausted is not None:
        reason, remedy = limit_reached(exhausted), "allow more, or plan again"
    elif goal.scope.of_partitions and rules.frozen[cells].all():
        reason, remedy = _left_alone(cells, scorer)
    elif isinstance(goal, ReplicationFactor):
        reason, remedy, proven = _no_room(cells, goal.too_many(scorer.cluster), scorer, rules, most)
    elif isinstance(goal, OnlineReplicas) and rules.lost[cells].all():
        reason, remedy, proven = (*_NOTHING_LEFT, True)
    elif isinstance(goal, EligibleLeaders) and _all_cold(cells, scorer.placement, rules):
        reason, remedy = _WARMING
    elif goal.hard:
        reason, remedy = _vetoed(i, goal, cells, scorer, rules, most)
    else:
        reason, remedy = _NOTHING_FOUND, ""
    if left_out and not proven:
        reason += f"; {plural(left_out, 'action')} had no safe order and were left out"
    return Unmet(
        goal=goal.name, hard=goal.hard, proven=proven, reason=f"{what}: {reason}", remedy=remedy
    )


_NOTHING_LEFT = (
    "every replica is on a dead broker or a dead disk",
    "bring one of them back: there is nothing left to copy from",
)
_WARMING = (
    "the replicas that could lead are still warming up",
    "plan again when their lag is acceptable, or accept more",
)
_NOTHING_FOUND = "no allowed action was found that helps"
_LEFT = (
    "single actions that help are left, and no hard goal vetoes them",
    "plan again after this plan",
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
        reason += f" within {_listed(ranked)}"
    if len(looked_at) < len(cells):
        reason += f" ({len(looked_at)} of {len(cells)} partitions examined)"
    return reason, "add brokers, raise the limits, or ask for fewer replicas", False


def _vetoed(
    i: int, goal: Goal, cells: Ints, scorer: Scorer, rules: Rules, most: int
) -> tuple[str, str]:
    """What vetoes the actions that would help a hard goal."""
    placement = scorer.placement
    brokers, disks = destinations(placement, np.arange(placement.snapshot.n_brokers))
    movers, everything = _movers(goal, cells, scorer, rules, brokers, most)
    hard = [k for k, g in enumerate(scorer.goals) if g.hard]
    seen, found = 0, Counter[str]()
    for batch in _actions(placement, movers, brokers, disks):
        batch = batch[rules.legal(placement, batch)]
        batch = batch[_touching(scorer, goal, cells, batch)]
        seen += len(batch)
        transition = Transition(scorer.cluster, batch)
        batch = batch[scorer.diff(i, transition)[0] > EPSILON]
        transition = Transition(scorer.cluster, batch)
        if scorer.harmless(transition, hard_only=True).any():
            return _LEFT
        vetoes = _vetoes(scorer, hard, transition)
        found.update({name: int(vetoed.sum()) for name, vetoed in vetoes.items()})
    ranked, some = _ranked(found), plural(seen, "single action")
    if ranked:
        which = (
            "every allowed single action that helps"
            if everything
            else f"of {some} examined, every one that helps"
        )
        return (
            f"{which} is vetoed by {_listed(ranked)}",
            "add brokers that have room, or raise the limits in the way",
        )
    return (
        "the operation allows no single action that helps"
        if everything
        else f"of {some} examined, none helps",
        "allow more destinations, or more to be moved",
    )


def _vetoes(scorer: Scorer, goals: Sequence[int], transition: Transition) -> dict[str, Bools]:
    """(C,) which actions are vetoed, by the veto's displayed name."""
    return {_display_name(scorer.goals[k].name): scorer.diff(k, transition)[1] for k in goals}


def _ranked(vetoes: Counter[str]) -> list[str]:
    """The names of the vetoes, those that veto most actions first."""
    return sorted((+vetoes).keys(), key=lambda name: (-vetoes[name], name))


def _movers(
    goal: Goal, cells: Ints, scorer: Scorer, rules: Rules, destinations: Ints, most: int
) -> tuple[Ints, bool]:
    """Replicas whose moves may touch a discontented cell, and whether these are all.

    If there are too many, a sample of those that are in such a cell themselves.
    """
    placement, s = scorer.placement, scorer.placement.snapshot
    at = np.flatnonzero(rules.free(placement))
    p = at // placement.slots
    if goal.scope.of_partitions:
        at = mine = at[np.isin(p, cells)]
    else:
        scope = goal.scope.inner or goal.scope
        if isinstance(scope, Divided):
            kinds = cells if goal.scope.inner else scope.split(s, cells)[0]
            topics = np.isin(np.atleast_2d(scope.kinds(s)), kinds).any(axis=0)
            at = at[np.asarray(topics)[s.partition_topic[p]]]
            p = at // placement.slots
        disk = placement.replica_disk[at] if len(placement.replica_disk) else np.full_like(at, -1)
        own = placement.keys(goal.scope, p, placement.replica_broker[at], disk)
        inside = np.isin(own, cells)
        mine = at[inside.any(0) if goal.scope.several else inside]
    if _stride(at, destinations, most) == 1:
        return at, True
    some = mine if len(mine) else at
    return some[:: _stride(some, destinations, most)], False


def _stride(replicas: Ints, destinations: Ints, most: int) -> int:
    """The step of the sample of replicas, which limits the pairs to `most`; 1 examines all."""
    return max(1, -(-len(replicas) * len(destinations) // most))


def _pairs(at: Ints, brokers: Ints, disks: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Every replica with every destination, in chunks."""
    size, n = max(1, CHUNK // max(1, len(brokers))), len(brokers)
    for i in range(0, len(at), size):
        part = at[i : i + size]
        yield np.repeat(part, n), np.tile(brokers, len(part)), np.tile(disks, len(part))


def _actions(placement: Placement, movers: Ints, brokers: Ints, disks: Ints) -> Iterator[Batch]:
    """All elections, and the moves of some replicas to all destinations, legal or not."""
    f, where = placement.slots, placement.replica_broker
    held = np.flatnonzero(where >= 0)
    for i in range(0, len(held), CHUNK):
        at = held[i : i + CHUNK]
        yield Batch.of(LEAD, at // f, at % f, where[at])
    for at, broker, disk in _pairs(movers, brokers, disks):
        batch = Batch.of(MOVE, at // f, at % f, broker, disk)
        stays = where[at] == broker
        batch.kind[stays] = MOVE_DISK
        yield batch[~stays | (disk != placement.source_disk(batch))]


def _touching(scorer: Scorer, goal: Goal, cells: Ints, batch: Batch) -> Bools:
    """(C,) whether an action touches a discontented cell: no other action can help."""
    if goal.scope.of_partitions:
        return np.isin(batch.partition, cells)
    touched = np.isin(Transition(scorer.cluster, batch).cells(goal.scope), cells)
    return np.asarray(touched.any(0))


def _display_name(name: str) -> str:
    """A goal's displayed name; built-in vetoes are named after what they protect."""
    if name.startswith("WholeBroker["):
        return f"the capacity of {name[12:-1]}"
    return "the capacity of the disks" if name == "WholeDisk" else name


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
