"""Goals about which replica leads."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools
from goals.cluster import Cluster
from goals.goal import Goal
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
