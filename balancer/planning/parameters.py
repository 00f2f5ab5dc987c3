"""Tunable numbers of planning: how long it looks for a safe order, room and reasons."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, le=10**9)]


# The most that the checker of plans accepts.
MOST_RELAXED_ROOM = 0.1


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
        Maximum number of single actions examined to state why a goal is unmet; if there are more, a
        sample is examined, and the reason says so.
    relaxed_room
        Share by which a limit that replaces an infeasible hard one is above the least feasible
        one. With none, hardly any move keeps it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    detour_rounds: Count = 100
    futile_rounds: Count = 6
    detours_per_round: Count = 256
    detour_brokers: Count = 24
    futile_additions: Count = 200
    examined_actions: int = Field(default=1 << 20, ge=1, le=10**9)
    relaxed_room: float = Field(default=0.05, ge=0, le=MOST_RELAXED_ROOM)
