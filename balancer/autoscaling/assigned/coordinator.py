"""What a controller knows of its consumers and assigns to them; knows neither Kafka nor clocks.

Its guarantee: no partition is read by two consumers at a time, whatever messages are lost,
delayed, doubled or reordered, and whichever consumer or controller dies.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition, by_topic
from balancer.autoscaling.assigned.settings import ControlSettings


@dataclass
class _Peer:
    """One process of a consumer."""

    name: str
    address: int
    # when a heartbeat was received last, and the last one that an assignment answers
    heard: float
    answered: float
    # number of the last heartbeat
    heartbeat: int = -1
    unanswered: bool = True
    # what it may read by its own account; None while that is not known
    held: frozenset[Partition] | None = None
    # what assignments that it may not have seen yet allow it to read
    sent: dict[int, frozenset[Partition]] = field(default_factory=dict)
    latest: frozenset[Partition] | None = None
    # since when it is to stop something
    stopping: float | None = None
    # the first assignment that it was sent and has not taken up, and when
    waiting: tuple[int, float] | None = None
    # whether it has no lease, and is given nothing until it takes an assignment up
    deaf: bool = False

    @property
    def may_hold(self) -> frozenset[Partition]:
        """All that it may read now, or begin to read; nothing if what it holds is not known."""
        return (self.held or frozenset()).union(*self.sent.values())


class Coordinator:
    """The controller's half of the protocol, for one epoch.

    **Never two readers.** A partition is given to a consumer only if no other one may read it: each
    has said itself that it does not, after having seen all that this controller sent to it, or its
    lease is over. A consumer's lease counts from the sending of the heartbeat that an assignment
    answers. The controller counts it from the reception of that heartbeat, which is later, and
    longer by `drift`, as clocks do not run equally fast. So the consumer stops first.

    **Synchronization.** A new controller does not know what was assigned before. It
    answers their heartbeats with assignments that change nothing and carry its epoch: after that
    they accept none of an earlier one, and say what they hold. Until all leases that an earlier
    controller can have given are over, nothing is moved. Each answers a heartbeat that was
    received before this epoch began, even if its assignment is delivered later, so it ends within
    a lease from then. After that a consumer that was not heard has nothing.

    **Everything ends.** A consumer that is silent, or does not stop or take up an assignment in
    time, is not answered any longer, and so its lease ends. One that sends heartbeats and takes
    nothing up, as it cannot read the control topic, then holds nothing, whatever it says, and
    counts as if it was not there. It is answered again, but with nothing to read until it takes
    that up. What is to be read by a consumer that has gone, and by nobody else since, goes to the
    one with the fewest partitions after a lease, even if nobody decides. Until somebody does, what
    an earlier controller has said counts, if :meth:`restore` was told of it.

    Parameters
    ----------
    epoch
        Of this controller; higher than those of all earlier ones.
    now
        Seconds on a clock that never goes back, taken when it was certain that no earlier
        controller acts any longer.
    settings
        Tunable numbers.
    """

    def __init__(
        self,
        epoch: int,
        now: float,
        settings: ControlSettings | None = None,
    ) -> None:
        self.epoch, self.settings = epoch, settings or ControlSettings()
        self._synchronized = now + self.settings.wait_seconds
        self._peers: dict[str, _Peer] = {}
        self._target: dict[Partition, str] = {}
        self._decided = False
        # since when consumers that are to read something are not there
        self._gone: dict[str, float] = {}
        self._number = 0

    def synchronized(self, now: float) -> bool:
        """Whether all leases of earlier controllers are over."""
        return now > self._synchronized

    def members(self, now: float) -> dict[str, frozenset[Partition]] | None:
        """What each consumer that is alive reads; None while that is not known."""
        alive = {name: self._peers[id_] for name, id_ in self._alive(now).items()}
        if not self.synchronized(now) or any(p.held is None for p in alive.values()):
            return None
        return {name: peer.may_hold for name, peer in alive.items()}

    def assign(self, target: Mapping[Partition, str]) -> None:
        """Say which consumer is to read which partition; the others stay where they are."""
        self._target, self._decided = dict(target), True

    def restore(self, target: Mapping[Partition, str]) -> None:
        """Go on with what an earlier controller has said, unless there is a decision by now."""
        if not self._decided:
            self._target = dict(target)

    def receive(self, message: Heartbeat, now: float) -> None:
        """Take note of a heartbeat."""
        peer = self._peers.get(message.id)
        if message.epoch > self.epoch or (peer and message.number <= peer.heartbeat):
            return
        if message.leaving:
            self._peers.pop(message.id, None)
            return
        current = message.epoch == self.epoch
        if peer is None:
            peer = _Peer(message.consumer, message.address, now, now)
            self._peers[message.id] = peer
            if self.synchronized(now) and not current:
                # nobody has given it a lease that is not over
                peer.deaf, peer.held = True, frozenset()
        peer.heartbeat, peer.heard, peer.unanswered = message.number, now, True
        if current and peer.waiting is not None and message.seen >= peer.waiting[0]:
            peer.waiting, peer.deaf = None, False
        if peer.deaf:
            return
        peer.held = message.held if current else None
        if current:
            peer.sent = {n: given for n, given in peer.sent.items() if n > message.seen}

    def messages(self, now: float) -> list[tuple[int, Assignment]]:
        """What is to be sent now, with addresses.

        It must be sent only if this controller was still the one after it had received the last
        heartbeat.
        """
        s = self.settings
        for id_ in [i for i, p in self._peers.items() if now > p.answered + s.wait_seconds]:
            peer = self._peers[id_]
            if self._is_late(peer, now) and self._is_heard(peer, now):
                # it was sent nothing in this time, and so may read nothing
                peer.deaf, peer.held, peer.waiting, peer.latest = True, frozenset(), None, None
                peer.sent.clear()
            else:
                del self._peers[id_]
        given = self._given(now) if self.synchronized(now) else {}
        found = []
        for id_, peer in self._peers.items():
            partitions = given.get(id_)
            self._note_stop(peer, partitions, now)
            news = partitions is not None and partitions != peer.latest
            answers = self._is_heard(peer, now) and not self._is_late(peer, now)
            if not answers or not (peer.unanswered or news):
                continue
            self._number += 1
            peer.unanswered, peer.answered, peer.latest = False, peer.heard, partitions
            peer.waiting = peer.waiting or (self._number, now)
            if partitions:
                peer.sent[self._number] = partitions
            message = Assignment(
                id=id_,
                epoch=self.epoch,
                number=self._number,
                heartbeat=peer.heartbeat,
                lease_seconds=s.lease_seconds,
                partitions=None if partitions is None else by_topic(partitions),
            )
            found.append((peer.address, message))
        return found

    def _is_heard(self, peer: _Peer, now: float) -> bool:
        return now <= peer.heard + self.settings.silent_seconds

    def _is_late(self, peer: _Peer, now: float) -> bool:
        """Whether it has not stopped something, or taken something up, in time."""
        unheard = None if peer.deaf or peer.waiting is None else peer.waiting[1]
        since = [at for at in (peer.stopping, unheard) if at is not None]
        return bool(since) and now > min(since) + self.settings.stop_seconds

    def _alive(self, now: float) -> dict[str, str]:
        """Id of the latest process of each consumer that is heard of, and hears."""
        return {
            p.name: id_ for id_, p in self._peers.items() if self._is_heard(p, now) and not p.deaf
        }

    def _given(self, now: float) -> dict[str, frozenset[Partition]]:
        """What each consumer may read now; without consumers whose partitions are not known."""
        known = {i: p.may_hold for i, p in self._peers.items() if p.held is not None}
        unknown = self._peers.keys() - known.keys()
        holders: dict[Partition, list[str]] = {}
        for id_, held in known.items():
            for partition in held:
                holders.setdefault(partition, []).append(id_)
        given: dict[str, set[Partition]] = {id_: set() for id_ in known}
        alive = self._alive(now)
        latest = set(alive.values())
        gone = self._long_gone(alive, now)
        orphans = []
        for partition in holders.keys() | self._target.keys():
            by, name = holders.get(partition, []), self._target.get(partition, "")
            to = alive.get(name)
            if to is None:
                # until its consumer is there, it stays where it is
                to = next((i for i in by if i in latest), None)
            # who holds it goes on; to give it to another, it must be certain that nobody does
            if to in given and (by == [to] or not (by or unknown)):
                given[to].add(partition)
            elif not (by or unknown) and name in gone:
                orphans.append(partition)
        if orphans and alive:
            fewest = [(len(given[id_]), name, id_) for name, id_ in alive.items()]
            heapq.heapify(fewest)
            for partition in sorted(orphans):
                count, name, id_ = fewest[0]
                given[id_].add(partition)
                heapq.heapreplace(fewest, (count + 1, name, id_))
        return {id_: frozenset(partitions) for id_, partitions in given.items()}

    def _long_gone(self, alive: Mapping[str, str], now: float) -> set[str]:
        """Consumers that are to read something, and have not been there for a lease."""
        absent = set(self._target.values()) - alive.keys()
        self._gone = {name: self._gone.get(name, now) for name in absent}
        return {name for name, at in self._gone.items() if now > at + self.settings.wait_seconds}

    def _note_stop(self, peer: _Peer, given: frozenset[Partition] | None, now: float) -> None:
        """Remember since when a consumer is to stop reading something."""
        if given is None or peer.may_hold <= given:
            peer.stopping = None
        elif peer.stopping is None:
            peer.stopping = now


def last_target(messages: Iterable[Assignment]) -> dict[Partition, str]:
    """Which consumer was to read each partition, by the last assignments of earlier controllers.

    Examples
    --------
    >>> old = Assignment(
    ...     id="a/1", epoch=1, number=1, heartbeat=1, lease_seconds=9, partitions={"t": (0, 1)}
    ... )
    >>> new = old.model_copy(update={"id": "b/1", "number": 2, "partitions": {"t": (1,)}})
    >>> last_target([new, old])
    {('t', 0): 'a', ('t', 1): 'b'}
    """
    given = [m for m in messages if m.given is not None]
    given.sort(key=lambda m: (m.epoch, m.number))
    last = {m.id: m for m in given}
    target: dict[Partition, str] = {}
    for message in sorted(last.values(), key=lambda m: (m.epoch, m.number)):
        name = message.id.rpartition("/")[0]
        target.update(dict.fromkeys(sorted(message.given or ()), name))
    return target
