"""``counterpoise autoscale``: how many consumers a group needs, and which partitions each reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.autoscaling.policies import POLICIES
from balancer.cli.terminal import AsJson, CommandError, out, print_json
from metrics_reporter import quantities
from metrics_reporter.documents import as_model, shown

if TYPE_CHECKING:
    from balancer.autoscaling.parameters import AutoscalingParameters

Sla = Annotated[
    str, typer.Option(metavar="DURATION", help="Target of the latency, such as 500ms or 2s.")
]
Price = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Price of a consumer for a minute, if moving as much write speed as a consumer's "
        "capacity costs 1: low ones move little, high ones save consumers.",
    ),
]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="|".join(POLICIES), help="How to decide.")
]
LagThreshold = Annotated[
    float, typer.Option(help="Events of lag per consumer, for the policy keda.")
]
Minimum = Annotated[int, typer.Option(min=1, help="Fewest consumers.")]
Maximum = Annotated[int, typer.Option(min=1, help="Most consumers.")]


def seconds(option: str, text: str) -> float:
    """Seconds of ``"500ms"``; a number alone is seconds."""
    try:
        return quantities.duration(f"{text}s" if text.strip()[-1:].isdigit() else text)
    except ValueError as error:
        raise CommandError(f"{option}: {shown(text)} found, {error}") from None


def parameters(sla: str, price: float, minimum: int, maximum: int) -> AutoscalingParameters:
    """Those of the options."""
    from balancer.autoscaling.parameters import AutoscalingParameters

    given = {
        "sla": seconds("--sla", sla),
        "price_per_consumer": price,
        "minimum": minimum,
        "maximum": maximum,
    }
    return as_model(AutoscalingParameters, given, "options", CommandError)


def decide(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Group file, YAML or JSON: consumers, partitions with their rates and lags.",
            show_default=False,
        ),
    ],
    sla: Sla = "500ms",
    price_per_consumer: Price = 1.0,
    policy_name: PolicyName = "repair",
    lag_threshold: LagThreshold = 10.0,
    minimum: Minimum = 1,
    maximum: Maximum = 100,
    json: AsJson = False,
) -> None:
    """Decide once, on a group described by a file.

    Example: `counterpoise autoscale decide group.yaml --sla 500ms`
    """
    from balancer.autoscaling.autoscaler import decide_once
    from balancer.autoscaling.document import load_group
    from balancer.autoscaling.policies import check_sla, policy
    from balancer.cli.autoscale_view import decided

    seen = load_group(file)
    given = parameters(sla, price_per_consumer, minimum, maximum)
    check_sla(given.sla, seen.group.rebalance_seconds)
    found = decide_once(seen, policy(policy_name, given, lag_threshold))
    if not json:
        out().print(decided(seen, found))
        return
    names = seen.names_after(found)
    assignment = {
        partition: None if c < 0 else names[c]
        for partition, c in zip(seen.partitions, found.consumer.tolist(), strict=True)
    }
    print_json(
        {
            "group": seen.name,
            "running": seen.group.consumers,
            "consumers": seen.after(found),
            "start": found.start,
            "stop": [seen.consumers[i] for i in found.stop],
            "moves": found.moves,
            "rscore": found.rscore,
            "reason": found.reason,
            "warnings": list(found.warnings),
            "assignment": assignment,
        }
    )
