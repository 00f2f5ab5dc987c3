"""Draws backtests: four figures of the configurations over time, and the brokers' loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from balancer.backtest.errors import BacktestError
from balancer.backtest.result import BacktestResult
from cluster_model.files import write_atomically

# Okabe and Ito's colours, which colour-blind readers can tell apart; the history is grey.
_COLOURS = ("#7f7f7f", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_UNITS = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9))
# More points than this make no visible difference.
_POINTS = 500


def draw(result: BacktestResult, path: Path) -> None:
    """Plot the configurations over time; the file's suffix sets the format.

    Raises
    ------
    BacktestError
        Without matplotlib, or for an unknown format.
    """
    _save(path, (11, 8.5), lambda figure: _panels(figure, result))


def draw_brokers(result: BacktestResult, path: Path) -> None:
    """Draw a heat map for each configuration: brokers over time, by load / capacity.

    Raises
    ------
    BacktestError
        As for :func:`draw`.
    """
    count = len(result.shares)
    _save(path, (11, 1.0 + 2.4 * count), lambda figure: _heat(figure, result))


def _save(path: Path, size: tuple[float, float], plot: Callable[[Any], None]) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BacktestError(
            "the picture of a backtest: no matplotlib found, the extra `spark` expected "
            "(pip install 'counterpoise[spark]')"
        ) from None
    figure = Figure(figsize=size, layout="constrained")
    known = figure.canvas.get_supported_filetypes()
    if path.suffix[1:] not in known:
        raise BacktestError(
            f"picture {path}: the format {path.suffix[1:]!r} found, one of "
            f"{', '.join(sorted(known))} expected"
        )
    plot(figure)
    # No timestamps in the file: equal results give equal pictures.
    nothing = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix[1:])
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "counterpoise"}):
        write_atomically(
            path,
            lambda f: figure.savefig(f, format=path.suffix[1:], metadata=nothing, dpi=120),
        )


def _heat(figure: Any, result: BacktestResult) -> None:
    import matplotlib.dates

    # matplotlib has no types.
    dates: Any = matplotlib.dates
    axes = figure.subplots(len(result.shares), 1, sharex=True, squeeze=False)[:, 0]
    most = max((float(np.nanmax(s.share, initial=0.0)) for s in result.shares.values()), default=0)
    image = None
    for axis, (name, of) in zip(axes, result.shares.items(), strict=True):
        end_ms = result.first_ms + of.share.shape[1] * of.column_ms
        left, right = dates.date2num(_times([result.first_ms, end_ms]))
        image = axis.imshow(
            of.share,
            aspect="auto",
            interpolation="nearest",
            cmap="cividis",
            vmin=0,
            vmax=max(most, result.limit),
            extent=(left, right, len(of.brokers) - 0.5, -0.5),
        )
        axis.set_title(name, fontsize=10, loc="left")
        rows = np.unique(np.linspace(0, len(of.brokers) - 1, 5).round().astype(int))
        axis.set_yticks(rows, [str(of.brokers[row]) for row in rows])
        axis.set_ylabel("broker")
    locator = dates.AutoDateLocator(maxticks=8)
    axes[-1].xaxis_date()
    axes[-1].xaxis.set_major_locator(locator)
    axes[-1].xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    bar = figure.colorbar(image, ax=axes, label="load / capacity of the busiest resource")
    bar.ax.axhline(result.limit, color="#b00000", linewidth=0.8, linestyle="--")


def _panels(figure: Any, result: BacktestResult) -> None:
    import matplotlib.dates

    # matplotlib has no types.
    dates: Any = matplotlib.dates
    axes = figure.subplots(2, 2, sharex=True)
    windows, rounds = result.by_name
    hours = result.window_ms / 3_600_000
    most = max((sum(e.bytes_moved for e in rounds[name]) for name in rounds), default=0.0)
    unit, of = next((u for u in _UNITS if most >= u[1]), _UNITS[-1])
    for name, colour in zip(result.configurations, _cycled(len(windows)), strict=True):
        style = {"color": colour, "label": name, "linewidth": 1.2}
        start = [w.start_ms for w in windows[name]]
        figures = [w.figures for w in windows[name]]
        _line(axes[0, 0], start, [v.worst for v in figures], max, style)
        _line(axes[0, 1], start, [float(v.violated) for v in figures], _mean, style)
        over = list(accumulate(hours * v.overloaded for v in figures))
        axes[1, 0].plot(_times(start), over, **style)
        moved = list(accumulate((e.bytes_moved for e in rounds[name]), initial=0.0))
        at = [result.first_ms, *(e.at_ms for e in rounds[name])]
        axes[1, 1].step(
            _times([*at, result.end_ms]), [b / of for b in [*moved, moved[-1]]], where="post",
            **style,
        )  # fmt: skip
    axes[0, 0].axhline(result.limit, color="#b00000", linewidth=0.8, linestyle="--")
    for axis, title in zip(
        axes.ravel(),
        (
            "Most loaded broker, load / capacity (dashed: limit)",
            "Goals not met",
            "Overloaded broker-hours so far",
            f"{unit} copied so far",
        ),
        strict=True,
    ):
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    for axis in axes[1]:
        locator = dates.AutoDateLocator(maxticks=8)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    labels, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        labels, names, loc="outside upper center", ncols=min(len(names), 6), frameon=False
    )


def _line(
    axis: Any,
    start: Sequence[int],
    values: Sequence[float],
    over: Callable[[Sequence[float]], float],
    style: dict[str, Any],
) -> None:
    """A line through the aggregates of many windows."""
    step = max(1, len(start) // _POINTS)
    at = range(0, len(start), step)
    axis.plot(_times([start[i] for i in at]), [over(values[i : i + step]) for i in at], **style)


def _times(ms: Sequence[int]) -> list[datetime]:
    return [datetime.fromtimestamp(t / 1000, UTC) for t in ms]


def _cycled(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
