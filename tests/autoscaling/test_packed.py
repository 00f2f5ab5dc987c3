"""The leader of packed consumers follows decisions; no partition has two readers at any time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.autoscaling.autoscaler import Autoscaler
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed import (
    PackedSettings,
    async_consumer,
    async_packed_consumer,
    decisions,
    packed_consumer,
)
from balancer.autoscaling.packed import consumer as consumer_module
from balancer.autoscaling.packed.consumer import _Membership
from balancer.autoscaling.packed.decisions import Known
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

    def stand_down(self) -> bool:
        return False

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


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Rejoins:
    """The client of a member, which counts the rebalances that it asks for."""

    def __init__(self) -> None:
        self.count = 0
        self._coordinator = self

    def request_rejoin(self) -> None:
        self.count += 1


def membership(name: str, clock: Clock) -> tuple[_Membership, Rejoins]:
    found, rejoins = _Membership(name, PackedSettings(), clock), Rejoins()
    found.consumer = rejoins
    return found, rejoins


def answer(number: int, content: str, *partitions: int) -> SimpleNamespace:
    """What a leader assigns."""
    return SimpleNamespace(
        partitions=lambda: [SimpleNamespace(topic="t", partition=p) for p in partitions],
        user_data=json.dumps({"decision": number, "content": content}).encode(),
    )


def test_a_decision_in_a_topic_that_was_made_anew_is_followed() -> None:
    clock = Clock()
    member, rejoins = membership("a", clock)
    member.assigned(answer(57, "old", 0, 1), 3)
    member.newest = lambda: Known(0, "new", decision(("a", "b"), 2, 0, 1))
    # it may be that this member has not read on yet
    member.look()
    assert rejoins.count == 0
    clock.now += 5.0
    member.look()
    assert rejoins.count == 1
    member.assigned(answer(0, "new", 0, 1), 4)
    clock.now += 5.0
    member.look()
    assert rejoins.count == 1


def test_rebalances_that_a_leader_does_not_answer_become_rare() -> None:
    clock = Clock()
    member, rejoins = membership("b", clock)
    member.newest = lambda: Known(5, "new", decision(("a", "b"), 2, 1, 0))
    for _ in range(3000):
        member.assigned(answer(-1, "", 1), 3)
        member.look()
        clock.now += 0.2
    # 1, 2, 4, ... 32 s, and then one a minute
    assert rejoins.count == 15
    # one that knows it leads again
    member.assigned(answer(5, "new", 1), 4)
    member.newest = lambda: Known(6, "newer", decision(("a", "b"), 2, 1, 0))
    clock.now += 60.0
    for _ in range(2):
        member.look()
        clock.now += 1.0
    assert rejoins.count == 17


class Topic:
    """Takes messages, and has their keys and values."""

    def __init__(self) -> None:
        self.values: list[DecidedAssignment] = []

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any
    ) -> None:
        self.values.append(DecidedAssignment.decode(value))
        on_delivery(None, None)

    def flush(self, timeout: float) -> int:
        return 0


def test_a_decision_is_written_until_the_group_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    monkeypatch.setattr(decisions, "create", lambda kind, properties: topic)

    @contextmanager
    def connect() -> Iterator[Callable[[Callable[[Any], Any]], Any]]:
        yield lambda f: f(SimpleNamespace(list_topics=lambda: [decisions.DECISIONS_TOPIC]))

    first, second = (decisions.DecisionWriter(connect, {}, "g") for _ in range(2))
    wanted = Decision(consumer=np.array([0, 1]))
    assert first.write(observation([0, 0], 2), wanted)
    assert first.write(observation([0, 1], 2), wanted)
    assert len(topic.values) == 1
    # another controller acts for a while
    assert second.write(observation([0, 1], 2), Decision(consumer=np.array([1, 0])))
    assert first.write(observation([1, 0], 2), wanted)
    assert len(topic.values) == 3
    assert topic.values[-1] == topic.values[0]


@pytest.mark.parametrize("member", ["a-1234", ""])
def test_a_consumer_leaves_by_its_own_id_only(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = pytest.importorskip("kafka")
    left: list[tuple[str, str]] = []
    given: list[dict[str, object]] = []

    class Client:
        def __init__(self, **configs: object) -> None:
            given.append(configs)
            self.config = configs
            self._coordinator = SimpleNamespace(_generation=SimpleNamespace(member_id=member))

        def subscribe(self, topics: list[str]) -> None: ...

        def close(self, timeout_ms: int = 0) -> None:
            self._coordinator._generation = None

        def remove_group_members(self, group: str, members: list[Any]) -> None:
            left.extend((m.member_id, m.group_instance_id) for m in members)

    class Reader:
        def __init__(self, *_: object) -> None: ...

        def wait(self, seconds: float) -> bool:
            return True

        def close(self) -> None: ...

    monkeypatch.setattr(consumer_module, "DecisionReader", Reader)
    monkeypatch.setattr(kafka, "KafkaConsumer", Client)
    monkeypatch.setattr(kafka, "KafkaAdminClient", Client)
    with packed_consumer(["t"], group="g", name="a", bootstrap_servers="localhost:9092"):
        pass
    assert left == ([(member, "a")] if member else [])
    # what arrives while a partition moves that was never committed is not skipped
    assert given[0]["auto_offset_reset"] == "earliest"
    servers = "localhost:9092"
    with packed_consumer(
        ["t"], group="g", name="a", bootstrap_servers=servers, auto_offset_reset="latest"
    ):
        pass
    assert [g["auto_offset_reset"] for g in given if "auto_offset_reset" in g][-1] == "latest"


class Cluster:
    """Three partitions of every topic."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0, 1, 2}


def test_a_leader_of_aiokafka_follows_the_decision() -> None:
    protocol = pytest.importorskip("aiokafka.coordinator.protocol")

    async def run() -> None:
        loop, rejoins = asyncio.get_running_loop(), Rejoins()
        joined = {name: async_consumer._Membership(name, PackedSettings(), loop) for name in "ab"}
        leader = joined["a"]
        known = Known(4, "first", decision(("a", "b"), 2, 1, 0, 1))
        for member in joined.values():
            member.consumer = SimpleNamespace(
                _coordinator=SimpleNamespace(generation=7, request_rejoin=rejoins.request_rejoin)
            )
            member.newest = lambda: known

        def rebalance() -> dict[str, list[int]]:
            said = {
                name.upper(): protocol.ConsumerProtocolMemberMetadata.decode(
                    member.subscription(["t"]).encode()
                )
                for name, member in joined.items()
            }
            answers = {
                id_: protocol.ConsumerProtocolMemberAssignment.decode(each.encode())
                for id_, each in leader.assign(Cluster(), said).items()
            }
            for id_, each in answers.items():
                joined[id_.lower()].assigned(each)
            return {id_: [tp.partition for tp in a.partitions()] for id_, a in answers.items()}

        assert rebalance() == {"A": [1], "B": [0, 2]}
        before = joined["b"].subscription(["t"]).encode()
        known = Known(5, "second", decision(("a", "b"), 2, 0, 0, 1))
        # only the one that has a partition of the other asks for a rebalance
        for member in joined.values():
            member.look()
        await asyncio.sleep(0)
        assert rejoins.count == 1
        # all partitions move in one round
        leader.consumer._coordinator.generation = 8
        joined["b"].consumer._coordinator.generation = 8
        assert rebalance() == {"A": [0, 1], "B": [2]}
        # what a member says differs in each round: otherwise Kafka would not rebalance
        assert joined["b"].subscription(["t"]).encode() != before

    asyncio.run(run())


def test_what_another_version_says_when_it_joins_is_no_failure() -> None:
    said = SimpleNamespace(subscription=["t"], user_data=b'{"name": 1}')
    assert async_consumer._member("id", said) == Member("id", TOPIC)


def test_a_way_to_log_in_that_only_aiokafka_knows_is_refused() -> None:
    pytest.importorskip("aiokafka")

    async def run() -> None:
        async with async_packed_consumer(
            ["t"], group="g", name="a", bootstrap_servers="localhost:9", sasl_oauth_token_provider=1
        ):
            pass

    with pytest.raises(AutoscalingError, match="sasl_oauth_token_provider found") as refused:
        asyncio.run(run())
    assert "\n" not in str(refused.value)
