"""The base class of all goals, the only one that a goal author extends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from cluster_model.errors import InputError
from cluster_model.scopes import BROKER, scope_of
from goals.cluster import Cluster
from goals.own_types import OwnTypes
from goals.state import State
from goals.terms import Term
from metrics_reporter.plugins import fault_of

# Range of factors for which products and quotients of loads and capacities stay finite.
LEAST, MOST = 1e-9, 1e9

# Larger values, such as 80 or 110, must be meant as percent.
_MOST_UTILIZATION, _MOST_RATIO = 5.0, 20.0


def utilization(value: float) -> float:
    """Return a share of a capacity; raises ValueError for a number that is none."""
    if not LEAST <= value <= _MOST_UTILIZATION:
        raise ValueError(
            f"a share of the capacity from {LEAST:g} to {_MOST_UTILIZATION:g} expected "
            "(0.8 means 80 %)"
        )
    return value


def _ratio(value: float) -> float:
    if not 1 <= value <= _MOST_RATIO:
        raise ValueError(
            f"a multiple of the fair share from 1 to {_MOST_RATIO:g} expected "
            "(1.1 means 10 % above it)"
        )
    return value


# Threshold of a goal: of a capacity, and of a fair share.
Utilization = Annotated[float, AfterValidator(utilization)]
Ratio = Annotated[float, AfterValidator(_ratio)]


class GoalError(InputError):
    """A goal or a list of goals with an invalid configuration."""


@dataclass(frozen=True)
class Infeasibility:
    """Proof that no placement meets a goal, and the remedy.

    With fewer than `brokers_to_add` more typical brokers (in `broker_set`, if one is named) or
    `racks_to_add` more racks it still cannot be met.
    """

    reason: str
    remedy: str
    brokers_to_add: int = 0
    racks_to_add: int = 0
    broker_set: str = ""


@dataclass(frozen=True)
class Relaxation:
    """A limit that can be kept, in place of one that is infeasible or yields to healing.

    Parameters
    ----------
    parameter
        The field of the goal that holds the limit.
    configured, used
        Its value in the configuration, and the one that can be kept.
    reason
        The proof that the configured limit cannot be kept.
    healing
        Whether it can be kept only while replicas stay on dead brokers or disks.
    """

    parameter: str
    configured: float
    used: float
    reason: str
    healing: bool = False


class TopicAttributeOf:
    """The `requires` of a goal with a field that may name an attribute of topics.

    Parameters
    ----------
    field
        The field; it names one if it is text.
    """

    def __init__(self, field: str) -> None:
        self._field = field

    def __get__(self, goal: Any, owner: type[Goal]) -> tuple[str, ...]:
        """The attribute of one goal; none of the class."""
        name = None if goal is None else getattr(goal, self._field)
        return (f"topic attribute {name}",) if isinstance(name, str) else ()


class Goal(OwnTypes):
    """Scores the contentment of each cell of the cluster, from 0 to 1 (1 = met).

    A subclass names its scope, declares its thresholds as fields, and scores. The
    optimiser never passes it an action: it compares scores before and after.

    ``scope`` is the kind of cell that is scored: one of :mod:`cluster_model.scopes` or its
    name (``"broker"``, ``"host"``, ``"rack"``, ``"disk"``, ``"partition"``, ``"topic"`` for a
    topic on a broker, ``"topic_rack"``, ``"broker attribute zone"`` for groups of brokers,
    ``"topic attribute tenant"`` for a tenant on a broker, ``"topic attribute tenant in rack"``);
    ``requires`` lists what a snapshot must have besides
    the resource that a field ``resource`` names: resources, ``broker sets``, ``traffic``, and
    attributes like ``broker attribute zone`` or ``topic attribute tenant``.

    ``availability`` is true if only what is legal matters to the goal: no legal action makes a
    cell unmet that was met. The search then reads the goal only while it is unmet, and the
    controller leaves its repair to the detectors of dead brokers and disks.

    ``aggregate`` says what an action changes. With ``"min"``, the score of the action compares the
    least content of the cells it touches before and after (seed 004): moving load to a broker
    that ends worse than the source was never helps. With ``"sum"``, the differences of all cells
    it touches add up: for goals whose contentment is a cost, so that the search climbs the total
    cost itself. Scores of a goal with ``"sum"`` have one scale for all cells, and are not clipped
    where an action can still change them.

    Parameters
    ----------
    hard
        A hard goal vetoes every action that makes it worse.
    weight
        Weight of the goal in the score of its tier; greater than 0.
    tier
        Priority, 0 first; None for the goal's position in the list.

    Examples
    --------
    >>> class FewReplicas(Goal):
    ...     limit: int = 10
    ...     def score(self, state):
    ...         return at_most(state.replica_count, self.limit)
    >>> from goals.curves import at_most
    >>> FewReplicas(limit=10).score(State.of(replica_count=[5, 10, 20]))
    array([1. , 1. , 0.5])
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    # A subclass may write a name; once the class exists it is a Scope.
    scope: ClassVar[Any] = BROKER
    requires: ClassVar[tuple[str, ...]] = ()
    availability: ClassVar[bool] = False
    aggregate: ClassVar[Literal["min", "sum"]] = "min"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Look up a scope that is given by name."""
        super().__pydantic_init_subclass__(**kwargs)
        own = vars(cls).get("scope")
        # A descriptor gives each goal a scope of its own.
        if own is not None and not hasattr(own, "__get__"):
            cls.scope = scope_of(own)

    @field_validator("*", mode="before")
    @classmethod
    def _no_larger_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Whole numbers of goals are below 2**31."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = set(get_args(annotation)) or {annotation}
        number = isinstance(value, int | float) and int in kinds and float not in kinds
        if number and abs(value) >= 2**31:
            raise ValueError("a whole number below 2**31 expected")
        return value

    hard: bool = False
    weight: float = Field(default=1.0, gt=0, le=MOST)
    tier: int | None = Field(default=None, ge=0)

    @property
    def name(self) -> str:
        """The goal's name in plans: its class, and its resource if it has one."""
        resource = getattr(self, "resource", None)
        return type(self).__name__ + (f"[{resource}]" if resource else "")

    def topic_patterns(self) -> dict[str, str]:
        """Regular expressions that select topics, by field; one without a match gives a warning."""
        return {}

    def prepared(self, cluster: Cluster) -> Self:
        """A copy that is prepared for the cluster; the original is never changed."""
        goal = self.model_copy()
        with (
            fault_of(f"goal {self.name}: prepare failed", GoalError, InputError),
            cluster.placement.locked(),
        ):
            goal.prepare(cluster)
        return goal

    def prepare(self, cluster: Cluster) -> None:
        """Read the cluster once, and store the data for scoring in private attributes."""

    def score(self, state: State) -> Any:
        """Contentment of each cell, in [0, 1], in the shape of the state's arrays."""
        raise NotImplementedError(f"goal {type(self).__name__} has no score method")

    @classmethod
    def score_batch(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """Score several prepared goals of this kind at once, stacked on a new first axis.

        Overridden by families of goals whose scores differ only in their arrays; must
        equal the separate scores.
        """

        def score(state: State) -> Any:
            return np.stack([goal.score(state) for goal in goals])

        return score

    def terms(self, cluster: Cluster) -> tuple[Term, ...] | None:
        """The goal as terms that compiled code evaluates; None if it cannot be stated so.

        What the cells of a goal that adds up lack of content is the total of its terms. Any other
        goal has only limits and relations: a cell becomes less content exactly if one of them is
        broken, or broken by more.

        Parameters
        ----------
        cluster
            The cluster that the goal was prepared for.
        """
        return None

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Proofs, if any, that no placement meets the goal in this cluster."""
        return []

    def relaxed(self, cluster: Cluster, room: float) -> Relaxation | None:
        """The nearest limit that can be kept in place of one that is proven infeasible.

        A goal that no placement meets would veto what other goals need: a hard one every action on
        its cells, a soft one those that serve lower tiers.
        The search and every step then obey the goal with this limit, and the plan says so.

        Parameters
        ----------
        cluster
            The cluster at the start.
        room
            Share by which the limit is above the least one that the proof allows, so that there
            are moves that keep it.

        Returns
        -------
        Relaxation or None
            None if no proof applies, or if no other limit would help.
        """
        return None


def proofs_of(goal: Goal, cluster: Cluster) -> list[Infeasibility]:
    """What a goal proves of a cluster, which it may not change."""
    with (
        fault_of(f"goal {goal.name}: infeasibilities failed", GoalError, InputError),
        cluster.placement.locked(),
    ):
        return goal.infeasibilities(cluster)
