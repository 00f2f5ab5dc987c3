"""Goals whose contentment is a cost: what moves, load above a share, and brokers in use cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from cluster_model.columns import COUNT, LOAD, Column
from cluster_model.copy_cost import copy_cost
from cluster_model.scopes import BrokerScope, scope_of
from cluster_model.snapshot import LARGEST_SUM, Floats, Ints, Snapshot
from goals.cluster import Cluster
from goals.curves import TOLERANCE
from goals.goal import LEAST, MOST, Goal, GoalError, utilization
from goals.state import State, at_cells
from goals.terms import Excess, Moved, Term
from metrics_reporter.documents import shown

_TOPIC_ATTRIBUTE, _BROKER_ATTRIBUTE = "topic attribute ", "broker attribute "


class Cost(Goal):
    """Each cell costs something; its contentment is 1 - cost / scale.

    The scale is the same for all cells and at least what a cell can cost, so that the sum of the
    contentments falls exactly as the total cost rises. An action is scored by the total. Such a
    goal is met if nothing costs anything, which is often impossible: then it states by how much
    the cost was reduced, and no proof.

    Parameters
    ----------
    scale
        The cost at which a cell has a contentment of 0; by default the largest that a cell of the
        cluster can reach. With one scale for several goals in a tier, their weights are what a
        unit of each cost is worth. One that a cell can exceed is refused.
    """

    aggregate: ClassVar[Literal["min", "sum"]] = "sum"
    scale: float | None = Field(default=None, ge=LEAST, le=LARGEST_SUM)
    _scale: float = PrivateAttr(default=1.0)

    def largest(self, cluster: Cluster) -> float:
        """A cost that no cell exceeds, whatever the placement."""
        raise NotImplementedError

    def costs(self, state: State) -> Floats:
        """The cost of each cell, at least 0, in the shape of the state's arrays."""
        raise NotImplementedError

    def prepare(self, cluster: Cluster) -> None:
        """Fix the scale."""
        largest = self.largest(cluster)
        if self.scale is not None and self.scale < largest:
            raise GoalError(
                f"goal {self.name}, field scale: {self.scale:g} found, at least {largest:.6g} "
                f"expected, which one {self.scope.noun} can cost"
            )
        self._scale = self.scale or largest or 1.0

    def score(self, state: State) -> Any:
        """1 - cost / scale."""
        return _contentment(self.costs(state), self._scale)


def _contentment(cost: Floats, scale: Floats | float) -> Floats:
    # the largest cost may exceed the scale by a rounding error
    found: Floats = np.maximum(1 - cost / scale, 0.0)
    return found


class _Requires:
    """What a goal requires, as its fields name it."""

    def __get__(self, goal: Any, owner: type[Goal]) -> tuple[str, ...]:
        return () if goal is None else goal.required()


class LoadCost(Cost):
    """A broker costs the load of a resource that it carries above a safe amount.

    On a broker that is to be emptied, any load is above it.

    Parameters
    ----------
    resource
        Name of a resource of the snapshot.
    above
        The safe amount: a share of the capacity, or the name of an attribute of brokers that
        states it, in the unit of the resource.
    scale
        The cost at which a broker has a contentment of 0, in the unit of the resource; by default
        the largest that a broker can reach.
    """

    requires: ClassVar[Any] = _Requires()
    resource: str
    above: float | str
    _safe: Floats = PrivateAttr()

    @field_validator("above")
    @classmethod
    def _share_or_attribute(cls, value: float | str) -> float | str:
        return value if isinstance(value, str) else utilization(value)

    def required(self) -> tuple[str, ...]:
        """The attribute, if it names one."""
        return (_BROKER_ATTRIBUTE + self.above,) if isinstance(self.above, str) else ()

    def prepare(self, cluster: Cluster) -> None:
        """Fix the safe amounts, and the scale."""
        if isinstance(self.above, str):
            safe = amounts(self.name, cluster.snapshot, "broker", self.above)
        else:
            safe = self.above * cluster.capacity(self.resource)
        self._safe = np.where(cluster.draining, 0.0, safe)
        super().prepare(cluster)

    def largest(self, cluster: Cluster) -> float:
        """What the broker with the least safe amount costs if it holds a replica of everything."""
        return max(0.0, everything(cluster.snapshot, self.resource) - float(self._safe.min()))

    def costs(self, state: State) -> Floats:
        """The load above the safe amount."""
        return _above(state.load(self.resource), self._safe[state.broker])

    def terms(self, cluster: Cluster) -> tuple[Term, ...]:
        """The load above the safe amount."""
        return (Excess({self.resource: 1.0}, self._safe, 1 / self._scale),)

    @classmethod
    def score_batch(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """All goals of this family in one pass."""
        columns = tuple(Column(LOAD, goal.resource) for goal in goals)
        safe = np.stack([goal._safe for goal in goals])
        scale = np.array([goal._scale for goal in goals])

        def score(state: State) -> Any:
            cost = _above(state.sums(columns), at_cells(safe, state.broker))
            return _contentment(cost, scale.reshape(-1, *(1,) * (cost.ndim - 1)))

        return score


def _above(load: Floats, safe: Floats) -> Floats:
    # a load within rounding of the safe amount is not above it
    return np.where(load > safe * (1 + TOLERANCE), load - safe, 0.0)


class BalanceCost(Cost):
    """A broker costs what it lacks of one resource for what it has free of another.

    With ``ratio`` units of `other` expected for each free unit of `resource`, that is
    ``max(0, ratio * free(resource) - free(other))``, where what is free is the capacity less the
    load. A broker that is to be emptied costs nothing.

    Parameters
    ----------
    resource, other
        Names of resources of the snapshot.
    ratio
        Units of `other` that should be free for each free unit of `resource`.
    scale
        The cost at which a broker has a contentment of 0, in the unit of `other`; by default the
        largest that a broker can reach.
    """

    requires: ClassVar[Any] = _Requires()
    resource: str
    other: str
    ratio: float = Field(ge=LEAST, le=MOST)
    _spare: Floats = PrivateAttr()
    _rounding: Floats = PrivateAttr()

    @property
    def name(self) -> str:
        """The class and both resources."""
        return f"{type(self).__name__}[{self.resource} to {self.other}]"

    def required(self) -> tuple[str, ...]:
        """The other resource."""
        return (self.other,)

    def prepare(self, cluster: Cluster) -> None:
        """Fix what an empty broker costs, below 0 if it has enough of the other, and the scale."""
        expected, there = (
            self.ratio * cluster.capacity(self.resource),
            cluster.capacity(self.other),
        )
        self._spare = np.where(cluster.draining, -np.inf, expected - there)
        self._rounding = TOLERANCE * (expected + there)
        super().prepare(cluster)

    def largest(self, cluster: Cluster) -> float:
        """The cost with nothing of the resource used, and the other by a replica of everything."""
        empty = float(self._spare.max(initial=0.0))
        return max(0.0, empty + everything(cluster.snapshot, self.other))

    def costs(self, state: State) -> Floats:
        """What is lacking of the other resource."""
        used = self.ratio * state.load(self.resource)
        lacking = self._spare[state.broker] - used + state.load(self.other)
        return np.where(lacking > self._rounding[state.broker], lacking, 0.0)

    def terms(self, cluster: Cluster) -> tuple[Term, ...] | None:
        """What is lacking of the other resource."""
        if self.resource == self.other:
            return None
        factors = {self.resource: -self.ratio, self.other: 1.0}
        return (Excess(factors, -self._spare, 1 / self._scale),)


class Price(Cost):
    """A broker in use costs what one of its attributes says; an empty one costs nothing.

    A broker with `n` replicas costs ``price * n / (n + 0.1)``: at least 91 % of its price with
    one replica, 99.9 % with 100. That a broker costs a little less the emptier it is leads the
    search to empty brokers one replica at a time.

    Parameters
    ----------
    attribute
        The attribute of brokers that is their price, a number of at least 0.
    scale
        The cost at which a broker has a contentment of 0, in the unit of the price; by default the
        highest price.
    """

    requires: ClassVar[Any] = _Requires()
    attribute: str
    _price: Floats = PrivateAttr()

    @property
    def name(self) -> str:
        """The class and the attribute."""
        return f"{type(self).__name__}[{self.attribute}]"

    def required(self) -> tuple[str, ...]:
        """The attribute."""
        return (_BROKER_ATTRIBUTE + self.attribute,)

    def prepare(self, cluster: Cluster) -> None:
        """Read the prices."""
        self._price = amounts(self.name, cluster.snapshot, "broker", self.attribute)
        super().prepare(cluster)

    def largest(self, cluster: Cluster) -> float:
        """The highest price."""
        return float(self._price.max())

    def costs(self, state: State) -> Floats:
        """The price, a little less with few replicas; nothing without any."""
        held = state.column(Column(COUNT))
        cost: Floats = self._price[state.broker] * held / (held + 0.1)
        return cost


def _factor(value: float) -> float:
    if not 0 <= value <= MOST:
        raise ValueError(f"a factor from 0 to {MOST:g} expected")
    return value


class MoveCost(Cost):
    """A partition costs what its replicas cost that are not on a broker that held it at the start.

    The start is the snapshot. A replica costs what copying it there costs, in its present role;
    what has returned, and what is created from nothing, costs nothing. With `factors`, the cost
    depends on where it is copied from: the broker that led the partition at the start.

    Parameters
    ----------
    cost
        What a replica costs: ``movement``, the movement cost of the snapshot; ``replica``, 1 for
        each; or ``topic attribute NAME``, a number of at least 0 for each topic.
    by
        The groups of brokers that `factors` names: ``broker``, ``host``, ``rack`` or ``broker
        attribute NAME``.
    factors
        What the cost is multiplied by: for a group to copy from, the factors of groups to copy
        to. For all other pairs, and brokers in no group, it is 1.
    scale
        The cost at which a partition has a contentment of 0, in the unit of the cost; by default
        the largest that a partition can reach.

    Examples
    --------
    Copies between zones a and b cost twice as much:

    >>> goal = MoveCost(
    ...     by="broker attribute zone", factors={"a": {"b": 2.0}, "b": {"a": 2.0}}
    ... )
    >>> goal.name
    'MoveCost[movement by zone]'
    """

    scope: ClassVar = "partition"
    requires: ClassVar[Any] = _Requires()
    cost: str = "movement"
    by: str = ""
    factors: dict[str, dict[str, Annotated[float, AfterValidator(_factor)]]] = Field(
        default_factory=dict
    )
    _lead: Floats = PrivateAttr()
    _follow: Floats = PrivateAttr()
    _elsewhere: Snapshot | None = PrivateAttr(default=None)
    _factors: Floats | None = PrivateAttr(default=None)
    _from: Ints = PrivateAttr()
    _to: Ints = PrivateAttr()

    @field_validator("cost")
    @classmethod
    def _known_cost(cls, value: str) -> str:
        named = value.removeprefix(_TOPIC_ATTRIBUTE)
        if value not in ("movement", "replica") and (named == value or not named):
            raise ValueError("movement, replica or topic attribute NAME expected")
        return value

    @model_validator(mode="after")
    def _groups_of_factors(self) -> Self:
        if bool(self.by) != bool(self.factors):
            raise ValueError("by and factors expected together")
        if self.by and not isinstance(scope_of(self.by), BrokerScope):
            raise ValueError(f"by: {self.by!r} found, a scope of brokers expected")
        return self

    @property
    def name(self) -> str:
        """The class, and how it differs from the movement cost of the snapshot."""
        cost = self.cost.removeprefix(_TOPIC_ATTRIBUTE)
        by = f" by {self.by.removeprefix(_BROKER_ATTRIBUTE)}" if self.by else ""
        return type(self).__name__ + (f"[{cost}{by}]" if cost != "movement" or by else "")

    def required(self) -> tuple[str, ...]:
        """The attributes that it reads."""
        named = ((self.cost, _TOPIC_ATTRIBUTE), (self.by, _BROKER_ATTRIBUTE))
        return tuple(text for text, start in named if text.startswith(start))

    def prepare(self, cluster: Cluster) -> None:
        """Read what replicas cost, the factors, and where each partition is copied from."""
        s = cluster.snapshot
        if self.cost == "movement":
            self._lead, self._follow = copy_cost(cluster.placement)
            self._elsewhere = s if len(s.move_cost) else None
        elif self.cost == "replica":
            self._lead = self._follow = np.ones(s.n_partitions)
        else:
            values = amounts(self.name, s, "topic", self.cost.removeprefix(_TOPIC_ATTRIBUTE))
            self._lead = self._follow = values[s.partition_topic]
        if self.factors:
            self._factors, self._to = self._read_factors(s)
            first = cluster.placement.start[np.arange(s.n_partitions), np.maximum(s.leader, 0)]
            self._from = self._to[first]
        super().prepare(cluster)

    def _read_factors(self, snapshot: Snapshot) -> tuple[Floats, Ints]:
        """(G + 1, G + 1) the factors, and (B + 1,) each broker's group; the last is for none."""
        scope = scope_of(self.by)
        assert isinstance(scope, BrokerScope)
        names = {name: i for i, name in enumerate(scope.names(snapshot))}
        factors = np.ones((len(names) + 1, len(names) + 1))
        for one, row in self.factors.items():
            for two, factor in row.items():
                for name in (one, two):
                    if name not in names:
                        raise GoalError(
                            f"goal {self.name}, field factors: {shown(name)} found, the name of "
                            f"a {scope.noun} of the snapshot expected"
                        )
                factors[names[one], names[two]] = factor
        return factors, np.append(scope.members(snapshot), -1)

    def largest(self, cluster: Cluster) -> float:
        """The cost of the dearest partition with every replica where that costs most."""
        each = np.maximum(self._lead, self._follow)
        if self._elsewhere is not None:
            s = cluster.snapshot
            np.maximum.at(each, s.move_cost_partition, s.move_cost)
        if self._factors is not None:
            each = each * self._factors[:, self._to[:-1]].max(1)[self._from]
        # a partition without a replica at the start is created, not copied
        copied = cluster.snapshot.replication_factor > 0
        return cluster.placement.slots * float(each[copied].max(initial=0.0))

    def costs(self, state: State) -> Floats:
        """The cost of the replicas that are not on a broker of the start."""
        brokers, start, p = state.replica_broker, state.start_broker, state.partition
        # a partition without a replica at the start is created, not copied
        away = (brokers >= 0) & (start[..., :1] >= 0)
        for slot in range(start.shape[-1]):
            away &= brokers != start[..., slot, None]
        leads = np.arange(brokers.shape[-1]) == state.leader[..., None]
        each = np.where(leads, self._lead[p][..., None], self._follow[p][..., None])
        if self._elsewhere is not None:
            each = self._elsewhere.move_cost_of(p[..., None], brokers, each)
        if self._factors is not None:
            each = each * self._factors[self._from[p][..., None], self._to[brokers]]
        cost: Floats = np.where(away, each, 0.0).sum(-1)
        return cost

    def terms(self, cluster: Cluster) -> tuple[Term, ...] | None:
        """What each partition costs elsewhere, if it is the same for all of its replicas."""
        if self._elsewhere is not None or (self._lead != self._follow).any():
            return None
        if self._factors is None:
            return (Moved(self._lead / self._scale),)
        group = np.where(self._to[:-1] < 0, len(self._factors) - 1, self._to[:-1])
        return (Moved(self._lead / self._scale, group, self._factors),)


def everything(snapshot: Snapshot, resource: str) -> float:
    """The load of a resource on a broker with a replica of every partition, in its heavier role."""
    r = snapshot.resource(resource)
    return float(np.maximum(snapshot.leader_load[:, r], snapshot.follower_load[:, r]).sum())


def amounts(goal: str, snapshot: Snapshot, of: Literal["broker", "topic"], name: str) -> Floats:
    """An attribute's values as numbers of at least 0, one for each broker or topic.

    Raises
    ------
    GoalError
        For the first broker or topic that has another value, or none.
    """
    values = snapshot.attributes(of).named(name)
    if values.dtype.kind == "f":
        found: Floats = values
        bad = np.flatnonzero(~(found >= 0))
        if not len(bad):
            return found
    else:
        bad = np.arange(len(values))
    owner = snapshot.broker_ids[bad[0]] if of == "broker" else snapshot.topics[bad[0]]
    value = snapshot.attributes(of).of_row(int(bad[0])).get(name)
    raise GoalError(
        f"goal {goal}: {of} {owner}, attribute {name}: "
        f"{'none' if value is None else shown(value)} found, a number of at least 0 expected"
    )
