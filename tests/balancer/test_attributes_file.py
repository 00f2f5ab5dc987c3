from __future__ import annotations

from pathlib import Path

import pytest

from balancer.composition.attributes import StatedAttributes, load_attributes
from cluster_model import InputError, synthetic_snapshot
from cluster_model.kafka import KafkaSourceError, configs_as_attributes

FILE = """
brokers:
  1: {zone: a, price: 2}
  2: {zone: b}
topics:
  '.*': {tenant: all}
  'topic-1': {tenant: one}
topic_configs: [retention.ms]
"""


def test_attributes_of_a_file_are_those_of_the_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "attributes.yaml"
    file.write_text(FILE)
    snapshot = synthetic_snapshot(brokers=3, partitions=9, topics=2)
    said: list[str] = []
    stated = load_attributes(file)
    found = stated.applied(snapshot, said.append)
    assert stated.topic_configs == ("retention.ms",)
    assert found.attributes("broker").of_row(0) == {"zone": "a", "price": 2.0}
    assert found.attributes("broker").of_row(2) == {}
    assert [found.attributes("topic").of_row(i)["tenant"] for i in range(2)] == [
        "one" if name == "topic-1" else "all" for name in snapshot.topics
    ]
    again = StatedAttributes(brokers={1: {"zone": "c"}}).applied(found, said.append)
    assert again.attributes("broker").of_row(0) == {"zone": "c", "price": 2.0}
    assert not [s for s in said if "broker" in s]


def test_what_a_file_names_in_vain_is_reported() -> None:
    said: list[str] = []
    stated = StatedAttributes(brokers={9: {"zone": "a"}}, topics={"nothing": {"tenant": "x"}})
    snapshot = synthetic_snapshot(brokers=3)
    assert stated.applied(snapshot, said.append) == snapshot
    assert said == [
        "attributes are stated for broker 9, which is not in the cluster",
        "attributes are stated for topics 'nothing', which matches none",
    ]


def test_without_a_file_nothing_is_stated() -> None:
    assert load_attributes(None) == StatedAttributes()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[]",
            "a mapping with brokers, topics, topic_configs and broker_sets expected",
        ),
        ("{zones: {}}", "zones"),
        ("{brokers: {0: {zone: [a]}}}", "brokers.0.zone"),
        ("{brokers: {0: {zone: true}}}", "text or a finite number expected"),
        ("{brokers: {one: {zone: a}}}", "brokers"),
        ("{topics: {'(': {tenant: a}}}", "a regular expression expected"),
        ("{default: {cpu: 3}}", "a capacity file found, an attributes file expected"),
        ("{broker_sets: {a: [1], b: [1]}}", "each broker in at most one set expected"),
    ],
)
def test_a_file_that_states_no_attributes(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "attributes.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        load_attributes(file)
    assert str(error.value).startswith(f"attributes file {file}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_configs_are_numbers_if_all_topics_have_numbers() -> None:
    answer = {
        "a": {"retention.ms": {"value": "604800000"}, "cleanup.policy": {"value": "delete"}},
        "b": {"retention.ms": {"value": "-1"}, "cleanup.policy": {"value": "1"}},
    }
    assert configs_as_attributes(answer, ["retention.ms", "cleanup.policy"]) == {
        "a": {"retention.ms": 604800000.0, "cleanup.policy": "delete"},
        "b": {"retention.ms": -1.0, "cleanup.policy": "1"},
    }
    with pytest.raises(KafkaSourceError, match="topic_configs: 'retention' found, the name of a"):
        configs_as_attributes(answer, ["retention"])


def test_broker_sets_are_those_of_the_snapshot() -> None:
    said: list[str] = []
    stated = StatedAttributes(broker_sets={"a": (3, 9), "b": (1,)})
    found = stated.applied(synthetic_snapshot(brokers=3), said.append)
    assert found.broker_sets == ("a", "b")
    assert found.broker_set.tolist() == [1, -1, 0]
    assert said == ["broker set a has broker 9, which is not in the cluster"]
