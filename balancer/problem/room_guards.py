"""Vetoes that keep room for what exceeds a limit: emptied brokers hold back what has no room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.columns import COUNT, LOAD, Column
from cluster_model.scopes import BROKER, BrokerScope, Scope
from cluster_model.snapshot import Bools, Ints, Snapshot
from goals import Cluster, Goal
from goals.capacity import Ceiling
from goals.curves import at_least
from goals.infeasibility import lacks_room
from goals.state import State


class _Emptied(BrokerScope):
    """One cell: all brokers that are being emptied."""

    partial = True

    def __init__(self, emptied: Bools) -> None:
        super().__init__(f"emptied {np.flatnonzero(emptied).tolist()}", "group of brokers", "cell")
        self._emptied = emptied

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._emptied,)

    def members(self, snapshot: Snapshot) -> Ints:
        return np.where(self._emptied, 0, -1)

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return ("to be emptied",)


class _OfGuard:
    """The scope of a guard, which depends on the cluster."""

    def __get__(self, goal: Any, owner: type[Goal]) -> Scope:
        return BROKER if goal is None else goal._emptied


class TotalRoom(Goal):
    """Brokers that are being emptied keep what the others have no room for within a limit.

    Replicas that leave them fill the other brokers up to a limit. If one of those exceeds it, the
    room that it needs elsewhere would be gone: what could be kept before no placement would keep.

    Parameters
    ----------
    limit
        Name of the goal with the limit.
    """

    hard: bool = True
    limit: str
    scope: ClassVar = _OfGuard()
    _emptied: Scope = PrivateAttr()
    _column: Column = PrivateAttr()
    _least: float = PrivateAttr()

    @property
    def name(self) -> str:
        """The class and the goal with the limit."""
        return f"TotalRoom[{self.limit}]"

    @classmethod
    def of(cls, goal: Ceiling, tier: int, cluster: Cluster, least: float) -> TotalRoom:
        """The guard of a goal's limit, prepared: emptied brokers keep at least so much."""
        guard = cls(limit=goal.name, tier=tier)
        guard._emptied, guard._least = _Emptied(cluster.draining), least
        guard._column = Column.of(goal.column)
        return guard

    def score(self, state: State) -> Any:
        """1 down to what must stay, then the share of it that does."""
        return at_least(state.column(self._column), self._least)


def room_guards(
    asked: Sequence[Goal], used: Sequence[Goal], cluster: Cluster
) -> Iterator[TotalRoom]:
    """The vetoes for hard limits on brokers that not all replicas have room within.

    Together, the brokers that stay take no more than their limits allow or, where they hold more
    already, no more than they hold. A leader that leaves an emptied broker, and the leadership
    alone, add what they take from it; so do followers, if only what followers use. Where a
    follower uses more than a leader, transfers of leadership among the others matter too: such a
    limit has no veto.

    Parameters
    ----------
    asked, used
        Prepared goals as they are configured, and those that the steps obey.
    cluster
        The cluster at the start.
    """
    if not cluster.draining.any():
        return
    tier = 1 + max((goal.tier or 0 for goal in asked), default=0)
    for goal, kept in zip(asked, used, strict=True):
        if not (goal.hard and isinstance(goal, Ceiling) and goal.scope == BROKER):
            continue
        assert isinstance(kept, Ceiling)
        if not _leaders_use_most(goal, cluster):
            continue
        if not lacks_room(*kept.needed_room(cluster, emptied=True)):
            continue
        needed, allowed = goal.needed_room(cluster)
        raised = getattr(kept, kept.limited_by) != getattr(goal, goal.limited_by)
        if not raised and not goal.exceeded(cluster):
            # the limit of each broker says the same
            continue
        held = cluster.placement.sums(BROKER, goal.column)[cluster.draining].sum()
        least = float(held) - max(allowed - needed, 0.0)
        if least > 0:
            yield TotalRoom.of(goal, tier, cluster, least)


def _leaders_use_most(goal: Ceiling, cluster: Cluster) -> bool:
    """Whether no follower counts more in the limited column than its leader."""
    column = Column.of(goal.column)
    if column.measure not in (LOAD, COUNT):
        return False
    lead, follow = cluster.placement.contribution(column)
    return bool((lead >= follow).all())
