"""Rates reported for a topic on a broker, and topics reported under other names."""

import numpy as np
import pytest

from cluster_model import BrokerRecord, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.live import ClusterModel
from metrics_reporter import Record

CPU = 0
CAPACITY = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12}


def document(topic: str = "t", *others: str) -> SnapshotDocument:
    """Broker 1 leads partitions 0 and 1 of the topic, broker 2 partition 2; 3 follows."""
    return SnapshotDocument(
        resources=tuple(CAPACITY),
        brokers=tuple(BrokerRecord(id=i, capacity=CAPACITY) for i in (1, 2, 3)),
        partitions=(
            PartitionRecord(topic=topic, partition=0, replicas=(1, 2), leader=1),
            PartitionRecord(topic=topic, partition=1, replicas=(3, 1), leader=1),
            PartitionRecord(topic=topic, partition=2, replicas=(2, 3), leader=2),
            *(PartitionRecord(topic=o, partition=9, replicas=(1,), leader=1) for o in others),
        ),
    )


def model_of(records: list[Record], *topics: str) -> ClusterModel:
    model = ClusterModel(document(*topics), window_ms=1000, min_samples=1)
    model.add_all(records)
    return model


def led(snapshot: Snapshot, resource: str) -> list[float]:
    """What leaders carry: cpu, which these records do not have, is no resource then."""
    found: list[float] = snapshot.leader_load[:, snapshot.resource(resource)].tolist()
    return found


def of_topic(time_ms: int, broker: int, rate: float, topic: str = "t", cc: bool = False) -> Record:
    return Record(time_ms, broker, {"bytes_in": rate, "bytes_out": 2 * rate}, topic, -1, cc)


def test_a_topics_rate_is_split_over_its_leaders_on_the_broker() -> None:
    model = model_of([of_topic(0, 1, 10.0), of_topic(0, 2, 7.0), Record(1000, 1, {"cpu": 1.0})])
    model.add_all([of_topic(1000, 1, 99.0), of_topic(1000, 2, 99.0)])
    got = model.observe()
    assert led(got.snapshot, "network_in") == [5.0, 5.0, 7.0]
    assert led(got.snapshot, "network_out") == [15.0, 15.0, 21.0]
    assert got.completeness.split.tolist() == [True, True, True]
    assert model.counters["split"] == 4


@pytest.mark.parametrize("first", [0, 1])
def test_a_partitions_own_rate_wins(first: int) -> None:
    own = Record(500, 1, {"bytes_in": 9.0, "bytes_out": 0.0}, "t", 1)
    records = [of_topic(0, 1, 10.0), own] if first else [own, of_topic(0, 1, 10.0)]
    model = model_of([])
    for record in records:
        model.add(record)
    model.add_all([of_topic(0, 2, 7.0), of_topic(1000, 2, 1.0)])
    got = model.observe()
    assert led(got.snapshot, "network_in") == [5.0, 9.0, 7.0]
    assert got.completeness.split.tolist() == [True, False, True]


def test_what_becomes_of_topics_rates_is_counted() -> None:
    own = Record(5000, 2, {"bytes_in": 9.0, "bytes_out": 0.0}, "t", 2)
    model = model_of([own, of_topic(5000, 1, 1.0), of_topic(5000, 1, 2.0)])
    model.add_all(
        [
            of_topic(5000, 2, 7.0),
            of_topic(5000, 3, 7.0),
            of_topic(5000, 9, 7.0),
            of_topic(5000, 1, 7.0, "no"),
            of_topic(5000, 1, -1.0),
            Record(5000, 1, {"messages_in": 1.0}, "t"),
        ]
    )
    model.add(of_topic(20_000, 2, 7.0))
    model.add(of_topic(5_000, 1, 7.0))
    counters = {name: n for name, n in model.counters.items() if n}
    assert counters == {
        "added": 1,
        "split": 2,
        "duplicate": 1,
        "superseded": 1,
        "unknown": 4,
        "invalid": 1,
        "late": 1,
    }


def test_names_with_underscores_for_dots() -> None:
    records = [
        of_topic(0, 1, 10.0, "a_b_c", cc=True),
        of_topic(0, 2, 7.0, "a_b_c", cc=True),
        Record(0, 3, {"size": 5.0}, "a_b_c", 2, True),
        of_topic(0, 1, 1.0, "a_b_c"),
        of_topic(1000, 1, 1.0, "a_b_c", cc=True),
    ]
    model = model_of(records, "a.b_c")
    assert led(model.snapshot(), "network_in") == [5.0, 5.0, 7.0]
    assert led(model.snapshot(), "disk")[2] == 5.0
    assert model.counters["unknown"] == 1
    assert model.counters["ambiguous"] == 0


def test_names_that_two_topics_could_have_are_counted() -> None:
    records = [
        of_topic(0, 1, 10.0, "a_b", cc=True),
        Record(0, 1, {"size": 5.0}, "a_b", 0, True),
        Record(0, 1, {"size": 6.0}, "a_b", 0),
    ]
    model = model_of(records, "a_b", "a.b")
    assert model.counters["ambiguous"] == 2
    assert model.counters["added"] == 1


def test_many_shares_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import cluster_model.live as module

    records = [of_topic(t, b, 10.0 * b) for t in range(0, 1000, 10) for b in (1, 2)]
    whole = model_of(records)
    monkeypatch.setattr(module, "_SPLITS", 3)
    parts = model_of(records)
    for model in (whole, parts):
        model.add(of_topic(1000, 1, 1.0))
        assert model.counters["split"] == 201
    assert whole.snapshot() == parts.snapshot()


def test_cpu_as_a_share_of_the_broker() -> None:
    def at(time_ms: int) -> list[Record]:
        return [
            of_topic(time_ms, 1, 10.0),
            of_topic(time_ms, 2, 10.0),
            Record(time_ms, 1, {"cpu_ratio": 0.25}),
            Record(time_ms, 2, {"cpu_ratio": 0.25, "cpu": 300.0}),
            Record(time_ms, 3, {"cpu_ratio": -1.0}),
        ]

    model = model_of(at(0) + at(1000))
    got = model.observe()
    assert got.broker_windows.over("mean")[:2, CPU].tolist() == [200.0, 300.0]
    assert np.isnan(got.broker_windows.over("mean")[2, CPU])
    assert model.counters["invalid"] == 2
