"""Lets a goal offer groups: partitions that belong together and move as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from cluster_model.snapshot import Ints
from goals.cluster import Cluster
from goals.goal import Goal, GoalError


class Pairs(NamedTuple):
    """Pairs of partitions, by number; chains of pairs form groups.

    Parameters
    ----------
    one, two : (E,) int
        Both ends of each pair.
    """

    one: Ints
    two: Ints


@runtime_checkable
class Groups(Protocol):
    """A goal for which some partitions belong on one broker.

    The search then also tries to move their leaders' replicas as a whole, and one of a pair to the
    broker of the other; a plan moves partitions of a group that share a source and a destination
    all or not at all. The goal itself still scores how content it is with a placement.
    """

    def belong_together(self, cluster: Cluster) -> Pairs:
        """The pairs that belong together.

        Parameters
        ----------
        cluster
            The cluster as goals see it. The pairs must not depend on where replicas are: they are
            asked for once, at the start.
        """


def pairs_of(goals: Iterable[Goal], cluster: Cluster) -> Pairs | None:
    """The pairs of all goals that offer groups; None if none of them does.

    Raises
    ------
    GoalError
        If a goal offers something other than pairs of the cluster's partitions.
    """
    found, n = list[Pairs](), cluster.snapshot.n_partitions
    for goal in goals:
        if isinstance(goal, Groups):
            with cluster.placement.locked():
                one, two = (np.asarray(end) for end in goal.belong_together(cluster))
            both = np.concatenate([one, two])
            if one.shape != two.shape or ((both < 0) | (both >= n)).any():
                raise GoalError(
                    f"goal {goal.name}: belong_together returns something other than pairs of "
                    f"partitions, two arrays of one length with numbers from 0 to {n - 1} expected"
                )
            found.append(Pairs(one.astype(np.int64), two.astype(np.int64)))
    if len(found) < 2:
        return found[0] if found else None
    return Pairs(*(np.concatenate(ends) for ends in zip(*found, strict=True)))
