"""Reads plans and snapshots from files or stdin; says which command takes the other kind."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from balancer.cli.plugins import snapshot_options
from balancer.cli.terminal import CommandError, writing
from cluster_model import InputError

if TYPE_CHECKING:
    from balancer import PlanDocument
    from cluster_model import Snapshot

STDIO = Path("-")
_TAKEN = {
    "a plan found, a snapshot expected": "explain, verify and execute take plans",
    "a snapshot found, a plan expected": "load and propose take snapshots",
}


def plan_from(path: Path) -> PlanDocument:
    """The plan in a file, or on stdin for ``-``."""
    from balancer import load_plan

    with _at(path) as file, _which_command(path, file):
        return load_plan(file)


def snapshot_from(path: Path, options: Iterable[str] | None = None) -> Snapshot:
    """The snapshot in a file, or on stdin for ``-``; options are those of its reader."""
    from cluster_model import load_snapshot

    with _at(path) as file, _which_command(path, file):
        return load_snapshot(file, snapshot_options(file, options))


def snapshot_to(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot to a file, or as JSON to stdout for ``-``."""
    from cluster_model import save_snapshot

    if path != STDIO:
        with writing(path):
            save_snapshot(snapshot, path)
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "snapshot.json"
        save_snapshot(snapshot, file)
        typer.echo(file.read_text(encoding="utf-8"))


@contextmanager
def _at(path: Path) -> Iterator[Path]:
    """The file itself; what is on stdin in a file with the suffix that its content asks for."""
    if path != STDIO:
        yield path
        return
    data = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / ("stdin.npz" if data.startswith(b"PK\3\4") else "stdin.json")
        file.write_bytes(data)
        yield file


@contextmanager
def _which_command(path: Path, file: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        said = str(error).replace(str(file), "-" if path == STDIO else str(file))
        more = next((f"; {use}" for end, use in _TAKEN.items() if said.endswith(end)), "")
        if not more and path != STDIO:
            raise
        raise CommandError(f"{said}{more}") from None
