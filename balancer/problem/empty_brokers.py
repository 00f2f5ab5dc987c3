"""The goal that brokers which an operation empties hold nothing; it comes before all others."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools
from goals import Cluster, Goal, OnlineReplicas, State
from goals.slots import count


class EmptyBrokers(Goal):
    """No replica is on a broker that the operation empties.

    The score of a partition is the share of its replicas that are elsewhere.
    """

    scope: ClassVar = "partition"
    availability: ClassVar[bool] = True
    hard: bool = True
    tier: int | None = 0
    _emptied: Bools = PrivateAttr()

    @classmethod
    def of(cls, emptied: Bools) -> EmptyBrokers:
        """The goal for some of the B brokers."""
        goal = cls()
        # index -1 (an empty slot) reads the last element
        goal._emptied = np.append(emptied, False)
        return goal

    def score(self, state: State) -> Any:
        """Replicas elsewhere / replicas."""
        brokers = state.replica_broker
        there = count(brokers >= 0)
        kept = there - count(self._emptied[brokers])
        return np.where(there > 0, kept / np.maximum(there, 1), 1.0)

    def needed(self, cluster: Cluster) -> bool:
        """Whether other replicas must leave too; if not, ``OnlineReplicas`` says the same."""
        state = cluster.partition_state()
        mine, every = self.score(state), OnlineReplicas().prepared(cluster).score(state)
        return bool((mine < 1).any() and (every < mine).any())
