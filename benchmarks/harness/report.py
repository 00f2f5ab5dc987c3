"""Shows rows of measurements as a table for people and saves them as JSON for machines."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from benchmarks.registry import BenchmarkError, Row
from cluster_model.files import write_atomically

# More subjects than this are shown below each other.
_MOST_COLUMNS = 8
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def print_rows(rows: Sequence[Row], console: Console) -> None:
    """One table for each benchmark and size: metrics down, subjects across.

    If there are many subjects and fewer metrics, it is the other way round. In a file or a pipe a
    table is as wide as it needs to be.
    """
    for (name, size), group in groupby(rows, key=lambda row: (row.benchmark, row.size)):
        of_size = list(group)
        subjects = list(dict.fromkeys(row.subject for row in of_size))
        value = {(row.metric, row.subject): row for row in of_size}
        metrics = list(dict.fromkeys(row.metric for row in of_size))
        turned = len(subjects) > max(_MOST_COLUMNS, len(metrics))
        down, across = (subjects, metrics) if turned else (metrics, subjects)
        first = "subject" if turned else "metric"
        table = Table(first, *across, title=f"{name} {size}", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        table.columns[0].no_wrap = turned
        for left in down:
            cells = [value.get((top, left) if turned else (left, top)) for top in across]
            table.add_row(left, *(_shown(cell) if cell else "" for cell in cells))
        if not console.is_terminal:
            console.width = max(console.width, _needed(table, console))
        console.print(table)


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as a JSON list; a value that is not finite becomes null."""
    listed = [row._asdict() for row in rows]
    for row in listed:
        if not math.isfinite(row["value"]):
            row["value"] = None
    text = json.dumps(listed, indent=1, allow_nan=False) + "\n"
    try:
        write_atomically(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise BenchmarkError(f"results file {path}: {error.strerror or error}") from None


def _needed(table: Table, console: Console) -> int:
    unbounded = console.options.update(width=sys.maxsize)
    return Measurement.get(console, unbounded, table).maximum


def _shown(row: Row) -> str:
    if row.unit == "bytes":
        step = min(len(_BYTE_UNITS) - 1, max(0, int(math.log10(max(row.value, 1)) // 3)))
        return f"{row.value / 1000**step:.3g} {_BYTE_UNITS[step]}"
    if row.unit == "yes":
        return "yes" if row.value else "no"
    if row.unit in ("seconds", "exponent", "squared contentment"):
        return f"{row.value:.3g} {'s' if row.unit == 'seconds' else ''}".strip()
    if row.unit in ("points", "percent", "consumers", "replica-minutes"):
        return f"{row.value:.2f}"
    if row.unit == "ratio":
        return f"{row.value:.4f}"
    return f"{row.value:,.0f}"
