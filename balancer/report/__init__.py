"""Renders a plan as one self-contained HTML file, without network access or a build step."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from balancer.planning.plan import Plan
from balancer.report import page
from balancer.report.drawing import CHART_HEIGHT, chart
from balancer.report.facts import gather
from balancer.report.words import operation_title, verdict
from cluster_model.units import column_title
from metrics_reporter.documents import printable
from metrics_reporter.quantities import plural, times

__all__ = ["before_after_svg", "html_report", "verdict"]


def html_report(plan: Plan, *, title: str | None = None) -> str:
    """The plan as one self-contained page: light and dark, printable, without a network.

    Parameters
    ----------
    plan
        A plan for up to about 1,000 brokers; the largest and most helpful of its actions are
        embedded.
    title
        Heading of the page; by default the operation.

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
    facts, s, summary = gather(plan), plan.snapshot, plan.summary
    script = _text("report.js")
    unmet = [g for g in plan.goal_results if not g.met_after]
    sections = {
        "title": escape(title or operation_title(plan)),
        "kicker": (
            f"Plan for {plural(s.n_brokers, 'broker')} in {plural(len(s.racks), 'rack')}, "
            f"{plural(len(s.topics), 'topic')}, {plural(s.n_partitions, 'partition')}, "
            f"{plural(s.n_replicas, 'replica')}{_origin(plan)}"
        ),
        "verdict": escape(verdict(plan)),
        "tone": "broken" if any(g.hard for g in unmet) else "open" if unmet else "good",
        "tiles": page.tiles(plan),
        "balanced_words": (
            f"Balancedness {summary.balancedness_before:.1f} of 100 before, "
            f"{summary.balancedness_after:.1f} after"
        ),
        "balancedness": page.balancedness(plan),
        "chart_note": page.chart_note(facts),
        "charts": page.charts(facts),
        "racks": page.racks(facts),
        "topics": page.topics(facts),
        "remarks": page.remarks(plan),
        "goals": page.goals(plan),
        "honesty": page.limitations(plan),
        "actions_note": page.duration(plan) + page.actions_note(plan),
        "action_rows": page.action_rows(plan),
        "data": page.data(facts),
    }
    return Template(_text("report.html")).substitute(
        {name: printable(text) for name, text in sections.items()},
        style=chart_style() + _text("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


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


def _origin(plan: Plan) -> str:
    """Which cluster it is, and when it was looked at, as far as that is known."""
    s = plan.snapshot
    name = "" if s.cluster_id is None else f"; cluster {escape(s.cluster_id)}"
    if s.taken_ms is None:
        return name
    at = datetime.fromtimestamp(s.taken_ms / 1000, UTC)
    return f"{name}; as of {at:%Y-%m-%d %H:%M} UTC"


def chart_style() -> str:
    """Colours and fonts of all pictures, as CSS."""
    return _text("chart.css")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
