"""ALBIC as a strategy of the balancer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from balancer.collocation.parameters import CollocationParameters
from balancer.problem.deadline import Deadline
from balancer.strategies.milp import Milp
from cluster_model.snapshot import Ints

if TYPE_CHECKING:
    from balancer.allocation.problem import Solution
    from balancer.allocation.units import Units


class Albic(Milp, CollocationParameters):
    """Like :class:`~balancer.strategies.milp.Milp`, but collocates communicating key groups.

    Seed 001, Section 4.3.2.

    Parameters
    ----------
    resource, rounds, max_distance
        See the MILP.
    max_group_load, step, score_factor, pairs
        maxPL, stepPL and sF, and the number of pairs to bring together, see
        :func:`balancer.collocation.albic.albic`.
    """

    summary: ClassVar[str] = "Like milp, and collocate partitions that communicate."

    max_group_load: float = Field(default=25.0, ge=0)
    step: float = Field(default=5.0, gt=0)
    score_factor: float = Field(default=1.5, ge=0)
    pairs: int = Field(default=1, ge=0)

    @property
    def name(self) -> str:
        """``albic``."""
        return "albic"

    def solved(self, units: Units, deadline: Deadline, seed: int) -> tuple[Solution, Ints]:
        """An allocation by ALBIC, and the set that each unit migrates with."""
        from balancer.collocation.albic import albic

        found = albic(
            units,
            max_distance=self.max_distance,
            max_group_load=self.max_group_load,
            step=self.step,
            score_factor=self.score_factor,
            pairs=self.pairs,
            rounds=self.rounds,
            deadline=deadline,
            seed=seed,
            parameters=self,
        )
        return found.solution, found.group
