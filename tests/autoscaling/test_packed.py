"""The leader of packed consumers follows decisions; no partition has two readers at any time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.autoscaling.autoscaler import Autoscaler
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed.leader import Member, first_round, must_move, owners, shares
from balancer.autoscaling.packed.message import (
    DecidedAssignment,
    Partition,
    TopicShare,
    decided,
    same_consumers,
)
from balancer.autoscaling.policy import Decision
from balancer.autoscaling.replicas import Scaler, ScalingLimits
from balancer.autoscaling.replicas.protocols import Count

TOPIC = frozenset({"t"})


def decision(
    consumers: tuple[str, ...], running: int, *consumer: int, rate: tuple[float, ...] = ()
) -> DecidedAssignment:
    share = TopicShare(
        partition=tuple(range(len(consumer))),
        consumer=consumer,
        rate=rate or (1.0,) * len(consumer),
    )
    return DecidedAssignment(consumers=consumers, running=running, topics={"t": share})


def members(*names: str, owned: dict[str, set[int]] | None = None) -> dict[str, Member]:
    """Members whose ids are their names in capitals."""
    return {
        name.upper(): Member(
            name, TOPIC, frozenset(("t", p) for p in (owned or {}).get(name, set())), 1
        )
        for name in names
    }


def numbers(given_: dict[str, list[Partition]]) -> dict[str, list[int]]:
    return {id_: [p for _, p in mine] for id_, mine in given_.items()}


def partitions(count: int) -> list[Partition]:
    return [("t", p) for p in range(count)]


def test_members_read_what_was_decided_for_their_names() -> None:
    found = shares(decision(("a", "b"), 2, 1, 0, 1), members("a", "b"), partitions(3))
    assert numbers(found) == {"A": [1], "B": [0, 2]}


def test_a_new_member_takes_the_place_of_one_to_be_started() -> None:
    wanted = decision(("a", "new 1"), 1, 0, 1, 1)
    joined = members("a", "z", owned={"a": {0, 1, 2}})
    assert numbers(shares(wanted, joined, partitions(3))) == {"A": [0], "Z": [1, 2]}
    # until it is there, partitions stay where they are read
    alone = members("a", owned={"a": {0, 1, 2}})
    assert numbers(shares(wanted, alone, partitions(3))) == {"A": [0, 1, 2]}


def test_partitions_of_a_dead_consumer_go_where_least_arrives() -> None:
    wanted = decision(("a", "b", "c"), 3, 0, 1, 2, 2, rate=(5.0, 1.0, 3.0, 2.0))
    joined = members("a", "b", owned={"a": {0}, "b": {1}})
    assert numbers(shares(wanted, joined, partitions(4))) == {"A": [0], "B": [1, 2, 3]}


def test_without_a_decision_partitions_are_divided_by_their_number() -> None:
    joined = members("a", "b", "c", owned={"a": {0, 1, 2, 3, 4, 5, 6}})
    found = numbers(shares(None, joined, partitions(7)))
    assert sorted(map(len, found.values())) == [2, 2, 3]
    assert set(found["A"]) <= {0, 1, 2, 3, 4, 5, 6}
    assert len(found["A"]) == 3


def test_a_claim_of_an_older_generation_does_not_count() -> None:
    joined = {
        "A": Member("a", TOPIC, frozenset({("t", 0)}), 3),
        "B": Member("b", TOPIC, frozenset({("t", 0), ("t", 1)}), 4),
    }
    assert owners(joined) == {("t", 0): "B", ("t", 1): "B"}


def test_a_member_joins_again_only_for_what_another_that_runs_is_to_read() -> None:
    owned = [("t", 0), ("t", 1)]
    assert must_move(decision(("a", "b"), 2, 0, 1), "a", owned)
    assert not must_move(decision(("a", "b"), 2, 0, 0), "a", owned)
    assert not must_move(decision(("a", "new 1"), 1, 0, 1), "a", owned)
    assert not must_move(decision(("a",), 1, 0), "a", owned)


@given(st.data())
def test_no_partition_has_two_readers_and_each_has_one_in_the_end(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    known = tuple(data.draw(st.lists(st.sampled_from("abcdefnm"), max_size=6, unique=True)))
    wanted = None
    if known:
        rows = st.integers(-1, len(known) - 1)
        consumer = data.draw(st.lists(rows, min_size=count, max_size=count))
        wanted = decision(known, data.draw(st.integers(0, len(known))), *consumer)
    reader = {p: data.draw(st.sampled_from([*names, None])) for p in range(count)}
    # a few rounds, each of which begins with what the members have kept
    for _ in range(3):
        owned = {n: {p for p, r in reader.items() if r == n} for n in names}
        joined = members(*names, owned=owned)
        target = shares(wanted, joined, partitions(count))
        assert sorted(p for mine in target.values() for p in mine) == partitions(count)
        now = first_round(target, joined)
        for id_, mine in now.items():
            for _, p in mine:
                # a partition that was read goes to nobody else before it was given up
                assert reader[p] in (None, joined[id_].name)
        reader = dict.fromkeys(range(count)) | {
            p: joined[id_].name for id_, mine in now.items() for _, p in mine
        }
    assert None not in reader.values()
    owned = {n: {p for p, r in reader.items() if r == n} for n in names}
    joined = members(*names, owned=owned)
    # and then nothing moves any more
    assert first_round(shares(wanted, joined, partitions(count)), joined) == {
        id_: sorted(m.owned) for id_, m in joined.items()
    }


def observation(consumer: list[int], consumers: int) -> Observation:
    return Observation(
        name="g",
        group=Group(
            rate=np.full(len(consumer), 12.345),
            lag=np.zeros(len(consumer)),
            consumer=np.array(consumer, np.int64),
            capacity=np.full(consumers, 100.0),
            new_capacity=100.0,
        ),
        partitions=tuple(f"my-topic-{p}" for p in range(len(consumer))),
        consumers=tuple("abcdef"[:consumers]),
    )


def test_a_decision_survives_the_way_through_a_message() -> None:
    made = Decision(consumer=np.array([0, 1, 2]), start=1)
    message = decided(observation([0, 0, 1], 2), made)
    again = DecidedAssignment.decode(message.encode())
    assert again == message
    assert again.consumers == ("a", "b", "new 1")
    assert again.running == 2
    assert again.consumer_of() == {("my-topic", p): p for p in range(3)}
    assert again.rates()["my-topic", 0] == 12.3
    assert same_consumers(again, message)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"{}", "not compressed"),
        (decision(("a",), 1, 0).encode()[:-9], "cut off"),
        (decision(("a",), 1, 0).model_copy(update={"version": 2}).encode(), "version"),
        (decision(("a",), 1, 0).model_copy(update={"consumers": ()}).encode(), "consumer 0"),
    ],
)
def test_what_is_no_decision_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(AutoscalingError, match=sentence) as refused:
        DecidedAssignment.decode(data)
    assert "\n" not in str(refused.value)


class Fixed:
    """Three consumers, and what was asked for."""

    name = "fixed"

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[str, ...]]] = []

    def count(self) -> Count:
        return Count(3, 3, 3, True)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        self.asked.append((consumers, tuple(leaving)))

    def close(self) -> None: ...


def test_a_packed_consumer_is_emptied_before_it_stops() -> None:
    given_ = [
        Decision(consumer=np.array([0, 0, 1]), moves=1),
        Decision(consumer=np.array([0, 0, 1]), stop=(2,)),
    ]
    seen = [observation([0, 2, 1], 3), observation([0, 0, 1], 3)]
    written: list[list[int]] = []

    class Policy:
        def decide(self, group: Group, now: float) -> Decision:
            return given_.pop(0)

    def assign(observed: Observation, made: Decision) -> bool:
        written.append(made.consumer.tolist())
        return True

    fixed = Fixed()
    scaler = Scaler(fixed, ScalingLimits(down_cooldown=0.0))
    loop = Autoscaler(lambda: seen.pop(0), Policy(), scaler, assignor="packed", assign=assign)
    assert (loop.round().kind, fixed.asked) == ("kept", [])
    assert written == [[0, 0, 1]]
    assert loop.round().kind == "changed"
    assert fixed.asked == [(2, ("c",))]
