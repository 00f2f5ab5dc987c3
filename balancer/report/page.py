"""The sections of the page, each from facts to HTML; names from the cluster are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from balancer.planning.document import GoalResult, limit_reached
from balancer.planning.plan import Plan
from balancer.report.drawing import (
    BARS,
    CHART_HEIGHT,
    COLOURS,
    chart,
    dumbbell,
    heat_rows,
    legend_text,
    relief_curve,
)
from balancer.report.facts import ColumnFacts, Facts, rack_ratios
from cluster_model.snapshot import Ints
from cluster_model.units import column_title
from metrics_reporter.documents import printable
from metrics_reporter.quantities import amount, cost_amount, period, plural, times

ACTIONS = 2000  # embedded for the search box
ACTIONS_FIRST = 40  # on paper, and where scripts do not run
EFFECTS = 4  # of an action, the strongest
RACKS = 40
_CHART_WIDTH = 540
# Bytes/s that a broker may receive, for which the report states a time.
THROTTLES = (20e6, 50e6, 200e6)

KINDS = {
    "move": "move",
    "leadership": "leadership",
    "move_disk": "move disk",
    "add": "add",
    "remove": "remove",
}


def tiles(plan: Plan) -> str:
    """The figures of the summary."""
    s = plan.summary
    met = [
        sum(g.met_before for g in plan.goal_results),
        sum(g.met_after for g in plan.goal_results),
    ]
    found = [
        (
            "Balancedness",
            f"{s.balancedness_after:.0f}",
            f"of 100; {s.balancedness_before:.0f} before",
        ),
        ("Goals met", f"{met[1]}", f"of {len(plan.goal_results)}; {met[0]} before"),
        (
            "Replica moves",
            f"{s.replica_moves:,}",
            f"of {plural(plan.snapshot.n_replicas, 'replica')}",
        ),
        ("Leadership transfers", f"{s.leadership_moves:,}", "nothing is copied"),
    ]
    share = 100 * s.cost / s.cost_total if s.cost_total else 0.0
    copied = ("Data copied", "data") if s.cost_unit == "bytes" else ("Cost of the moves", "it")
    note = f"{share:.3g} % of all {copied[1]}"
    found.append((copied[0], cost_amount(s.cost, s.cost_unit), note))
    for label, value in (
        ("Groups moved as one", s.group_moves),
        ("Disk moves", s.disk_moves),
        ("Replicas added", s.replicas_added),
        ("Replicas removed", s.replicas_removed),
    ):
        if value:
            found.append((label, f"{value:,}", ""))
    if (a := plan.allocation) is not None:
        found += [
            (
                "Load distance",
                f"{a.distance_after:.3g}",
                f"points of {escape(a.resource)}; {a.distance_before:.3g} before, "
                f"{a.distance_bound:.3g} at best",
            ),
            (
                "Kept local",
                f"{100 * a.local_after:.0f} %",
                f"of what is sent; {100 * a.local_before:.0f} % before",
            ),
        ]
    return "".join(
        f"<div><dt>{label}</dt><dd><b>{value}</b> <span>{note}</span></dd></div>"
        for label, value, note in found
    )


def balancedness(plan: Plan) -> str:
    """Two bars out of a hundred."""
    s = plan.summary
    rows = []
    for label, value in (("Before", s.balancedness_before), ("After", s.balancedness_after)):
        rows.append(
            f'<div><span>{label}</span><svg viewBox="0 0 100 8" preserveAspectRatio="none" '
            f'aria-hidden="true"><rect class="h1" width="100" height="8"/>'
            f'<rect class="{label.lower()}-bar" width="{value:.2f}" height="8"/></svg>'
            f"<b>{value:.1f}</b></div>"
        )
    return "".join(rows)


def charts(facts: Facts) -> str:
    """A card for each resource and count."""
    return "".join(_card(facts, i, column) for i, column in enumerate(facts.columns))


def _card(facts: Facts, place: int, column: ColumnFacts) -> str:
    before, after = column.result.before.worst_ratio, column.result.after.worst_ratio
    bound = column.result.worst_ratio_bound
    keys = "".join(
        f'<li><svg viewBox="0 0 22 10" aria-hidden="true">{_swatch(name)}</svg>{words}</li>'
        for name, words in legend_text(column)
    )
    title = escape(column.title)
    # the text states the worst receiver; brokers that should be empty are only in the picture
    said = (
        f"worst broker {times(before)} before, {times(after)} after; "
        f"no placement gets below {times(bound)}"
    )
    return (
        f'<figure class="card"><figcaption><h3>{title}</h3><p>worst broker '
        f"<b>{times(before)}</b> → <b>{times(after)}</b> its fair share; "
        f"at best {times(bound)}</p></figcaption>"
        f'<div class="scroll plot" tabindex="0" role="group" data-column="{place}" '
        f'aria-label="{title} for each broker: {said}. Arrow keys read out brokers.">'
        f'<svg class="chart" viewBox="0 0 {_CHART_WIDTH} {CHART_HEIGHT:g}" aria-hidden="true">'
        f'{chart(facts, column, _CHART_WIDTH)}<path class="cursor" d=""/></svg></div>'
        f'<ul class="keys">{keys}</ul></figure>'
    )


def _swatch(name: str) -> str:
    shape = "M0 1h22v8h-22z" if name == "band" else "M0 5h22"
    return f'<path class="{name}" d="{shape}"/>'


def chart_note(facts: Facts) -> str:
    """How to read the pictures, and the colours of racks."""
    s = facts.plan.snapshot
    text = (
        "Each broker’s load as a multiple of its fair share: what it would carry in a "
        "perfectly balanced cluster, given its capacity. 1 × is perfect. "
    )
    if s.n_brokers > BARS:
        return (
            f"<p>{text}Brokers are sorted from the fullest to the emptiest, before and after "
            "separately. Orange is above the goal, pale below.</p>"
        )
    text += "Triangles mark brokers above (▲) or below (▽) the goal."
    if any(state in ("dead", "leaving") for state in facts.state):
        text += " Dashed outlines are brokers to be emptied."
    used = np.unique(s.broker_rack).tolist()
    if len(s.racks) > COLOURS:
        return f"<p>{text} Brokers are grouped by rack; neighbouring racks differ in colour.</p>"
    keys = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="bar r{r}" width="12" '
        f'height="12"/></svg>{escape(s.racks[r])}</li>'
        for r in used
    )
    return f'<p>{text}</p><ul class="keys" aria-label="Racks">{keys}</ul>'


def racks(facts: Facts) -> str:
    """Crowded partitions, and the load of each rack."""
    s = facts.plan.snapshot
    before, after = facts.crowded
    text = (
        f"<p>Partitions with two or more replicas in one rack: <b>{before:,}</b> before, "
        f"<b>{after:,}</b> after, of {s.n_partitions:,}."
    )
    if facts.cannot_spread:
        text += (
            f" {plural(facts.cannot_spread, 'partition')} cannot do better: more replicas than "
            "racks with brokers that may receive any."
        )
    text += "</p>"
    if len(s.racks) < 2:
        return text + "<p>All brokers are in one rack.</p>"
    ratios = [rack_ratios(facts, column) for column in facts.columns]
    every = np.concatenate([v for pair in ratios for v in pair])
    low, high = min(0.8, float(every.min())), max(1.2, float(every.max()))
    worst = np.max([np.abs(b - 1) + np.abs(a - 1) for b, a in ratios], axis=0)
    shown = np.sort(np.argsort(-worst, kind="stable")[:RACKS])
    members = np.bincount(s.broker_rack, minlength=len(s.racks))
    head = "".join(f'<th scope="col">{escape(c.title)}</th>' for c in facts.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(s.racks[r])}</th><td class="n">{members[r]:,}</td>'
        + "".join(
            f'<td class="n">{dumbbell(float(b[r]), float(a[r]), low, high)}'
            f'<span class="pair">{b[r]:.2f} → <b>{a[r]:.2f}</b></span></td>'
            for b, a in ratios
        )
        + "</tr>"
        for r in shown.tolist()
    )
    left = (
        f"<p>The {RACKS} racks furthest from their share, of {len(s.racks):,}.</p>"
        if len(s.racks) > RACKS
        else ""
    )
    return (
        f'{text}{left}<div class="scroll" tabindex="0" role="group" aria-label="Load of racks">'
        f"<table><caption>Load of each rack as a multiple of its fair share: before (○) → after "
        f'(●)</caption><thead><tr><th scope="col">Rack</th><th scope="col" class="n">Brokers</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def topics(facts: Facts) -> str:
    """The most affected topics, and where their replicas are."""
    if not facts.topics:
        return "<p>No topic is touched.</p>"
    unit = facts.plan.summary.cost_unit
    many = len(facts.order) > BARS
    rows = "".join(
        f'<tr><th scope="row" class="topic">{escape(t.name)}</th>'
        f'<td class="n">{t.partitions:,}</td>'
        f'<td class="n">{t.moves:,}</td><td class="n">{t.leaderships:,}</td>'
        + f'<td class="n">{cost_amount(t.cost, unit)}</td>'
        + f'<td class="n">{t.before.max():,} → <b>{t.after.max():,}</b><br>'
        f"<span>share {t.share:.3g}</span></td>"
        f"<td>{heat_rows(facts, t)}</td></tr>"
        for t in facts.topics
    )
    how = (
        f"brokers with most replicas first, in {BARS} groups (a cell is the mean of its group)"
        if many
        else "a column for each broker, by rack and id"
    )
    keys = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="h{k}" width="12" '
        f'height="12"/></svg>{words}</li>'
        for k, words in enumerate(
            ("none", "to ½ ×", "to 1 ×", "to 1½ ×", "to 2 ×", "to 3 ×", "more than 3 × its share")
        )
    )
    most = "most data copied" if unit == "bytes" else "highest cost"
    size = f'<th scope="col" class="n">{"Copied" if unit == "bytes" else "Cost"}</th>'
    return (
        f"<p>{len(facts.topics):,} of {plural(facts.topics_touched, 'topic')} touched, those with "
        f"{most} first. Upper row before, lower row after: replicas on each broker, "
        f"{how}. Shares below one replica count as one.</p>"
        f'<ul class="keys">{keys}</ul>'
        '<div class="scroll" tabindex="0" role="group" aria-label="Topics most affected">'
        '<table class="topics"><thead><tr><th scope="col">Topic</th>'
        '<th scope="col" class="n">Partitions</th><th scope="col" class="n">Moves</th>'
        f'<th scope="col" class="n">Leader&shy;ships</th>{size}'
        '<th scope="col" class="n">Most on a broker</th><th scope="col">Spread over brokers</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def goals(plan: Plan) -> str:
    """Every goal before and after, with the reason and the remedy if it stays unmet."""
    reasons: dict[str, str] = {}
    for u in plan.unmet:
        kind = "No placement can meet it" if u.proven else "Not reached"
        text = plan.remedy.text if plan.remedy and u.goal in plan.remedy.goals else u.remedy
        remedy = f' <span class="remedy">Remedy: {escape(text)}.</span>' if text else ""
        reasons[u.goal] = (
            reasons.get(u.goal, "") + f"<p><b>{kind}:</b> {escape(u.reason)}.{remedy}</p>"
        )
    rows = "".join(
        f'<tr{"" if g.met_after else " class=unmet"}><th scope="row">{escape(g.goal)}</th>'
        f'<td>{"hard" if g.hard else "soft"}</td><td class="n">{g.tier}</td>'
        f"<td>{_status(g.met_before, g.unmet_cells_before)}</td>"
        f"<td>{_status(g.met_after, g.unmet_cells_after)}</td>"
        f'<td class="n">{_contentment(g)}</td></tr>'
        + (
            f'<tr class="why"><td colspan="6">{reasons[g.goal]}</td></tr>'
            if g.goal in reasons
            else ""
        )
        for g in plan.goal_results
    )
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="Goals"><table class="goals">'
        "<caption>By priority: a goal may not be served at the cost of one in a tier above it. "
        "Contentment is the mean over what the goal judges, 1 where it is met.</caption>"
        '<thead><tr><th scope="col">Goal</th><th scope="col">Kind</th><th scope="col" class="n">'
        'Tier</th><th scope="col">Before</th><th scope="col">After</th><th scope="col" class="n">'
        f"Contentment</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def remarks(plan: Plan) -> str:
    """Warnings, and goals that the profile left out; empty if there are none."""
    lines = [f"<li><b>Warning:</b> {escape(warning)}</li>" for warning in plan.warnings]
    lines += [f"<li><b>Left out:</b> {escape(why)}</li>" for why in plan.goals_left_out.values()]
    return f'<ul class="remarks">{"".join(lines)}</ul>' if lines else ""


def _status(met: bool, cells: int) -> str:
    if met:
        return '<span class="met">✓ met</span>'
    return f'<span class="miss">✗ {cells:,} not content</span>'


def _contentment(g: GoalResult) -> str:
    return f"{g.contentment_before:.3f} → <b>{g.contentment_after:.3f}</b>"


def limitations(plan: Plan) -> str:
    """How far from the best possible the plan is, and what it leaves undone."""
    s = plan.summary
    notes = []
    if s.cost:
        paid = cost_amount(s.cost, s.cost_unit)
        copies, copy = ("copies", "copy") if s.cost_unit == "bytes" else ("costs", "cost")
        if s.cost_bound > 0:
            notes.append(
                f"It {copies} {paid}. Any plan that meets the same goals must {copy} at least "
                f"{cost_amount(s.cost_bound, s.cost_unit)}: this one {copies} "
                f"<b>{s.cost / s.cost_bound:.3g} ×</b> that proven minimum."
            )
        else:
            notes.append(f"It {copies} {paid}; no lower bound on that is proven here.")
    if s.left_out:
        notes.append(
            f"<b>{plural(s.left_out, 'change')} left out</b>: no order was found in which they "
            "break no hard goal and overfill no broker on the way."
            + (f" The first of them: {escape(s.blocked)}." if s.blocked else "")
        )
    else:
        notes.append("Nothing was left out: every step can run in this order.")
    if s.exhausted:
        otherwise = "with more time" if s.exhausted == "stopped" else "with a higher one"
        limit = limit_reached(s.exhausted, plan.budget, s.limited_moves).capitalize()
        notes.append(f"<b>{escape(limit)}</b>: {otherwise} the plan might go further.")
    else:
        notes.append("No budget cut it short.")
    open_ = sum(not u.proven for u in plan.unmet)
    if open_:
        them = "it" if open_ == 1 else "they"
        nothing = ": the search found nothing allowed that helps; a solution may still exist"
        found = "" if s.exhausted else nothing
        notes.append(
            f"{plural(open_, 'unmet goal')} with no proof that {them} cannot be met{found}."
        )
    rows = "".join(
        f'<tr><th scope="row">{escape(column_title(name))}</th>'
        f'<td class="n">{c.before.worst_ratio:.3f}</td><td class="n">{c.after.worst_ratio:.3f}</td>'
        f'<td class="n">{c.worst_ratio_bound:.3f}</td>'
        f'<td class="n"><b>{_of_bound(c.after.worst_ratio, c.worst_ratio_bound)}</b></td></tr>'
        for name, c in plan.columns.items()
    )
    return (
        f"<ul>{''.join(f'<li>{n}</li>' for n in notes)}</ul>{relief(plan)}"
        '<div class="scroll" tabindex="0" role="group" aria-label="Worst broker and its bound">'
        "<table><caption>The worst broker’s load as a multiple of its fair share. No placement can "
        'get below the bound.</caption><thead><tr><th scope="col">Resource</th>'
        '<th scope="col" class="n">Before</th><th scope="col" class="n">After</th>'
        '<th scope="col" class="n">Bound</th><th scope="col" class="n">After / bound</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def relief(plan: Plan) -> str:
    """What the first actions bring, as a picture with its figures; empty if unknown."""
    if not plan.relief:
        return ""
    paid = "bytes" if plan.summary.cost_unit == "bytes" else "cost"
    said = ", ".join(f"{p.relief:.0%} after {p.share:.0%} of the {paid}" for p in plan.relief)
    return (
        '<figure class="card"><figcaption><h3>What the first steps bring</h3><p>The share of the '
        f"plan’s improvement of its goals, by the share of its {paid}: {said}.</p></figcaption>"
        f"{relief_curve(plan.relief)}</figure>"
    )


def _of_bound(ratio: float, bound: float) -> str:
    return f"{ratio / bound:.3f} ×" if bound > 0 else "–"


def chosen_actions(plan: Plan, most: int = ACTIONS) -> Ints:
    """Rows of the actions to show, in order: half by cost, the rest by what they help."""
    rows = plan.rows
    if len(rows.kind) <= most:
        return np.arange(len(rows.kind))
    largest = np.argsort(-rows.cost, kind="stable")[: most // 2]
    helps = np.maximum(rows.diff, 0).sum(1)
    helps[largest] = -1
    return np.sort(np.concatenate([largest, np.argsort(-helps, kind="stable")[: most // 2]]))


def actions_note(plan: Plan) -> str:
    """How many actions there are, and which of them are shown."""
    total, shown = len(plan), len(chosen_actions(plan))
    text = f"{plural(total, 'action')} in all."
    if shown < total:
        text += (
            f" The {shown:,} that copy most or help most are here; the plan’s JSON has every one."
        )
    return (
        f"<p>{text} Why: each goal the step serves, and by how much it raises the lower of the "
        "contentments it touches (+), or what it costs (−).</p>"
    )


def duration(plan: Plan) -> str:
    """The least time that copying takes at some throttles; empty if nothing is copied."""
    s, rows = plan.snapshot, plan.rows
    if plan.summary.cost_unit != "bytes":
        return ""
    comes = (rows.target >= 0) & (rows.target != rows.source)
    received = np.bincount(rows.target[comes], rows.cost[comes], s.n_brokers)
    most = int(np.argmax(received))
    if not received[most] > 0:
        return ""
    said = ", ".join(
        f"{period(received[most] / rate)} at {amount(rate, 'B/s')}" for rate in THROTTLES
    )
    return (
        f"<p>Broker {escape(str(s.broker_ids[most]))} receives most, "
        f"{amount(received[most])}. Carrying out the plan takes at least {said}, the throttle of "
        "each broker.</p>"
    )


def action_rows(plan: Plan) -> str:
    """The first actions of the table, as shown before any script runs."""
    chosen = chosen_actions(plan)
    if not len(chosen):
        return '<tr><td colspan="6">None.</td></tr>'
    size = plan.rows.cost[chosen]
    first = chosen[np.argsort(-size, kind="stable")[:ACTIONS_FIRST]]
    return "".join(_action_row(plan, row) for row in _action_data(plan, first))


def _action_row(plan: Plan, row: list[Any]) -> str:
    step, kind, name, route, size, effects = row
    names = plan.rows.names
    why = ", ".join(
        f"{escape(names[g])} {'+' if v > 0 else '−'}{abs(v):.3g}" for g, v in effects[:EFFECTS]
    )
    if len(effects) > EFFECTS:
        why += f" and {len(effects) - EFFECTS} smaller"
    paid = cost_amount(size, plan.summary.cost_unit) if size else "–"
    return (
        f'<tr><td class="n">{step:,}</td><td class="kind">{kind}</td>'
        f'<td class="topic">{escape(name)}</td>'
        f'<td>{escape(route)}</td><td class="n">{paid}</td>'
        f"<td>{why}</td></tr>"
    )


def _action_data(plan: Plan, chosen: Ints) -> list[list[Any]]:
    """[step, kind, partition, route, cost, [[goal, effect], …]] of each action."""
    s, rows = plan.snapshot, plan.rows
    found = []
    for i in chosen.tolist():
        p = int(rows.partition[i])
        effects = [
            [g, round(float(rows.diff[i, g]), 4)]
            for g in np.argsort(-np.abs(rows.diff[i]), kind="stable").tolist()
            if abs(rows.diff[i, g]) > 5e-5
        ]
        found.append(
            [
                i + 1,
                KINDS[rows.kind[i]]
                + (" leader" if rows.kind[i] == "move" and rows.leads[i] else ""),
                f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}",
                _route(plan, i),
                float(f"{rows.cost[i]:.6g}"),
                effects,
            ]
        )
    return found


def _route(plan: Plan, i: int) -> str:
    s, rows = plan.snapshot, plan.rows
    ends = []
    for broker, disk in (
        (int(rows.source[i]), int(rows.source_disk[i])),
        (int(rows.target[i]), int(rows.target_disk[i])),
    ):
        if broker >= 0:
            path = f" {s.disk_path[disk]}" if disk >= 0 else ""
            ends.append(f"{s.broker_ids[broker]}{path}")
    if rows.kind[i] == "add":
        return f"→ {ends[-1]}"
    return f"{ends[0]} →" if rows.kind[i] == "remove" else " → ".join(ends)


def data(facts: Facts) -> str:
    """The script's data, as JSON that cannot end its element."""
    plan, s = facts.plan, facts.plan.snapshot
    content = {
        "brokers": s.broker_ids.tolist(),
        "racks": s.racks,
        "rack": s.broker_rack.tolist(),
        "state": facts.state,
        "order": facts.order.tolist(),
        "sorted": s.n_brokers > BARS,
        "effects": EFFECTS,
        "costUnit": plan.summary.cost_unit,
        "columns": [
            {
                "title": c.title,
                "unit": c.unit,
                **{k: _short(getattr(c, k).tolist()) for k in ("share", "before", "after")},
            }
            for c in facts.columns
        ],
        "goals": plan.rows.names,
        "actions": _action_data(plan, chosen_actions(plan)),
    }
    text = json.dumps(_shown(content), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(value: Any) -> Any:
    """The value with every text in it as shown on a page."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value


def _short(values: Iterable[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]
