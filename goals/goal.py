"""The one class a goal author writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cluster_model.errors import InputError
from goals.cluster import Cluster
from goals.state import State

Scope = Literal["broker", "host", "topic", "topic_rack", "disk", "partition"]


class GoalError(InputError):
    """A goal or a list of goals that cannot be used as configured."""


@dataclass(frozen=True)
class Obstacle:
    """Why a goal cannot be met by any placement, and what would make it possible."""

    reason: str
    cure: str
    brokers_to_add: int = 0
    racks_to_add: int = 0


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

    hard: bool = False
    weight: float = Field(default=1.0, gt=0)
    tier: int | None = Field(default=None, ge=0)

    @property
    def name(self) -> str:
        """What the goal is called in plans: its class, and its resource if it has one."""
        resource = getattr(self, "resource", None)
        return type(self).__name__ + (f"[{resource}]" if resource else "")

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
