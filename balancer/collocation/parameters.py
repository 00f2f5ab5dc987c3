"""Tunable numbers of ALBIC beyond those of the allocation."""

from __future__ import annotations

from pydantic import Field

from balancer.allocation.parameters import AllocationParameters, Count, Share


class CollocationParameters(AllocationParameters):
    """Tunable numbers of collocation; options of the strategy ``albic``.

    The defaults are those of the figures in the documentation of collocation.

    Parameters
    ----------
    additions
        Whether to go beyond the seed. Without it, ALBIC is as printed there: the pair with the most
        traffic is brought together even if it cannot stay, sets are cut if the first pair fails,
        and what is left of the budget goes to a finer balance.
    fine_share
        Share of maxLD up to which a load distance is good enough while communicating key groups
        are apart: the other migrations bring those together. 0 balances as far as possible.
    pair_tries
        Pairs that are tried before the load of sets is reduced.
    attempt_share
        Share of the remaining time for an attempt that may have to be repeated.
    locality_passes
        Maximum number of passes over the units that would have more local traffic elsewhere.
    swap_tries
        Exchanges of two units that a pass tries where a move alone does not fit.
    outlook
        How much it counts that a key group comes to where a balanced cut of the whole graph has it,
        relative to its traffic there. More looks farther ahead than one period; with 0, each
        migration counts by what it makes local at once.
    outlook_pairs
        Communicating pairs up to which the whole graph is cut; larger graphs take seconds.
    """

    additions: bool = True
    fine_share: Share = 1.0
    pair_tries: Count = 4
    attempt_share: float = Field(default=0.6, gt=0, le=1)
    locality_passes: int = Field(default=40, ge=0, le=10**9)
    swap_tries: int = Field(default=2_000, ge=0, le=10**9)
    outlook: float = Field(default=0.2, ge=0, le=10)
    outlook_pairs: int = Field(default=100_000, ge=0, le=10**9)
