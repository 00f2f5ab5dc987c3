"""Goals that keep communicating partitions on one broker."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from cluster_model.snapshot import Bools, Ints
from cluster_model.traffic import connected
from goals.cluster import Cluster
from goals.curves import TOLERANCE
from goals.goal import MOST, Goal, Infeasibility
from goals.groups import Pairs
from goals.infeasibility import named
from goals.state import State


class CollocationGoal(Goal):
    """All communication that is worth keeping on one broker is local to it.

    `mean` is how much of it a broker has on average, local or not, and `remote` how much of a
    broker's own is not local. The score is ``mean / (mean + remote)``.

    A pair of partitions is worth having on one broker if one sends the other more than `factor`
    times what it sends downstream on average (the scores of ALBIC, seed 001, Section 4.3.2). If all
    communicate evenly with each other there is no such pair, and the goal is met. Followers do not
    count. A broker that is to be emptied is content.

    Parameters
    ----------
    factor
        sF, the score factor.
    """

    scope: ClassVar = "broker"
    requires: ClassVar = ("traffic",)

    factor: float = Field(default=1.5, ge=0, le=MOST)
    _mean: float = PrivateAttr(default=0.0)
    _least: float = PrivateAttr(default=0.0)
    _draining: Bools | None = PrivateAttr(default=None)

    def prepare(self, cluster: Cluster) -> None:
        """Compute the mean, and the amount below which traffic is only a rounding residue."""
        total = float(cluster.placement.traffic(self.factor).total.sum())
        self._mean, self._least = total / max(1, cluster.eligible.sum()), TOLERANCE * total
        self._draining = cluster.draining if cluster.draining.any() else None

    def score(self, state: State) -> Any:
        """1 if nothing is remote, 1/2 if as much is remote as the mean."""
        remote = state.traffic(self.factor) - state.local_traffic(self.factor)
        apart = remote > self._least
        score = np.where(apart, self._mean / (self._mean + np.where(apart, remote, 1.0)), 1.0)
        return score if self._draining is None else np.where(self._draining[state.broker], 1, score)

    def belong_together(self, cluster: Cluster) -> Pairs:
        """The pairs that are worth having on one broker."""
        traffic = cluster.placement.traffic(self.factor)
        return Pairs(traffic.one, traffic.two)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Partitions that belong together, but exceed every broker's capacity and current load."""
        s, traffic = cluster.snapshot, cluster.placement.traffic(self.factor)
        label = connected(s.n_partitions, traffic.one, traffic.two)
        load = np.stack([np.bincount(label, x, s.n_partitions) for x in s.leader_load.T], 1)
        # overfull brokers are not emptied for this
        now = [cluster.placement.recompute("broker", f"load.{r}") for r in s.resources]
        most = np.maximum(s.capacity, np.stack(now, 1)).max(axis=0)
        where = cluster.placement.location
        apart = np.zeros(s.n_partitions, np.bool_)
        apart[label[traffic.one[where[traffic.one] != where[traffic.two]]]] = True
        found = []
        for one in np.flatnonzero(apart & (load > most * (1 + TOLERANCE)).any(1)).tolist():
            members: Ints = np.flatnonzero(label == one)
            r = int(np.argmax(load[one] / np.maximum(most, 1e-300)))
            found.append(
                Infeasibility(
                    reason=f"{named(cluster, members)} belong together, and have "
                    f"{s.resources[r]} {load[one, r]:.6g}, more than the {most[r]:.6g} of any "
                    "broker",
                    remedy="spread the keys over more partitions, or raise the goal's factor",
                )
            )
        return found
