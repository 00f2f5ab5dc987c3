"""Tunable numbers of the allocation's local search, of its programs and of its bound."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from goals.own_types import OwnTypes

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class AllocationParameters(OwnTypes):
    """Tunable numbers of the allocation; options of the strategies ``milp`` and ``albic``.

    The defaults are those of the figures in the documentation of collocation. No value makes a
    result worse than its start, or its bound untrue.

    Parameters
    ----------
    all_nodes, partners
        Nodes up to which all others are considered for an exchange of units; if there are more,
        this many of them.
    exchange_pairs
        Pairs of units that one round compares; if there are more, a random sample, with every way
        to move a unit without another in return before exchanges.
    largest_leap, smallest_leap
        Share of the way from the current to the sufficient load distance that the next band
        covers: at first, and at least.
    leap_rounds
        Rounds without success after which the share is halved.
    shortest_stay, longest_stay
        Rounds for which a unit stays after a move, chosen at random.
    saving_share
        How often a node is chosen to save cost, rather than to balance, while the budget is
        exceeded.
    price_factor, highest_price
        Factor per round by which the penalty for exceeding the budget rises while it is exceeded,
        and falls otherwise; and the highest penalty.
    search_share
        Share of the time, if it is limited, for searches and programs; in the rest, migrations that
        turned out to be unnecessary are reverted. Other shares are shares of this one.
    trivial_distance
        Load distance, in percentage points, that is not reduced further.
    starts, start_share
        Number of independent local searches, and the share of rounds and time for all of them.
    binding_starts
        Number of these searches where the budget binds: then HiGHS does more with the time.
    program_share
        Share of the time, from the beginning, after which HiGHS starts no further program.
    program_size, proof_size
        Pairs of units and nodes in the largest program that HiGHS improves, and in the largest
        problem that it is given whole to prove a bound.
    first_nodes
        Nodes of the first program; the size doubles when a program does not help.
    tree_nodes
        Maximum number of branch-and-bound nodes of a program.
    close_share, loose_share
        HiGHS is not used if the load distance is within this share of its bound, or if the bound
        is below this share of the distance: then the budget does not bind, and the local search
        does better.
    bound_steps
        Resolution of loads in the bound if units have individual costs: more gives a higher bound
        and takes proportionally longer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    all_nodes: Count = 80
    partners: int = Field(default=32, ge=2, le=10**9)
    exchange_pairs: Count = 100_000
    largest_leap: float = Field(default=0.3, gt=0, le=1)
    smallest_leap: float = Field(default=0.02, gt=0, le=1)
    leap_rounds: Count = 300
    shortest_stay: Count = 1
    longest_stay: Count = 8
    saving_share: Share = 0.5
    price_factor: float = Field(default=1.2, gt=1, le=1000)
    highest_price: float = Field(default=1e6, ge=1, le=1e12)
    search_share: float = Field(default=0.9, gt=0, le=1)
    trivial_distance: float = Field(default=0.01, ge=0, le=100)
    starts: Count = 5
    start_share: float = Field(default=0.6, gt=0, le=0.9)
    binding_starts: Count = 2
    program_share: float = Field(default=0.8, ge=0, le=0.9)
    program_size: Count = 100_000
    proof_size: int = Field(default=1_200, ge=0, le=10**9)
    first_nodes: Count = 12
    tree_nodes: Count = 50
    close_share: float = Field(default=0.005, ge=0)
    loose_share: Share = 0.5
    bound_steps: int = Field(default=4096, ge=16, le=1 << 20)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.smallest_leap > self.largest_leap:
            raise ValueError("smallest_leap of at most largest_leap expected")
        if self.shortest_stay > self.longest_stay:
            raise ValueError("shortest_stay of at most longest_stay expected")
        return self
