"""A package that cannot be used is named, and affects nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import invoke

from cluster_model import save_snapshot, synthetic_snapshot

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
    listed = invoke([kind, "list"], env={"COLUMNS": "400"})
    assert listed.exit_code == 0, listed.output
    assert "odd cannot be loaded from no_such_module:Odd" in listed.stdout
    first = listed.stdout.splitlines()[1].split()[0]
    assert invoke([kind, "show", first]).exit_code == 0
    shown = invoke([kind, "show", "odd"])
    assert shown.exit_code == 2
    assert "package broken: " in shown.output


def test_a_detector_that_fails_is_named_when_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_detector.py").write_text(
        "class Odd:\n    def look(self, view):\n        raise OSError('no answer')\n"
    )
    info = tmp_path / "their-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[counterpoise.detectors]\nodd = their_detector:Odd\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_detector", raising=False)
    snapshot, settings = tmp_path / "cluster.json", tmp_path / "settings.yaml"
    save_snapshot(synthetic_snapshot(brokers=6, partitions=60, racks=3), snapshot)
    settings.write_text("detectors: {odd: {}}\n")
    words = ["detectors", "try", str(snapshot), "--settings", str(settings)]
    done = invoke(words)
    assert done.exit_code == 1, done.output
    assert "odd cannot be judged: " in done.stdout
    assert "no answer" in done.stdout
    record = json.loads(invoke([*words, "--json"]).stdout)
    assert any("odd cannot be judged" in text for text in record["detectors_failing"])
