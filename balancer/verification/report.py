"""The report of a check: violations, wrong figures, and unchecked parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from balancer.planning.document import Action


@dataclass(frozen=True)
class Fault:
    """Something wrong with a plan.

    Parameters
    ----------
    kind
        A short name, the same for all findings of this kind.
    text
        What is wrong and where, the value found and the value expected.
    step
        Index of the action; None for the plan as a whole.
    """

    kind: str
    text: str
    step: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.step is None else f'step {self.step}: '}{self.text}"


@dataclass(frozen=True)
class Unchecked:
    """A part of a plan that is not checked.

    Parameters
    ----------
    field
        Its path in the plan's document, ``[]`` for any item: ``unmet[].remedy``.
    reason
        Why it is not checked, or which part of it is not.
    hard
        Whether it concerns a hard goal: then the plan is not sound.
    """

    field: str
    reason: str
    hard: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    Parameters
    ----------
    violations
        Steps that are impossible or forbidden, and broken promises of the operation.
    mismatches
        Figures that differ from those recomputed from the snapshot and the steps.
    unchecked
        Parts that nothing was computed for.
    """

    violations: tuple[Fault, ...]
    mismatches: tuple[Fault, ...]
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and every hard goal was checked."""
        hard = any(u.hard for u in self.unchecked)
        return not (self.violations or self.mismatches or hard)

    def record(self) -> dict[str, Any]:
        """The report as JSON-compatible data."""
        return {
            "ok": self.ok,
            "violations": [asdict(f) for f in self.violations],
            "mismatches": [asdict(f) for f in self.mismatches],
            "unchecked": [asdict(u) for u in self.unchecked],
        }


def label(action: Action) -> str:
    """An action as findings name it: its kind and its partition."""
    return f"{action.kind} {action.topic}-{action.partition}"


def agree(stated: float, found: float) -> bool:
    """Whether two figures agree to a millionth of the larger one."""
    return abs(stated - found) <= 1e-6 * max(abs(stated), abs(found)) + 1e-9
