"""Checks that limits were replaced only where no placement keeps them, and stay feasible."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

from balancer.verification.own_code import cluster_of
from balancer.verification.relaxed import used_limits
from balancer.verification.replay import Replay
from balancer.verification.report import Fault
from cluster_model.scopes import BROKER
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
    used, began = used_limits(replay.plan), cluster_of(replay.start, request)
    ended = cluster_of(replay.now, request)
    for name, goal in replay.stated.objects.items():
        if name in replay.stated.foreign or not (isinstance(goal, Ceiling) and goal.hard):
            continue
        if goal.scope != BROKER:
            continue
        lead, follow = began.placement.contribution(goal.column)
        if (lead < follow).any():
            continue
        limit = used.get(name)
        if limit is not None:
            goal = goal.model_copy(update={limit.parameter: limit.used})
        before, after = (goal.prepared(c).needed_room(c) for c in (began, ended))
        if lacks_room(*after) and not lacks_room(*before):
            text = f"{name}: no placement keeps its limit any more after the last step"
            yield Fault("relaxed", text)


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
        proofs = own.prepared(cluster).infeasibilities(cluster)
        if not proofs:
            yield Fault("relaxed", f"{name}: its limit was replaced, and no proof found")
            continue
        if replay.base is replay.start and limit.reason != proofs[0].reason:
            yield Fault("relaxed", f"{name}: the proof is: {proofs[0].reason}")
        if name in replay.stated.foreign:
            continue
        least = limit.used
        for _ in range(2 if cluster.draining.any() else 1):
            if isinstance(goal[limit.parameter], int):
                least = max(floor((least - 1) / (1 + _MOST_ROOM)), 1)
            else:
                least *= (1 - 1e-6) / (1 + _MOST_ROOM)
        tighter = own.model_copy(update={limit.parameter: least}).prepared(cluster)
        if not (limit.used > limit.configured and tighter.infeasibilities(cluster)):
            text = f"{name}: {limit.parameter} {limit.used:g} is more than the least feasible limit"
            yield Fault("relaxed", text)
