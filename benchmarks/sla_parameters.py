"""What each parameter of our policy changes on the arrival traces, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.simulation import Setting, simulate
from benchmarks.harness.arrivals import events
from benchmarks.harness.figures import chosen
from benchmarks.registry import Options, Row, benchmark
from benchmarks.sla import CAPACITY, INTERVAL, SLA, case_named

_NAME = "sla-parameters"
_CASES = {
    trace: tuple(
        f"{trace}, {skewed}heartbeat {heartbeat} s"
        for skewed in ("", "skewed, ")
        for heartbeat in ("3", "0.5")
    )
    for trace in ("10min", "2h")
}
# Values to try beside the default: half and double unless given.
_VALUES: dict[str, tuple[float, ...]] = {
    "fill": (0.9, 1.0),
    "target": (0.85, 0.95),
    "shrink": (0.7, 0.9),
    "price_per_consumer": (0.5, 2.0),
    "horizon": (30.0, 120.0),
    "lookahead": (1.0, 4.0),
    "level_seconds": (2.0, 8.0),
    "trend_seconds": (2.0, 8.0),
    "noise_seconds": (7.5, 30.0),
    "significance": (1.0, 4.0),
    "step": (4.0, 1e6),
    "burst_decisions": (2, 10),
    "calm": (7.5, 30.0),
    "quiet": (7.5, 30.0),
    "remembered": (150.0, 600.0),
}
_SUBJECTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{f"{name}={value:g}": {name: value} for name, values in _VALUES.items() for value in values},
}


@benchmark(_NAME, sizes=tuple(_CASES))
def sla_parameters(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Events within 500 ms and replica-minutes with one parameter of ours halved or doubled.

    Skewed and not, with heartbeats of 3 s and 0.5 s: the least share within the SLA of these
    workloads, and their mean cost and rebalances.
    """
    for size in sizes:
        cases = [case_named(name) for name in _CASES[size]]
        drawn = [events(c.trace, skewed=c.skewed, batches=True, seed=options.seed) for c in cases]
        for name in chosen(options, tuple(_SUBJECTS)):
            options.log(f"{_NAME} {size}: {name}")
            outcomes = []
            for case, arrived in zip(cases, drawn, strict=True):
                setting = Setting(
                    capacities=(CAPACITY,),
                    interval=INTERVAL,
                    heartbeat=case.heartbeat,
                    rebalance_seconds=case.rebalance,
                    seed=options.seed,
                )
                policy = RepairPolicy(AutoscalingParameters(sla=SLA, **_SUBJECTS[name]))
                outcomes.append(simulate(*arrived, policy, setting))
            within = [100 * o.within(SLA) for o in outcomes]
            yield Row(_NAME, size, name, "within 500 ms, least", min(within), "percent")
            cost = sum(o.replica_minutes for o in outcomes) / len(outcomes)
            yield Row(_NAME, size, name, "cost, mean", cost, "replica-minutes")
            made = sum(o.rebalances for o in outcomes) / len(outcomes)
            yield Row(_NAME, size, name, "rebalances, mean", made, "count")
