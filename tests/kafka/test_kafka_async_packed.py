"""Packed consumers of aiokafka on a real Kafka: they read what is decided, also after changes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from consumer_groups import Load
from real_kafka import KafkaCluster

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed import (
    DecisionWriter,
    PackedSettings,
    async_packed_consumer,
    packed_consumer,
)
from balancer.autoscaling.policy import Decision
from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 6
# Longer than any test waits: what one member leaves, others do not get because a session ends.
SESSION_MS = 120_000


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"async-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": PARTITIONS, "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    return name


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str) -> Iterator[Load]:
    started = Load(kafka_cluster.bootstrap, topic, [1.0] * PARTITIONS)
    yield started
    started.stop()


class Members:
    """Consumers that write down when they processed which record."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.consumers: dict[str, Any] = {}
        # partition, offset, begin, end
        self.processed: list[tuple[int, int, float, float]] = []
        self._writer = DecisionWriter(
            lambda: admin_client(bootstrap),
            {"bootstrap.servers": bootstrap},
            topic,
            topic=f"{topic}-decisions",
        )

    async def decide(self, *consumer: int) -> None:
        """Write a decision for the consumers a and b."""
        before = Group(
            rate=np.ones(PARTITIONS),
            lag=np.zeros(PARTITIONS),
            consumer=np.full(PARTITIONS, -1),
            capacity=np.full(2, 100.0),
            new_capacity=100.0,
        )
        names = tuple(f"{self._topic}-{p}" for p in range(PARTITIONS))
        seen = Observation(name=self._topic, group=before, partitions=names, consumers=("a", "b"))
        made = Decision(consumer=np.array(consumer))
        assert await asyncio.to_thread(self._writer.write, seen, made)

    @asynccontextmanager
    async def member(self, name: str, leave: bool = True) -> Any:
        settings = PackedSettings(
            decisions_topic=f"{self._topic}-decisions",
            session_ms=SESSION_MS,
            heartbeat_ms=300,
            leave=leave,
        )
        async with async_packed_consumer(
            [self._topic],
            group=self._topic,
            name=name,
            bootstrap_servers=self._bootstrap,
            settings=settings,
        ) as consumer:
            yield consumer

    def start(self, name: str, leave: bool = True) -> None:
        async def run() -> None:
            async with self.member(name, leave) as consumer:
                self.consumers[name] = consumer
                async for record in consumer:
                    began = time.monotonic()
                    await asyncio.sleep(0.01)
                    self.processed.append(
                        (record.partition, record.offset, began, time.monotonic())
                    )
                    await consumer.commit()

        self._tasks[name] = asyncio.create_task(run())

    async def end(self, name: str) -> None:
        """Cancel a member, which then processes its last record again."""
        task = self._tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del self.consumers[name]

    async def wait(self, what: Callable[[], bool]) -> None:
        """Wait until something holds; a member that has failed fails the test."""
        until = time.monotonic() + 60.0
        while not what():
            assert time.monotonic() < until, {n: self.reads(n) for n in self.consumers}
            for task in self._tasks.values():
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)

    def reads(self, name: str) -> list[int]:
        consumer = self.consumers.get(name)
        return sorted(tp.partition for tp in consumer.assignment()) if consumer else []

    def generation(self, name: str) -> int:
        found: int = self.consumers[name]._coordinator.generation
        return found


def test_members_of_aiokafka_read_what_is_decided(
    kafka_cluster: KafkaCluster, topic: str, load: Load
) -> None:
    asyncio.run(_decisions(Members(kafka_cluster.bootstrap, topic), load))


async def _decisions(members: Members, load: Load) -> None:
    await members.decide(0, 1, 1, 1, 0, 1)
    members.start("a", leave=False)
    members.start("b")
    await members.wait(lambda: (members.reads("a"), members.reads("b")) == ([0, 4], [1, 2, 3, 5]))
    await members.decide(1, 0, 0, 1, 0, 0)
    await members.wait(lambda: (members.reads("a"), members.reads("b")) == ([1, 2, 4, 5], [0, 3]))
    # one that is back within its session has its partitions without a rebalance
    generation = members.generation("b")
    await members.end("a")
    members.start("a")
    await members.wait(lambda: members.reads("a") == [1, 2, 4, 5])
    assert (members.generation("a"), members.generation("b")) == (generation, generation)
    # one that leaves is gone at once
    await members.end("b")
    await members.wait(lambda: members.reads("a") == list(range(PARTITIONS)))
    await asyncio.to_thread(load.stop)
    sent = {(p, offset) for p, count in enumerate(load.sent) for offset in range(int(count))}
    await members.wait(lambda: {(p, offset) for p, offset, _, _ in members.processed} >= sent)
    await members.end("a")
    assert {(p, offset) for p, offset, _, _ in members.processed} == sent
    for partition in range(PARTITIONS):
        times = sorted((b, e) for p, _, b, e in members.processed if p == partition)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(times))
    # nothing is processed again but what was cancelled before its commit
    assert len(members.processed) <= len(sent) + 3


@pytest.mark.soak
def test_a_rebalance_waits_for_the_record_that_is_processed(
    kafka_cluster: KafkaCluster, topic: str, load: Load
) -> None:
    async def run() -> None:
        members = Members(kafka_cluster.bootstrap, topic)
        async with members.member("a") as consumer:
            await consumer.getone()
            members.start("b")
            # several heartbeats: the rebalance has begun, and no partition has moved
            await members.wait(lambda: consumer._coordinator._rejoin_needed_fut.done())
            await asyncio.sleep(1.0)
            assert members.consumers == {}
            await consumer.commit()
            await asyncio.gather(
                consumer.getmany(timeout_ms=20_000), members.wait(lambda: "b" in members.consumers)
            )
            assert len(consumer.assignment()) == len(members.reads("b")) == PARTITIONS // 2
            await members.end("b")

    asyncio.run(run())


@pytest.mark.soak
def test_a_group_of_both_clients_is_refused(kafka_cluster: KafkaCluster, topic: str) -> None:
    bootstrap = kafka_cluster.bootstrap

    async def run() -> None:
        async with async_packed_consumer(
            [topic], group=topic, name="b", bootstrap_servers=bootstrap
        ):
            pass

    with packed_consumer([topic], group=topic, name="a", bootstrap_servers=bootstrap) as consumer:
        deadline = time.monotonic() + 60.0
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(timeout_ms=200)
        with pytest.raises(AutoscalingError, match="InconsistentGroupProtocol") as refused:
            asyncio.run(run())
    assert "\n" not in str(refused.value)
