"""Looking up names finds the rows that hold them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster_model import BrokerRecord, PartitionRecord, SnapshotDocument, build_snapshot
from cluster_model.index import SnapshotIndex

NUMBERS = st.sets(st.integers(0, 12), max_size=6)


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_every_name_is_found_and_no_other(topics: list[set[int]], random) -> None:  # type: ignore[no-untyped-def]
    ids = [2, 5, 6]
    base = build_snapshot(
        SnapshotDocument(
            resources=("disk",),
            brokers=tuple(BrokerRecord(id=i, capacity={"disk": 1.0}) for i in ids),
            partitions=tuple(
                PartitionRecord(topic=f"t{t}", partition=n, replicas=held, leader=leader)
                for t, numbers in enumerate(topics)
                for n in numbers
                for held in [tuple(random.sample(ids, random.randint(1, 3)))]
                for leader in [random.choice([None, held[0]])]
            ),
        )
    )
    found = SnapshotIndex(base)
    names = [f"t{t}" for t in range(4)]
    topic = found.topics(names, [False] * 4)
    assert [base.topics[t] if t >= 0 else None for t in topic] == [
        name if name in base.topics else None for name in names
    ]
    asked = [(t, n, b) for t in (-1, *range(len(base.topics))) for n in range(-1, 14) for b in ids]
    where, number, broker = map(np.array, zip(*asked, strict=True))
    index = found.brokers(broker)
    assert base.broker_ids[index].tolist() == broker.tolist()
    assert found.brokers(np.array([1, 4, 9, -1])).tolist() == [-1] * 4
    partition = found.partitions(where, number)
    replica = found.replicas(partition, index)
    for (t, n, b), p, r in zip(asked, partition.tolist(), replica.tolist(), strict=True):
        real = t >= 0 and ((base.partition_topic == t) & (base.partition_number == n)).any()
        assert (p >= 0) == real
        if real:
            assert (base.partition_topic[p], base.partition_number[p]) == (t, n)
            first, end = base.replica_offset[p : p + 2]
            held = base.broker_ids[base.replica_broker[first:end]].tolist()
            assert r == (first + held.index(b) if b in held else -1)
        else:
            assert r == -1
    first, end = found.led(where, index)
    for (t, _, b), i, j in zip(asked, first.tolist(), end.tolist(), strict=True):
        led = [
            p
            for p in range(base.n_partitions)
            if base.partition_topic[p] == t
            and base.leader[p] >= 0
            and base.broker_ids[base.replica_broker[base.replica_offset[p] + base.leader[p]]] == b
        ]
        assert found.by_leader[i:j].tolist() == led
