"""Puts what is asked for first, then availability, then all other goals."""

from __future__ import annotations

from collections.abc import Sequence

from balancer.problem.empty_brokers import EmptyBrokers
from goals import Goal
from goals.availability import EligibleLeaders, OnlineReplicas


def with_availability(goals: list[Goal]) -> list[Goal]:
    """Availability goals come before every tier, unless the list contains them already."""
    have = {type(g) for g in goals}
    availability: list[Goal] = [
        g for g in (OnlineReplicas(tier=0), EligibleLeaders(tier=0)) if type(g) not in have
    ]
    numbers = sorted({g.tier if g.tier is not None else 0 for g in goals})
    return availability + [
        g.model_copy(update={"tier": 1 + numbers.index(g.tier if g.tier is not None else 0)})
        for g in goals
    ]


def with_request(own: Sequence[Goal], others: Sequence[Goal]) -> list[Goal]:
    """The goals of a request, then all others; emptying brokers is a tier before both."""
    if not any(isinstance(g, EmptyBrokers) for g in own):
        return [*own, *others]
    return [
        g if isinstance(g, EmptyBrokers) else g.model_copy(update={"tier": (g.tier or 0) + 1})
        for g in [*own, *others]
    ]
