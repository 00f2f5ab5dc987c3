"""Why a goal is left unmet: proofs where there are some, else who vetoes what would help."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.arrivals import Arrivals
from balancer.candidates import pick_disk
from balancer.operation import LivingRules, ReplicationFactor
from balancer.plan import Unmet
from balancer.scoring import EPSILON, Scorer, Transition
from cluster_model.placement import LEAD, MOVE, Batch
from cluster_model.snapshot import Bools, Ints
from goals import Cluster, Goal, OnlineReplicas
from goals.obstacles import named
from metrics_reporter.quantities import plural

# discontented replicas of a goal whose ways out are looked at, and ways in all
LOOKED_AT, WAYS = 64, 20_000
_NOUNS = {"broker": "broker", "host": "host", "disk": "disk", "partition": "partition"}


def unmet(
    goals: Sequence[Goal],
    scorer: Scorer,
    rules: LivingRules,
    exhausted: str | None,
    left_out: int,
    origin: Cluster,
) -> list[Unmet]:
    """What a plan does not reach, and why.

    Parameters
    ----------
    goals
        The goals to be told of: the scorer's first.
    scorer
        All goals and vetoes, at the end of the plan.
    rules
        What may be touched.
    exhausted
        The budget that was used up; None for none.
    left_out
        Actions that no safe order was found for.
    origin
        The cluster before anything is moved, as the goals were prepared: proofs do not
        depend on where the plan ends.
    """
    found = []
    for i, goal in enumerate(goals):
        if scorer.met(i):
            continue
        found += [
            Unmet(
                goal=goal.name,
                hard=goal.hard,
                proven=True,
                reason=o.reason,
                cure=o.cure,
                brokers_to_add=o.brokers_to_add,
                racks_to_add=o.racks_to_add,
                broker_set=o.broker_set,
            )
            for o in goal.obstacles(origin)
        ] or [_unproven(i, goal, scorer, rules, exhausted, left_out)]
    return found


def _unproven(
    i: int, goal: Goal, scorer: Scorer, rules: LivingRules, exhausted: str | None, left_out: int
) -> Unmet:
    cells = np.flatnonzero(scorer.scores[i] < 1)
    what = f"{plural(len(cells), _NOUNS.get(goal.scope, 'topic placement'))} not content"
    if goal.scope == "partition":
        what += f" ({named(scorer.cluster, cells)})"
    proven = False
    if exhausted is not None:
        reason, cure = f"the budget of {exhausted} was used up", "allow more, or plan again"
    elif goal.scope == "partition" and rules.frozen[cells].all():
        reason, cure = _left_alone(cells, scorer)
    elif isinstance(goal, ReplicationFactor):
        reason, cure, proven = _no_room(cells, goal.too_many(scorer.cluster), scorer, rules)
    elif isinstance(goal, OnlineReplicas) and rules.lost[cells].all():
        reason, cure, proven = (*_NOTHING_LEFT, True)
    elif goal.hard:
        reason, cure = _vetoed(i, goal, cells, scorer, rules)
    else:
        reason, cure = _NOTHING_FOUND, ""
    if left_out and not proven:
        reason += f"; {plural(left_out, 'action')} had no safe order and were left out"
    return Unmet(
        goal=goal.name, hard=goal.hard, proven=proven, reason=f"{what}: {reason}", cure=cure
    )


_NOTHING_LEFT = (
    "every replica is on a dead broker or a dead disk",
    "bring one of them back: there is nothing left to copy from",
)
_NOTHING_FOUND = "no allowed action was found that helps"


def _left_alone(partitions: Ints, scorer: Scorer) -> tuple[str, str]:
    """Why frozen partitions stay as they are, and what to do."""
    if scorer.cluster.snapshot.partition_settled[partitions].any():
        return "the operation leaves them alone", ""
    return "Kafka is reassigning all of them", "plan again when it is done"


def _no_room(cells: Ints, many: Bools, scorer: Scorer, rules: LivingRules) -> tuple[str, str, bool]:
    """Why replicas were not added: who vetoes them, wherever they might go."""
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
    cells = cells[:: max(1, len(cells) // LOOKED_AT)]
    receivers = np.flatnonzero(rules.receives)
    p, target = np.repeat(cells, len(receivers)), np.tile(receivers, len(cells))
    free = ~(placement.brokers[p] == target[:, None]).any(1)
    p, target = p[free], target[free]
    slot = (placement.brokers[p] < 0).argmax(1)
    batch = Batch.of(MOVE, p, slot, target, pick_disk(placement, target))
    arrivals = Arrivals(scorer.cluster, batch)
    ranked = _by_vetoes(scorer, arrivals, sums_only=True)
    where = plural(len(receivers), "broker") + " that may receive replicas"
    reason = f"none of the {where} can take one more"
    if ranked:
        reason += f" within {_listed(ranked)}"
    return reason, "add brokers, raise the limits, or ask for fewer replicas", False


def _by_vetoes(scorer: Scorer, transition: Transition, sums_only: bool = False) -> list[str]:
    """Hard goals that veto any of the actions, those that veto most of them first."""
    worse = {
        _spoken(g.name): int(scorer.diff(k, transition)[1].sum())
        for k, g in enumerate(scorer.goals)
        if g.hard and not (sums_only and g.scope == "partition")
    }
    return sorted((name for name in worse if worse[name]), key=lambda name: (-worse[name], name))


def _vetoed(i: int, goal: Goal, cells: Ints, scorer: Scorer, rules: LivingRules) -> tuple[str, str]:
    """Who vetoes the actions that would help a hard goal."""
    batch = _ways(goal, cells, scorer, rules)
    batch = batch[rules.legal(scorer.placement, batch)]
    transition = Transition(scorer.cluster, batch)
    helps = np.flatnonzero(scorer.diff(i, transition)[0] > EPSILON)
    if not len(helps):
        return (
            "the operation allows no action that helps",
            "allow more destinations, or more to be moved",
        )
    batch = batch[helps]
    transition = Transition(scorer.cluster, batch)
    if scorer.harmless(transition, hard_only=True).any():
        return _NOTHING_FOUND, "plan again with another seed"
    return (
        f"every action that helps is vetoed by {_listed(_by_vetoes(scorer, transition))}",
        "add brokers that have room, or raise the limits in the way",
    )


def _ways(goal: Goal, cells: Ints, scorer: Scorer, rules: LivingRules) -> Batch:
    """Moves to every receiver, and elections, of some of a goal's discontented replicas."""
    placement, f = scorer.placement, scorer.placement.slots
    where = placement.replica_broker
    if goal.scope == "partition":
        at = (cells[:, None] * f + np.arange(f)).ravel()
        at = at[where[at] >= 0]
    else:
        every = np.flatnonzero(where >= 0)
        disk = placement.replica_disk[every] if len(placement.replica_disk) else every
        if goal.scope in ("broker", "host", "disk"):
            key = placement.keys(goal.scope, every // f, where[every], disk)
            at = every[np.isin(key, cells)]
        else:
            at = every
    at = at[:: max(1, len(at) // LOOKED_AT)]
    receivers = np.flatnonzero(rules.receives)[: max(1, WAYS // max(len(at), 1))]
    target = np.tile(receivers, len(at))
    mover = np.repeat(at, len(receivers))
    moves = Batch.of(MOVE, mover // f, mover % f, target, pick_disk(placement, target))
    p = np.repeat(np.unique(at // f), f)
    slot = np.tile(np.arange(f), len(p) // f)
    elects = Batch.of(LEAD, p, slot, where[p * f + slot])
    return Batch.concatenate([moves, elects[where[p * f + slot] >= 0]])


def _spoken(name: str) -> str:
    """A goal's name; the vetoes of every plan by what they keep."""
    if name.startswith("WholeBroker["):
        return f"the capacity of {name[12:-1]}"
    return "the capacity of the disks" if name == "WholeDisk" else name


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
