"""Terms of goals: costs, limits and relations that compiled code evaluates without the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster_model.snapshot import Floats, Ints


@dataclass(frozen=True, eq=False)
class Excess:
    """What each broker lacks of content: what a weighted sum of its loads is above an amount.

    Parameters
    ----------
    factors
        Weight of each resource in the sum; at most two resources.
    above : (B,)
        The amount, in the unit of the sum.
    rate
        How much one unit above it takes from the score; one below 0 cannot be annealed.
    """

    factors: Mapping[str, float]
    above: Floats
    rate: float


@dataclass(frozen=True, eq=False)
class Moved:
    """What each partition lacks of content that is not where it was at the start.

    Parameters
    ----------
    cost : (P,)
        How much that takes from the score.
    group : (B,) int or None
        The group of each broker; None if the brokers do not matter.
    factors : (G, G) or None
        What the cost is multiplied by, from the group of the start to the group it is in.
    """

    cost: Floats
    group: Ints | None = None
    factors: Floats | None = None


@dataclass(frozen=True, eq=False)
class Limit:
    """A limit of each broker's load.

    Parameters
    ----------
    resource
        The limited resource.
    most : (B,)
        The limit, in the unit of the resource; infinite for none.
    former
        Whether what the broker held at the start and holds no longer counts too.
    """

    resource: str
    most: Floats
    former: bool = False


@dataclass(frozen=True, eq=False)
class Relation:
    """Limits on where replicas of one kind are, in groups of brokers.

    Parameters
    ----------
    kinds : (T,) int
        The kind of each topic; -1 for none.
    group : (B,) int
        The group of each broker; -1 for none.
    at_most
        Most replicas of a kind in a group; 0 for any number.
    at_least : (K,) or None
        Least number of groups that hold a replica of each kind.
    needs : (2, N) int or None
        Kinds, and the kind that each needs in every group where it is; -1 for one that is nowhere.
    """

    kinds: Ints
    group: Ints
    at_most: int = 0
    at_least: Floats | None = None
    needs: Ints | None = None


Term = Excess | Moved | Limit | Relation
