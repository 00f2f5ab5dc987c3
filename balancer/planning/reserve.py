"""How much time a plan takes after the search, measured on the cluster itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from balancer.planning.parameters import PlanningParameters
from balancer.problem.problem import Problem
from balancer.search.arrays import first_of
from balancer.search.candidates import Candidates
from balancer.search.safety import Safety
from balancer.search.scorer import Scorer
from balancer.search.sequential_transition import SequentialTransition
from cluster_model.columns import COUNT, Column
from cluster_model.scopes import BROKER

_REPEATED = 3


def reserve(problem: Problem, parameters: PlanningParameters, few: bool) -> float:
    """Seconds that it may take to order and explain the steps.

    Scoring the whole cluster is what takes long with many goals on large clusters, on smaller
    ones it is to check again and again which steps are safe, and with few goals to add up what
    brokers carry.

    Parameters
    ----------
    problem
        The problem that the search is to solve.
    parameters
        How many scorings and checks to allow for.
    few
        Whether moves or cost are limited: the plan is then short, and half of that time is enough.
    """
    goals = [*problem.goals, *problem.vetoes]
    scorer = Scorer(problem.cluster, goals)
    random, safety = np.random.default_rng(0), Safety(scorer)
    most = min(parameters.reserved_actions, problem.cluster.snapshot.n_replicas)
    batch = Candidates(scorer, problem.rules, random).random_actions(most)
    batch = batch[first_of(batch.partition)]
    # What goals and placement keep is prepared by now.
    safety.safe(SequentialTransition(problem.cluster, batch))
    scoring = _least_seconds(lambda: Scorer(problem.cluster, goals))
    check = _least_seconds(lambda: safety.safe(SequentialTransition(problem.cluster, batch)))
    adding = _least_seconds(lambda: problem.start.recompute(BROKER, Column(COUNT)))
    most_steps = max(parameters.reserved_scorings * scoring, parameters.reserved_checks * check)
    return most_steps * (0.5 if few else 1.0) + parameters.reserved_sums * adding


def _least_seconds(work: Callable[[], object]) -> float:
    """The least of some durations: a process that had to wait would be taken for a long one."""
    found = []
    for _ in range(_REPEATED):
        before = time.monotonic()
        work()
        found.append(time.monotonic() - before)
    return min(found)
