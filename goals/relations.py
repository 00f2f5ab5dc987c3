"""Goals that relate replicas of different partitions: spread over groups, needs nearby, apart."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr, field_validator

from cluster_model.scopes import (
    BROKER,
    TOPIC,
    Needs,
    PerAttribute,
    PerTopic,
    Scope,
    Spread,
    grouping,
)
from cluster_model.snapshot import Floats, Ints
from goals.cluster import Cluster
from goals.curves import at_least, at_most
from goals.goal import Goal, GoalError, Infeasibility, TopicAttributeOf
from goals.patterns import matching, valid_pattern
from goals.state import State
from goals.terms import Relation, Term
from metrics_reporter.quantities import plural


class _OfFields:
    """The scope of a goal whose fields name what it relates."""

    def __init__(self, name: str, noun: str) -> None:
        self._any = Scope(name, noun, "cell")

    def __get__(self, goal: Any, owner: type[Goal]) -> Scope:
        return self._any if goal is None else goal.relation()


class SpreadAcross(Goal):
    """The replicas of each topic are in at least `at_least` groups of brokers.

    All replicas of a topic count, of whichever partition. The score of a topic rises with each
    group that holds a replica of it. A topic without partitions needs no groups.

    Parameters
    ----------
    attribute
        What the groups are: ``rack``, ``host``, ``broker`` or an attribute of brokers. A broker
        without the attribute is in no group.
    at_least
        Least number of groups; or the name of an attribute of topics that has the number for each
        topic (topics without it need no groups).
    topics
        Regular expression of whole topic names; all by default.
    """

    scope: ClassVar = _OfFields("topic_groups", "topic")
    requires: ClassVar = TopicAttributeOf("at_least")

    attribute: str
    at_least: int | str = 2
    topics: str = ".*"
    _least: Floats = PrivateAttr()

    @field_validator("topics")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        return valid_pattern(pattern)

    @field_validator("at_least")
    @classmethod
    def _positive(cls, least: int | str) -> int | str:
        if isinstance(least, int) and least < 1:
            raise ValueError("a number of at least 1, or the name of a topic attribute, expected")
        return least

    @property
    def name(self) -> str:
        """The class, the topics if they are not all, and what the groups are."""
        which = "" if self.topics == ".*" else f"{self.topics} over "
        return f"{type(self).__name__}[{which}{self.attribute}]"

    def topic_patterns(self) -> dict[str, str]:
        """The topics that are spread."""
        return {"topics": self.topics}

    def relation(self) -> Scope:
        """Each topic across the groups."""
        return Spread(PerTopic(grouping(self.attribute)))

    def prepare(self, cluster: Cluster) -> None:
        """Find the least number of groups of each topic."""
        self._least = self._needed(cluster)

    def _needed(self, cluster: Cluster) -> Floats:
        s = cluster.snapshot
        there = np.bincount(s.partition_topic, minlength=len(s.topics)) > 0
        chosen = matching(self.topics, s.topics) & there
        if isinstance(self.at_least, int):
            return np.where(chosen, float(self.at_least), 0.0)
        least = cluster.topic_attribute(self.at_least)
        if least.dtype.kind == "U":
            given = next(x for x in least.tolist() if x)
            raise GoalError(
                f"goal {self.name}, field at_least: topic attribute {self.at_least} has the value "
                f"{given!r}, a number expected"
            )
        return np.where(chosen & ~np.isnan(least), least, 0.0)

    def score(self, state: State) -> Any:
        """1 from the least number on, below it (1 + groups) / (1 + least number)."""
        return at_least(state.group_count, self._least[state.topic])

    def terms(self, cluster: Cluster) -> tuple[Term, ...]:
        """The least number of groups of each topic."""
        s = cluster.snapshot
        group = grouping(self.attribute).members(s)
        return (Relation(np.arange(len(s.topics)), group, at_least=self._least),)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Topics that need more groups than they have replicas, or than may hold one."""
        s, groups = cluster.snapshot, grouping(self.attribute)
        own = groups.members(s)
        least = np.ceil(self._needed(cluster))
        replicas = np.bincount(s.partition_topic, cluster.replication_factor, len(s.topics))
        found = []
        few = np.flatnonzero(replicas < least)
        if len(few):
            found.append(
                Infeasibility(
                    reason=(
                        f"{_listed(s.topics, few)}: "
                        f"{plural(int(replicas[few[0]]), 'replica')}, and "
                        f"{_amount(int(least[few[0]]), self.attribute)} needed"
                    ),
                    remedy="give it more partitions or replicas, or lower at_least",
                )
            )
        usable = np.bincount(own[cluster.eligible & (own >= 0)], minlength=groups.cells(s)) > 0
        # a group that takes no more replicas may keep those of the topic
        kept = _held(cluster, PerTopic(groups)) > 0
        reached = (kept | usable).sum(1)
        lacking = least - reached
        if (lacking > 0).any():
            topic = int(lacking.argmax())
            more = int(lacking[topic])
            found.append(
                Infeasibility(
                    reason=(
                        f"topic {s.topics[topic]}: {_amount(int(least[topic]), self.attribute)} "
                        f"needed, and {int(reached[topic])} can hold replicas of it"
                    ),
                    remedy=f"add brokers in {_amount(more, 'more ' + self.attribute)}",
                    brokers_to_add=more if self.attribute in ("broker", "host") else 0,
                    racks_to_add=more if self.attribute == "rack" else 0,
                )
            )
        return found


class Apart(Goal):
    """At most `at_most` replicas of one topic, or of one value of an attribute, share a broker.

    Use it to keep the topics of a tenant on different brokers, or in different racks.

    Parameters
    ----------
    by
        ``topic``, or an attribute of topics: replicas of topics with an equal value stay apart.
        Topics without the attribute have no limit.
    attribute
        What may hold so many: each ``broker``, ``host``, ``rack``, or group of brokers with an
        equal value of an attribute. A broker without the attribute has no limit.
    at_most
        Most replicas of one value in one place.
    """

    scope: ClassVar = _OfFields("value_group", "topic placement")

    by: str
    attribute: str = "broker"
    at_most: int = Field(default=1, ge=1)

    @property
    def name(self) -> str:
        """The class, what is kept apart, and where."""
        where = "on" if self.attribute == "broker" else "in"
        return f"{type(self).__name__}[{self.by} {where} {self.attribute}]"

    def relation(self) -> PerTopic | PerAttribute:
        """Each value in each place."""
        groups = grouping(self.attribute)
        if self.by != "topic":
            return PerAttribute(self.by, groups)
        return TOPIC if groups == BROKER else PerTopic(groups)

    def score(self, state: State) -> Any:
        """1 up to the limit, then limit / replicas."""
        return at_most(state.replica_count, float(self.at_most))

    def terms(self, cluster: Cluster) -> tuple[Term, ...]:
        """Most replicas of each value in each place."""
        s, scope = cluster.snapshot, self.relation()
        return (Relation(scope.kinds(s), scope.of.members(s), self.at_most),)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Values with more replicas than all places together may hold."""
        s, scope = cluster.snapshot, self.relation()
        own = scope.of.members(s)
        if (own[cluster.eligible] < 0).any():
            return []
        held = _held(cluster, scope)
        usable = np.bincount(own[cluster.eligible], minlength=held.shape[1]) > 0
        # what is in places that take no more may stay there, up to the limit
        kept = np.minimum(np.where(usable, 0.0, held), self.at_most).sum(1)
        missing = held.sum(1) - kept - self.at_most * int(usable.sum())
        if not (missing > 0).any():
            return []
        worst = int(missing.argmax())
        more = math.ceil(missing[worst] / self.at_most)
        return [
            Infeasibility(
                reason=(
                    f"{scope.kind_noun} {scope.kind_names(s)[worst]}: "
                    f"{plural(int(held[worst].sum()), 'replica')}, and "
                    f"{_amount(int(usable.sum()), self.attribute)} may hold {self.at_most} each"
                ),
                remedy=f"add brokers in {_amount(more, 'more ' + self.attribute)}"
                if self.attribute != "broker"
                else f"add at least {plural(more, 'broker')}",
                brokers_to_add=more if self.attribute in ("broker", "host") else 0,
                racks_to_add=more if self.attribute == "rack" else 0,
            )
        ]


class Near(Goal):
    """Wherever a topic has a replica, there is also one of each topic that it needs.

    An attribute of topics states what each needs: a topic, or several, separated by commas. The
    score of a needed topic in a group without it falls with each replica there that needs it.

    Parameters
    ----------
    attribute
        What is near: the same ``rack``, ``host`` or ``broker``, or brokers with an equal value of
        an attribute. A replica on a broker without the attribute needs nothing.
    needs
        The attribute of topics that names the topics each needs.
    """

    scope: ClassVar = _OfFields("topic_group", "topic placement")

    attribute: str
    needs: str = "needs"

    @property
    def name(self) -> str:
        """The class, the attribute of topics, and where."""
        return f"{type(self).__name__}[{self.needs} in {self.attribute}]"

    def relation(self) -> Needs:
        """Each needed topic in each group."""
        return Needs(self.needs, grouping(self.attribute))

    def score(self, state: State) -> Any:
        """1 where it is, or nothing needs it; otherwise 1 / (1 + replicas that need it)."""
        alone = np.where(state.replica_count > 0, 0.0, state.dependent_count)
        return 1.0 / (1.0 + alone)

    def terms(self, cluster: Cluster) -> tuple[Term, ...]:
        """What each topic needs in its groups."""
        s, scope = cluster.snapshot, self.relation()
        table = scope.kinds(s)
        at = np.append(np.full(len(scope.kind_names(s)), -1), -1)
        topic = np.flatnonzero(table[0] >= 0)
        at[table[0, topic]] = topic
        row, needing = np.nonzero(table[1:] >= 0)
        needs = np.stack([needing, at[table[1:][row, needing]]])
        return (Relation(np.arange(len(s.topics)), scope.of.members(s), needs=needs),)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Needed topics that the cluster does not have, unless what needs them is in no group."""
        s, scope = cluster.snapshot, self.relation()
        own = scope.of.members(s)
        if (own < 0).any():
            return []
        table, names = s.attributes("topic").needs(self.needs, s.topics)
        absent = np.setdiff1d(np.arange(len(names)), table[0])
        if not len(absent):
            return []
        topic = int(np.flatnonzero((table[1:] == absent[0]).any(0))[0])
        more = f" (and {plural(len(absent) - 1, 'more topic')})" if len(absent) > 1 else ""
        return [
            Infeasibility(
                reason=(
                    f"topic {s.topics[topic]} needs topic {names[absent[0]]}{more}, which the "
                    "cluster does not have"
                ),
                remedy=f"create it, or correct the topic attribute {self.needs}",
            )
        ]


def _held(cluster: Cluster, scope: PerTopic | PerAttribute) -> Floats:
    """(kinds, groups) replicas of each topic or value in each group."""
    held = cluster.placement.recompute(scope, "replica_count")
    return held.reshape(len(scope.kind_names(cluster.snapshot)), -1)


def _listed(topics: tuple[str, ...], some: Ints) -> str:
    more = f" and {plural(len(some) - 1, 'more topic')}" if len(some) > 1 else ""
    return f"topic {topics[some[0]]}{more}"


def _amount(count: int, groups: str) -> str:
    """A number of racks, hosts or brokers; of values of any other attribute."""
    if groups.split(" ")[-1] in ("rack", "host", "broker"):
        return plural(count, groups)
    return f"{count:,} {groups} " + ("value" if count == 1 else "values")
