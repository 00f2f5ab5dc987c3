"""A consumer of aiokafka whose group assigns partitions as the autoscaler has decided.

As that of kafka-python, but aiokafka revokes eagerly: in a rebalance every member gives up all
partitions and gets those of the decision in one round. aiokafka rebalances in the background, so a
member joins only once its program has asked for the next record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.packed.decisions import DecisionReader
from balancer.autoscaling.packed.leader import Member
from balancer.autoscaling.packed.membership import Membership, PackedSettings, leave_group
from balancer.autoscaling.packed.message import by_topic

log = logging.getLogger(__name__)

# Not the one of kafka-python's consumers: Kafka refuses a group of both, as those keep partitions
# through a rebalance.
PROTOCOL = "counterpoise-packed-eager"
# Of subscription and assignment: without the fields that aiokafka does not read.
_VERSION = 0
# Configurations of both clients that say where the brokers are, and how to log in.
_CONNECTION = ("bootstrap_servers", "security_", "sasl_", "ssl_")


@asynccontextmanager
async def async_packed_consumer(
    topics: Sequence[str],
    *,
    group: str,
    name: str,
    bootstrap_servers: str | Sequence[str],
    settings: PackedSettings | None = None,
    **configs: Any,
) -> AsyncIterator[Any]:
    """An ``aiokafka.AIOKafkaConsumer`` that reads what has been decided, stopped at the end.

    Nothing is committed automatically: commit what has been processed before asking for more, and
    no record is lost, nor processed by two at a time as long as a record, or a batch of
    ``getmany``, takes less than the session.

    Parameters
    ----------
    topics
        What to read; the same for all consumers of the group.
    group
        The consumer group; all of its consumers are of aiokafka.
    name
        Name of the consumer, which no other has at the same time: its static id.
    bootstrap_servers
        Addresses of brokers.
    settings
        Tunable numbers.
    configs
        Further configurations of the ``AIOKafkaConsumer``. With ``auto_offset_reset="latest"``,
        which is its own default, what arrives while a partition moves that was never committed is
        lost; so here it is ``earliest``.

    Raises
    ------
    AutoscalingError
        If aiokafka or kafka-python is missing, or refuses the configuration.

    Examples
    --------
    ::

        async with async_packed_consumer(
            ["orders"], group="orders", name="a", bootstrap_servers="localhost:9092"
        ) as consumer:
            async for record in consumer:
                await process(record)
                await consumer.commit()
    """
    try:
        import aiokafka
        import kafka
    except ImportError as error:
        raise AutoscalingError(
            f"{error.name} is not installed: pip install 'counterpoise[aiokafka]'"
        ) from None
    if "sasl_oauth_token_provider" in configs:
        raise AutoscalingError(
            f"consumer {name} of group {group}: sasl_oauth_token_provider found, another way to "
            "log in expected, as decisions are read by kafka-python, which takes no provider of "
            "aiokafka"
        )
    s = settings or PackedSettings()
    given = {"bootstrap_servers": bootstrap_servers, **configs}
    reach = {key: value for key, value in given.items() if key.startswith(_CONNECTION)}
    membership = _Membership(name, s, asyncio.get_running_loop())
    reader: DecisionReader | None = None
    consumer: Any = None
    try:
        try:
            reader = await asyncio.to_thread(
                DecisionReader, reach, group, s.decisions_topic, membership.look
            )
            found = reader
            membership.newest = lambda: found.known
            consumer = membership.consumer = _consumer(
                **{
                    "enable_auto_commit": False,
                    "auto_offset_reset": "earliest",
                    "heartbeat_interval_ms": s.heartbeat_ms,
                    "session_timeout_ms": s.session_ms,
                    **given,
                    "group_id": group,
                    "group_instance_id": name,
                    "partition_assignment_strategy": [_assignor(membership)],
                }
            )
            consumer.subscribe(list(topics), listener=consumer.pauses)
            if not await asyncio.to_thread(reader.wait, s.read_seconds):
                log.warning("no decision read in %g s", s.read_seconds)
            await consumer.start()
        except (
            kafka.errors.KafkaError,
            aiokafka.errors.KafkaError,
            AssertionError,
            TypeError,
            ValueError,
        ) as error:
            raise AutoscalingError(f"consumer {name} of group {group}: {error}") from None
        yield consumer
    finally:
        if reader is not None:
            await asyncio.to_thread(reader.close)
        if consumer is not None:
            # before it is stopped, which forgets it; a name alone could be that of a successor
            member = consumer._coordinator.member_id if consumer._coordinator else ""
            await consumer.stop()
            if s.leave and member:
                await asyncio.to_thread(leave_group, reach, group, name, member, s.leave_seconds)


class _Said(BaseModel):
    """What a member tells the leader when it joins: aiokafka passes neither name nor partitions."""

    name: str
    owned: dict[str, list[Annotated[int, Field(ge=0)]]]
    generation: int


class _Membership(Membership):
    """What one member knows of its group; called in the loop, except for `look`."""

    def __init__(
        self,
        name: str,
        settings: PackedSettings,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, settings, clock)
        self.consumer: Any = None
        self._loop = loop
        self._generation = -1

    def rejoin(self) -> None:
        """Join again; aiokafka has no public name for Java's Consumer.enforceRebalance."""
        self._loop.call_soon_threadsafe(self.consumer._coordinator.request_rejoin)

    def subscription(self, topics: Iterable[str]) -> Any:
        """What this member says when it joins.

        The generation makes it differ from what it said before: Kafka begins no rebalance for a
        member that joins again with the same.
        """
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

        owned = self._assigned.partitions if self._assigned else ()
        said = _Said(name=self.name, owned=dict(by_topic(owned)), generation=self._generation)
        return ConsumerProtocolMemberMetadata(
            _VERSION, sorted(topics), said.model_dump_json().encode()
        )

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """The leader's answer: the partitions of each member."""
        from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

        joined = {id_: _member(id_, said) for id_, said in members.items()}
        partitions = {
            (topic, p)
            for topic in {t for m in joined.values() for t in m.topics}
            for p in cluster.partitions_for_topic(topic) or ()
        }
        target, user_data = self.decided(joined, partitions)
        return {
            id_: ConsumerProtocolMemberAssignment(_VERSION, by_topic(mine), user_data)
            for id_, mine in target.items()
        }

    def assigned(self, assignment: Any) -> None:
        """The leader's answer has arrived."""
        self._generation = self.consumer._coordinator.generation
        self.follow(
            ((tp.topic, tp.partition) for tp in assignment.partitions()), assignment.user_data
        )


def _member(id_: str, said: Any) -> Member:
    """A member as the leader sees it."""
    topics = frozenset(said.subscription)
    try:
        told = _Said.model_validate_json(bytes(said.user_data or b""))
    except ValidationError:
        return Member(id_, topics)
    owned = frozenset((topic, p) for topic, numbers in told.owned.items() for p in numbers)
    return Member(told.name, topics, owned, told.generation)


def _assignor(membership: _Membership) -> Any:
    """The assignor as aiokafka takes it; made here, so that it is imported only when used."""
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

    class PackedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
        """Passes everything on to the membership, and so is an object rather than a class."""

        name = PROTOCOL

        def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
            """The leader's answer."""
            return membership.assign(cluster, members)

        def metadata(self, topics: Iterable[str]) -> Any:
            """What the member says when it joins."""
            return membership.subscription(topics)

        def on_assignment(self, assignment: Any) -> None:
            """The answer has arrived."""
            membership.assigned(assignment)

    return PackedAssignor()


def _consumer(**configs: Any) -> Any:
    """The consumer, which gives partitions up between two records of the program."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Pauses(ConsumerRebalanceListener):  # type: ignore[misc]
        """Lets the member join once the program has processed what it has."""

        def __init__(self) -> None:
            self.idle = asyncio.Event()
            self.idle.set()

        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            """Wait; the client returns no more records by now."""
            await self.idle.wait()

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            """The client reads on by itself."""

    class PackedConsumer(AIOKafkaConsumer):  # type: ignore[misc]
        """A record counts as processed when more is asked for."""

        def __init__(self) -> None:
            super().__init__(**configs)
            self.pauses = Pauses()

        async def getone(self, *partitions: Any) -> Any:
            """The next record, also of ``async for``."""
            self.pauses.idle.set()
            record = await super().getone(*partitions)
            self.pauses.idle.clear()
            return record

        async def getmany(self, *partitions: Any, **limits: Any) -> Any:
            """The next records."""
            self.pauses.idle.set()
            records = await super().getmany(*partitions, **limits)
            if records:
                self.pauses.idle.clear()
            return records

        async def stop(self) -> None:
            """Stop; nobody asks for more."""
            self.pauses.idle.set()
            await super().stop()

    return PackedConsumer()
