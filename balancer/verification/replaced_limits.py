"""Checks that limits were replaced only where no placement keeps them, and stay feasible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor
from typing import Any

import numpy as np

from balancer.planning.document import RelaxedLimit
from balancer.verification.goals import TOLERANCE, limits
from balancer.verification.own_code import cluster_of
from balancer.verification.relaxed import used_limits
from balancer.verification.replay import Replay
from balancer.verification.replicas import ReplicaTable, contribution, sums
from balancer.verification.report import Fault
from balancer.verification.stated_request import StatedRequest
from cluster_model.snapshot import Floats
from goals import Cluster, Goal
from goals.capacity import Ceiling
from goals.infeasibility import lacks_room

# The most by which a limit may be above the least feasible one, as a share; as much again if that
# is enough for what is on brokers that are being emptied.
_MOST_ROOM = 0.1


def relaxation_faults(replay: Replay) -> Iterator[Fault]:
    """Limits that were replaced without need, by more than they had to be, or that need to be."""
    yield from _replaced_faults(replay)
    yield from _room_faults(replay)


def _room_faults(replay: Replay) -> Iterator[Fault]:
    """Hard limits of brokers with room for everything at the start, and no longer at the end.

    Only what leaves brokers that are being emptied can take that room. Where a follower counts
    more than its leader, a transfer of leadership can, too: nothing is promised then.
    """
    request = replay.request
    if replay.cut or not (request.kind.known and request.draining.any()):
        return
    if replay.base is not replay.start:
        # replicas that are new need room as well
        return
    used = used_limits(replay.plan)
    for goal in replay.stated.known:
        name, own = goal["name"], replay.stated.objects.get(goal["name"])
        if name in replay.stated.foreign or not (isinstance(own, Ceiling) and own.hard):
            continue
        if (limit := used.get(name)) is not None:
            goal = {**goal, limit.parameter: limit.used}
        scope, column, most = stated_limits(goal, request)
        if scope != "broker":
            continue
        lead, follow = contribution(request.snapshot, column)
        if (lead < follow).any():
            continue
        before, after = (
            _excess(table, request, column, most) for table in (replay.start, replay.now)
        )
        if after > 0 >= before:
            text = f"{name}: no placement keeps its limit any more after the last step"
            yield Fault("relaxed", text)


def stated_limits(goal: Mapping[str, Any], request: StatedRequest) -> tuple[str, str, Floats]:
    """Scope, column and (cells,) limits of a ceiling; a scope without a name if it is unknown."""
    if goal["goal"] == "TransientCapacity":
        most = request.capacity(goal["resource"]) * goal["limit"]
        return "broker", f"load.{goal['resource']}", np.where(request.draining, np.inf, most)
    return limits(goal, request) or ("", "", np.zeros(0))


def _excess(table: ReplicaTable, request: StatedRequest, column: str, most: Floats) -> float:
    """By how much the least possible load is more than fits, at least 0 within rounding.

    Leadership can change: brokers that receive nothing keep their replicas in the heaviest role
    that they may have there, as far as their limit allows; the others carry the rest.
    """
    lead, follow = contribution(table.snapshot, column)
    may_lead = table.leads | request.may_lead[table.broker]
    heavier = np.where(may_lead, np.maximum(lead, follow)[table.partition], follow[table.partition])
    there = sums(table.broker, heavier, len(most))
    kept = np.minimum(there, most)[~request.eligible].sum()
    everything = (lead + (table.factor - 1) * follow)[table.factor > 0].sum()
    needed, room = float(everything - kept), float(most[request.eligible].sum())
    excess = needed - room
    return excess if excess > TOLERANCE * (needed + room) else 0.0


def _replaced_faults(replay: Replay) -> Iterator[Fault]:
    """Limits that were replaced without need, or by more than they had to be."""
    configured = {g["name"]: g for g in replay.stated.known}
    for name, limit in used_limits(replay.plan).items():
        goal, own = configured.get(name), replay.stated.objects.get(name)
        if goal is None or goal.get(limit.parameter) != limit.configured:
            text = f"{name}: {limit.parameter} {limit.configured:g} is not a limit of the goal"
            yield Fault("relaxed", text)
            continue
        # what an unknown operation lets brokers receive is not known either
        if own is None or replay.cut or not replay.request.kind.known:
            continue
        cluster = cluster_of(replay.base, replay.request)
        proof = _proof(own.prepared(cluster), limit, cluster, replay)
        if proof is None:
            yield Fault("relaxed", f"{name}: its limit was replaced, and no proof found")
            continue
        if replay.base is replay.start and limit.reason != proof:
            yield Fault("relaxed", f"{name}: the proof is: {proof}")
        if name in replay.stated.foreign:
            continue
        least = _least(goal, limit, bool(cluster.draining.any()))
        tighter = own.model_copy(update={limit.parameter: least}).prepared(cluster)
        if limit.used <= limit.configured or _feasible(tighter, limit, cluster):
            text = f"{name}: {limit.parameter} {limit.used:g} is more than the least feasible limit"
            yield Fault("relaxed", text)


def _proof(goal: Goal, limit: RelaxedLimit, cluster: Cluster, replay: Replay) -> str | None:
    """Why no placement keeps a goal's limit; None if there is no proof.

    A limit that yields to healing is hard, exceeded at the start, and kept by no placement once
    dead brokers and disks are empty.
    """
    if not limit.healing:
        proofs = goal.infeasibilities(cluster)
        return proofs[0].reason if proofs else None
    found = goal.yielding(cluster, 0.0) if isinstance(goal, Ceiling) and goal.hard else None
    return found.reason if found is not None and _heals(replay) else None


def _least(goal: Mapping[str, Any], limit: RelaxedLimit, emptied: bool) -> float:
    """What the limit that was used allows for in room, taken off."""
    least = limit.used
    # a limit that counts what is emptied may have room twice
    for _ in range(2 if emptied and not limit.healing else 1):
        if isinstance(goal[limit.parameter], int):
            least = max(floor((least - 1) / (1 + _MOST_ROOM)), 1)
        else:
            least *= (1 - 1e-6) / (1 + _MOST_ROOM)
    return least


def _feasible(goal: Goal, limit: RelaxedLimit, cluster: Cluster) -> bool:
    """Whether nothing proves that a limit cannot be kept."""
    if limit.healing:
        assert isinstance(goal, Ceiling)
        return not lacks_room(*goal.needed_room(cluster, emptied=True))
    return not goal.infeasibilities(cluster)


def _heals(replay: Replay) -> bool:
    """Whether replicas are on dead brokers or disks at the start, and some broker receives any."""
    start, request = replay.start, replay.request
    dead = request.dead[start.broker] | ~np.append(request.snapshot.disk_alive, True)[start.disk]
    dead &= ~(replay.lost | request.untouched)[start.partition]
    return bool(dead.any() and request.receives.any())
