"""The live model: from records to a snapshot over a real topic, and each rule separately."""

from collections.abc import Callable
from itertools import islice
from threading import Event, Thread
from typing import Any

import confluent_kafka
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_model import BrokerRecord, InputError, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.attribution import attribute_cpu
from cluster_model.build import build_snapshot
from cluster_model.live import ClusterModel, ModelError, simulated_source
from cluster_model.synthetic import synthetic_snapshot
from cluster_model.trust import TrustParameters
from cluster_model.windows import Extrapolation
from metrics_reporter import (
    BROKER_METRICS,
    MalformedRecordError,
    Record,
    Reporter,
    SimulatedSource,
    decode_any,
    decode_batch,
    encode,
    mock_cluster,
    read_records,
)

CPU, IN, OUT, DISK = range(4)
CAPACITY = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12}


def document() -> SnapshotDocument:
    """Topic a with two partitions of two replicas, b with one of one; brokers 1 to 3."""
    return SnapshotDocument(
        resources=tuple(CAPACITY),
        brokers=tuple(BrokerRecord(id=i, capacity=CAPACITY) for i in (1, 2, 3)),
        partitions=(
            PartitionRecord(topic="a", partition=0, replicas=(1, 2), leader=1),
            PartitionRecord(topic="a", partition=1, replicas=(3, 2), leader=2),
            PartitionRecord(topic="b", partition=0, replicas=(3,), leader=3),
        ),
    )


def model_of(records: list[Record], **options: Any) -> ClusterModel:
    model = ClusterModel(document(), **{"window_ms": 1000, "min_samples": 1, **options})
    model.add_all(records)
    return model


def rates(time_ms: int) -> list[Record]:
    return [
        Record(time_ms, 1, {"bytes_in": 10.0, "bytes_out": 5.0, "size": 100.0}, "a", 0),
        Record(time_ms, 2, {"bytes_in": 20.0, "bytes_out": 0.0, "size": 200.0}, "a", 1),
        Record(time_ms, 3, {"bytes_in": 40.0, "bytes_out": 80.0, "size": 400.0}, "b", 0),
        Record(time_ms, 1, {"cpu": 30.0}),
        Record(time_ms, 2, {"cpu": 50.0}),
        Record(time_ms, 3, {"cpu": 70.0}),
    ]


def test_the_way_from_simulated_brokers_over_a_topic_to_a_snapshot() -> None:
    cluster = synthetic_snapshot(brokers=6, partitions=120, racks=3, seed=4)
    source = simulated_source(cluster)
    with mock_cluster() as bootstrap:
        Reporter(source, bootstrap=bootstrap, topic="metrics").run(intervals=11)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        producer.produce("metrics", b"not a record")
        producer.flush(10)
        model = ClusterModel(cluster)
        reader = read_records(bootstrap, "metrics")
        model.add_all(reader)
        del producer
    got = model.snapshot()
    assert reader.malformed == 1
    assert model.counters["added"] == 11 * (6 + cluster.n_replicas)
    assert sum(model.counters.values()) == model.counters["added"]
    assert model.completeness().ratio == 1.0
    assert len(model.completeness().start_ms) == 2

    factor = cluster.replication_factor
    lead = cluster.leader_load
    np.testing.assert_allclose(got.leader_load[:, IN], lead[:, IN])
    out = np.maximum(lead[:, OUT], lead[:, IN] * (factor - 1))
    np.testing.assert_allclose(got.leader_load[:, OUT], out)
    np.testing.assert_allclose(got.leader_load[:, DISK], lead[:, DISK])
    np.testing.assert_allclose(got.follower_load[:, IN], lead[:, IN])
    assert not got.follower_load[:, OUT].any()
    np.testing.assert_allclose(got.follower_load[:, DISK], cluster.follower_load[:, DISK])
    np.testing.assert_allclose(got.broker_load()[:, CPU], cluster.broker_load()[:, CPU])
    assert np.array_equal(got.replica_broker, cluster.replica_broker)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 3))
def test_snapshots_equal_the_simulated_rates(seed: int, factor: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = synthetic_snapshot(
        brokers=5, partitions=30, replication_factor=factor, racks=5, seed=seed
    )
    bytes_in, bytes_out, size = rng.uniform(0, 1e6, (3, 30))
    source = SimulatedSource(
        partitions=[
            (cluster.topics[t], n)
            for t, n in zip(cluster.partition_topic, cluster.partition_number, strict=True)
        ],
        replica_broker=cluster.broker_ids[cluster.replica_broker],
        replica_offset=cluster.replica_offset,
        leader=cluster.leader,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        size=size,
        cpu=dict.fromkeys(cluster.broker_ids.tolist(), 100.0),
    )
    # Rates at random are like nobody's: whether to believe them is not the question here.
    believed = TrustParameters(believed=tuple(cluster.broker_ids.tolist()))
    model = ClusterModel(cluster, trust=believed)
    records = [r for report in islice(source, 6) for r in report]
    order = rng.permutation(len(records))
    model.add_all(records[i] for i in order)
    model.add_all(records)
    assert model.counters["added"] == len(records)
    assert model.counters["duplicate"] == len(records)
    got = model.snapshot()
    np.testing.assert_allclose(got.leader_load[:, IN], bytes_in)
    np.testing.assert_allclose(got.leader_load[:, OUT], bytes_out + bytes_in * (factor - 1))
    np.testing.assert_allclose(got.leader_load[:, DISK], size)
    np.testing.assert_allclose(got.follower_load[:, DISK], size)


def test_leader_and_follower_loads() -> None:
    got = model_of(rates(0) + rates(1000)).snapshot()
    assert got.leader_load[:, IN].tolist() == [10.0, 20.0, 40.0]
    assert got.leader_load[:, OUT].tolist() == [15.0, 20.0, 80.0]
    assert got.leader_load[:, DISK].tolist() == [100.0, 200.0, 400.0]
    assert got.follower_load[:, IN].tolist() == [10.0, 20.0, 40.0]
    assert not got.follower_load[:, OUT].any()
    np.testing.assert_allclose(got.broker_load()[:, CPU], [30.0, 50.0, 70.0])


def test_a_follower_tells_its_own_size_and_the_newest_counts() -> None:
    records = [
        *rates(0),
        Record(1400, 2, {"size": 60.0}, "a", 0),
        Record(1300, 2, {"size": 70.0}, "a", 0),
        Record(1500, 1, {"bytes_in": 1.0, "bytes_out": 1.0, "size": 101.0}, "a", 0),
    ]
    got = model_of(records).snapshot()
    disk = got.resource("disk")
    assert got.leader_load[:, disk].tolist() == [101.0, 200.0, 400.0]
    assert got.follower_load[:, disk].tolist() == [60.0, 200.0, 400.0]


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_cpu_that_half_of_the_brokers_do_not_send_is_left_out(silent: int) -> None:
    records = [
        r._replace(metrics={"cpu_of_others": 1.0})
        if r.scope == "broker" and r.broker <= silent
        else r
        for r in rates(0) + rates(1000)
    ]
    seen = model_of(records).observe()
    known = ("cpu",) if silent == 1 else ()
    assert seen.snapshot.resources == (*known, "network_in", "network_out", "disk")
    assert len(seen.distrust.doubts) == (1 if silent == 1 else 0)


def test_records_that_do_not_fit_are_counted() -> None:
    now = 10_000
    model = ClusterModel(document(), window_ms=1000, windows=3, min_samples=1, clock=lambda: now)
    model.add_all(rates(9_500))
    model.add_all(rates(9_500))
    model.add_all(
        [
            Record(5_999, 1, {"cpu": 1.0}),
            Record(6_000, 1, {"cpu": 1.0}),
            Record(11_001, 1, {"cpu": 1.0}),
            Record(2**63, 1, {"size": 1.0}, "a", 0),
            Record(9_000, 9, {"cpu": 1.0}),
            Record(9_000, 1, {"unheard_of": 1.0}),
            Record(9_000, 1, {"size": 1.0}, "c", 0),
            Record(9_000, 3, {"size": 1.0}, "a", 0),
            Record(9_000, 1, {"cpu": -1.0}),
            Record(9_000, 1, {"size": float("inf")}, "a", 0),
            Record(-1, 1, {"cpu": 1.0}),
        ]
    )
    assert model.counters == {
        "added": 7,
        "late": 1,
        "future": 2,
        "duplicate": 6,
        "unknown": 4,
        "invalid": 3,
        "split": 0,
        "superseded": 0,
        "ambiguous": 0,
        "surplus": 0,
        "follower": 0,
    }


def test_one_record_at_a_time_is_the_same() -> None:
    records = rates(0) + rates(500) + rates(1000) + rates(500)
    one = model_of([])
    for record in records:
        one.add(record)
    together = model_of(records)
    assert one.snapshot() == together.snapshot()
    assert one.counters == together.counters


def test_completeness_says_what_is_missing() -> None:
    model = model_of([])
    assert model.completeness().ratio == 0.0
    with pytest.raises(InputError, match="no complete window of metrics found, at least 1 of 1 s"):
        model.snapshot()
    model.add_all([r for t in (0, 1000, 2000) for r in rates(t) if r.topic != "b"])
    done = model.completeness()
    assert done.start_ms.tolist() == [0, 1000]
    assert done.window_ratio == pytest.approx([2 / 3, 2 / 3])
    assert done.partitions.tolist() == [True, True, False]
    assert done.sizes.tolist() == [True, True, False]
    assert done.brokers.all()
    assert done.topic_ratio == 0.5
    assert done.extrapolations["NONE"] == 4
    assert done.extrapolations["NO_VALID_EXTRAPOLATION"] == 2
    # The broker that leads b-0 does not report it; the others are enough.
    seen = model.observe()
    assert [(d.broker, d.check) for d in seen.distrust.doubts] == [
        (int(seen.snapshot.broker_ids[seen.snapshot.replica_broker[-1]]), "missing")
    ]
    assert seen.distrust.unknown == {"b-0"}
    # Unknown is not zero: it counts as the mean of the partitions that are known.
    known = seen.snapshot.leader_load[:2, IN]
    assert seen.snapshot.leader_load[2, IN] == known.mean()


def test_reporters_that_start_on_both_sides_of_a_windows_end_are_all_believed() -> None:
    """The first window has one broker of three; it is no window of the other two."""
    model = model_of([r for r in rates(0) if r.broker == 1] + rates(1000) + rates(2000))
    seen = model.observe(min_ratio=1.0)
    assert seen.distrust.doubts == ()
    assert seen.completeness.start_ms.tolist() == [1000]
    # One that falls silent afterwards is missing.
    model.add_all([r for t in (3000, 4000) for r in rates(t) if r.broker != 3])
    (doubt,) = model.observe().distrust.doubts
    assert doubt.sentence == (
        "broker 3 leads 1 partition and its valid records give the rates of 0 in all of "
        "3 complete windows"
    )


def test_new_metadata_keeps_what_is_known() -> None:
    model = model_of(rates(0) + rates(1000))
    model.add(Record(1000, 2, {"size": 60.0}, "a", 0))
    after = SnapshotDocument(
        resources=tuple(CAPACITY),
        brokers=tuple(BrokerRecord(id=i, capacity=CAPACITY) for i in (0, 1, 2)),
        partitions=(
            PartitionRecord(topic="a", partition=0, replicas=(2, 0), leader=2),
            PartitionRecord(topic="a", partition=1, replicas=(0, 2), leader=2),
            PartitionRecord(topic="aa", partition=0, replicas=(1,), leader=1),
        ),
    )
    model.update(after)
    assert model.completeness().partitions.tolist() == [True, True, False]
    assert model.completeness().brokers.tolist() == [False, True, True]
    got = model.snapshot(min_ratio=0.5)
    assert got.leader_load[:, IN].tolist() == [10.0, 20.0, 15.0]
    assert got.leader_load[:, DISK].tolist() == [60.0, 200.0, 130.0]
    model.add_all([Record(500, 1, {"bytes_in": 8.0, "bytes_out": 8.0}, "aa", 0)])
    assert model.snapshot().leader_load[2, IN] == 8.0


def leaderless() -> SnapshotDocument:
    """The document, in which nothing leads the first partition of topic a."""
    whole = document()
    first = whole.partitions[0].model_copy(update={"leader": None})
    return whole.model_copy(update={"partitions": (first, *whole.partitions[1:])})


def test_metadata_goes_on_while_and_after_a_partition_has_no_leader() -> None:
    model = model_of(rates(0) + rates(1000))
    without_b = leaderless().model_copy(update={"partitions": leaderless().partitions[:2]})
    for metadata in (leaderless(), leaderless(), without_b, without_b, document()):
        model.update(metadata)
        assert model.metadata.n_partitions == len(metadata.partitions)
    assert model.completeness().partitions.tolist() == [True, True, False]


def test_metadata_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(rates(0) + rates(1000))
    before = model.snapshot()
    smaller = document().model_copy(update={"partitions": document().partitions[1:]})

    def failing(*_: object) -> object:
        raise MemoryError

    for part in ("_bereft", "_moved", "_outlived"):
        with monkeypatch.context() as patch:
            patch.setattr(ClusterModel, part, failing)
            with pytest.raises(MemoryError):
                model.update(smaller)
        assert model.metadata.n_partitions == 3
        np.testing.assert_array_equal(model.snapshot().leader_load, before.leader_load)
    model.update(smaller)
    assert model.snapshot().leader_load[:, IN].tolist() == before.leader_load[1:, IN].tolist()


def test_other_resources_are_kept() -> None:
    plain = document()
    brokers = tuple(
        b.model_copy(update={"capacity": {"disk": 9.0, "gpu": 1.0}}) for b in plain.brokers
    )
    partitions = (
        plain.partitions[0].model_copy(update={"leader_load": {"gpu": 0.5, "disk": 1.0}}),
        *plain.partitions[1:],
    )
    model = ClusterModel(
        SnapshotDocument(resources=("gpu", "disk"), brokers=brokers, partitions=partitions),
        window_ms=1000,
        min_samples=1,
    )
    model.add_all(rates(0) + rates(1000))
    assert model.snapshot().leader_load.tolist() == [[0.5, 100.0], [0.0, 200.0], [0.0, 400.0]]


def test_aggregations_and_the_history_of_brokers() -> None:
    model = model_of([], windows=2, broker_windows=4)
    for number, factor in enumerate((8.0, 1.0, 2.0, 3.0, 0.0)):
        for r in rates(1000 * number):
            model.add(r._replace(metrics={name: v * factor for name, v in r.metrics.items()}))
        model.add(Record(1000 * number, 1, {"log_flush_time_ms_p999": factor}))
    assert model.snapshot(aggregation="latest").leader_load[:, IN].tolist() == [30.0, 60.0, 120.0]
    assert model.snapshot(aggregation="max").leader_load[:, IN].tolist() == [30.0, 60.0, 120.0]
    assert model.snapshot().leader_load[:, IN].tolist() == [25.0, 50.0, 100.0]
    np.testing.assert_allclose(model.snapshot().broker_load()[:, CPU], [75.0, 125.0, 175.0])
    history = model.broker_windows()
    assert history.start_ms.tolist() == [0, 1000, 2000, 3000]
    flush = BROKER_METRICS.index("log_flush_time_ms_p999")
    assert history.value[0, :, flush].tolist() == [8.0, 1.0, 2.0, 3.0]
    assert history.value[2, :, 0].tolist() == [560.0, 70.0, 140.0, 210.0]
    kind = Extrapolation.NO_VALID_EXTRAPOLATION
    assert (history.kind[1, :, flush] == kind).all()


def test_brokers_that_were_not_heard_of_lately() -> None:
    now = 10_000
    model = ClusterModel(
        document(), window_ms=1000, min_samples=1, stale_ms=1500, clock=lambda: now
    )
    assert model.completeness().stale_brokers == (1, 2, 3)
    assert model.staleness_ms() == dict.fromkeys((1, 2, 3), np.inf)
    model.add_all([Record(8_000, 1, {"cpu": 1.0}), Record(9_000, 2, {"size": 1.0}, "a", 0)])
    model.add_all([Record(99_000, 1, {"cpu": 1.0}), Record(8_500, 2, {"named": 1.0})])
    done = model.completeness()
    assert done.age_ms.tolist() == [2000.0, 1000.0, np.inf]
    assert done.stale_brokers == (1, 3)
    plain = document()
    dead = plain.brokers[0].model_copy(update={"state": "dead"})
    model.update(plain.model_copy(update={"brokers": (dead, *plain.brokers[1:])}))
    assert model.completeness().stale_brokers == (3,)
    assert model.staleness_ms()[2] == 1000.0
    now = 10_700
    assert model.completeness().stale_brokers == (2, 3)


VALUES = st.lists(
    st.tuples(
        st.sampled_from(["bytes_in", "bytes_out", "size", "cpu", "by name"]), st.floats(-1, 9)
    ),
    max_size=3,
).map(dict)
DIRTY = st.builds(
    Record,
    st.one_of(st.integers(0, 9_000), st.sampled_from([-1, 10_900, 11_001, 2**62])),
    st.integers(0, 4),
    VALUES,
    st.sampled_from([None, "a", "b", "c"]),
    st.integers(-1, 2),
    st.just(False),
).map(lambda r: r._replace(partition=-1) if r.topic is None else r)


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(DIRTY, st.integers(-1, 60), st.integers(0, 255)), max_size=20)),
)
def test_messages_as_columns_are_the_same_as_records(
    polls: list[list[tuple[Record, int, int]]],
) -> None:
    columns, records = (
        ClusterModel(document(), window_ms=1000, windows=3, min_samples=2, clock=lambda: 10_000)
        for _ in range(2)
    )
    for poll in polls:
        values = [bytearray(encode(record)) for record, _, _ in poll]
        for value, (_, at, byte) in zip(values, poll, strict=True):
            if 0 <= at < len(value):
                value[at] = byte
        batch = decode_batch([bytes(value) for value in values])
        columns.add_batch(batch)
        found = [one_by_one(bytes(value)) for value in values]
        records.add_all(record for record in found if record is not None)
        assert len(batch) + batch.malformed + batch.skipped == len(poll)
    assert columns.counters == records.counters
    one, other = columns.completeness(), records.completeness()
    assert one.extrapolations == other.extrapolations
    assert one.age_ms.tolist() == other.age_ms.tolist()
    assert one.split.tolist() == other.split.tolist()
    if len(one.start_ms):
        assert columns.snapshot(0.0) == records.snapshot(0.0)


def one_by_one(value: bytes) -> Record | None:
    try:
        return decode_any(value)
    except MalformedRecordError:
        return None


@pytest.mark.slow
def test_snapshots_are_whole_while_updates_go_on() -> None:
    # Rates that jump by themselves are in doubt, which is not what this is about.
    believed = TrustParameters(believed=(1, 2, 3))
    model = model_of(rates(0) + rates(1000), trust=believed)
    stop, failures = Event(), []

    def feed() -> None:
        time_ms = 2000
        while not stop.is_set():
            # One batch is one state: rates of a-0 and b-0 always differ by a factor of 4.
            factor = 1.0 + time_ms % 7
            batch = [
                r._replace(metrics={name: v * factor for name, v in r.metrics.items()})
                for r in rates(time_ms)
            ]
            model.add_all(batch)
            time_ms += 250

    def refresh() -> None:
        whole = document()
        part = whole.model_copy(update={"partitions": whole.partitions[::2]})
        while not stop.is_set():
            model.update(part)
            model.update(whole)

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:
            failures.append(error)

    threads = [Thread(target=guarded, args=(run,)) for run in (feed, refresh)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            seen = model.observe(min_ratio=0.0)
            load = seen.snapshot.leader_load[:, IN]
            assert seen.snapshot.n_partitions == len(seen.completeness.partitions)
            assert len(load) == len(seen.partition_windows.value)
            assert load[-1] == pytest.approx(4 * load[0])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def placed(partitions: list[PartitionRecord]) -> Snapshot:
    return build_snapshot(document().model_copy(update={"partitions": tuple(partitions)}))


def test_cpu_goes_by_the_weights_of_bytes() -> None:
    cluster = placed(
        [
            PartitionRecord(topic="t", partition=0, replicas=(1, 2), leader=1),
            PartitionRecord(topic="t", partition=1, replicas=(1,), leader=1),
        ]
    )
    bytes_in, out = np.array([10.0, 0.0]), np.array([10.0, 100.0])
    leader, follower = attribute_cpu(cluster, bytes_in, out, np.array([47.0, 3.0, 0.0]))
    np.testing.assert_allclose(leader, [8.5 * 2, 15.0 * 2])
    np.testing.assert_allclose(follower[0], 3.0)


def test_cpu_of_silent_idle_and_overdetermined_brokers() -> None:
    cluster = placed(
        [
            PartitionRecord(topic="t", partition=0, replicas=(1,), leader=1),
            PartitionRecord(topic="t", partition=1, replicas=(2,), leader=2),
            PartitionRecord(topic="t", partition=2, replicas=(3,), leader=3),
        ]
    )
    nan = np.nan
    leader, follower = attribute_cpu(
        cluster, np.array([10.0, 20.0, 0.0]), np.zeros(3), np.array([5.0, nan, 7.0])
    )
    np.testing.assert_allclose(leader, [5.0, 10.0, 0.0])
    assert np.isfinite(follower).all()
    for cpu in ([nan, nan, nan], [0.0, 0.0, 0.0], [0.0, 4.0, nan]):
        leader, follower = attribute_cpu(cluster, np.full(3, 1.0), np.zeros(3), np.array(cpu))
        np.testing.assert_allclose(leader[:2], np.nan_to_num(cpu)[:2], atol=1e-12)
        assert (leader >= 0).all()
        assert (follower >= 0).all()
    torn = placed([PartitionRecord(topic="t", partition=0, replicas=(1, 2, 3), leader=1)])
    leader, follower = attribute_cpu(torn, np.ones(1), np.ones(1), np.array([1.0, 2.0, 8.0]))
    assert leader[0] == pytest.approx(1.0)
    assert 2.0 <= follower[0] <= 8.0


@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(0.0, 1.0))
def test_attributed_cpu_sums_to_the_measured(seed: int, factor: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    cluster = synthetic_snapshot(
        brokers=8, partitions=200, replication_factor=factor, racks=4, seed=seed
    )
    bytes_in = rng.lognormal(0, 1, 200)
    out = bytes_in * (factor - 1 + rng.lognormal(0, 1, 200))

    def carried(leader: np.ndarray, follower: np.ndarray) -> np.ndarray:
        return np.bincount(
            cluster.replica_broker,
            np.where(
                cluster.replica_is_leader,
                leader[cluster.replica_partition],
                follower[cluster.replica_partition],
            ),
            cluster.n_brokers,
        )

    cpu = carried(bytes_in * rng.lognormal(0, spread, 200), 0.2 * rng.lognormal(0, spread, 200))
    leader, follower = attribute_cpu(cluster, bytes_in, out, cpu)
    assert (leader > 0).all()
    assert (follower > 0).all()
    np.testing.assert_allclose(carried(leader, follower), cpu, rtol=1e-6)


@pytest.mark.parametrize("rated", [0, 1])
def test_what_is_covered_is_stated_where_there_are_no_loads(rated: int) -> None:
    """Also if there are no rates at all, and so no window of them."""
    records = [
        record._replace(
            metrics={k: v for k, v in record.metrics.items() if k == "size" or i < rated}
        )
        for t in (0, 500, 1000)
        for i, record in enumerate(rates(t))
        if record.topic is not None
    ]
    with pytest.raises(ModelError) as raised:
        model_of(records).snapshot()
    assert f"rates of {rated}, sizes of 3 of 3 partitions; `counterpoise" in str(raised.value)
