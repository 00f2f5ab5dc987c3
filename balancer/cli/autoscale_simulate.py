"""``counterpoise autoscale simulate``: plays a trace of arrivals against policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.autoscaling.policies import POLICIES
from balancer.cli.autoscale import LagThreshold, Maximum, Minimum, Price, Sla, parameters, seconds
from balancer.cli.layout import Rows
from balancer.cli.terminal import AsJson, CommandError, out, print_json, working
from metrics_reporter.quantities import percent, plural, rounded

if TYPE_CHECKING:
    from balancer.autoscaling.simulation import Outcome

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


def simulate(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="CSV file: seconds, and events/s from then on, in one column or one per "
            "partition.",
            show_default=False,
        ),
    ],
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions that a single column is divided among.")
    ] = 5,
    capacity: Annotated[
        list[float] | None,
        typer.Option(
            metavar="EVENTS/S",
            help="What a consumer processes, 200 by default; repeat it for consumers that differ, "
            "in the order in which they start.",
        ),
    ] = None,
    sla: Sla = "500ms",
    price_per_consumer: Price = 1.0,
    policy_name: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="|".join(POLICIES), help="Repeat it to compare; all by default."
        ),
    ] = None,
    lag_threshold: LagThreshold = 10.0,
    minimum: Minimum = 1,
    maximum: Maximum = 100,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Between decisions.")] = "1s",
    heartbeat: Annotated[
        str,
        typer.Option(metavar="DURATION", help="A consumer hears of a rebalance at the next one."),
    ] = "3s",
    rebalance_time: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a rebalance takes.")
    ] = "50ms",
    start_time: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a consumer takes to start.")
    ] = "0s",
    cooperative: Annotated[
        bool,
        typer.Option("--cooperative", help="A rebalance stops only the partitions that move."),
    ] = False,
    eager: Annotated[
        bool,
        typer.Option(
            "--eager",
            help="A consumer stops at its own heartbeat and waits for the others, as with Kafka's "
            "eager assignors; otherwise all read on until the last has heard of a rebalance.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of arrivals and heartbeats.")] = 0,
    json: AsJson = False,
) -> None:
    """Simulate policies on a trace of arrivals: who keeps the latency, and at what price.

    Every event waits in its partition until its consumer gets to it; a change of the consumers
    makes events wait, as it does on a Kafka.

    Example: `counterpoise autoscale simulate arrivals.csv --policy repair --policy keda`
    """
    from balancer.autoscaling.policies import check_sla, policy
    from balancer.autoscaling.simulation import Setting
    from balancer.autoscaling.simulation import simulate as simulated
    from balancer.autoscaling.trace import load_trace

    if eager and cooperative:
        raise CommandError("--eager and --cooperative given, at most one of them expected")
    given = parameters(sla, price_per_consumer, minimum, maximum)
    setting = Setting(
        capacities=tuple(capacity or [200.0]),
        interval=seconds("--interval", interval),
        heartbeat=seconds("--heartbeat", heartbeat),
        rebalance_seconds=seconds("--rebalance-time", rebalance_time),
        start_seconds=seconds("--start-time", start_time),
        blocking=not cooperative,
        eager=eager,
        seed=seed,
    )
    check_sla(given.sla, setting.stop_seconds)
    policies = {
        name: policy(name, given, lag_threshold) for name in dict.fromkeys(policy_name or POLICIES)
    }
    events = load_trace(trace, partitions, seed, setting.most_events)
    found: dict[str, Outcome] = {}
    with working("simulating") as report:
        for n, (name, decides) in enumerate(policies.items()):
            report(name, n, len(policies))
            found[name] = simulated(
                events.arrival, events.partition, events.partitions, decides, setting
            )
    if json:
        rows = {name: _record(outcome, given.sla) for name, outcome in found.items()}
        print_json({"events": len(events.arrival), "policies": rows})
        return
    console = out()
    console.print(
        f"{plural(len(events.arrival), 'event')} in {plural(events.partitions, 'partition')}, "
        f"{events.arrival[-1]:,.0f} s"
    )
    console.print(_table(found, given.sla))


def _record(outcome: Outcome, sla: float) -> dict[str, object]:
    import numpy as np

    quantiles = np.quantile(outcome.latency, _QUANTILES).tolist()
    names = [f"p{100 * q:g}_seconds" for q in _QUANTILES]
    return {
        "within_sla": outcome.within(sla),
        **dict(zip(names, quantiles, strict=True)),
        "replica_minutes": outcome.replica_minutes,
        "ups": outcome.ups,
        "downs": outcome.downs,
        "rebalances": outcome.rebalances,
    }


def _table(found: dict[str, Outcome], sla: float) -> Rows:
    import numpy as np

    headers = (f"within {1000 * sla:g} ms", "p50", "p90", "p99", "longest", "replica-minutes")
    figures = (*headers, "ups", "downs", "rebalances")
    table = Rows("policy", *(f"{header}>" for header in figures))
    for name, outcome in found.items():
        table.add(
            name,
            percent(outcome.within(sla)),
            *(f"{rounded(q, 3)} s" for q in np.quantile(outcome.latency, _QUANTILES)),
            f"{outcome.replica_minutes:,.1f}",
            *(str(n) for n in (outcome.ups, outcome.downs, outcome.rebalances)),
        )
    return table
