"""What the page says, section by section: values for its template, without any HTML but drawings.

The template escapes every text, so that names from the cluster stay text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from balancer.planning.document import limit_reached
from balancer.planning.merged_reasons import merged_reasons, merged_remedies
from balancer.planning.plan import Plan
from balancer.planning.relief import relief_phrase
from balancer.planning.traffic import traffic
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
from balancer.report.facts import ColumnFacts, Facts, known_goals, rack_ratios
from balancer.report.now import wrong_now
from cluster_model.snapshot import Ints
from cluster_model.units import column_title, quantity
from metrics_reporter.documents import printable
from metrics_reporter.quantities import amount, cost_amount, percent, period, plural, times

ACTIONS = 2000  # embedded for the search box
ACTIONS_FIRST = 40  # on paper, and where scripts do not run
EFFECTS = 4  # of an action, the strongest
RACKS = 40
_CHART_WIDTH = 540
# Bytes/s that a broker may copy, for which the report states a time.
THROTTLES = (20e6, 50e6, 200e6)
_BUSIEST = 20
_HEAT = ("none", "to ½ ×", "to 1 ×", "to 1½ ×", "to 2 ×", "to 3 ×", "more than 3 × its share")

KINDS = {
    "move": "move",
    "leadership": "leadership",
    "move_disk": "move disk",
    "add": "add",
    "remove": "remove",
}


class _ActionRow(NamedTuple):
    step: int
    kind: str
    name: str
    route: str
    cost: float
    paid: str
    effects: list[tuple[int, float]]
    why: str


def sections(facts: Facts) -> dict[str, Any]:
    """The values of the template's sections."""
    plan = facts.plan
    time = _time(plan)
    return {
        "wrong": wrong_now(plan, list(known_goals(plan))),
        "tiles": _tiles(plan),
        "balanced": (
            ("Before", plan.summary.balancedness_before),
            ("After", plan.summary.balancedness_after),
        ),
        "balanced_words": (
            f"Balancedness {plan.summary.balancedness_before:.1f} of 100 before, "
            f"{plan.summary.balancedness_after:.1f} after"
        ),
        "time": time,
        "no_time": _no_time(plan),
        "chart_note": _chart_note(facts),
        "rack_keys": _rack_keys(facts),
        "cards": [_card(facts, column) for column in facts.columns],
        "racks": _racks(facts),
        "topics": _topics(facts),
        "unit": plan.summary.cost_unit,
        "warnings": Counter(plan.warnings).items(),
        "left_out": tuple(plan.goals_left_out.values()),
        "goal_results": plan.goal_results,
        "reasons": merged_reasons(plan.unmet),
        "remedies": merged_remedies(plan.unmet, plan.remedy),
        "remedy": plan.remedy,
        "limitations": list(_limitations(plan)),
        "relief": _relief(plan),
        "bounds": [
            {
                "title": column_title(name),
                "before": c.before.worst_ratio,
                "after": c.after.worst_ratio,
                "bound": c.worst_ratio_bound,
                "ratio": _of_bound(c.after.worst_ratio, c.worst_ratio_bound),
            }
            for name, c in plan.columns.items()
        ],
        "actions_note": _actions_note(plan),
        "action_rows": _first_actions(plan),
        "data": _data(facts, None if time is None else time["bytes"]),
    }


def _tiles(plan: Plan) -> list[tuple[str, str, str]]:
    """The figures of the summary: label, value, note."""
    s = plan.summary
    met = [
        sum(g.met_before for g in plan.goal_results),
        sum(g.met_after for g in plan.goal_results),
    ]
    copied = ("Data copied", "data") if s.cost_unit == "bytes" else ("Cost of the moves", "it")
    share = percent(s.cost / s.cost_total if s.cost_total else 0.0)
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
        (copied[0], cost_amount(s.cost, s.cost_unit), f"{share} of all {copied[1]}"),
    ]
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
                f"points of {a.resource}; {a.distance_before:.3g} before, "
                f"{a.distance_bound:.3g} at best",
            ),
            (
                "Kept local",
                f"{100 * a.local_after:.0f} %",
                f"of what is sent; {100 * a.local_before:.0f} % before",
            ),
        ]
    return found


def _time(plan: Plan) -> dict[str, Any] | None:
    """The least time that copying takes at some throttles; None if nothing is copied."""
    if plan.summary.cost_unit != "bytes" or not plan.summary.cost:
        return None
    found = traffic(plan.document(), plan.snapshot)
    if not found.busiest:
        return None
    first = found.brokers[0]
    said = (f"{period(found.busiest / rate)} at {amount(rate, 'B/s')}" for rate in THROTTLES)
    more = len(found.brokers) - _BUSIEST
    return {
        "broker": first.broker,
        "does": "receives" if first.received >= first.sent else "sends",
        "busiest": amount(found.busiest),
        "bytes": found.busiest,
        "said": ", ".join(said),
        "rows": found.brokers[:_BUSIEST],
        "left": f" ({_BUSIEST} of {len(found.brokers):,})" if more > 0 else "",
    }


def _no_time(plan: Plan) -> str:
    if plan.summary.cost_unit != "bytes" and plan.summary.cost:
        return f"No time is estimated: moves cost {plan.summary.cost_unit}, not bytes."
    return "Nothing is copied over the network."


def _card(facts: Facts, column: ColumnFacts) -> dict[str, Any]:
    """The picture of a resource or count, and the text that states its worst receiver."""
    return {
        "title": column.title,
        "before": column.result.before.worst_ratio,
        "after": column.result.after.worst_ratio,
        "bound": column.result.worst_ratio_bound,
        "width": _CHART_WIDTH,
        "height": f"{CHART_HEIGHT:g}",
        "drawing": Markup(chart(facts, column, _CHART_WIDTH)),
        "legend": legend_text(column),
    }


def _chart_note(facts: Facts) -> str:
    """How to read the pictures."""
    s = facts.plan.snapshot
    text = (
        "Each broker’s load as a multiple of its fair share: what it would carry in a "
        "perfectly balanced cluster, given its capacity. 1 × is perfect. "
    )
    if s.n_brokers > BARS:
        return (
            f"{text}Brokers are sorted from the fullest to the emptiest, before and after "
            "separately. Orange is above the goal, pale below."
        )
    text += "Triangles mark brokers above (▲) or below (▽) the goal."
    if any(state in ("dead", "leaving") for state in facts.state):
        text += " Dashed outlines are brokers to be emptied."
    if len(s.racks) > COLOURS:
        text += " Brokers are grouped by rack; neighbouring racks differ in colour."
    return text


def _rack_keys(facts: Facts) -> list[tuple[str, str]]:
    """The colours of racks, if each has its own: class and name."""
    s = facts.plan.snapshot
    if s.n_brokers > BARS or len(s.racks) > COLOURS:
        return []
    return [(f"r{r}", s.racks[r]) for r in np.unique(s.broker_rack).tolist()]


def _racks(facts: Facts) -> dict[str, Any]:
    """Crowded partitions, and the load of each rack."""
    s = facts.plan.snapshot
    found: dict[str, Any] = {
        "crowded": facts.crowded,
        "partitions": s.n_partitions,
        "cannot": facts.cannot_spread,
        "titles": [c.title for c in facts.columns],
        "rows": [],
        "left": "",
    }
    if len(s.racks) < 2:
        return found
    ratios = [rack_ratios(facts, column) for column in facts.columns]
    every = np.concatenate([v for pair in ratios for v in pair])
    low, high = min(0.8, float(every.min())), max(1.2, float(every.max()))
    worst = np.max([np.abs(b - 1) + np.abs(a - 1) for b, a in ratios], axis=0)
    members = np.bincount(s.broker_rack, minlength=len(s.racks))
    found["rows"] = [
        {
            "name": s.racks[r],
            "brokers": int(members[r]),
            "pairs": [
                (
                    float(b[r]),
                    float(a[r]),
                    Markup(dumbbell(float(b[r]), float(a[r]), low, high)),
                )
                for b, a in ratios
            ],
        }
        for r in np.sort(np.argsort(-worst, kind="stable")[:RACKS]).tolist()
    ]
    if len(s.racks) > RACKS:
        found["left"] = f"The {RACKS} racks furthest from their share, of {len(s.racks):,}."
    return found


def _topics(facts: Facts) -> dict[str, Any]:
    """The most affected topics, and where their replicas are."""
    copies = facts.plan.summary.cost_unit == "bytes"
    how = (
        f"brokers with most replicas first, in {BARS} groups (a cell is the mean of its group)"
        if len(facts.order) > BARS
        else "a column for each broker, by rack and id"
    )
    return {
        "rows": [(t, Markup(heat_rows(facts, t))) for t in facts.topics],
        "cost": "Copied" if copies else "Cost",
        "legend": (
            "none",
            "to ½ ×",
            "to 1 ×",
            "to 1½ ×",
            "to 2 ×",
            "to 3 ×",
            "more than 3 × its share",
        ),
        "note": (
            f"{len(facts.topics):,} of {plural(facts.topics_touched, 'topic')} touched, those with "
            f"{'most data copied' if copies else 'highest cost'} first. Upper row before, lower "
            f"row after: replicas on each broker, {how}. Shares below one replica count as one."
        ),
    }


def _limitations(plan: Plan) -> Iterable[tuple[str, str]]:
    """How far from the best possible the plan is, and what it leaves undone: stressed, plain."""
    s = plan.summary
    if s.cost:
        paid = cost_amount(s.cost, s.cost_unit)
        copies, copy = ("copies", "copy") if s.cost_unit == "bytes" else ("costs", "cost")
        if s.cost_bound > 0:
            yield (
                "",
                f"It {copies} {paid}. Any plan that meets the same goals must {copy} at least "
                f"{cost_amount(s.cost_bound, s.cost_unit)}: this one {copies} "
                f"{s.cost / s.cost_bound:.3g} × that proven minimum.",
            )
        else:
            yield "", f"It {copies} {paid}; no lower bound on that is proven here."
    if s.left_out:
        yield (
            f"{plural(s.left_out, 'change')} left out",
            ": no order was found in which they break no hard goal and overfill no broker on the "
            "way." + (f" The first of them: {s.blocked}." if s.blocked else ""),
        )
    else:
        yield "", "Nothing was left out: every step can run in this order."
    if s.exhausted:
        otherwise = "with more time" if s.exhausted == "stopped" else "with a higher one"
        limit = limit_reached(s.exhausted, plan.budget, s.limited_moves).capitalize()
        yield limit, f": {otherwise} the plan might go further."
    else:
        yield "", "No budget cut it short."
    open_ = sum(not u.proven for u in plan.unmet)
    if open_:
        them = "it" if open_ == 1 else "they"
        nothing = ": the search found nothing allowed that helps; a solution may still exist"
        found = "" if s.exhausted else nothing
        yield "", f"{plural(open_, 'unmet goal')} with no proof that {them} cannot be met{found}."


def _relief(plan: Plan) -> dict[str, Any] | None:
    """What the first actions bring, as a picture with its figures; None if unknown."""
    if not plan.relief:
        return None
    paid = "bytes" if plan.summary.cost_unit == "bytes" else "cost"
    return {
        "paid": paid,
        "said": relief_phrase(plan.relief, paid),
        "drawing": Markup(relief_curve(plan.relief)),
    }


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


def _actions_note(plan: Plan) -> str:
    """How many actions there are, and which of them are shown."""
    total, shown = len(plan), len(chosen_actions(plan))
    text = f"{plural(total, 'action')} in all."
    if shown < total:
        text += (
            f" The {shown:,} that copy most or help most are here; the plan’s JSON has every one."
        )
    return (
        f"{text} Why: each goal the step serves, and by how much it raises the lower of the "
        "contentments it touches (+), or what it costs (−)."
    )


def _first_actions(plan: Plan) -> list[_ActionRow]:
    """The first actions of the table, as shown before any script runs."""
    chosen = chosen_actions(plan)
    size = plan.rows.cost[chosen]
    return _action_rows(plan, chosen[np.argsort(-size, kind="stable")[:ACTIONS_FIRST]])


def _action_rows(plan: Plan, chosen: Ints) -> list[_ActionRow]:
    s, rows = plan.snapshot, plan.rows
    found = []
    for i in chosen.tolist():
        p = int(rows.partition[i])
        effects = [
            (g, round(float(rows.diff[i, g]), 4))
            for g in np.argsort(-np.abs(rows.diff[i]), kind="stable").tolist()
            if abs(rows.diff[i, g]) > 5e-5
        ]
        cost = float(f"{rows.cost[i]:.6g}")
        leads = " leader" if rows.kind[i] == "move" and rows.leads[i] else ""
        found.append(
            _ActionRow(
                step=i + 1,
                kind=KINDS[rows.kind[i]] + leads,
                name=f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}",
                route=_route(plan, i),
                cost=cost,
                paid=cost_amount(cost, plan.summary.cost_unit) if cost else "–",
                effects=effects,
                why=_why(rows.names, effects),
            )
        )
    return found


def _why(names: Sequence[str], effects: list[tuple[int, float]]) -> str:
    said = ", ".join(
        f"{names[g]} {'+' if v > 0 else '−'}{abs(v):.3g}" for g, v in effects[:EFFECTS]
    )
    more = len(effects) - EFFECTS
    return f"{said} and {more} smaller" if more > 0 else said


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


def _ends(plan: Plan, i: int) -> list[int]:
    """The brokers of an action, as places in the list of brokers."""
    return [b for b in (int(plan.rows.source[i]), int(plan.rows.target[i])) if b >= 0]


def _data(facts: Facts, busiest: float | None) -> Markup:
    """The script's data, as JSON that cannot end its element; figures have their units already."""
    plan, s = facts.plan, facts.plan.snapshot
    content = {
        "brokers": s.broker_ids.tolist(),
        "racks": s.racks,
        "rack": s.broker_rack.tolist(),
        "state": facts.state,
        "order": facts.order.tolist(),
        "sorted": s.n_brokers > BARS,
        "busiest": busiest,
        "columns": [
            {
                "title": c.title,
                "before": _short(c.ratios()[0]),
                "after": _short(c.ratios()[1]),
                "times": [[times(ratio) for ratio in of.tolist()] for of in c.ratios()],
                "amounts": [
                    [quantity(c.name, value) for value in of.tolist()] for of in (c.before, c.after)
                ],
            }
            for c in facts.columns
        ],
        "goals": plan.rows.names,
        "actions": [
            [
                row.step,
                row.kind,
                row.name,
                row.route,
                row.cost,
                row.paid,
                row.effects,
                row.why,
                _ends(plan, row.step - 1),
            ]
            for row in _action_rows(plan, chosen_actions(plan))
        ],
    }
    text = json.dumps(_shown(content), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _shown(value: Any) -> Any:
    """The value with every text in it as shown on a page."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value


def _short(values: Iterable[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values]
