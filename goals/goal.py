"""The one class a goal author writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from cluster_model.errors import InputError
from goals.cluster import Cluster
from goals.state import State

# Factors within which products and quotients of loads and capacities are finite numbers.
LEAST, MOST = 1e-9, 1e9

Scope = Literal["broker", "host", "topic", "topic_rack", "disk", "partition"]


# Whoever writes 80 or 110 means percent.
_MOST_UTILIZATION, _MOST_RATIO = 5.0, 20.0


def _utilization(value: float) -> float:
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
Utilization = Annotated[float, AfterValidator(_utilization)]
Ratio = Annotated[float, AfterValidator(_ratio)]


class GoalError(InputError):
    """A goal or a list of goals that cannot be used as configured."""


@dataclass(frozen=True)
class Obstacle:
    """Why a goal cannot be met by any placement, and what would make it possible.

    With fewer than `brokers_to_add` typical brokers (in `broker_set`, where one is named) or
    `racks_to_add` racks more it still cannot be met.
    """

    reason: str
    cure: str
    brokers_to_add: int = 0
    racks_to_add: int = 0
    broker_set: str = ""


def _of_the_type(annotation: Any, value: Any) -> Any:
    """A value that no text, number or truth had to be taken for something else to be.

    Raises
    ------
    ValueError
        Saying what is expected instead.
    """
    kinds = set(get_args(annotation)) or {annotation}
    if kinds & {int, float} and str not in kinds:
        if isinstance(value, str) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError("a number expected")
        if isinstance(value, int | float) and float not in kinds and abs(value) >= 2**31:
            raise ValueError("a whole number below 2**31 expected")
    elif bool in kinds and isinstance(value, str | int | float) and not isinstance(value, bool):
        raise ValueError("true or false expected")
    elif isinstance(value, bool) and not kinds & {bool, Any}:
        raise ValueError("another kind of value expected")
    return value


class Goal(BaseModel):
    """How content each cell of the cluster is, from 0 to 1 (1 = met).

    A subclass names its scope, declares its thresholds as fields, and scores. The
    optimiser never shows it an action: it compares scores before and after.

    ``scope`` says what is scored, ``requires`` which resources a snapshot must have
    besides the one a field ``resource`` names.

    Parameters
    ----------
    hard
        A hard goal vetoes every action that would make it worse.
    weight
        Share of the goal in the score of its tier; greater than 0.
    tier
        Place in the order of priorities, 0 first; None leaves it to the list.

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

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    scope: ClassVar[Scope] = "broker"
    requires: ClassVar[tuple[str, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _no_other_type(cls, value: Any, info: ValidationInfo) -> Any:
        return _of_the_type(cls.model_fields[info.field_name or ""].annotation, value)

    hard: bool = False
    weight: float = Field(default=1.0, gt=0, le=MOST)
    tier: int | None = Field(default=None, ge=0)

    @property
    def name(self) -> str:
        """What the goal is called in plans: its class, and its resource if it has one."""
        resource = getattr(self, "resource", None)
        return type(self).__name__ + (f"[{resource}]" if resource else "")

    def topic_patterns(self) -> dict[str, str]:
        """Regular expressions that choose topics, by field; one that matches none is warned of."""
        return {}

    def prepared(self, cluster: Cluster) -> Self:
        """A copy that has looked at the cluster; the original is never changed."""
        goal = self.model_copy()
        goal.prepare(cluster)
        return goal

    def prepare(self, cluster: Cluster) -> None:
        """Look at the cluster once, and keep what scoring needs in private attributes."""

    def score(self, state: State) -> Any:
        """Contentment of each cell, in [0, 1], of the shape of the state's arrays."""
        raise NotImplementedError(f"goal {type(self).__name__} has no score method")

    @classmethod
    def together(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """One scoring of several prepared goals of this kind, stacked on a new first axis.

        Overridden by families of goals whose scores differ only in their arrays; must
        equal scoring each of them alone.
        """

        def score(state: State) -> Any:
            return np.stack([goal.score(state) for goal in goals])

        return score

    def obstacles(self, cluster: Cluster) -> list[Obstacle]:
        """Proofs, if any, that no placement meets the goal in this cluster."""
        return []
