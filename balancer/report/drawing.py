"""Draws plain SVG; colours come from chart.css, so that one text serves light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from balancer.planning.document import ReliefPoint
from balancer.report.facts import ColumnFacts, Facts, TopicFacts
from cluster_model.snapshot import Bools, Floats, Ints
from metrics_reporter.quantities import plural, times

BARS = 60  # more brokers than this are drawn as one sorted line
COLOURS = 8  # of racks, in chart.css; more racks take turns with two
HEAT = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_LEFT, _RIGHT, _TITLE, _PANEL, _GAP = 34.0, 8.0, 20.0, 92.0, 12.0
CHART_HEIGHT = 2 * (_TITLE + _PANEL) + _GAP + 22


def chart(facts: Facts, column: ColumnFacts, width: float = 540.0) -> str:
    """Before above after, on one scale: a bar for each broker, or one sorted line for many.

    Returns SVG elements for an area of `width` by :data:`CHART_HEIGHT`.
    """
    ratios = [r[facts.order] for r in column.ratios()]
    top = _top(column, ratios)
    draw = _bars if len(facts.order) <= BARS else _sorted
    parts = []
    for place, (label, ratio) in enumerate(zip(("Before", "After"), ratios, strict=True)):
        y = place * (_TITLE + _PANEL + _GAP) + _TITLE
        drawn = column if place else column.at_first()
        parts.append(_panel_title(drawn, label, ratio, facts.order, y - 7, width))
        parts.append(_band(facts, drawn, top, y, width, "band"))
        parts.append(draw(facts, drawn, ratio, top, y, width))
        # again as an outline, or the bars would hide the end of the goal's band
        parts.append(_band(facts, drawn, top, y, width, "edge"))
        parts.append(_lines(drawn, top, y, width))
        parts.append(_axis(top, y, width))
    parts.append(_foot(facts, width))
    return "".join(parts)


def _top(column: ColumnFacts, ratios: list[Floats]) -> float:
    top = max(1.0, *(float(r[np.isfinite(r)].max(initial=0.0)) for r in ratios))
    # If no broker may keep its load, as when all are dead, no limit is finite.
    if column.upper is not None and math.isfinite(upper := _median(column.upper)):
        top = max(top, upper)
    top *= 1.12
    for line in (column.limit, column.capacity):
        if line is not None and top < (value := _median(line)) * 1.04 < 1.5 * top:
            top = value * 1.04
    return top


def _median(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.inf


def _outside(column: ColumnFacts, ratio: Floats, order: Ints) -> tuple[Bools, Bools]:
    none: Bools = np.zeros(len(ratio), np.bool_)
    above = none if column.upper is None else ratio > column.upper[order] * (1 + 1e-9)
    below = none if column.lower is None else ratio < column.lower[order] * (1 - 1e-9)
    return above, below


def _panel_title(
    column: ColumnFacts, label: str, ratio: Floats, order: Ints, y: float, width: float
) -> str:
    above, below = (int(v.sum()) for v in _outside(column, ratio, order))
    counts = [f"{n:,} {w}" for n, w in ((above, "above"), (below, "below")) if n]
    if counts:
        note = f"{', '.join(counts)} the goal"
    else:
        note = "" if column.upper is None else "all within the goal"
    return (
        f'<text class="name" x="{_LEFT:g}" y="{y:g}">{label}</text>'
        f'<text class="note" x="{width - _RIGHT:g}" y="{y:g}" text-anchor="end">{note}</text>'
    )


def _axis(top: float, y: float, width: float) -> str:
    step = next(
        s
        for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 10 ** math.ceil(math.log10(top)))
        if top / s <= 4.2
    )
    parts = []
    for k in range(int(top / step) + 1):
        at = y + _PANEL * (1 - k * step / top)
        parts.append(
            f'<text class="tick" x="{_LEFT - 5:g}" y="{at + 3.5:.1f}" '
            f'text-anchor="end">{k * step:g}×</text>'
        )
    one = y + _PANEL * (1 - 1 / top)
    parts.append(_line("one", one, width) + _line("base", y + _PANEL, width))
    return "".join(parts)


def _line(name: str, y: float, width: float) -> str:
    return f'<path class="{name}" d="M{_LEFT:g} {y:.1f}H{width - _RIGHT:g}"/>'


def _band(facts: Facts, column: ColumnFacts, top: float, y: float, width: float, name: str) -> str:
    if column.upper is None or column.lower is None:
        return ""
    lower, upper = (
        v[facts.order] if len(facts.order) <= BARS else np.full(len(v), _median(v))
        for v in (column.lower, column.upper)
    )
    return f'<path class="{name}" d="{_ribbon(lower, upper, top, y, width)}"/>'


def _lines(column: ColumnFacts, top: float, y: float, width: float) -> str:
    """The limit and the capacity, if they are within the visible range."""
    parts = []
    for name, line in (("limit", column.limit), ("capacity", column.capacity)):
        if line is not None and (value := _median(line)) <= top:
            parts.append(_line(name, y + _PANEL * (1 - value / top), width))
    return "".join(parts)


def _ribbon(lower: Floats, upper: Floats, top: float, y: float, width: float) -> str:
    pitch = (width - _LEFT - _RIGHT) / len(lower)
    low, high = np.clip(lower, 0, top), np.where(np.isfinite(upper), np.minimum(upper, top), -1)
    cuts = np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1
    path = []
    for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(low)], strict=True):
        if high[a] < 0:
            continue
        y0, y1 = (y + _PANEL * (1 - v[a] / top) for v in (high, low))
        path.append(
            f"M{_LEFT + a * pitch:.1f} {y0:.1f}H{_LEFT + b * pitch:.1f}V{y1:.1f}"
            f"H{_LEFT + a * pitch:.1f}Z"
        )
    return "".join(path)


def rack_class(rack: int, racks: int) -> str:
    """The colour of a rack; with many racks, neighbours alternate between two colours."""
    return f"r{rack if racks <= COLOURS else rack % 2}"


def _bars(
    facts: Facts, column: ColumnFacts, ratio: Floats, top: float, y: float, width: float
) -> str:
    s = facts.plan.snapshot
    pitch = (width - _LEFT - _RIGHT) / len(ratio)
    gap = min(4.0, pitch * 0.22)
    above, below = _outside(column, ratio, facts.order)
    parts = []
    for i, b in enumerate(facts.order.tolist()):
        x, height = _LEFT + i * pitch + gap / 2, _PANEL * ratio[i] / top
        kind = rack_class(int(s.broker_rack[b]), len(s.racks))
        if facts.state[b] in ("dead", "leaving"):
            kind = "gone"
        parts.append(
            f'<rect class="bar {kind}" x="{x:.1f}" y="{y + _PANEL - height:.1f}" '
            f'width="{pitch - gap:.1f}" height="{height:.1f}"/>'
        )
        if above[i] or below[i]:
            half, at = min(3.5, pitch / 2 - 0.5), y + _PANEL - height - 3
            d = (
                f"h{2 * half:.1f}l{-half:.1f} -5z"
                if above[i]
                else f"m0 -5h{2 * half:.1f}l{-half:.1f} 5z"
            )
            parts.append(
                f'<path class="{"above" if above[i] else "below"}" '
                f'd="M{x + (pitch - gap) / 2 - half:.1f} {at:.1f}{d}"/>'
            )
    return "".join(parts)


def _sorted(
    facts: Facts, column: ColumnFacts, ratio: Floats, top: float, y: float, width: float
) -> str:
    rank = np.argsort(-ratio, kind="stable")
    above, below = (v[rank] for v in _outside(column, ratio, facts.order))
    falling = ratio[rank]
    parts = []
    for name, chosen in (("over", above), ("inside", ~above & ~below), ("under", below)):
        rows = np.flatnonzero(chosen)
        if len(rows):
            parts.append(f'<path class="{name}" d="{_steps(falling, rows, top, y, width)}"/>')
    return "".join(parts)


def _steps(falling: Floats, rows: Ints, top: float, y: float, width: float) -> str:
    pitch = (width - _LEFT - _RIGHT) / len(falling)
    # with limits that differ between brokers, an area may consist of pieces
    pieces = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    path = []
    for piece in pieces:
        height = [f"{y + _PANEL * (1 - v / top):.1f}" for v in falling[piece].tolist()]
        x = _LEFT + pitch * int(piece[0])
        path.append(f"M{x:.1f} {y + _PANEL:.1f}V{height[0]}")
        for k in range(1, len(height)):
            if height[k] != height[k - 1]:
                path.append(f"H{_LEFT + pitch * int(piece[k]):.1f}V{height[k]}")
        path.append(f"H{_LEFT + pitch * int(piece[-1] + 1):.1f}V{y + _PANEL:.1f}Z")
    return "".join(path)


def _foot(facts: Facts, width: float) -> str:
    """Rack names under their bars, or the sort order of a line."""
    s, y = facts.plan.snapshot, 2 * (_TITLE + _PANEL) + _GAP + 15
    if len(facts.order) > BARS:
        text = f"{plural(len(facts.order), 'broker')}, the fullest first"
        return f'<text class="tick" x="{_LEFT:g}" y="{y:g}">{text}</text>'
    rack = s.broker_rack[facts.order]
    pitch = (width - _LEFT - _RIGHT) / len(rack)
    parts = []
    for r in np.unique(rack).tolist():
        members = np.flatnonzero(rack == r)
        wide = pitch * len(members)
        room = int(wide / 6.6 - 0.5)
        name = s.racks[r]
        if room >= 3 or len(name) <= room:
            # zones of one region differ at the end of their names
            short = name if len(name) <= room else "…" + name[1 - room :]
            middle = _LEFT + pitch * float(members.mean() + 0.5)
            parts.append(
                f'<text class="tick" x="{middle:.1f}" y="{y:g}" text-anchor="middle">'
                f"{escape(short)}</text>"
            )
        left = _LEFT + pitch * int(members[0])
        parts.append(f'<path class="rack" d="M{left + 1.5:.1f} {y - 11.5:g}h{wide - 3:.1f}"/>')
    return "".join(parts)


def dumbbell(before: float, after: float, low: float, high: float) -> str:
    """From a hollow dot (before) to a solid one (after), around the line of the fair share."""
    width, reach = 84.0, 74.0
    a, b, one = (5 + reach * (v - low) / (high - low) for v in (before, after, 1.0))
    return (
        f'<svg class="dumbbell" viewBox="0 0 {width:g} 14" aria-hidden="true">'
        f'<path class="one" d="M{one:.1f} 0v14"/><path class="bridge" d="M{a:.1f} 7H{b:.1f}"/>'
        f'<circle class="was" cx="{a:.1f}" cy="7" r="3.2"/>'
        f'<circle class="is" cx="{b:.1f}" cy="7" r="3.4"/></svg>'
    )


def relief_curve(points: Sequence[ReliefPoint], width: float = 420.0, height: float = 150.0) -> str:
    """Relief against the share of the cost, from nothing to the whole plan."""
    reached = [(0.0, 0.0), *((p.share, p.relief) for p in points), (1.0, 1.0)]
    left = _LEFT + 8
    low, high = min(0.0, *(y for _, y in reached)), max(1.0, *(y for _, y in reached))
    across, down = width - left - 2 * _RIGHT, height - 34.0

    # by the root of the share: most happens in the first few percent
    spots = [
        (left + across * math.sqrt(x), 12 + down * (high - y) / (high - low)) for x, y in reached
    ]
    parts = []
    for at in (0.0, 0.5, 1.0):
        y = 12 + down * (high - at) / (high - low)
        parts.append(
            f'<path class="base" d="M{left:g} {y:.1f}h{across:g}"/>'
            f'<text class="tick" x="{left - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">'
            f"{at:.0%}</text>"
        )
    path = " ".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    parts.append(f'<path class="curve" d="M{path}"/>')
    for (share, relief), (x, y) in zip(reached, spots, strict=True):
        parts.append(
            f'<circle class="is" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{share:.0%} of the cost: {relief:.0%}</title></circle>"
        )
        # the first labels would touch
        if not 0 < share < 0.02:
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{height - 4:g}" text-anchor="middle">'
                f"{share:.0%}</text>"
            )
    return (
        f'<svg class="relief" viewBox="0 0 {width:g} {height:g}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def heat_level(count: float, share: float) -> int:
    """0 for none, then how many of the levels of :data:`HEAT` a count in fair shares exceeds."""
    ratio = count / max(share, 1.0)
    return sum(ratio > level for level in HEAT)


def heat_rows(facts: Facts, topic: TopicFacts, width: float = 560.0) -> str:
    """Two rows of cells, before and after: a cell for each broker, or for groups of sorted ones."""
    n = len(facts.order)
    rows = []
    for place, counts in enumerate((topic.before[facts.order], topic.after[facts.order])):
        label = ("before", "after")[place]
        if n > BARS:
            groups = np.array_split(np.sort(counts)[::-1], BARS)
            cells = [(float(g.mean()), plural(len(g), "broker")) for g in groups]
        else:
            ids = facts.plan.snapshot.broker_ids[facts.order].tolist()
            cells = [(float(c), f"broker {i}") for c, i in zip(counts.tolist(), ids, strict=True)]
        pitch = width / len(cells)
        for i, (count, who) in enumerate(cells):
            level, x, y = heat_level(count, topic.share), i * pitch, place * 17
            shown = f"{count:.3g}"
            rows.append(
                f'<rect class="h{level}" x="{x:.1f}" y="{y}" width="{pitch - 1:.1f}" height="16">'
                f"<title>{escape(who)}, {label}: {shown}</title></rect>"
            )
            if len(cells) <= 30 and count:
                rows.append(
                    f'<text class="cell c{level}" x="{x + (pitch - 1) / 2:.1f}" y="{y + 11.5}" '
                    f'text-anchor="middle">{shown}</text>'
                )
    return f'<svg class="heat" viewBox="0 0 {width:g} 33" aria-hidden="true">{"".join(rows)}</svg>'


def legend_text(column: ColumnFacts) -> list[tuple[str, str]]:
    """The meaning of a chart's band and lines: (class, words), including invisible ones."""
    found = []
    if column.upper is not None and column.lower is not None:
        low, high = _median(column.lower), _median(column.upper)
        words = f"goal: up to {times(high)}" if low <= 0 else f"goal: {low:.2f} to {times(high)}"
        found.append(("band", words))
    top = _top(column, list(column.ratios()))
    for name, words, line in (
        ("limit", "hard limit", column.limit),
        ("capacity", "capacity", column.capacity),
    ):
        if line is not None and math.isfinite(value := _median(line)):
            hidden = "" if value <= top else " (above the picture)"
            found.append((name, f"{words}: {times(value)}{hidden}"))
    return found
