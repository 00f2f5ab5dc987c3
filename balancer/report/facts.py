"""The data of the report, as arrays: every broker, rack and topic before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from balancer.planning.document import ColumnResult
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from cluster_model.columns import LOAD
from cluster_model.columns import Column as Sum
from cluster_model.placement import Placement
from cluster_model.scopes import BROKER
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints
from cluster_model.units import column_title, column_unit
from goals import Cluster, Goal, GoalError, load_goals
from goals.capacity import Ceiling
from goals.distribution import Band


@dataclass(frozen=True)
class ColumnFacts:
    """A resource or count on B brokers; limits are in fair shares after the plan.

    A broker that the goal does not apply to has infinite limits.

    ``share`` is each broker's load in perfect balance, ``share_after`` the same once replicas
    are added or removed as requested; for brokers that should carry nothing it is their load
    if they took part.
    """

    name: str
    title: str
    unit: str
    result: ColumnResult
    before: Floats
    after: Floats
    share: Floats
    share_after: Floats
    lower: Floats | None
    upper: Floats | None
    limit: Floats | None
    capacity: Floats | None

    def ratios(self) -> tuple[Floats, Floats]:
        """(B,) before and (B,) after, in the fair shares of that time."""
        return self.before / self.share, self.after / self.share_after

    def at_first(self) -> ColumnFacts:
        """The same with the lines before the plan: a limit in the load's unit stays there."""
        scale = self.share_after / self.share
        return replace(
            self,
            limit=None if self.limit is None else self.limit * scale,
            capacity=None if self.capacity is None else self.capacity * scale,
        )


@dataclass(frozen=True)
class TopicFacts:
    """One topic: what the plan does to it, and its replicas on B brokers before and after."""

    name: str
    partitions: int
    moves: int
    leaderships: int
    cost: float
    share: float
    before: Ints
    after: Ints


@dataclass(frozen=True)
class Facts:
    """The data of all pictures and tables; ``order`` is by rack, then id."""

    plan: Plan
    columns: tuple[ColumnFacts, ...]
    order: Ints
    state: tuple[str, ...]
    crowded: tuple[int, int]
    cannot_spread: int
    topics: tuple[TopicFacts, ...]
    topics_touched: int


def gather(plan: Plan, topics: int = 12) -> Facts:
    """Work out the facts of a plan, with the `topics` most affected topics."""
    s = plan.snapshot
    resolved = resolve(s, Operation.model_validate(plan.operation))
    start, c = Placement(s), resolved.cluster
    began = Cluster(start, c.eligible, c.leader_eligible, c.draining)
    goals = list(known_goals(plan))
    racks = len(np.unique(s.broker_rack[c.eligible]))
    after = (plan.placement.brokers >= 0).sum(1)
    touched = np.bincount(s.partition_topic[plan.rows.partition], minlength=len(s.topics))
    return Facts(
        plan=plan,
        columns=tuple(_column(plan, name, began, c, goals) for name in plan.columns),
        order=np.lexsort((s.broker_ids, s.broker_rack)),
        state=_states(s.broker_state, c),
        crowded=(_crowded(start), _crowded(plan.placement)),
        cannot_spread=int((after > racks).sum()),
        topics=tuple(_topics(plan, start, c.eligible, topics)),
        topics_touched=int((touched > 0).sum()),
    )


def known_goals(plan: Plan) -> Iterator[Goal]:
    """The goals of a plan; without those that are not known by name."""
    for fields in plan.goals:
        # a goal passed as an object may have an unknown name: it has no lines then
        try:
            yield from load_goals({"goals": [{k: v for k, v in fields.items() if k != "name"}]})
        except GoalError:
            continue


def _column(
    plan: Plan, name: str, began: Cluster, cluster: Cluster, goals: list[Goal]
) -> ColumnFacts:
    s, resource = plan.snapshot, name in plan.snapshot.resources
    column = Sum(LOAD, name) if resource else Sum.of(name)
    size = began.capacity(name) if resource else np.ones(s.n_brokers)
    before = began.placement.recompute("broker", column)
    share, share_after = (_reference(c.fair_share(column), size, before) for c in (began, cluster))
    lower = upper = limit = None
    for goal in goals:
        if isinstance(goal, Band) and goal.scope == BROKER and Sum.of(goal.column) == column:
            least, most = goal.limits(cluster)
            takes = cluster.leader_eligible if name == "leader_count" else cluster.eligible
            # as the goal judges: brokers that may receive nothing are never below, emptied ones
            # never above
            lower = np.where(takes & np.isfinite(least), least / share_after, -np.inf)
            upper = np.where(cluster.draining, np.inf, most / share_after)
        elif isinstance(goal, Ceiling) and goal.scope == BROKER and Sum.of(goal.column) == column:
            limit = goal.limits(cluster) / share_after
    return ColumnFacts(
        name=name,
        title=column_title(name),
        unit=column_unit(name),
        result=plan.columns[name],
        before=before,
        after=plan.placement.recompute("broker", column),
        share=share,
        share_after=share_after,
        lower=lower,
        upper=upper,
        limit=limit,
        capacity=size / share_after if resource and (size > 0).any() else None,
    )


def _reference(share: Floats, size: Floats, load: Floats) -> Floats:
    entitled = share > 0
    if not entitled.any():
        return np.full_like(share, load.mean() or 1.0)
    total = size[entitled].sum()
    rate = share[entitled].sum() / total if total > 0 else 0.0
    other = np.where(rate * size > 0, rate * size, share[entitled].mean())
    return np.where(entitled, share, other)


def _states(state: Ints, cluster: Cluster) -> tuple[str, ...]:
    names = {int(v): v.name.lower().replace("_", " ") for v in BrokerState if v}
    words = []
    for b, value in enumerate(state.tolist()):
        word = names.get(value, "")
        if cluster.draining[b] and value != BrokerState.DEAD:
            word = "leaving"
        elif not word and not cluster.eligible[b]:
            word = "excluded"
        words.append(word)
    return tuple(words)


def _crowded(placement: Placement) -> int:
    """Partitions with two replicas in one rack."""
    if not placement.snapshot.n_partitions:
        return 0
    brokers = placement.brokers
    empty = -1 - np.arange(placement.slots)
    rack = np.sort(np.where(brokers < 0, empty, placement.snapshot.broker_rack[brokers]), 1)
    return int((rack[:, 1:] == rack[:, :-1]).any(1).sum())


def _topics(plan: Plan, start: Placement, eligible: Bools, most: int) -> Iterator[TopicFacts]:
    s, rows, n = plan.snapshot, plan.rows, len(plan.snapshot.topics)
    topic = s.partition_topic[rows.partition]
    leadership = np.array([k == "leadership" for k in rows.kind], np.bool_)
    leads = np.bincount(topic[leadership], minlength=n)
    moves = np.bincount(topic[~leadership], minlength=n)
    size = np.bincount(topic, rows.cost, minlength=n)
    ranked = np.lexsort((np.arange(n), -leads, -moves, -size))[:most]
    first = np.searchsorted(s.partition_topic, np.arange(n + 1))
    for t in ranked[(moves + leads)[ranked] > 0].tolist():
        before, after = (
            _counts(p.brokers[first[t] : first[t + 1]], s.n_brokers)
            for p in (start, plan.placement)
        )
        yield TopicFacts(
            name=s.topics[t],
            partitions=int(first[t + 1] - first[t]),
            moves=int(moves[t]),
            leaderships=int(leads[t]),
            cost=float(size[t]),
            share=float(after.sum() / max(int(eligible.sum()), 1)),
            before=before,
            after=after,
        )


def _counts(brokers: Ints, n: int) -> Ints:
    return np.bincount(brokers[brokers >= 0], minlength=n).astype(np.int64)


def rack_ratios(facts: Facts, column: ColumnFacts) -> tuple[Floats, Floats]:
    """(racks,) load of each rack before and after, in fair shares of the rack."""
    s = facts.plan.snapshot
    n = len(s.racks)

    def ratio(load: Floats, shares: Floats) -> Floats:
        share = np.bincount(s.broker_rack, shares, n)
        return np.bincount(s.broker_rack, load, n) / np.where(share > 0, share, 1.0)

    return ratio(column.before, column.share), ratio(column.after, column.share_after)
