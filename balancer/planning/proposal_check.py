"""Checks the placement that a strategy proposes, before planning relies on it."""

from __future__ import annotations

import numpy as np

from balancer.problem.problem import Problem
from balancer.strategies.strategy import Proposal, StrategyError
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools


def check_proposal(problem: Problem, origin: Placement, proposal: Proposal, name: str) -> None:
    """Raise StrategyError, with one sentence, unless the proposal respects the request.

    Parameters
    ----------
    problem
        The problem that the strategy was given.
    origin
        The placement that it started from.
    proposal
        Its answer.
    name
        The strategy's name.
    """
    s, final = problem.start.snapshot, getattr(proposal, "placement", None)
    if not isinstance(final, Placement) or final.brokers.shape != origin.brokers.shape:
        raise StrategyError(
            f"strategy {name}: {type(proposal).__name__} found, a Proposal whose placement has the "
            "slots of the problem's expected"
        )
    before, after = origin.brokers, final.brokers
    held = after >= 0
    if after.max(initial=-1) >= s.n_brokers:
        raise StrategyError(
            f"strategy {name}: broker index {after.max()} found, one below {s.n_brokers} expected"
        )
    _refuse(problem, name, held.sum(1) != (before >= 0).sum(1), "another number of replicas")
    ordered = np.sort(after, 1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1)
    _refuse(problem, name, twice, "two replicas on one broker")
    rows = np.arange(len(after))
    led = (final.leader >= 0) & (final.leader < final.slots)
    leads = led & held[rows, np.where(led, final.leader, 0)]
    unfit = ~leads & held.any(1) & (final.leader != origin.leader)
    _refuse(problem, name, unfit, "no replica for its leader")
    rules = proposal.rules or problem.rules
    new = held & ~(after[:, :, None] == before[:, None, :]).any(2)
    barred = new & ~rules.receives[after]
    if rules.permitted is not None:
        barred |= new & ~rules.permitted[s.partition_topic[:, None], after]
    _refuse(problem, name, barred.any(1), "a replica on a broker that may not receive it")
    gone = (before >= 0) & ~(before[:, :, None] == after[:, None, :]).any(2)
    stuck = gone & ~rules.free(origin).reshape(gone.shape)
    _refuse(problem, name, stuck.any(1), "a replica moved that the request does not let move")


def _refuse(problem: Problem, name: str, wrong: Bools, what: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        s, p = problem.start.snapshot, int(rows[0])
        more = f" and {len(rows) - 1:,} more partitions" if len(rows) > 1 else ""
        raise StrategyError(
            f"strategy {name}: proposes {what}: "
            f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}{more}"
        )
