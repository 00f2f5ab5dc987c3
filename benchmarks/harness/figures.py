"""Draws measurements, and makes rows that compare them with a paper's statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.registry import BenchmarkError, Options, Row

# The column for statements about a comparison.
PAPER = "paper"
_WIDTH, _HEIGHT = 5.0, 3.4


class Panel(NamedTuple):
    """Lines by name, each of x and y, with the labels of the axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]


def draw(options: Options, name: str, panels: Sequence[Panel]) -> None:
    """Save panels next to each other as ``name.svg``, if pictures are requested.

    Raises
    ------
    BenchmarkError
        If the folder cannot be written, or matplotlib is missing.
    """
    if options.pictures is None or not panels:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BenchmarkError("pictures need matplotlib: pip install matplotlib") from None
    figure = Figure((_WIDTH * len(panels), _HEIGHT), layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), number)
        for line, (x, y) in panel.lines.items():
            axes.plot(x, y, label=line, marker="o" if len(x) < 12 else "", markersize=3)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path = Path(options.pictures) / f"{name}.svg"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
    except OSError as error:
        raise BenchmarkError(f"picture {path}: {error.strerror or error}") from None
    options.log(f"drawn: {path}")


def holds(name: str, size: str, claim: str, ours: bool) -> Iterator[Row]:
    """Row that states whether the paper's claim holds here."""
    yield Row(name, size, "here", claim, float(ours), "yes")
    yield Row(name, size, PAPER, claim, 1.0, "yes")


def stated(name: str, size: str, subject: str, metric: str, value: float, unit: str) -> Row:
    """A value that the paper states for a subject."""
    return Row(name, size, f"{subject} ({PAPER})", metric, value, unit)


def chosen(options: Options, known: Sequence[str]) -> tuple[str, ...]:
    """The subjects to measure, in the order of the known ones.

    Raises
    ------
    BenchmarkError
        For an unknown one.
    """
    for name in options.subjects:
        if name not in known:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(known)}")
    return tuple(name for name in known if name in (options.subjects or known))
