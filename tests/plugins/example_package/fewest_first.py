"""A strategy: brokers with the most replicas give to those with the fewest."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from balancer import Budget
from balancer.strategies import Problem, ProgressCallback, Proposal
from cluster_model.placement import MOVE, Batch


class FewestFirst(BaseModel):
    """Evens out the number of replicas, one move at a time.

    Parameters
    ----------
    steps
        Maximum number of moves.
    """

    summary: ClassVar[str] = "Even out the number of replicas, one move at a time."

    steps: int = Field(default=1000, ge=0)

    @property
    def name(self) -> str:
        return "fewest-first"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        placement, brokers = problem.cluster.placement, problem.start.snapshot.n_brokers
        moves = self.steps if limits.moves is None else min(self.steps, limits.moves)
        for done in range(moves):
            held = placement.replica_broker
            count = np.bincount(held[held >= 0], minlength=brokers)
            most = int(count.argmax())
            fewest = int(np.where(problem.rules.receives, count, brokers + count.max()).argmin())
            at = np.flatnonzero(held == most)
            slot, target = at % placement.slots, np.full(len(at), fewest)
            batch = Batch.of(MOVE, at // placement.slots, slot, target)
            batch = batch[problem.rules.legal(placement, batch)]
            if not len(batch) or count[most] - count[fewest] < 2:
                break
            placement.apply(batch[:1])
            if progress is not None:
                progress("evening out", 0, 0, done + 1)
        return Proposal(placement=placement)
