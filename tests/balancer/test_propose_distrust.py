"""``counterpoise propose --metrics-topic``: what is not trusted is reported, and stays."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke

import cluster_model.kafka
import metrics_reporter
from benchmarks.harness.world import Weather, World
from cluster_model import synthetic_snapshot
from cluster_model.trust import frozen_partitions
from metrics_reporter import BYTES_IN

LIAR = 4
LIVE = ["--bootstrap-server", "x:1", "--metrics-topic", "metrics"]


class _Reader:
    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def batches(self) -> list[Any]:
        return self._batches


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world with a metrics topic in which one broker reports 20 times its bytes_in."""
    cluster = synthetic_snapshot(brokers=8, partitions=240, racks=4, utilization=0.2)
    world = World(cluster, Weather())
    batches = []
    for _ in range(22):
        world.now += 60.0
        batch = world.report()
        hit = (batch.metric == batch.metrics.index(BYTES_IN)) & (batch.topic[batch.row] >= 0)
        hit &= batch.broker[batch.row] == LIAR
        batches.append(replace(batch, value=np.where(hit, batch.value * 20, batch.value)))
    monkeypatch.setattr(cluster_model.kafka, "read_cluster", lambda *_, **__: cluster)
    monkeypatch.setattr(metrics_reporter, "read_records", lambda *_, **__: _Reader(batches))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * world.now))
    return world


def test_a_broker_that_contradicts_is_warned_of_and_what_it_holds_stays(world: World) -> None:
    result = invoke(["propose", *LIVE, "--json"])
    assert result.exit_code in (0, 1), result.output
    assert "warning: the partitions that broker 4 leads take" in result.stderr
    assert "its metrics are ignored" in result.stderr
    actions = json.loads(result.stdout)["actions"]
    assert actions
    frozen = frozen_partitions(world.snapshot, [LIAR])
    assert frozen.isdisjoint(f"{a['topic']}-{a['partition']}" for a in actions)


def test_loads_that_are_estimates_are_not_shown(world: World) -> None:
    shown = json.loads(invoke(["load", *LIVE, "--json"]).stdout)["brokers"]
    assert [b["broker"] for b in shown if "network_in" not in b["figures"]] == [LIAR]
    rows = json.loads(invoke(["load", *LIVE, "--partitions", "--json"]).stdout)["partitions"]
    led = {row["partition"] for row in rows if row["leader"] == LIAR}
    assert {row["partition"] for row in rows if "cpu" not in row["leader_amounts"]} == led
    written = invoke(["snapshot", "kafka", *LIVE, "-o", "-"])
    assert f"warning: {len(led)} partitions without known loads: the file has" in written.stderr
    table = invoke(["load", *LIVE, "--sort", "cpu"]).stdout
    assert re.search(rf"(?m)^ *{LIAR} .*–.*–.*–", table), table
    own = invoke(["load", *LIVE, "--broker", str(LIAR)]).stdout
    assert re.search(r"(?m)^CPU +– +\S+ %", own), own
    assert re.search(r"(?m)^topic-3 +\d+ +\d+ +– +– +– +\S", own), own


def test_goals_that_read_no_loads_are_planned_without_them(world: World, tmp_path: Path) -> None:
    world.now += 7200.0
    racks = tmp_path / "racks.yaml"
    racks.write_text("goals: [{goal: RackAwareness}]\n")
    result = invoke(["propose", *LIVE, "--goals", str(racks), "--json"])
    assert (result.exit_code, "only the sizes of replicas are used" in result.stderr) == (0, True)
    assert json.loads(result.stdout)["actions"]


@pytest.mark.parametrize("words", [["propose"], ["load"], ["snapshot", "kafka", "-o", "-"]])
def test_a_topic_whose_newest_records_are_old_tells_no_loads(
    world: World, words: list[str]
) -> None:
    world.now += 7200.0
    result = invoke([*words, *LIVE])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the metrics of 8 of 8 brokers are stale: the metrics of broker 1 are 2 h old, at" in (
        " ".join(result.stderr.split())
    )
