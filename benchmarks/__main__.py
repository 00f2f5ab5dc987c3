"""``python -m benchmarks``: list the benchmarks, run one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.report import print_rows, save_rows
from benchmarks.registry import BenchmarkError, Options, Row, all_benchmarks, find
from cluster_model import InputError

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command("list")
def list_benchmarks() -> None:
    """Show every benchmark with its sizes."""
    table = Table("benchmark", "sizes", "what it measures")
    for name, found in all_benchmarks().items():
        table.add_row(name, " ".join(found.sizes), found.summary)
    Console().print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="A name from the list.")],
    size: Annotated[
        list[str] | None, typer.Option(help="Repeat for several; the smallest by default.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    subject: Annotated[
        list[str] | None, typer.Option(help="Repeat for several; all by default.")
    ] = None,
    peer_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds of search that a peer may take.")
    ] = 600.0,
    peer_python: Annotated[
        Path | None, typer.Option(help="An interpreter that has the peer installed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of invented inputs.")] = 0,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rounds of a benchmark that has rounds."),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Draw into this folder; by default that of --json, if given."
        ),
    ] = None,
) -> None:
    """Run one benchmark, print its table and keep its rows."""
    sizes = list(dict.fromkeys(size or ()))
    chosen = find(name, sizes)
    if json is not None and not json.absolute().parent.is_dir():
        raise BenchmarkError(f"results file {json}: no folder {json.absolute().parent}")
    options = Options(
        subjects=tuple(subject or ()),
        peer_timeout=peer_timeout,
        peer_python=peer_python,
        seed=seed,
        rounds=rounds,
        pictures=pictures or (json and json.absolute().parent),
    )
    rows: list[Row] = []
    try:
        for row in chosen.run(sizes or chosen.sizes[:1], options):
            rows.append(row)
    finally:
        # Rows from before a failure may have taken hours; keep them.
        print_rows(rows, Console())
        if json is not None:
            save_rows(rows, json)


def main() -> None:
    """Run the command line; report bad input in one sentence."""
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
