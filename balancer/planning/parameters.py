"""Tunable numbers of planning: how long it looks for a safe order, room and reasons."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, le=10**9)]


class PlanningParameters(BaseModel):
    """Tunable numbers of planning, which turns a better placement into a plan.

    No value makes a plan unsafe: with less effort more steps are left out, and the plan says how
    many. Each replica takes at most one detour, so the defaults limit only very full clusters.

    Parameters
    ----------
    detour_rounds
        Maximum number of rounds in which replicas that block each other take a detour over a broker
        with room.
    futile_rounds
        Rounds in a row that leave no fewer steps, after which no further detour is tried.
    detours_per_round
        Blocked moves considered in a round.
    detour_brokers
        Brokers tried for a detour, those with the most room.
    futile_additions
        New replicas in a row without room after which the remaining ones are left out.
    examined_actions
        Maximum number of moves, and of leadership transfers, that are all examined to state why a
        goal is unmet; if there are more, a sample is, and the reason states its size.
    sampled_actions
        Size of the samples, for all unmet goals together.
    sampled_cells
        Worst cells of a goal around which its sample is taken.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    detour_rounds: Count = 100
    futile_rounds: Count = 6
    detours_per_round: Count = 256
    detour_brokers: Count = 24
    futile_additions: Count = 200
    examined_actions: int = Field(default=1 << 14, ge=1, le=10**7)
    sampled_actions: int = Field(default=1 << 12, ge=1, le=10**7)
    sampled_cells: int = Field(default=4, ge=1, le=10**6)
