"""Helpers of the tests of a real Kafka: topics, data, processes, throttles, accounts, rights."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer.execution import Executor, Limits
from balancer.execution.cluster import ConfigResource, Kafka
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
)
from cluster_model.kafka import Ask, admin_client

Assignment = Mapping[int, Sequence[int]]
# Enough for a throttled move to be under way when a test looks.
KILOBYTES = 6000


def create_topic(ask: Ask, topic: str, replicas: Assignment, *, must: bool = True) -> None:
    """Create a topic with these brokers by partition; it may fail where it need not exist."""
    requested = {topic: {"assignments": {n: list(held) for n, held in replicas.items()}}}
    ask(lambda admin: admin.create_topics(requested, wait_for_metadata=must, raise_errors=must))


@contextmanager
def steady_load(kafka: KafkaCluster, topic: str, partitions: int, size: int) -> Iterator[None]:
    """A record of so many random bytes to each partition, ten times a second, until the end."""
    producer, over = Producer({"bootstrap.servers": kafka.bootstrap}), threading.Event()

    def produce() -> None:
        while not over.wait(0.1):
            for partition in range(partitions):
                producer.produce(topic, os.urandom(size), partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(30)


def clear(kafka: KafkaCluster) -> None:
    """Remove topics, groups with their members, throttles and cordons; all brokers must be up."""
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove

    settings = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE, "cordoned.log.dirs")

    with admin_client(kafka.bootstrap, timeout=60) as ask:

        def topics() -> list[str]:
            found = ask(lambda admin: admin.list_topics())
            return [t for t in found if t not in ("__consumer_offsets", "__transaction_state")]

        groups = [found["group_id"] for found in ask(lambda admin: admin.list_groups())]
        described = ask(lambda admin: admin.describe_groups(groups)) if groups else {}
        for group, about in described.items():
            members = [MemberToRemove(member_id=m["member_id"]) for m in about["members"]]
            if members:
                ask(partial(KafkaAdminClient.remove_group_members, group_id=group, members=members))
        if groups:
            ask(lambda admin: admin.delete_groups(groups))
        if gone := topics():
            ask(lambda admin: admin.delete_topics(gone))
        wait_for(lambda: not topics(), "no topics")
    client = Kafka(kafka.bootstrap)
    try:
        client.set_configs(
            {ConfigResource("broker", str(b)): dict.fromkeys(settings) for b in kafka.broker_ids}
        )
    finally:
        client.close()


def delete_topic(ask: Ask, topic: str) -> None:
    """Delete a topic."""
    ask(lambda admin: admin.delete_topics([topic]))


def produce(kafka: KafkaCluster, topic: str, kilobytes: Mapping[int, int]) -> None:
    """Fill partitions; every replica in sync has the data when this returns."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    for partition, amount in kilobytes.items():
        for _ in range(amount):
            producer.produce(topic, b"x" * 1024, partition=partition)
        assert producer.flush(60) == 0


def create_filled(
    kafka: KafkaCluster, topic: str, replicas: Assignment, kilobytes: int = KILOBYTES
) -> None:
    """Create a topic with as many kilobytes in each partition."""
    with admin_client(kafka.bootstrap, timeout=30) as ask:
        create_topic(ask, topic, replicas)
    produce(kafka, topic, dict.fromkeys(replicas, kilobytes))


@contextmanager
def filled_topic(kafka: KafkaCluster, prefix: str) -> Iterator[str]:
    """Three partitions of some megabytes, all on brokers 0 and 1; deleted afterwards."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    create_filled(kafka, name, {n: [0, 1] for n in range(3)})
    yield name
    with admin_client(kafka.bootstrap, timeout=30) as ask:
        delete_topic(ask, name)


def throttles(kafka: Kafka, *topics: str) -> dict[ConfigResource, dict[str, str]]:
    """Whatever throttle is set on the topics and on the brokers that are up."""
    asked: dict[ConfigResource, Sequence[str]] = {
        ConfigResource("broker", str(b)): [LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE]
        for b in kafka.view([]).brokers
    }
    asked |= {ConfigResource("topic", t): [LEADER_REPLICAS, FOLLOWER_REPLICAS] for t in topics}
    found = {
        r: {key: value for key, value in values.items() if value is not None}
        for r, values in kafka.configs(asked).items()
    }
    return {r: values for r, values in found.items() if values}


def executor(kafka: KafkaCluster, path: Path, **limits: Any) -> Executor:
    """One that looks often and gives brokers that are away little time."""
    quick = {"progress_interval": 0.3, "broker_grace": 1.0} | limits
    return Executor(kafka.bootstrap, journal=path / "journal", limits=Limits.of(**quick))


def commit(reader: Consumer, positions: list[TopicPartition]) -> None:
    """Commit positions of a group, also if Kafka has yet to make the topic for them."""
    wait_for(
        lambda: reader.commit(offsets=positions, asynchronous=False),
        "committed",
        unless=(KafkaException,),
    )


def alive(id_: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(id_, 0)
    except ProcessLookupError:
        return False
    return True


def python_environment() -> dict[str, str]:
    """Environment of a Python process of its own that imports what this one does."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}


# Of the users of the cluster with accounts, of which admin may do anything.
_USERS = ("reader", "half", "denied", "nobody", "proposer", "watcher", "measurer", "executor")
PASSWORDS = dict.fromkeys(("admin", *_USERS, "controller", "reporter"), "secret") | {"ann": "hers"}


def account(name: str, password: str | None = None) -> dict[str, str]:
    """Client properties that log a user in, by default with the user's password."""
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password or PASSWORDS[name],
    }


def grant(
    ask: Ask, who: str, kind: str, name: str, operation: str, permission: str = "ALLOW"
) -> None:
    """Allow (or deny) a user an operation on a resource."""
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    acl = ACL(
        principal=f"User:{who}",
        host="*",
        operation=ACLOperation[operation],
        permission_type=ACLPermissionType[permission],
        resource_pattern=ResourcePattern(ResourceType[kind], name),
    )
    assert not ask(lambda admin: admin.create_acls([acl]))["failed"]
