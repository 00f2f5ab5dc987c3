from __future__ import annotations

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from cluster_model import InputError, Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.scopes import (
    BROKER,
    DISK,
    HOST,
    PARTITION,
    RACK,
    SCOPES,
    TOPIC,
    TOPIC_RACK,
    Grouping,
    Needs,
    PerAttribute,
    PerTopic,
    Scope,
    Spread,
    scope_of,
)

ZONE = Grouping("zone")
RELATED = [
    PerAttribute("tenant"),
    PerAttribute("tenant", ZONE),
    Needs("tenant", ZONE),
    Spread(PerTopic(ZONE)),
    Spread(PerAttribute("tenant", ZONE)),
    Spread(PerAttribute("tenant")),
]


def zoned() -> Snapshot:
    """Four brokers with two disks each: 0 and 3 in zone b, 1 in zone a, 2 in none."""
    snapshot = synthetic_snapshot(
        brokers=4, partitions=8, racks=2, topics=2, replication_factor=2, disks_per_broker=2
    )
    return replace(snapshot, broker_attributes={"zone": ["b", "a", None, "b"], "age": [1, 2, 2, 3]})


def test_names_of_scopes_are_looked_up() -> None:
    assert scope_of("host") is HOST
    assert scope_of(ZONE) is ZONE
    with pytest.raises(InputError, match="scope 'zone' found, one of broker, host, rack, disk"):
        scope_of("zone")


@pytest.mark.parametrize("scope", [*SCOPES.values(), ZONE, PerTopic(ZONE), *RELATED], ids=str)
def test_scopes_are_equal_after_pickling_and_unlike_each_other(scope: Scope) -> None:
    again = pickle.loads(pickle.dumps(scope))
    assert again == scope
    assert hash(again) == hash(scope)
    every = {*SCOPES.values(), ZONE, Grouping("age"), PerTopic(ZONE), Grouping("broker"), *RELATED}
    others = every - {scope}
    assert len(others) == len(SCOPES) + len(RELATED) + 3
    assert again not in others


def test_cells_are_called_what_they_are() -> None:
    s = zoned()
    rack = s.racks[s.broker_rack[1]]
    assert BROKER.label(s, 1) == f"broker {s.broker_ids[1]}"
    assert RACK.label(s, int(s.broker_rack[1])) == f"rack {rack}"
    assert ZONE.label(s, 1) == "zone b"
    assert DISK.label(s, 0) == f"disk {s.disk_path[0]} of broker {s.broker_ids[0]}"
    assert PARTITION.label(s, 0) == f"{s.topics[0]}-0"
    assert TOPIC.label(s, 5) == f"topic {s.topics[1]} on broker {s.broker_ids[1]}"
    assert TOPIC_RACK.label(s, 0) == f"topic {s.topics[0]} in rack {s.racks[0]}"
    assert PerTopic(ZONE).label(s, 2) == f"topic {s.topics[1]} in zone a"


def test_a_group_has_the_capacity_of_its_brokers() -> None:
    s = zoned()
    cpu = s.capacity[:, s.resource("cpu")]
    assert ZONE.capacity(s, "cpu").tolist() == [cpu[1], cpu[0] + cpu[3]]
    assert HOST.capacity(s, "cpu").tolist() == cpu.tolist()
    with pytest.raises(InputError, match="scope topic: its cells have no capacity of 'cpu'"):
        TOPIC.capacity(s, "cpu")


def test_replicas_on_brokers_without_the_attribute_are_in_no_cell() -> None:
    s, none = zoned(), np.full(4, -1)
    brokers, partitions = np.arange(4), np.array([0, 0, s.n_partitions - 1, s.n_partitions - 1])
    assert ZONE.keys(s, partitions, brokers, none).tolist() == [1, 0, -1, 1]
    assert PerTopic(ZONE).keys(s, partitions, brokers, none).tolist() == [1, 0, -1, 3]


def test_groups_of_numbers_are_in_ascending_order() -> None:
    assert Grouping("age").names(zoned()) == ("1", "2", "3")
    assert Grouping("age").members(zoned()).tolist() == [0, 1, 1, 2]


def test_an_attribute_that_no_broker_has_is_said_to_be_missing() -> None:
    assert ZONE.lacks(zoned()) is None
    assert PerTopic(Grouping("price")).lacks(zoned()) == "broker attribute 'price'"
    says = "the snapshot has no broker attribute 'price'; it has age, zone"
    with pytest.raises(SnapshotError, match=re.escape(says)):
        Grouping("price").cells(zoned())


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("broker attribute zone", ZONE),
        ("topic attribute tenant", PerAttribute("tenant", BROKER)),
        ("topic attribute tenant in rack", PerAttribute("tenant", RACK)),
        ("topic attribute tenant in host", PerAttribute("tenant", HOST)),
        ("topic attribute tenant in broker attribute zone", PerAttribute("tenant", ZONE)),
    ],
)
def test_a_text_may_name_an_attribute(text: str, scope: Scope) -> None:
    assert scope_of(text) == scope


@pytest.mark.parametrize(
    "text",
    ["topic attribute", "topic attribute tenant in zone", "broker attribute a b", "the rack"],
)
def test_any_other_text_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match=f"scope '{text}' found, one of broker, host"):
        scope_of(text)


def test_cells_that_relate_topics_are_called_what_they_are() -> None:
    one, two = zoned().topics
    s = replace(zoned(), topic_attributes={"tenant": ["shop", None], "needs": [f"{two}, x", None]})
    assert PerAttribute("tenant", ZONE).label(s, 1) == "tenant shop in zone b"
    assert PerAttribute("tenant", ZONE).lacks(zoned()) == "topic attribute 'tenant'"
    assert Spread(PerTopic(ZONE)).label(s, 0) == f"topic {one}"
    assert Spread(PerAttribute("tenant")).lacks(zoned()) == "topic attribute 'tenant'"
    assert Needs("needs", RACK).label(s, 2) == f"topic x in rack {s.racks[0]}"


def test_an_attribute_of_commas_names_nothing() -> None:
    s = replace(zoned(), topic_attributes={"needs": [" , ", None]})
    with pytest.raises(SnapshotError, match="needs: only commas found, names separated by commas"):
        Needs("needs", RACK).cells(s)
