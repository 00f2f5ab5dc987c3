"""Goals about the distribution of a topic's replicas and leaders over the brokers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr, field_validator, model_validator

from cluster_model.snapshot import Bools, Floats, Ints
from goals.cluster import Cluster
from goals.curves import TOLERANCE, at_least, distance
from goals.goal import Goal, Infeasibility, Ratio
from goals.patterns import matching, valid_pattern
from goals.state import State
from metrics_reporter.quantities import plural

# entries up to which limits are kept by topic and size of broker: they fit a processor's cache
_TABULATED = 1 << 18


class _Spread(Goal):
    """Keeps each topic's count on a broker between limits around its even share.

    Where brokers differ little in size, limits are looked up by topic and size. Otherwise they
    are computed for the cells in use: a table of 20000 topics on 1000 brokers would be larger
    than everything else together.
    """

    scope: ClassVar = "topic"
    _total: Floats = PrivateAttr()
    _group: Ints | None = PrivateAttr(default=None)
    _groups: int = PrivateAttr(default=1)
    _part: Floats = PrivateAttr()
    _unbounded: Bools | None = PrivateAttr(default=None)
    _content: Bools | None = PrivateAttr(default=None)
    # (T * kinds,) lower and upper limits and percent per replica, and (B,) the kind of each broker
    _table: tuple[Floats, Floats, Floats] | None = PrivateAttr(default=None)
    _kind: Ints | None = PrivateAttr(default=None)
    _kinds: int = PrivateAttr(default=1)

    def limits(self, share: Floats) -> tuple[Floats, Floats]:
        """Minimum and maximum count around an even share."""
        raise NotImplementedError

    def counted(self, state: State) -> Floats:
        """What is counted in each cell."""
        raise NotImplementedError

    def _share_out(self, cluster: Cluster, weight: Floats, leaders: bool) -> None:
        # Within broker sets, like every average: `_part` is a broker's part of its set.
        self._groups = int(cluster.group.max()) + 1
        self._group = cluster.group if self._groups > 1 else None
        self._total = _totals(cluster, self._groups, leaders)
        receives = weight > 0
        sums = np.bincount(cluster.group, weight, self._groups)[cluster.group]
        many = np.bincount(cluster.group, receives, self._groups)[cluster.group]
        # a broker that receives nothing is judged as if it had the mean size
        self._part = np.where(receives, weight / np.maximum(sums, 1e-300), 1 / np.maximum(many, 1))
        content = cluster.draining | (many == 0)
        self._content = content if content.any() else None
        self._unbounded = ~receives if not receives.all() else None
        self._tabulate()

    def _tabulate(self) -> None:
        """Work out the limits of each topic on brokers of each kind, if there are few kinds."""
        sizes, kind = np.unique(self._part, return_inverse=True)
        self._kinds, self._table = len(sizes) * self._groups, None
        if self._group is not None:
            # of a size, in a broker set
            kind = kind * self._groups + self._group
        self._kind = kind if self._kinds > 1 else None
        if len(sizes) * len(self._total) > _TABULATED:
            return
        total = self._total.reshape(-1, 1, self._groups)
        share = (total * sizes[:, None]).ravel()
        self._table = *self.limits(share), 100.0 / np.maximum(share, 1.0)

    def _limits_of(self, state: State) -> tuple[Floats, Floats, Floats]:
        """Minimum, maximum, and percent of the share per replica, of each cell."""
        row = state.topic
        if self._table is not None:
            if self._kind is not None:
                row = row * self._kinds + self._kind.take(state.broker)
            lower, upper, percent = (column.take(row) for column in self._table)
            return lower, upper, percent
        broker = state.broker
        if self._group is not None:
            row = row * self._groups + self._group[broker]
        share: Floats = self._total[row] * self._part[broker]
        return *self.limits(share), 100.0 / np.maximum(share, 1.0)

    def score(self, state: State) -> Any:
        """1 between the limits, then the distance in shares."""
        count = self.counted(state)
        lower, upper, percent = self._limits_of(state)
        below = lower - count
        if self._unbounded is not None:
            below = np.where(self._unbounded[state.broker], 0.0, below)
        outside = np.maximum(count - upper, below)
        score = distance(outside * percent, bound=0.0, var=100.0)
        if self._content is None:
            return score
        return np.where(self._content[state.broker], 1.0, score)


class TopicReplicaDistribution(_Spread):
    """Each topic's replicas on a broker are near the topic's even share.

    Parameters
    ----------
    threshold, margin
        The limits are floor(share * (1 - m)) and ceil(share * (1 + m)) with
        m = (threshold - 1) * margin. Wide by default: a strict spread moves a lot of
        data for little.
    min_gap, max_gap
        Minimum and maximum number of replicas between the share and either limit.
    """

    threshold: Ratio = 3.0
    margin: float = Field(default=0.9, gt=0, le=1)
    min_gap: int = Field(default=2, ge=0)
    max_gap: int = Field(default=40, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> TopicReplicaDistribution:
        if self.max_gap < self.min_gap:
            raise ValueError(f"max_gap at least min_gap ({self.min_gap}) expected")
        return self

    def prepare(self, cluster: Cluster) -> None:
        """Compute the totals of the topics and the parts of the brokers."""
        self._share_out(cluster, cluster.weight, leaders=False)

    def limits(self, share: Floats) -> tuple[Floats, Floats]:
        """Minimum and maximum number of replicas around an even share.

        Examples
        --------
        >>> TopicReplicaDistribution().limits(np.array([1.0, 10.0, 100.0]))
        (array([ 0.,  0., 60.]), array([  3.,  28., 140.]))
        """
        m = (self.threshold - 1) * self.margin
        ceil, floor = np.ceil(share - TOLERANCE), np.floor(share + TOLERANCE)
        upper = np.ceil(share * (1 + m) - TOLERANCE)
        upper = np.clip(upper, ceil + self.min_gap, ceil + self.max_gap)
        lower = np.floor(share * max(0.0, 1 - m) + TOLERANCE)
        lower = np.clip(lower, floor - self.max_gap, floor - self.min_gap)
        return np.maximum(lower, 0.0), upper

    def counted(self, state: State) -> Floats:
        """Replicas."""
        return state.replica_count


class TopicLeaderDistribution(_Spread):
    """Each topic's leaders are spread evenly over the brokers that may lead.

    Between the floor and the ceiling of the even share, so that the remainder is
    spread too.
    """

    def prepare(self, cluster: Cluster) -> None:
        """Compute the totals of the topics and the parts of the brokers that may lead."""
        weight = np.where(cluster.leader_eligible, cluster.weight, 0.0)
        self._share_out(cluster, weight, leaders=True)

    def limits(self, share: Floats) -> tuple[Floats, Floats]:
        """Floor and ceiling of the even share."""
        return np.floor(share + TOLERANCE), np.ceil(share - TOLERANCE)

    def counted(self, state: State) -> Floats:
        """Leaders."""
        return state.leader_count


class MinTopicLeaders(Goal):
    """Each broker that may lead leads at least `minimum` partitions of some topics.

    A topic without partitions needs no leaders.

    Parameters
    ----------
    topics
        Regular expression of whole topic names; none by default.
    minimum
        Leaders of each such topic on each broker; 0 for the floor of the even share.
    """

    scope: ClassVar = "topic"
    hard: bool = True
    topics: str = ""
    minimum: int = Field(default=1, ge=0)
    _least: Floats = PrivateAttr()
    _leads: Floats = PrivateAttr()

    @field_validator("topics")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        return valid_pattern(pattern)

    def topic_patterns(self) -> dict[str, str]:
        """The topics that need leaders on every broker."""
        return {"topics": self.topics}

    def prepare(self, cluster: Cluster) -> None:
        """Compute the minimum number of leaders for each topic."""
        self._least = self._needed(cluster)
        self._leads = cluster.leader_eligible.astype(np.float64)

    def _needed(self, cluster: Cluster) -> Floats:
        chosen = matching(self.topics, cluster.snapshot.topics)
        brokers = max(1, int(cluster.leader_eligible.sum()))
        have = _partitions(cluster)
        least = self.minimum if self.minimum else have // brokers
        return np.where(chosen & (have > 0), least, 0).astype(np.float64)

    def score(self, state: State) -> Any:
        """1 from the minimum on, below it (1 + leaders) / (1 + minimum)."""
        if not self._least.any():
            return np.ones(np.shape(state.topic))
        return at_least(state.leader_count, self._least[state.topic] * self._leads[state.broker])

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Topics with fewer partitions than the brokers that must lead some."""
        have = _partitions(cluster)
        need = self._needed(cluster) * int(cluster.leader_eligible.sum())
        return [
            Infeasibility(
                reason=(
                    f"topic {cluster.snapshot.topics[t]} has {plural(int(have[t]), 'partition')}, "
                    f"and its brokers need {int(need[t])} leaders"
                ),
                remedy=(
                    f"give topic {cluster.snapshot.topics[t]} at least {int(need[t])} partitions"
                ),
            )
            for t in np.flatnonzero(have < need)
        ]


def _partitions(cluster: Cluster) -> Ints:
    s = cluster.snapshot
    return np.bincount(s.partition_topic, minlength=len(s.topics)).astype(np.int64)


def _totals(cluster: Cluster, groups: int, leaders: bool) -> Floats:
    """(T * groups,) each topic's replicas or leaders in each group of brokers."""
    s, brokers = cluster.snapshot, cluster.placement.brokers
    if leaders:
        partition = np.flatnonzero(cluster.placement.leader >= 0)
        held = brokers[partition, cluster.placement.leader[partition]]
    else:
        partition, slot = np.nonzero(brokers >= 0)
        held = brokers[partition, slot]
    # replicas that stay on a broker that receives nothing are not distributed
    shared = (cluster.eligible | cluster.draining)[held]
    key = (s.partition_topic[partition] * groups + cluster.group[held])[shared]
    return np.bincount(key, minlength=len(s.topics) * groups).astype(np.float64)
