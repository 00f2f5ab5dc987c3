"""A package that cannot be used is named, and disturbs nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from balancer.cli import app

KINDS = ("goals", "strategies", "operations", "notifiers", "detectors", "readers")
GROUPS = {"readers": "snapshots"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_listed_and_shown(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[counterpoise.{GROUPS.get(kind, kind)}]\nodd = no_such_module:Odd\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = CliRunner().invoke
    listed = run(app, [kind, "list"], env={"COLUMNS": "400"})
    assert listed.exit_code == 0, listed.output
    assert "odd cannot be loaded from no_such_module:Odd" in listed.stdout
    first = listed.stdout.splitlines()[1].split()[0]
    assert run(app, [kind, "show", first]).exit_code == 0
    shown = run(app, [kind, "show", "odd"])
    assert shown.exit_code == 2
    assert "package broken: " in shown.output
