"""Events within 500 ms, and what that costs: policies on two arrival traces (seed 003, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from balancer.autoscaling.baselines import Fixed, Keda, LatencyAware, Linear
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policy import Policy
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.simulation import Foreseeing, Outcome, Setting, coming, simulate
from benchmarks.harness.arrivals import Events, events, rates, shares
from benchmarks.harness.figures import chosen, stated
from benchmarks.registry import Options, Row, benchmark

_NAME = "sla"
SLA, CAPACITY, INTERVAL = 0.5, 200.0, 1.0
_ORACLE = "oracle"
OURS, ALGORITHM_2 = "ours", "algorithm 2"
_TUNED = "KEDA's rule, tuned"
# Events of lag per consumer that are tried for it; KEDA's default is the first.
_THRESHOLDS = (10.0, 30.0, 50.0, 70.0, 90.0, 110.0)


class Case(NamedTuple):
    """One workload under one setting."""

    trace: str
    skewed: bool
    heartbeat: float
    rebalance: float
    batches: bool

    @property
    def name(self) -> str:
        parts = [
            self.trace,
            *(["skewed"] if self.skewed else []),
            f"heartbeat {self.heartbeat:g} s",
            *([f"rebalance {self.rebalance:g} s"] if self.rebalance != 0.05 else []),
            *([] if self.batches else ["spread"]),
        ]
        return ", ".join(parts)


_CASES = {
    case.name: case
    for case in (
        *(
            Case(trace, skewed, heartbeat, 0.05, True)
            for trace in ("10min", "2h")
            for skewed in (False, True)
            for heartbeat in (3.0, 0.5)
        ),
        # Figures 10 to 12
        *(Case("10min", False, 3.0, rebalance, True) for rebalance in (0.5, 2.0)),
        *(Case("10min", skewed, 3.0, 0.05, False) for skewed in (False, True)),
    )
}
# Percent within 500 ms, and replica-minutes, as stated in Section 5.
_PUBLISHED = {
    ("10min, heartbeat 3 s", ALGORITHM_2): (97.4, 30.21),
    ("10min, heartbeat 3 s", "linear"): (94.7, 25.5),
    ("10min, heartbeat 3 s", _ORACLE): (100.0, 32.7),
    ("10min, heartbeat 3 s", "over-provisioning"): (100.0, 50.0),
    ("10min, heartbeat 0.5 s", ALGORITHM_2): (98.1, None),
    ("2h, heartbeat 3 s", ALGORITHM_2): (98.9, 402.9),
    ("2h, heartbeat 3 s", "linear"): (95.4, 325.7),
    ("2h, heartbeat 3 s", _ORACLE): (100.0, 414.11),
    ("2h, heartbeat 3 s", "over-provisioning"): (100.0, 600.0),
    ("2h, heartbeat 0.5 s", ALGORITHM_2): (99.07, None),
    ("10min, skewed, heartbeat 3 s", ALGORITHM_2): (98.9, 29.8),
    ("10min, skewed, heartbeat 3 s", "linear"): (84.7, 25.5),
    ("2h, skewed, heartbeat 3 s", ALGORITHM_2): (99.08, 392.15),
    ("2h, skewed, heartbeat 3 s", "linear"): (85.9, 329.7),
    ("10min, heartbeat 3 s, rebalance 0.5 s", "algorithm 1"): (90.1, 33.85),
    ("10min, heartbeat 3 s, rebalance 0.5 s", ALGORITHM_2): (98.2, 34.61),
    ("10min, heartbeat 3 s, rebalance 2 s", "algorithm 1"): (85.4, 34.16),
    ("10min, heartbeat 3 s, rebalance 2 s", ALGORITHM_2): (99.4, 44.7),
}


def _fixed(case: Case) -> Policy:
    highest = rates(case.trace).max() * shares(skewed=case.skewed)
    return Fixed(highest, lag=highest if case.batches else np.zeros_like(highest), sla=SLA)


_POLICIES: dict[str, Callable[[Case], Policy]] = {
    OURS: lambda _: RepairPolicy(AutoscalingParameters(sla=SLA)),
    ALGORITHM_2: lambda _: LatencyAware(sla=SLA),
    "algorithm 1": lambda _: LatencyAware(sla=SLA, rebalance_lag=False),
    "linear": lambda case: Linear(seconds=SLA if case.batches else INTERVAL),
    "KEDA's rule": lambda _: Keda(),
    "over-provisioning": _fixed,
}


@benchmark(_NAME, sizes=tuple(_CASES))
def sla(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Events within 500 ms and replica-minutes of policies (seed 003, Tables 2 and 3, Figure 12).

    A consumer processes 200 events per second; decisions are made every second. As in the paper's
    experiments, the events of a second come together, which is what its figures for
    over-provisioning and for the optimum imply; "spread" sizes have them at random times. The
    oracle knows what comes and changes in no time; each policy's distance to it is stated. It
    processes all events of an interval in time, so a policy that is late may cost less.

    KEDA's rule counts a whole second's events as lag, if they come together. It is shown with its
    default of 10 per consumer, and tuned: of some thresholds, the cheapest one that keeps as many
    events within 500 ms as Algorithm 2, or else the one that keeps most.

    The paper ran on Kafka, and its figures contain the start of containers, polling and network
    times, which are not simulated: all policies keep more events within the SLA here. Its linear
    autoscaler and its optimum are described in a sentence each.
    """
    names = chosen(options, (*_POLICIES, _TUNED, _ORACLE))
    for size in sizes:
        case = _CASES[size]
        drawn = events(case.trace, skewed=case.skewed, batches=case.batches, seed=options.seed)
        best = _oracle(drawn, case)
        for name in names:
            options.log(f"{_NAME} {size}: {name}")
            if name == _ORACLE:
                outcome = best
            elif name == _TUNED:
                threshold, outcome = _tuned(drawn, case, options.seed)
                yield Row(_NAME, size, name, "threshold", threshold, "count")
            else:
                outcome = run(drawn, case, name, seed=options.seed)
            within = 100 * outcome.within(SLA)
            yield Row(_NAME, size, name, "within 500 ms", within, "percent")
            yield Row(_NAME, size, name, "cost", outcome.replica_minutes, "replica-minutes")
            over = 100 * (outcome.replica_minutes / best.replica_minutes - 1)
            yield Row(_NAME, size, name, "cost above the oracle's", over, "percent")
            missed = 100 * best.within(SLA) - within
            yield Row(_NAME, size, name, "within 500 ms, below the oracle", missed, "points")
            yield Row(_NAME, size, name, "scale-ups", outcome.ups, "count")
            yield Row(_NAME, size, name, "scale-downs", outcome.downs, "count")
            yield Row(_NAME, size, name, "rebalances", outcome.rebalances, "count")
            yield Row(_NAME, size, name, "latency, max", float(outcome.latency.max()), "seconds")
            if (size, name) in _PUBLISHED:
                percent, cost = _PUBLISHED[size, name]
                yield stated(_NAME, size, name, "within 500 ms", percent, "percent")
                if cost is not None:
                    yield stated(_NAME, size, name, "cost", cost, "replica-minutes")


def run(drawn: Events, case: Case, name: str, *, seed: int = 0) -> Outcome:
    """What becomes of the events under a policy."""
    return _simulated(drawn, case, _POLICIES[name](case), seed)


def _simulated(drawn: Events, case: Case, policy: Policy, seed: int) -> Outcome:
    setting = Setting(
        capacities=(CAPACITY,),
        interval=INTERVAL,
        heartbeat=case.heartbeat,
        rebalance_seconds=case.rebalance,
        seed=seed,
    )
    return simulate(*drawn, policy, setting)


def _tuned(drawn: Events, case: Case, seed: int) -> tuple[float, Outcome]:
    """KEDA's rule with the threshold that suits the workload best, known afterwards."""
    least = run(drawn, case, ALGORITHM_2, seed=seed).within(SLA)
    tried = {t: _simulated(drawn, case, Keda(threshold=t), seed) for t in _THRESHOLDS}
    enough = [t for t, outcome in tried.items() if outcome.within(SLA) >= least]
    if enough:
        best = min(enough, key=lambda t: tried[t].replica_minutes)
    else:
        best = max(tried, key=lambda t: tried[t].within(SLA))
    return best, tried[best]


def case_named(size: str) -> Case:
    """The workload and setting of a size."""
    return _CASES[size]


def _oracle(drawn: Events, case: Case) -> Outcome:
    """Fewest consumers in every second, changed in no time."""
    setting = Setting(
        capacities=(CAPACITY,), interval=INTERVAL, heartbeat=0.0, rebalance_seconds=0.0
    )
    seconds = SLA if case.batches else INTERVAL
    policy = Foreseeing(coming(*drawn, INTERVAL), seconds, INTERVAL)
    return simulate(*drawn, policy, setting)
