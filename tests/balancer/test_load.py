"""What is where now: figures of brokers, racks, disks, topics, partitions, and their tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer
from balancer.inspection.load import ClusterLoad
from cluster_model import InputError, Snapshot, save_snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    return synthetic_snapshot(
        brokers=9, partitions=120, racks=3, topics=4, disks_per_broker=2, dead_brokers=1, seed=3
    )


def by_hand(s: Snapshot, column: str) -> dict[Any, float]:
    """The load of each broker, replica by replica."""
    found = dict.fromkeys(s.broker_ids.tolist(), 0.0)
    for p in range(s.n_partitions):
        first, last = int(s.replica_offset[p]), int(s.replica_offset[p + 1])
        for place, b in enumerate(s.replica_broker[first:last].tolist()):
            leads = place == s.leader[p]
            if column == "replica_count":
                adds = 1.0
            elif column == "leader_count":
                adds = float(leads)
            else:
                load = s.leader_load if leads else s.follower_load
                adds = float(load[p, s.resource(column)])
            found[s.broker_ids[b].item()] += adds
    return found


@given(seed=st.integers(0, 50), dead=st.integers(0, 2), heterogeneity=st.sampled_from([0.0, 0.5]))
def test_figures_are_sums_over_replicas(seed: int, dead: int, heterogeneity: float) -> None:
    s = synthetic_snapshot(
        brokers=6, partitions=40, racks=3, dead_brokers=dead, heterogeneity=heterogeneity, seed=seed
    )
    load = ClusterLoad(s)
    rows = {row.broker: row for row in load.brokers()}
    totals, racks = load.totals(), load.racks()
    topics, partitions = load.topics(), load.partitions()
    for name in load.columns:
        expected = by_hand(s, name)
        amounts = {id_: row.figures[name].amount for id_, row in rows.items()}
        assert amounts == pytest.approx(expected)
        total = sum(expected.values())
        assert totals.figures[name].amount == pytest.approx(total)
        assert sum(r.figures[name].amount for r in racks) == pytest.approx(total)
        assert sum(t.amounts[name] for t in topics) == pytest.approx(total)
        assert sum(t.of_cluster[name] for t in topics) == pytest.approx(1.0)
        for row in rows.values():
            figure, size = row.figures[name], row.capacity.get(name)
            if size is None:
                assert figure.of_capacity is None
            else:
                assert figure.of_capacity == pytest.approx(figure.amount / size)
            assert (figure.fair_shares is None) == (row.state == "dead")
    assert len(partitions) == s.n_partitions
    assert totals.brokers_not_alive == dead


def test_fair_shares_are_those_of_a_plan(cluster: Snapshot) -> None:
    plan = Balancer("default").propose(cluster)
    load = ClusterLoad(cluster)
    for name, column in plan.columns.items():
        shares = [f for row in load.brokers() if (f := row.figures[name].fair_shares) is not None]
        assert max(shares) == pytest.approx(column.before.worst_ratio, rel=1e-6)


def test_disks_and_what_is_offline(cluster: Snapshot) -> None:
    load = ClusterLoad(cluster)
    rows = load.disks()
    assert len(rows) == cluster.n_disks
    assert sum(row.replicas for row in rows) == cluster.n_replicas
    used = [row.used for row in rows if row.used is not None]
    assert len(used) == len(rows)
    assert sum(used) == pytest.approx(sum(by_hand(cluster, "disk").values()))
    broken = replace(cluster, disk_alive=np.arange(cluster.n_disks) != 0)
    found = ClusterLoad(broken)
    assert found.disks(1)[0].state == "offline"
    assert found.totals().disks_offline == 1
    held = int(np.count_nonzero(broken.replica_disk == 0))
    assert found.totals().replicas_offline == load.totals().replicas_offline + held
    both = replace(cluster, disk_alive=cluster.disk_broker != 0)
    assert ClusterLoad(both).brokers(only=(1,))[0].state == "dead"
    demoted = cluster.broker_state.copy()
    demoted[1] = BrokerState.DEMOTED
    assert ClusterLoad(replace(cluster, broker_state=demoted)).brokers(only=("2",))[0].state == (
        "demoted"
    )


def test_order_and_limits(cluster: Snapshot) -> None:
    load = ClusterLoad(cluster)
    ranked = [row.figures["disk"].of_capacity or 0.0 for row in load.brokers(sort="disk")]
    assert ranked == sorted(ranked, reverse=True)
    whole = load.partitions(sort="cpu")
    for limit in (0, 1, 5, 10_000):
        assert load.partitions(sort="cpu", limit=limit) == whole[:limit]
    here = load.partitions(sort="cpu", broker=3)
    assert here
    assert all(3 in row.replicas for row in here)
    topic = cluster.topics[1]
    assert {row.partition.rpartition("-")[0] for row in load.partitions(topic=topic)} == {topic}
    assert sum(row.replicas for row in load.topics(broker=3)) == len(here)


def test_what_does_not_exist_is_an_error_that_names_the_nearest(cluster: Snapshot) -> None:
    load = ClusterLoad(cluster)
    for ask, nearest in (
        (lambda: load.brokers(sort="dsk"), "did you mean 'disk'"),
        (lambda: load.partitions(topic="topic_1"), "did you mean 'topic-1'"),
        (lambda: load.disks(77), "broker '77' found, one of 1, 2"),
    ):
        with pytest.raises(InputError, match=nearest.replace("?", r"\?")):
            ask()


def show(path: Path, *options: object, width: int = 120, code: int = 0) -> str:
    result = invoke(["load", path, *options], env={"COLUMNS": str(width)})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize("width", [200, 120, 80, 40])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--topics",),
        ("--partitions",),
        ("--broker", 3),
        ("--resource", "disk"),
        ("--topic", "topic-2"),
    ],
)
def test_tables_fit_and_names_stay_whole(
    cluster: Snapshot, tmp_path: Path, width: int, options: tuple[object, ...]
) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(cluster, path)
    text = show(path, *options, width=width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    if not options:
        assert all(f"rack-{r}" in text for r in range(3))
        assert "dead" in text
    if "--topics" in options:
        assert all(name in text for name in cluster.topics)


def test_json_holds_all_figures(cluster: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(cluster, path)
    found = json.loads(show(path, "--json"))
    assert [row["broker"] for row in found["brokers"]] == [
        row.broker for row in ClusterLoad(cluster).brokers()
    ]
    assert set(found) == {"cluster", "brokers", "racks", "disks"}
    one = json.loads(show(path, "--broker", 3, "--json"))
    assert one["broker"]["figures"]["disk"]["amount"] == pytest.approx(by_hand(cluster, "disk")[3])
    assert len(json.loads(show(path, "--partitions", "--json"))["partitions"]) == 120


def test_options_that_exclude_each_other(cluster: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(cluster, path)
    assert "--topics and --broker given" in show(path, "--topics", "--broker", 3, code=2)
    assert "did you mean 'topic-2'" in show(path, "--topic", "Topic_2", code=2)
