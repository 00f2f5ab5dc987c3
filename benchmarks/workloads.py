"""Policies on ten workloads, with slow starts, in eager and cooperative groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policies import POLICIES, policy
from balancer.autoscaling.simulation import Outcome, Setting, simulate
from balancer.autoscaling.trace import Events, draw
from benchmarks.harness.arrivals import events
from benchmarks.harness.figures import chosen
from benchmarks.registry import Options, Row, benchmark
from cluster_model.snapshot import Floats

_NAME = "workloads"
OURS = "repair"
# Seconds within which events are to be processed, as by default of `autoscale run`, events/s of a
# consumer, partitions of the invented workloads, and how long most of them last.
_TARGET, _CAPACITY, _PARTITIONS, _SECONDS = 5.0, 200.0, 12, 600
_STARTS = (0.0, 10.0, 50.0)
_KINDS = ("eager", "cooperative")
# Shares within the target that differ by less are equal: the table shows two decimals.
_EQUAL = 0.005
_ALL = "all"


def _shared(of: Callable[[Floats], Floats], seconds: int = _SECONDS, skew: float = 0.0) -> Events:
    """Events/s over time, shared among the partitions evenly or by a power of their number."""
    share = np.arange(1, _PARTITIONS + 1) ** -skew
    time = np.arange(seconds + 1.0)
    return draw(time, np.outer(of(time), share / share.sum()))


def _hot() -> Events:
    """A partition that receives, for 200 s, nearly what a consumer can process."""
    time = np.arange(_SECONDS + 1.0)
    rate = np.full((len(time), _PARTITIONS), 500.0 / _PARTITIONS)
    rate[(time >= 200) & (time < 400), 3] = 170.0
    return draw(time, rate)


def _published(trace: str) -> Events:
    return Events(*events(trace, skewed=False, batches=True, seed=0))


WORKLOADS: Mapping[str, Callable[[], Events]] = {
    "constant": lambda: _shared(lambda t: np.full_like(t, 700.0)),
    "steps": lambda: _shared(
        lambda t: np.array([200.0, 500, 1000, 500, 200])[np.minimum(t // 120, 4).astype(int)]
    ),
    "ramp": lambda: _shared(lambda t: 100.0 + 1000.0 * t / _SECONDS),
    "bursts": lambda: _shared(lambda t: np.where(t % 60 >= 50, 1000.0, 250.0)),
    "day": lambda: _shared(lambda t: 550.0 - 450.0 * np.cos(2 * np.pi * t / 1200), 1200),
    "skewed": lambda: _shared(lambda t: 500.0 + 300.0 * np.sin(2 * np.pi * t / 600), skew=0.8),
    "hot": _hot,
    "backlog": lambda: _shared(lambda t: np.where(t < 1, 20_500.0, 500.0)),
    "10min": lambda: _published("10min"),
    "2h": lambda: _published("2h"),
}


@benchmark(_NAME, sizes=(*WORKLOADS, _ALL))
def workloads(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Events within 5 s, and replica-minutes, of all policies on ten workloads with slow starts.

    Consumers process 200 events per second, and start at once, in 10 s or in 50 s. A decision is
    made every second, heartbeats are 3 s apart, and a rebalance takes 50 ms once all have heard of
    it. In an eager group a consumer stops at its own heartbeat; in a cooperative one only
    partitions that move stop. The invented workloads have 12 partitions and last 10 minutes, a day
    20. For ours it is stated how many policies are better in both figures, and by how much it
    costs more than the cheapest policy with at least its share; shares are equal to 0.005 points.
    """
    names = chosen(options, tuple(POLICIES))
    for size in WORKLOADS if _ALL in sizes else sizes:
        drawn = WORKLOADS[size]()
        for start in _STARTS:
            for kind in _KINDS:
                options.log(f"{_NAME} {size}: start {start:g} s, {kind}")
                found = {name: run(drawn, name, start, kind, options.seed) for name in names}
                yield from _rows(size, f"start {start:g} s, {kind}", found)


def run(drawn: Events, name: str, start: float, kind: str, seed: int = 0) -> Outcome:
    """What becomes of the events under a policy."""
    setting = Setting(
        capacities=(_CAPACITY,),
        start_seconds=start,
        blocking=kind == "eager",
        eager=kind == "eager",
        seed=seed,
    )
    return simulate(*drawn, policy(name, AutoscalingParameters(sla=_TARGET)), setting)


def _rows(size: str, case: str, found: Mapping[str, Outcome]) -> Iterator[Row]:
    within = {name: 100 * outcome.within(_TARGET) for name, outcome in found.items()}
    cost = {name: outcome.replica_minutes for name, outcome in found.items()}
    for name in found:
        yield Row(_NAME, size, name, f"{case}: within {_TARGET:g} s", within[name], "percent")
        yield Row(_NAME, size, name, f"{case}: cost", cost[name], "replica-minutes")
    if OURS not in found or len(found) == 1:
        return
    others = [name for name in found if name != OURS]
    better = [
        n for n in others if within[n] > within[OURS] + _EQUAL and cost[n] < cost[OURS] - _EQUAL
    ]
    yield Row(_NAME, size, OURS, f"{case}: policies better in both", len(better), "count")
    as_good = [cost[n] for n in others if within[n] >= within[OURS] - _EQUAL]
    if as_good:
        more = 100 * (cost[OURS] / min(as_good) - 1)
        yield Row(_NAME, size, OURS, f"{case}: cost above the cheapest as good", more, "percent")
