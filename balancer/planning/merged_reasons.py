"""Merges equal reasons and remedies of unmet goals, each with the goals it is true of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from balancer.planning.document import Remedy, Unmet


@dataclass(frozen=True)
class MergedReason:
    """Why some goals, all hard or all soft, stay unmet, or what would help them."""

    text: str
    goals: tuple[str, ...]
    hard: bool
    proven: bool


def merged_reasons(unmet: Sequence[Unmet]) -> list[MergedReason]:
    """Each reason once, in the order in which it first comes.

    Examples
    --------
    >>> goal = Unmet(goal="a", hard=False, proven=False, reason="no room", remedy="add brokers")
    >>> (found,) = merged_reasons([goal, goal.model_copy(update={"goal": "b"})])
    >>> found.goals
    ('a', 'b')
    """
    return _merged(unmet, [u.reason for u in unmet])


def merged_remedies(unmet: Sequence[Unmet], tried: Remedy | None = None) -> list[MergedReason]:
    """Each remedy once; goals that the plan's own remedy serves are left out.

    Examples
    --------
    >>> goal = Unmet(goal="a", hard=False, proven=False, reason="no room", remedy="add brokers")
    >>> [found.text for found in merged_remedies([goal, goal])]
    ['add brokers']
    """
    served = () if tried is None else tried.goals
    of = [u for u in unmet if u.remedy and u.goal not in served]
    return _merged(of, [u.remedy for u in of])


def _merged(unmet: Sequence[Unmet], texts: Sequence[str]) -> list[MergedReason]:
    found: dict[tuple[bool, bool, str], list[Unmet]] = {}
    for of, text in zip(unmet, texts, strict=True):
        found.setdefault((of.proven, of.hard, text), []).append(of)
    return [
        MergedReason(text, tuple(dict.fromkeys(u.goal for u in of)), hard, proven)
        for (proven, hard, text), of in found.items()
    ]
