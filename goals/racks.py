"""Goals about failure domains: racks of a partition, and broker sets and racks of a topic."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, PrivateAttr, field_validator

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from goals.cluster import Cluster
from goals.curves import TOLERANCE, distance
from goals.goal import Goal, GoalError, Infeasibility
from goals.infeasibility import named
from goals.patterns import matching, valid_pattern
from goals.slots import count, replicas
from goals.state import State
from metrics_reporter.quantities import plural

Few = npt.NDArray[np.int8 | np.int64]
# up to this many slots, comparing each with the earlier ones is faster than sorting
_FEW_SLOTS = 8


def earlier_in_rack(racks: Ints) -> Few:
    """(…, F) number of replicas in earlier slots in the same rack; -1 in empty slots.

    Replicas with value k are the (k + 1)-th of their racks, so counting values
    counts racks without a table of partitions by racks.
    """
    if racks.shape[-1] > _FEW_SLOTS:
        return _earlier_sorted(racks)
    seen = np.zeros(racks.shape, np.int8)
    for slot in range(1, racks.shape[-1]):
        for before in range(slot):
            seen[..., slot] += racks[..., slot] == racks[..., before]
    seen[racks < 0] = -1
    return seen


def _earlier_sorted(racks: Ints) -> Few:
    order = np.argsort(racks, axis=-1, kind="stable")
    ranked = np.take_along_axis(racks, order, -1)
    place = np.broadcast_to(np.arange(racks.shape[-1]), racks.shape)
    first = np.concatenate(
        [np.ones((*racks.shape[:-1], 1), np.bool_), ranked[..., 1:] != ranked[..., :-1]], -1
    )
    seen = np.empty(racks.shape, np.int64)
    start = np.maximum.accumulate(np.where(first, place, 0), -1)
    np.put_along_axis(seen, order, place - start, -1)
    seen[racks < 0] = -1
    return seen


class RackAwareness(Goal):
    """No two replicas of a partition are in one rack.

    The score is the number of distinct racks / the number of replicas.
    """

    scope: ClassVar = "partition"
    hard: bool = True

    def score(self, state: State) -> Any:
        """Distinct racks / replicas."""
        racks = state.replica_rack
        if racks.shape[-1] > _FEW_SLOTS:
            ranked = np.sort(racks, axis=-1)
            again = (ranked[..., 1:] == ranked[..., :-1]) & (ranked[..., 1:] >= 0)
            return (count(racks >= 0) > 0) - count(again) / replicas(racks)
        first = count(earlier_in_rack(racks) == 0)
        return first / replicas(racks)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Partitions with more replicas than racks that can hold them."""
        usable = len(cluster.eligible_racks)
        many = np.flatnonzero(cluster.replication_factor > usable)
        lacking = cluster.replication_factor[many] - usable - _kept_racks(cluster, many)
        many, lacking = many[lacking > 0], lacking[lacking > 0]
        if not len(many):
            return []
        order = np.argsort(-lacking, kind="stable")
        many, racks = many[order], int(lacking.max())
        return [
            Infeasibility(
                reason=(
                    f"{named(cluster, many)}: {cluster.replication_factor[many[0]]} replicas, "
                    f"and {plural(usable, 'rack')} with brokers that may receive replicas"
                ),
                remedy=f"add brokers in at least {plural(racks, 'more rack')}, or replicate less",
                racks_to_add=racks,
            )
        ]


def _kept_racks(cluster: Cluster, partitions: Ints) -> Ints:
    """(len(partitions),) racks that take no new replicas, but may keep one of the partition.

    This includes brokers that are being emptied, which other goals judge.
    """
    s, brokers = cluster.snapshot, cluster.placement.brokers[partitions]
    closed = np.isin(s.broker_rack, cluster.eligible_racks, invert=True)
    racks = np.where((brokers >= 0) & closed[brokers], s.broker_rack[brokers], -1)
    kept: Ints = count(earlier_in_rack(racks) == 0)
    return kept


class RackAwareDistribution(Goal):
    """The replicas of a partition are spread over the racks as evenly as possible.

    With R racks, each holds floor(RF / R) replicas and RF mod R of them one more;
    the same as :class:`RackAwareness` if there are enough racks, and possible if there are not. The
    score is the share of replicas that may stay.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    _racks: int = PrivateAttr(default=1)

    def prepare(self, cluster: Cluster) -> None:
        """Count the racks that may receive replicas."""
        self._racks = max(1, len(cluster.eligible_racks))

    def score(self, state: State) -> Any:
        """1 - replicas that have to change racks / replicas."""
        racks = state.replica_rack
        factor = count(racks >= 0)
        seen = earlier_in_rack(racks)
        full, extra = np.divmod(factor, self._racks)
        above = count(seen > full[..., None])
        level = count(seen == full[..., None])
        return (factor - above - np.maximum(level - extra, 0)) / np.maximum(factor, 1)


class BrokerSetAwareness(Goal):
    """All replicas of a topic are within one broker set.

    The score of a partition is the share of its replicas on brokers of the topic's set.

    Parameters
    ----------
    sets
        Regular expression of topic names -> name of the broker set; the first that
        matches the whole name counts. Topics without one belong to the set that
        holds most of their replicas, and to any if none does.
    exempt
        Regular expression of topics that may be anywhere; none by default.
    """

    scope: ClassVar = "partition"
    requires: ClassVar[tuple[str, ...]] = ("broker sets",)
    hard: bool = True
    sets: dict[str, str] = Field(default_factory=dict)
    exempt: str = ""
    _of_broker: Ints = PrivateAttr()
    _of_topic: Ints = PrivateAttr()

    @field_validator("sets")
    @classmethod
    def _patterns(cls, sets: dict[str, str]) -> dict[str, str]:
        return {valid_pattern(pattern): name for pattern, name in sets.items()}

    @field_validator("exempt")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        return valid_pattern(pattern)

    def topic_patterns(self) -> dict[str, str]:
        """The topics of each set, and those that are exempt."""
        exempt = {"exempt": self.exempt} if self.exempt else {}
        return {f"sets, {pattern!r}": pattern for pattern in self.sets} | exempt

    def prepare(self, cluster: Cluster) -> None:
        """Determine the set of each topic; raises GoalError for a set the cluster lacks."""
        s = cluster.snapshot
        own = s.broker_set if len(s.broker_set) else np.full(s.n_brokers, -1, np.int64)
        # an empty slot (broker -1) reads the last element, which is no set
        self._of_broker = np.append(own, -2)
        self._of_topic = self._topic_sets(cluster, own)

    def _topic_sets(self, cluster: Cluster, own: Ints) -> Ints:
        s = cluster.snapshot
        topic_set = majority_set(s, cluster.placement.brokers, own)
        for pattern, name in reversed(self.sets.items()):
            if name not in s.broker_sets:
                raise GoalError(
                    f"goal {self.name}, field sets, {pattern!r}: broker set {name!r} found, "
                    f"one of {', '.join(s.broker_sets) or 'none: the cluster has no sets'} expected"
                )
            topic_set[matching(pattern, s.topics)] = s.broker_sets.index(name)
        topic_set[matching(self.exempt, s.topics)] = -1
        return topic_set

    def score(self, state: State) -> Any:
        """Share of the replicas inside the topic's set."""
        brokers = state.replica_broker
        requested = self._of_topic[state.topic]
        inside = count(self._of_broker[brokers] == requested[..., None])
        share = inside / replicas(brokers)
        return np.where(requested < 0, 1.0, share)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Sets with fewer brokers than a partition of their topics has replicas."""
        s = cluster.snapshot
        requested = self.prepared(cluster)._of_topic[s.partition_topic]
        found = []
        for index, name in enumerate(s.broker_sets):
            inside = s.broker_set == index
            usable = int((inside & cluster.eligible).sum())
            ours = np.flatnonzero((requested == index) & (cluster.replication_factor > usable))
            brokers = cluster.placement.brokers[ours]
            kept = (inside & ~cluster.eligible)[brokers] & (brokers >= 0)
            lacking = cluster.replication_factor[ours] - usable - kept.sum(1)
            ours, lacking = ours[lacking > 0], lacking[lacking > 0]
            if len(ours):
                more = int(lacking.max())
                found.append(
                    Infeasibility(
                        reason=(
                            f"{named(cluster, ours)}: {cluster.replication_factor[ours[0]]} "
                            f"replicas belong in broker set {name}, which has "
                            f"{plural(usable, 'broker')} that may receive replicas"
                        ),
                        remedy=f"add at least {plural(more, 'broker')} to broker set {name}",
                        brokers_to_add=more,
                        broker_set=name,
                    )
                )
        return found


class TopicRackDistribution(Goal):
    """The replicas of a topic are spread evenly over the racks.

    Each rack holds between the floor and the ceiling of its share of the topic,
    shared out by the size of the brokers that may receive replicas. Racks without
    such brokers are content.
    """

    scope: ClassVar = "topic_rack"
    _total: Floats = PrivateAttr()
    _share: Floats = PrivateAttr()
    _content: Bools = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        """Compute the total of each topic and the share of each rack."""
        s = cluster.snapshot
        self._total = np.bincount(
            s.partition_topic, cluster.replication_factor, len(s.topics)
        ).astype(np.float64)
        weight = np.bincount(s.broker_rack, cluster.weight, len(s.racks))
        self._share = weight / max(weight.sum(), 1e-300)
        self._content = weight <= 0

    def score(self, state: State) -> Any:
        """1 between floor and ceiling of the share, then the distance in shares."""
        rack, held = state.rack, state.replica_count
        share = self._total[state.topic] * self._share[rack]
        above = held - np.ceil(share - TOLERANCE)
        below = np.floor(share + TOLERANCE) - held
        score = distance(
            np.maximum(above, below) * (100.0 / np.maximum(share, 1.0)), bound=0.0, var=100.0
        )
        return np.where(self._content[rack], 1.0, score) if self._content.any() else score


def majority_set(snapshot: Snapshot, brokers: Ints, own: Ints) -> Ints:
    """(topics,) the broker set that holds most replicas of each topic; -1 if none does.

    Parameters
    ----------
    brokers
        (P, F) rows of brokers, -1 for an empty slot.
    own
        (B,) the set of each broker, -1 for none.
    """
    s = snapshot
    partition, slot = np.nonzero(brokers >= 0)
    held = own[brokers[partition, slot]]
    known, sets = held >= 0, max(1, len(s.broker_sets))
    key = s.partition_topic[partition[known]] * sets + held[known]
    held_by = np.bincount(key, minlength=len(s.topics) * sets).reshape(-1, sets)
    return np.where(held_by.any(1), held_by.argmax(1), -1).astype(np.int64)
