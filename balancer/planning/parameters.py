"""Tunable numbers of planning: how long it looks for a safe order, room and reasons."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from goals.own_types import OwnTypes

Count = Annotated[int, Field(ge=0, le=10**9)]


# The most that the checker of plans accepts.
MOST_RELAXED_ROOM = 0.1


class PlanningParameters(OwnTypes):
    """Tunable numbers of planning, which turns a better placement into a plan.

    No value makes a plan unsafe: with less effort more steps are left out, and the plan says how
    many. Replicas take detours only where brokers are so full that no other order is safe.

    Parameters
    ----------
    refill
        Whether steps may fill a broker, host or disk that is above a hard limit at the start again
        up to what it held then. Otherwise only up to the limit, which leaves out exchanges between
        such brokers.
    detour_rounds
        Maximum number of attempts to make room for a blocked action; those that do not pay off are
        taken back.
    futile_rounds
        Attempts in a row that leave no fewer actions, after which no other is made.
    detours_per_round
        Detours that make room for one action.
    detour_chain
        Blocked actions that one attempt may carry out before fewer actions are left.
    detour_brokers
        Brokers considered for a detour, those with the most room.
    detour_replicas
        Replicas of the full broker considered for a detour: those that move anyway, then others of
        all sizes.
    explored_replicas, explored_orders
        In clusters of up to this many replicas without known disks, where actions find no safe
        order or detours cost something, so many placements that safe steps lead to are looked at
        for a better order.
    explored_steps
        Steps from each of these placements that are considered, on average.
    shorter_plans
        Shorter plans that are tried where a limit ends one within a detour, at something that the
        strategy judges worse than the start.
    futile_additions
        New replicas in a row without room after which the remaining ones are left out.
    examined_actions
        Maximum number of moves, and of leadership transfers, that are all examined to state why a
        goal is unmet; if there are more, a sample is, and the reason states its size.
    sampled_actions
        Size of the samples, for all unmet goals together.
    sampled_cells
        Worst cells of a goal around which its sample is taken.
    reserved_scorings, reserved_checks, reserved_actions, reserved_sums, reserved_share
        Time kept free, if it is limited, to order and explain the steps: as long as scoring the
        whole cluster this many times, or checking whether actions are safe so many times, of up to
        twice so many actions, whichever is longer (half of it where moves or cost are limited), and
        adding up what all brokers carry so many times; but at most this share of the limit.
    ordered_parts, least_ordered
        Safe steps are carried out in so many parts, each of at least so many; after each part,
        the next steps of its partitions take their place among the rest.
    relaxed_room
        Share by which a limit that replaces an infeasible one is above the least feasible
        one. With none, hardly any move keeps it.
    sized_numbers
        Numbers of brokers that ``right_size`` plans for before it settles for the smallest that
        worked.
    sized_choices
        Choices of brokers to empty that it plans for with one broker fewer than it found.
    sized_sets
        If there are up to this many choices, all are looked at, and those without room left out.
    sized_added
        Maximum number of brokers that it adds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    refill: bool = True
    detour_rounds: Count = 1000
    futile_rounds: Count = 64
    detours_per_round: Count = 12
    detour_chain: Count = 3
    detour_brokers: Count = 24
    detour_replicas: Count = 256
    explored_replicas: Count = 50
    explored_orders: Count = 500
    explored_steps: Count = 100
    shorter_plans: Count = 64
    futile_additions: Count = 200
    examined_actions: int = Field(default=1 << 14, ge=1, le=10**7)
    sampled_actions: int = Field(default=1 << 12, ge=1, le=10**7)
    sampled_cells: int = Field(default=4, ge=1, le=10**6)
    reserved_scorings: float = Field(default=100.0, ge=0, le=1e6)
    reserved_checks: float = Field(default=200.0, ge=0, le=1e6)
    reserved_actions: int = Field(default=500, ge=1, le=10**6)
    reserved_sums: float = Field(default=80.0, ge=0, le=1e6)
    reserved_share: float = Field(default=0.6, ge=0, lt=1)
    ordered_parts: int = Field(default=16, ge=1, le=10**9)
    least_ordered: int = Field(default=32, ge=1, le=10**9)
    relaxed_room: float = Field(default=0.05, ge=0, le=MOST_RELAXED_ROOM)
    sized_numbers: Count = 24
    sized_choices: Count = 12
    sized_sets: Count = 5000
    sized_added: Count = 200
