"""Resources beyond cpu, network and disk: reported by leaders, windowed, and never taken as 0."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balancer.controller.feed import window_noise
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.capacities import CapacityError, load_capacities
from cluster_model.live import ClusterModel, ModelError, simulated_source
from cluster_model.windows import RecordOutcome
from metrics_reporter import Record, encode
from metrics_reporter.batch import decode_batch

NAME = "requests"
MINUTE = 60_000
START = 1_700_000_100_000 // 300_000 * 300_000


def _cluster() -> Snapshot:
    """A cluster with a fifth resource, whose load is unknown."""
    s = synthetic_snapshot(brokers=4, partitions=24, racks=2, topics=2, replication_factor=2)

    def wider(array: Any, value: float) -> Any:
        return np.column_stack([array, np.full(len(array), value)])

    return replace(
        s,
        resources=(*s.resources, NAME),
        capacity=wider(s.capacity, 1000.0),
        leader_load=wider(s.leader_load, 0.0),
        follower_load=wider(s.follower_load, 0.0),
    )


def _truth(cluster: Snapshot) -> Any:
    return 10.0 + np.arange(cluster.n_partitions)


def _records(cluster: Snapshot, time_ms: int) -> list[Record]:
    """What the leaders report, each its own partition."""
    leads = cluster.replica_is_leader
    broker = cluster.broker_ids[cluster.replica_broker[leads]].tolist()
    return [
        Record(
            time_ms,
            b,
            {NAME: float(v)},
            cluster.topics[cluster.partition_topic[p]],
            int(cluster.partition_number[p]),
        )
        for p, (b, v) in enumerate(zip(broker, _truth(cluster), strict=True))
    ]


def _model(
    cluster: Snapshot, share: float = 0.0, *, left_out: tuple[int, ...] = ()
) -> ClusterModel:
    """A model with two windows of everything, but without these partitions' further metric."""
    model = ClusterModel(cluster, measured={NAME: share}, clock=lambda: START + 11 * MINUTE)
    source = simulated_source(_plain(cluster), start_ms=START, interval_ms=MINUTE)
    for minute, report in enumerate(islice(source, 11)):
        model.add_all(report)
        mine = _records(cluster, START + minute * MINUTE)
        model.add_all(r for p, r in enumerate(mine) if p not in left_out)
    return model


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_what_leaders_report_is_a_load(share: float) -> None:
    cluster = _cluster()
    model = _model(cluster, share)
    seen = model.observe()
    column = seen.snapshot.resource(NAME)
    assert np.allclose(seen.snapshot.leader_load[:, column], _truth(cluster))
    assert np.allclose(seen.snapshot.follower_load[:, column], share * _truth(cluster))
    assert not seen.distrust.unknown
    assert np.allclose(seen.snapshot.leader_load[:, 1], cluster.leader_load[:, 1])
    assert model.counters["added"] == sum(model.counters.values())


def test_it_arrives_by_name_in_the_wire_format_of_today() -> None:
    cluster = _cluster()
    messages = [encode(r) for r in _records(cluster, START)]
    batch = decode_batch(messages)
    assert batch.malformed == 0
    model = ClusterModel(cluster, measured={NAME: 0.0}, clock=lambda: START + MINUTE)
    model.add_batch(batch)
    assert model.counters["added"] == cluster.n_partitions


def test_its_noise_is_that_of_brokers_sums() -> None:
    cluster = _cluster()
    model = _model(cluster)
    seen = model.observe()
    assert seen.further[NAME].value.shape == (24, len(seen.completeness.start_ms), 1)
    noise = window_noise(seen)
    assert noise.keys() == {"cpu", "network_in", "network_out", NAME}
    # The same in every window.
    assert noise[NAME] == pytest.approx(0.0, abs=1e-9)


def test_an_unknown_load_is_estimated_and_stays() -> None:
    cluster = _cluster()
    seen = _model(cluster, left_out=(3,)).observe(0.9)
    topic = cluster.partition_topic == cluster.partition_topic[3]
    topic[3] = False
    found = seen.snapshot.leader_load[3, -1]
    assert found == pytest.approx(_truth(cluster)[topic].mean())
    name = f"{cluster.topics[cluster.partition_topic[3]]}-{cluster.partition_number[3]}"
    assert seen.distrust.unknown == {name}


def test_too_few_reports_are_no_load_at_all() -> None:
    cluster = _cluster()
    with pytest.raises(ModelError, match=r"requests of 0\.0% of partitions found"):
        _model(cluster, left_out=tuple(range(24))).observe()
    # Only placement counts.
    assert _model(cluster, left_out=tuple(range(24))).observe(0.0).snapshot.leader_load[0, -1] == 0


def test_a_broker_that_is_not_believed_has_its_last_trusted_load() -> None:
    cluster = _cluster()
    model = _model(cluster)
    before = model.snapshot().leader_load[:, -1]
    liar = int(cluster.broker_ids[0])
    for minute in range(10, 21):
        time_ms = START + minute * MINUTE
        for report in islice(simulated_source(_plain(cluster), start_ms=time_ms), 1):
            model.add_all(
                r._replace(metrics={n: 100 * v for n, v in r.metrics.items()})
                if r.broker == liar and r.topic is not None
                else r
                for r in report
            )
        model.add_all(
            r._replace(metrics={NAME: 1e6}) if r.broker == liar else r
            for r in _records(cluster, time_ms)
        )
    model._clock = lambda: START + 21 * MINUTE
    seen = model.observe(0.0)
    assert liar in seen.distrust.brokers
    assert np.allclose(seen.snapshot.leader_load[:, -1], before)


def _plain(cluster: Snapshot) -> Snapshot:
    return replace(
        cluster,
        resources=cluster.resources[:4],
        capacity=cluster.capacity[:, :4],
        leader_load=cluster.leader_load[:, :4],
        follower_load=cluster.follower_load[:, :4],
    )


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(-1.0, RecordOutcome.INVALID), (1e16, RecordOutcome.INVALID), (3.0, RecordOutcome.ADDED)],
)
def test_malformed_values_are_counted(value: float, outcome: RecordOutcome) -> None:
    cluster = _cluster()
    model = ClusterModel(cluster, measured={NAME: 0.0}, clock=lambda: START + MINUTE)
    model.add(_records(cluster, START)[0]._replace(metrics={NAME: value}))
    assert model.counters[outcome.name.lower()] == 1


def test_followers_and_unmeasured_names_are_not_samples() -> None:
    cluster = _cluster()
    follower = int(cluster.broker_ids[cluster.replica_broker[~cluster.replica_is_leader][0]])
    record = _records(cluster, START)[0]
    model = ClusterModel(cluster, measured={NAME: 0.0}, clock=lambda: START + MINUTE)
    model.add(record._replace(broker=follower))
    model.add(record._replace(metrics={"others": 1.0}))
    assert (model.counters["follower"], model.counters["unknown"]) == (1, 1)


def test_rows_follow_new_metadata() -> None:
    cluster = _cluster()
    model = _model(cluster)
    leader = cluster.leader.copy()
    leader[0] = 1 - leader[0]
    model.update(replace(cluster, leader=leader))
    found = model.observe(0.0).snapshot.leader_load[:, -1]
    assert np.allclose(found, _truth(cluster))


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"dsk": 0.0}, "measured: 'dsk' found, one of the further resources requests expected"),
        ({"cpu": 0.0}, "measured: 'cpu' found, one of the further resources requests expected"),
        ({NAME: 2.0}, "follower share 2.0 of requests found, 0 to 1 expected"),
    ],
)
def test_a_model_says_what_it_cannot_measure(measured: dict[str, float], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        ClusterModel(_cluster(), measured=measured)
    assert said in str(caught.value)


def test_the_capacity_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "capacity.yaml"
    path.write_text("default: {cpu: 800, requests: 5000}\nmeasured: {requests: {}}\n")
    stated = load_capacities(path)
    assert stated.resources == ("cpu", "disk", "requests")
    assert stated.follower_shares == {"requests": 0.0}
    path.write_text("measured: {requests: {follower_share: 1}}\n")
    assert load_capacities(path).follower_shares == {"requests": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("measured: {cpu: {}}", "measured: 'cpu' found, the name of a metric of your own expected"),
        ("measured: {bytes_in: {}}", "measured: 'bytes_in' found, the name of a metric"),
        ("measured: {requests: {follower_share: 2}}", "measured.requests.follower_share: 2 found"),
        ("measured: {requests: {share: 1}}", "measured.requests.share"),
        ("measured: [requests]", "measured: "),
        ("measured: {requests: 1}", "measured.requests: "),
    ],
)
def test_wrong_entries_are_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "capacity.yaml"
    path.write_text(text)
    with pytest.raises(CapacityError) as caught:
        load_capacities(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
