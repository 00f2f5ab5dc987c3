"""Rows of measurements as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.registry import BenchmarkError, Row
from cluster_model.files import write_atomically

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def print_rows(rows: Sequence[Row], console: Console) -> None:
    """One table for each benchmark and size: metrics down, subjects across."""
    for (name, size), group in groupby(rows, key=lambda row: (row.benchmark, row.size)):
        of_size = list(group)
        subjects = list(dict.fromkeys(row.subject for row in of_size))
        value = {(row.metric, row.subject): row for row in of_size}
        table = Table("metric", *subjects, title=f"{name} {size}", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for metric in dict.fromkeys(row.metric for row in of_size):
            cells = [value.get((metric, subject)) for subject in subjects]
            table.add_row(metric, *(_shown(cell) if cell else "" for cell in cells))
        console.print(table)


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as a JSON list; what is not a finite number becomes null."""
    listed = [row._asdict() for row in rows]
    for row in listed:
        if not math.isfinite(row["value"]):
            row["value"] = None
    text = json.dumps(listed, indent=1) + "\n"
    try:
        write_atomically(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise BenchmarkError(f"results file {path}: {error.strerror or error}") from None


def _shown(row: Row) -> str:
    if row.unit == "bytes":
        step = min(len(_BYTE_UNITS) - 1, max(0, int(math.log10(max(row.value, 1)) // 3)))
        return f"{row.value / 1000**step:.3g} {_BYTE_UNITS[step]}"
    if row.unit == "yes":
        return "yes" if row.value else "no"
    if row.unit in ("seconds", "exponent"):
        return f"{row.value:.3g} {'s' if row.unit == 'seconds' else ''}".strip()
    if row.unit in ("points", "percent"):
        return f"{row.value:.2f}"
    if row.unit == "ratio":
        return f"{row.value:.4f}"
    return f"{row.value:,.0f}"
