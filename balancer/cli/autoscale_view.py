"""Shows a consumer group in the terminal: consumers as bars, their lag, the decision and why."""

from __future__ import annotations

import numpy as np
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from balancer.autoscaling.autoscaler import Round, summary
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.policy import Decision
from balancer.cli.layout import Rows
from cluster_model.snapshot import Floats, Ints
from metrics_reporter.documents import shown_name
from metrics_reporter.quantities import percent, plural, rounded

_BAR = 24
# Most consumers and, of each, partitions that are listed.
_CONSUMERS, _PARTITIONS = 40, 6
# Share of its capacity from which a consumer's bar warns.
_FULL = 0.9
_KINDS = {"changed": "green", "failed": "red", "held": "yellow", "waiting": "dim"}


def decided(observation: Observation, decision: Decision) -> RenderableType:
    """A group before and after a decision."""
    names = observation.names_after(decision)
    parts: list[RenderableType] = [Text("\n".join(summary(observation, decision, names)))]
    parts += _warnings(observation, decision)
    parts += ["", consumers(observation, observation.group.consumer, "Now")]
    if decision:
        parts += ["", consumers(observation, decision.consumer, "Then", names)]
    return Lines(*parts)


def live(done: Round) -> RenderableType:
    """The last round, to be shown until the next one."""
    style = _KINDS.get(done.kind, "bold")
    line = Text.assemble((f"{done.kind}: ", style), done.reason)
    if done.observation is None or done.decision is None:
        return line
    o = done.observation
    lag, rate = float(o.group.lag.sum()), float(o.group.rate.sum())
    head = (
        f"group {o.name}: {plural(o.group.consumers, 'consumer')}, {done.consumers} needed, "
        f"{rounded(rate)} events/s, lag {rounded(lag)}"
    )
    now = consumers(o, o.group.consumer, "")
    return Lines(Text(head, style="bold"), line, *_warnings(o, done.decision), now)


def consumers(
    observation: Observation, consumer: Ints, title: str, names: tuple[str, ...] | None = None
) -> RenderableType:
    """A bar for each consumer: how much of its capacity its partitions take."""
    group = observation.group
    shown = observation.consumers if names is None else names
    table = Rows("consumer", "load", ">", "lag>", "partitions~", title=title)
    count = len(shown)
    rate, lag = group.load(consumer, group.rate, count), group.load(consumer, group.lag, count)
    load = rate / group.capacity_of(np.arange(count))
    for c in range(min(count, _CONSUMERS)):
        rows = np.flatnonzero(consumer == c)
        table.add(
            escape(shown_name(shown[c])),
            _bar(float(load[c])),
            percent(float(load[c])),
            rounded(lag[c]),
            escape(_listed(observation, rows, group.rate)),
        )
    homeless = np.flatnonzero(consumer < 0)
    if len(homeless):
        table.add(
            "[red]nobody[/]",
            "",
            "",
            rounded(group.lag[homeless].sum()),
            escape(_listed(observation, homeless, group.rate)),
        )
    if count <= _CONSUMERS:
        return table
    return Lines(
        table, Text(f"and {plural(count - _CONSUMERS, 'more consumer', 'more consumers')}")
    )


def _bar(load: float) -> str:
    full = min(_BAR, round(_BAR * load))
    colour = "red" if load > 1 else "yellow" if load > _FULL else "green"
    return f"[{colour}]{'█' * full}[/][dim]{'░' * (_BAR - full)}[/]"


def _listed(observation: Observation, rows: Ints, rate: Floats) -> str:
    """Partitions, the heaviest first."""
    order = rows[np.argsort(-rate[rows], kind="stable")]
    names = " ".join(observation.partitions[r] for r in order[:_PARTITIONS].tolist())
    more = len(order) - _PARTITIONS
    return f"{names} and {more:,} more" if more > 0 else names


def _warnings(observation: Observation, decision: Decision) -> list[RenderableType]:
    sentences = (*decision.warnings, *observation.notes)
    return [Text("\n".join(f"Warning: {sentence}" for sentence in sentences))] if sentences else []
