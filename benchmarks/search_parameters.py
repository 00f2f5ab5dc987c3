"""Measures the effect of each parameter of the local search on plans for one cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from balancer import Balancer, Operation
from balancer.problem.resolution import resolve
from balancer.search.parameters import SearchParameters
from balancer.search.scorer import Scorer
from balancer.strategies import load_strategy
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from goals import Cluster
from metrics_reporter.documents import parse_yaml, shown

# So full and uneven that not every goal can be met: otherwise most values do equally well.
_TIGHT = {"heterogeneity": 0.5, "utilization": 0.7}
_CLUSTERS: dict[str, dict[str, Any]] = {
    "S": {"brokers": 10, "partitions": 150, "racks": 5, **_TIGHT},
    "M": {"brokers": 20, "partitions": 2_000, "racks": 5, **_TIGHT},
    "L": {"brokers": 100, "partitions": 20_000, "racks": 10, **_TIGHT},
}
# Multiples of the default that are tried unless values are given.
_MULTIPLES = (0.25, 0.5, 1, 2, 4)


@benchmark("search-parameters", sizes=tuple(_CLUSTERS))
def search_parameters(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Moves, bytes, penalty and seconds of plans with one search parameter at several values.

    A subject is a parameter (``passes``), with multiples of its default, or a parameter with
    values (``passes=1,3,9``); by default every number.
    """
    sweeps = [_sweep(subject) for subject in options.subjects or _numbers()]
    for size in sizes:
        snapshot = synthetic_snapshot(**_CLUSTERS[size], seed=options.seed)
        default = list(_planned(snapshot, {}, options.seed))
        for name, values in sweeps:
            options.log(f"search-parameters {size}: {name}")
            usual = getattr(SearchParameters(), name)
            for value in values:
                rows = default
                if value != usual:
                    rows = list(_planned(snapshot, {name: value}, options.seed))
                subject = f"{name}={value}{' (default)' if value == usual else ''}"
                for metric, found, unit in rows:
                    yield Row("search-parameters", f"{size}, {name}", subject, metric, found, unit)


def _numbers() -> list[str]:
    """Every number that matters to these clusters, whose costs do not add up."""
    return [
        name
        for name, value in SearchParameters()
        if isinstance(value, int | float) and "annealing" not in name
    ]


def _sweep(subject: str) -> tuple[str, list[Any]]:
    """The name of a parameter and the values to try.

    Raises
    ------
    BenchmarkError
        If there is no such parameter, or it does not take a value.
    """
    name, given, text = subject.partition("=")
    known = SearchParameters.model_fields
    if name not in known:
        raise BenchmarkError(f"no search parameter {shown(name)}; there are {', '.join(known)}")
    if not given:
        usual = getattr(SearchParameters(), name)
        if not isinstance(usual, int | float):
            raise BenchmarkError(f"search parameter {name}: values expected, like {name}=[1]")
        # what is off by default is tried, too
        scaled = [type(usual)(usual * times) for times in _MULTIPLES] if usual else [0, 4, 16]
        return name, [value for value in dict.fromkeys(scaled) if _fits(name, value)]
    try:
        values = parse_yaml(f"values: [{text}]")["values"]
    except (ValueError, yaml.YAMLError):
        values = []
    wrong = [value for value in values if not _fits(name, value)]
    if wrong or not values:
        raise BenchmarkError(
            f"search parameter {name}: {shown(text)} found, values for it expected"
        )
    return name, [getattr(SearchParameters(**{name: value}), name) for value in values]


def _fits(name: str, value: Any) -> bool:
    try:
        SearchParameters.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _planned(
    snapshot: Snapshot, parameters: dict[str, Any], seed: int
) -> Iterator[tuple[str, float, str]]:
    """Metrics of a plan with some parameters, as (metric, value, unit)."""
    balancer = Balancer(seed=seed, strategy=load_strategy({"strategy": "goals", **parameters}))
    started = time.perf_counter()
    plan = balancer.propose(snapshot)
    yield "seconds", time.perf_counter() - started, "seconds"
    yield "moves", float(plan.summary.replica_moves), "replicas"
    yield "leadership moves", float(plan.summary.leadership_moves), "partitions"
    yield "bytes moved", plan.summary.cost, plan.summary.cost_unit
    yield "goals unmet", float(sum(not g.met_after for g in plan.goal_results)), "goals"
    start = resolve(snapshot, Operation()).cluster
    names = {g.goal for g in plan.goal_results}
    goals = [g.prepared(start) for g in balancer.goals if g.name in names]
    ended = Cluster(plan.placement, start.eligible, start.leader_eligible, start.draining)
    scorer = Scorer(ended, goals)
    for tier in scorer.tiers:
        number = goals[tier.goals[0]].tier
        yield f"penalty of tier {number}", scorer.penalty(tier), "squared contentment"
