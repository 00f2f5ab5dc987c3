"""Renders a plan as one self-contained HTML file, without network access or a build step."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from balancer.planning.plan import Plan
from balancer.report.drawing import CHART_HEIGHT, chart
from balancer.report.facts import gather
from balancer.report.page import sections
from balancer.report.words import goal_list, operation_title, verdict, verdict_parts
from cluster_model.units import column_title
from metrics_reporter.documents import printable
from metrics_reporter.quantities import amount, cost_amount, plural, times

__all__ = ["before_after_svg", "html_report", "verdict"]


def html_report(
    plan: Plan,
    *,
    title: str | None = None,
    profile: str | None = None,
    commands: Mapping[str, str] | None = None,
) -> str:
    """The plan as one self-contained page: light and dark, printable, without a network.

    Parameters
    ----------
    plan
        A plan for up to about 1,000 brokers; the largest and most helpful of its actions are
        embedded.
    title
        Heading of the page; by default the operation.
    profile
        Name of the profile, or of the file, that the goals are from.
    commands
        What to run next: purpose -> the command, as it is typed.

    Returns
    -------
    str
        Equal plans give equal text. Names from the cluster are escaped, control characters
        in them are replaced, and the page forbids every script but its own.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> plan = Balancer("default").propose(synthetic_snapshot(brokers=6, partitions=60, racks=3))
    >>> html_report(plan, title="Tonight").startswith("<!DOCTYPE html>")
    True
    """
    s, script = plan.snapshot, _text("report.js")
    unmet = [g for g in plan.goal_results if not g.met_after]
    lead, rest = verdict_parts(plan)
    steps = [
        {"purpose": purpose, "command": command} for purpose, command in (commands or {}).items()
    ]
    environment = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "number": lambda count: f"{count:,}",
        "plural": plural,
        "times": times,
        "bytes": amount,
        "cost": cost_amount,
    }
    page = environment.get_template("report.html").render(
        title=title or operation_title(plan),
        kicker=(
            f"Plan for {plural(s.n_brokers, 'broker')} in {plural(len(s.racks), 'rack')}, "
            f"{plural(len(s.topics), 'topic')}, {plural(s.n_partitions, 'partition')}, "
            f"{plural(s.n_replicas, 'replica')}"
        ),
        lead=lead,
        verdict=rest,
        tone="broken" if any(g.hard for g in unmet) else "open" if unmet else "good",
        facts_rows=_facts(plan, profile),
        steps=steps,
        no_steps=(
            "Write the plan to a file as well: `verify`, `explain` and `execute` take it."
            if len(plan)
            else "There is nothing to carry out."
        ),
        style=Markup(chart_style() + _text("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **sections(gather(plan)),
    )
    return printable(page)


def before_after_svg(plan: Plan, columns: tuple[str, ...] = ("cpu", "network_out", "disk")) -> str:
    """Some columns of a plan before and after, side by side: an SVG file without script.

    Parameters
    ----------
    plan
        A plan for few brokers: the picture is small.
    columns
        Names from ``plan.columns``.
    """
    facts = gather(plan, topics=0)
    chosen = [c for c in facts.columns if c.name in columns]
    wide, high, top = 316, int(CHART_HEIGHT) + 24, 40
    parts = [
        f'<g transform="translate({8 + i * wide} {top})"><text class="head" x="34" y="10">'
        f"{escape(column_title(c.name))}: {times(c.result.before.worst_ratio)} → "
        f"{times(c.result.after.worst_ratio)}</text>"
        f'<g transform="translate(0 18)">{chart(facts, c, wide - 8)}</g></g>'
        for i, c in enumerate(chosen)
    ]
    width, height = 16 + wide * len(chosen), top + high + 4
    alt = escape(
        f"Load of each broker as a multiple of its fair share, before and after: {verdict(plan)}"
    )
    return printable(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{alt}"><style>{chart_style()}'
        "svg .head { font-weight: 600; font-size: 13px; } svg .sheet { fill: var(--paper); }"
        f'</style><rect class="sheet" width="{width}" height="{height}" rx="8"/>'
        f'<text class="note" x="42" y="22">Worst broker as a multiple of its fair share; '
        f"green: the goal; colours: racks</text>{''.join(parts)}</svg>\n"
    )


def _facts(plan: Plan, profile: str | None) -> list[tuple[str, str]]:
    """Which cluster it is, when it was looked at, and which goals were asked for."""
    s = plan.snapshot
    taken = "not known"
    if s.taken_ms is not None:
        taken = f"{datetime.fromtimestamp(s.taken_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    return [
        ("Cluster", s.cluster_id or "not known: the snapshot names none"),
        ("As of", taken),
        ("Goals", goal_list(plan, profile)),
        ("Digest of the plan", plan.digest or ""),
    ]


def chart_style() -> str:
    """Colours and fonts of all pictures, as CSS."""
    return _text("palette.css") + _text("chart.css")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
