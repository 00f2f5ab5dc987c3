"""Puts availability goals before all others."""

from __future__ import annotations

from goals import (
    Goal,
)
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
