"""Goals about which replica leads, and where."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools, Ints
from goals.cluster import Cluster
from goals.goal import Goal, Infeasibility, TopicAttributeOf
from goals.infeasibility import named
from goals.slots import count, replicas
from goals.state import State


class PreferredLeader(Goal):
    """The leader is the first replica in preference order whose broker may lead.

    The score falls by 1 / replicas for each better placed replica that was passed over;
    it is 0 without a leader, or with one on a broker that may not lead. Partitions none of whose
    brokers may lead are content: there is nothing to prefer.
    """

    scope: ClassVar = "partition"
    _may_lead: Bools = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        """Find the brokers that may lead."""
        # an empty slot (broker -1) reads the last element
        self._may_lead = np.append(cluster.leader_eligible, False)

    def score(self, state: State) -> Any:
        """1 - better placed replicas / replicas."""
        brokers, leader = state.replica_broker, state.leader[..., None]
        able = self._may_lead[brokers]
        slots = np.arange(brokers.shape[-1])
        better = count(able & (slots < leader))
        leads = count(able & (slots == leader)) > 0
        score = np.where(leads, 1.0 - better / replicas(brokers), 0.0)
        return np.where(count(able) > 0, score, 1.0)


class PreferredLeaderRack(Goal):
    """The leader of each partition is in the rack that an attribute of its topic names.

    The score is 1 if it is, 1/2 if a follower is there, and otherwise 0. Topics without the
    attribute are content.

    Parameters
    ----------
    attribute
        The attribute of topics whose values are names of racks.
    followers
        Whether a follower there is enough: for consumers that fetch from the closest replica.
    """

    scope: ClassVar = "partition"
    requires: ClassVar = TopicAttributeOf("attribute")
    attribute: str
    followers: bool = False
    _rack: Ints = PrivateAttr()

    @property
    def name(self) -> str:
        """The class and the attribute, and whether a follower is enough."""
        enough = " or follower" if self.followers else ""
        return f"{type(self).__name__}[{self.attribute}{enough}]"

    def prepare(self, cluster: Cluster) -> None:
        """Find the rack of each topic."""
        self._rack = self._racks(cluster)

    def _racks(self, cluster: Cluster) -> Ints:
        """(T,) the rack that each topic names: -1 for none, -2 for one that the cluster lacks."""
        s = cluster.snapshot
        value, names = s.attributes("topic").groups(self.attribute)
        known = {name: rack for rack, name in enumerate(s.racks)}
        return np.array([*(known.get(name, -2) for name in names), -1], np.int64)[value]

    def score(self, state: State) -> Any:
        """1 for the leader in the rack, 1/2 for a follower, or 1 if that is enough."""
        racks, named = state.replica_rack, self._rack[state.topic]
        there = (racks == named[..., None]) & (racks >= 0)
        leads = there
        if not self.followers:
            leads = there & (np.arange(racks.shape[-1]) == state.leader[..., None])
        score = ((count(leads) > 0) + 1.0 * (count(there) > 0)) / 2
        return np.where(named == -1, 1.0, score)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Partitions led elsewhere, and no broker of the rack may lead (or hold followers)."""
        s, placement = cluster.snapshot, cluster.placement
        named_rack = self._racks(cluster)[s.partition_topic]
        able = cluster.eligible if self.followers else cluster.leader_eligible
        may = np.append(np.bincount(s.broker_rack[able], minlength=len(s.racks)), 0)
        held = placement.brokers if self.followers else placement.location[:, None]
        there = np.append(s.broker_rack, -1)[held] == named_rack[:, None]
        closed = (named_rack == -2) | ((named_rack >= 0) & (may[named_rack] == 0))
        stuck = np.flatnonzero(closed & ~there.any(1))
        if not len(stuck):
            return []
        value, names = s.attributes("topic").groups(self.attribute)
        rack = names[value[s.partition_topic[stuck[0]]]]
        return [
            Infeasibility(
                reason=f"{named(cluster, stuck)}: no broker in rack {rack} may "
                + ("hold a replica" if self.followers else "lead"),
                remedy=f"add brokers in rack {rack}, or correct the attribute {self.attribute}",
            )
        ]
