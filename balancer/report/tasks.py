"""Draws a simulated application over time: copies by instance, tasks that stand still, lag."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from balancer.assignment.simulation import Role, Simulation, Status
from balancer.report import chart_style
from cluster_model.snapshot import Floats, Ints
from metrics_reporter.documents import printable
from metrics_reporter.quantities import amount, plural

_WIDTH, _LEFT, _RIGHT, _TOP, _PANEL, _GAP = 960.0, 120.0, 14.0, 62.0, 76.0, 30.0
_NAME = 16
# From the bottom of a band to its top: role, class, meaning. Role 0 counts active tasks that wait.
_LAYERS = (
    (Role.ACTIVE, "runs", "active"),
    (Role.NONE, "waits", "active, not processed"),
    (Role.STANDBY, "standby", "standby"),
    (Role.WARMUP, "warmup", "warm-up"),
)
_STYLE = """
svg .head { font-weight: 600; font-size: 13px; } svg .sheet { fill: var(--paper); }
svg .runs { fill: var(--accent); } svg .waits { fill: var(--bad); }
svg .standby { fill: var(--h2); } svg .warmup { fill: var(--r1); }
svg .lag { fill: none; stroke: var(--accent); stroke-width: 1.4; }
svg .round { stroke: var(--grid); stroke-width: .8; stroke-dasharray: 1 3; fill: none; }
"""
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)


def simulation_svg(found: Simulation) -> str:
    """What happened, as an SVG file without script; equal simulations give equal text.

    Parameters
    ----------
    found
        A simulation with few enough instances to tell their bands apart.
    """
    s = found.scenario.state
    end = max(float(found.time[-1]), 1e-9)
    x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * found.time / end
    pitch = min(44.0, max(14.0, 420.0 / s.n_instances))
    counts = found.copies.copy()
    counts[:, :, Role.ACTIVE] -= counts[:, :, Role.NONE]
    most = max(1, int(counts.sum(axis=2).max(initial=1)))
    parts = [_legend()]
    for i, name in enumerate(s.instances):
        base = _TOP + (i + 1) * pitch
        parts.append(_absent(found, i, x, base, pitch))
        low = np.zeros(len(x), np.int64)
        for role, kind, _ in _LAYERS:
            high = low + counts[:, i, role]
            parts.append(_layer(kind, x, low, high, base, (pitch - 3) / most))
            low = high
        parts.append(_label(name, base - pitch / 2 + 2))
    bottom = _TOP + pitch * s.n_instances
    waiting = (found.status != Status.PROCESSING).sum(axis=1)
    top = bottom + _GAP
    parts.append(_title("Tasks that are not processed", plural(int(waiting.max()), "task"), top))
    scale = _PANEL / max(1, int(waiting.max()))
    parts.append(_layer("waits", x, 0 * waiting, waiting, top + _PANEL, scale))
    parts.append(_base(top + _PANEL))
    lag = np.stack([found.lag.sum(axis=1), found.lag_after.sum(axis=1)], axis=1)
    top += _PANEL + _GAP
    parts.append(_title("Records that copies are behind", amount(float(lag.max()), ""), top))
    parts.append(_curve(x, lag, top))
    parts.append(_base(top + _PANEL))
    for at in sorted({r.at for r in found.rebalances}):
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / end
        parts.append(f'<path class="round" d="M{across:.1f} {_TOP:g}V{top + _PANEL:.1f}"/>')
    parts.append(_axis(end, top + _PANEL))
    height = top + _PANEL + 24
    alt = escape(
        f"Copies of tasks on {plural(s.n_instances, 'instance')} over time, "
        f"{plural(len(found.rebalances), 'rebalance')}"
    )
    return printable(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" '
        f'width="{_WIDTH:g}" height="{height:g}" role="img" aria-label="{alt}">'
        f"<style>{chart_style()}{_STYLE}</style>"
        f'<rect class="sheet" width="{_WIDTH:g}" height="{height:g}" rx="8"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _legend() -> str:
    parts = [f'<text class="head" x="{_LEFT:g}" y="20">Copies of tasks by instance</text>']
    across = _LEFT
    for kind, words in (*((k, w) for _, k, w in _LAYERS), ("gone", "not a member")):
        parts.append(
            f'<rect class="{kind}" x="{across:g}" y="32" width="11" height="11"/>'
            f'<text class="note" x="{across + 16:g}" y="42">{words}</text>'
        )
        across += 36 + 5.6 * len(words)
    parts.append(f'<path class="round" d="M{across:g} 37.5h14"/>')
    parts.append(f'<text class="note" x="{across + 19:g}" y="42">rebalance</text>')
    return "".join(parts)


def _absent(found: Simulation, instance: int, x: Floats, base: float, pitch: float) -> str:
    """When an instance was away."""
    away = ~found.member[:, instance]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], away, [False]]).astype(np.int8)))
    parts = []
    for a, b in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        wide = float(x[min(b, len(x) - 1)] - x[a])
        if wide > 0:
            parts.append(
                f'<rect class="gone" x="{x[a]:.1f}" y="{base - pitch + 3:.1f}" '
                f'width="{wide:.1f}" height="{pitch - 3:.1f}"/>'
            )
    return "".join(parts) + _base(base)


def _layer(kind: str, x: Floats, low: Ints, high: Ints, base: float, scale: float) -> str:
    """The area between two step functions of time."""
    # Only what changes can be seen, and only the last of what happens in a tenth of a pixel.
    cuts = [0, *(np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1).tolist()]
    ends = [*cuts[1:], len(x) - 1]
    path = []
    for a, b in zip(cuts, ends, strict=True):
        if high[a] > low[a] and x[b] - x[a] >= 0.05:
            y0, y1 = base - scale * float(high[a]), base - scale * float(low[a])
            path.append(f"M{x[a]:.1f} {y0:.1f}H{x[b]:.1f}V{y1:.1f}H{x[a]:.1f}Z")
    return f'<path class="{kind}" d="{"".join(path)}"/>' if path else ""


def _curve(x: Floats, lag: Floats, top: float) -> str:
    # A rebalance adds copies and removes others at once.
    moments = np.stack([x, np.append(x[1:], x[-1])], axis=1).ravel()
    highest = max(float(lag.max()), 1.0)
    spots = (
        f"{across:.1f} {top + _PANEL * (1 - v / highest):.1f}"
        for across, v in zip(moments.tolist(), lag.ravel().tolist(), strict=True)
    )
    return f'<path class="lag" d="M{" ".join(_once(spots))}"/>'


def _once(spots: Iterable[str]) -> list[str]:
    """The spots without those that repeat the one before."""
    found: list[str] = []
    for spot in spots:
        if not found or found[-1] != spot:
            found.append(spot)
    return found


def _title(words: str, note: str, y: float) -> str:
    return (
        f'<text class="name" x="{_LEFT:g}" y="{y - 8:g}">{words}</text>'
        f'<text class="note" x="{_WIDTH - _RIGHT:g}" y="{y - 8:g}" text-anchor="end">'
        f"at most {note}</text>"
    )


def _label(name: str, y: float) -> str:
    short = name if len(name) <= _NAME else "…" + name[1 - _NAME :]
    return (
        f'<text class="tick" x="{_LEFT - 8:g}" y="{y + 3:.1f}" text-anchor="end">'
        f"{escape(short)}</text>"
    )


def _base(y: float) -> str:
    return f'<path class="base" d="M{_LEFT:g} {y:.1f}H{_WIDTH - _RIGHT:g}"/>'


def _axis(end: float, y: float) -> str:
    step = next((s for s in _STEPS if end / s <= 8), 86_400 * math.ceil(end / 86_400 / 8))
    parts = []
    for k in range(int(end / step) + 1):
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * k * step / end
        parts.append(
            f'<text class="tick" x="{across:.1f}" y="{y + 16:.1f}" text-anchor="middle">'
            f"{_clock(k * step)}</text>"
        )
    return "".join(parts)


def _clock(seconds: float) -> str:
    """A time since the start in its largest units.

    Examples
    --------
    >>> _clock(0), _clock(90), _clock(5400), _clock(90_000)
    ('0', '1 min 30 s', '1 h 30 min', '1 d 1 h')
    """
    units: Sequence[tuple[str, int]] = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    left, said = round(seconds), []
    for name, size in units:
        if left >= size:
            said.append(f"{left // size} {name}")
            left %= size
    return " ".join(said) or "0"
