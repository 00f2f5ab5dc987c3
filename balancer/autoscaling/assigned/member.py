"""What a consumer knows of its partitions and its lease; knows neither Kafka nor threads."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition, by_topic

# Heartbeats whose time is remembered; an answer to an older one is of no use.
_REMEMBERED = 1000
# More partitions that are not read are not listed, as a message must not be too large.
_LISTED = 1000


class Change(NamedTuple):
    """What a consumer is to do now: first stop, and only then start."""

    stop: frozenset[Partition]
    start: frozenset[Partition]


class Member:
    """The consumer's half of the protocol.

    It may process records of a partition only while it is assigned, and until its lease
    ends: `lease_seconds` after it *sent* the heartbeat that the last assignment answers. The
    controller counts the same time from the moment at which it received that heartbeat, which is
    later. So the consumer always stops first, and no clocks need to agree: they only need to run
    about equally fast.

    An assignment counts once, for the process it names, in its order, and only before its own lease
    is over, so that one that comes late starts nothing. What the lease has ended starts again only
    when a new assignment says so.

    Parameters
    ----------
    name, id, address
        See :class:`~balancer.autoscaling.assigned.messages.Heartbeat`.
    """

    def __init__(self, name: str, id: str, address: int) -> None:
        self.name, self.id, self.address = name, id, address
        # when heartbeats were sent
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._number = 0
        self._last = (0, 0)
        self._until = float("-inf")
        self._wanted: frozenset[Partition] = frozenset()
        self._held: frozenset[Partition] = frozenset()
        # held when a lease ended, and not stopped since
        self._lapsed: frozenset[Partition] = frozenset()
        self._leaving = False

    @property
    def held(self) -> frozenset[Partition]:
        """Partitions that were started and not stopped."""
        return self._held

    @property
    def until(self) -> float:
        """When the lease ends, by this consumer's clock."""
        return self._until

    def heartbeat(
        self,
        now: float,
        *,
        reads: frozenset[Partition] | None = None,
        capacity: float | None = None,
    ) -> Heartbeat:
        """The next heartbeat, to be sent now or later.

        Parameters
        ----------
        now
            The time.
        reads
            Partitions that it really reads; None if that is not known.
        capacity
            Events/s that it can process; None if that is not known.
        """
        self._lapse(now)
        self._number += 1
        self._sent[self._number] = now
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)
        epoch, seen = self._last
        holds = self._wanted | (self._held - self._lapsed)
        unread = None if reads is None else holds - reads
        return Heartbeat(
            consumer=self.name,
            id=self.id,
            address=self.address,
            number=self._number,
            epoch=epoch,
            seen=seen,
            partitions=by_topic(holds),
            leaving=self._leaving and not self._held,
            capacity=capacity,
            unread=None if unread is None or len(unread) > _LISTED else by_topic(unread),
        )

    def receive(self, message: Assignment, now: float) -> bool:
        """Take note of an assignment; returns whether the controller waits to hear of that."""
        self._lapse(now)
        sent = self._sent.get(message.heartbeat)
        order = (message.epoch, message.number)
        if message.id != self.id or order <= self._last or sent is None or self._leaving:
            return False
        until = sent + message.lease_seconds
        if now >= until:
            return False
        news = message.epoch != self._last[0]
        self._last, self._until = order, max(self._until, until)
        given = message.given
        if given is not None and given != self._wanted:
            self._wanted, news = given, True
        return news

    def may_process(self, partition: Partition, now: float, seconds: float = 0.0) -> bool:
        """Whether a record that takes so long may be processed now."""
        self._lapse(now)
        return (
            partition in self._held
            and partition in self._wanted
            and partition not in self._lapsed
            and now + seconds < self._until
        )

    def due(self, now: float) -> Change:
        """What is to be stopped and started; what is to start counts as held from now on."""
        self._lapse(now)
        stop = (self._held - self._wanted) | self._lapsed
        # a partition that was lost is stopped before it is started again
        start = self._wanted - self._held
        self._held |= start
        return Change(stop, start)

    def stopped(self, partitions: frozenset[Partition]) -> None:
        """Note that partitions are not read any longer, and their positions are committed."""
        self._held -= partitions
        self._lapsed -= partitions

    def leave(self) -> None:
        """Want nothing any longer, for good."""
        self._leaving, self._wanted = True, frozenset()

    def _lapse(self, now: float) -> None:
        """Once the lease is over, whatever it covered is lost."""
        if now >= self._until and (self._wanted or self._held):
            self._lapsed |= self._held
            self._wanted = frozenset()
