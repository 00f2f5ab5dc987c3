"""Tells the consumers of one group what to read, while this process holds the vote."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from balancer.autoscaling.assigned.channel import (
    CONTROLLER,
    Channel,
    check_rights,
    control_topic,
    last_messages,
    make_topic,
)
from balancer.autoscaling.assigned.coordinator import Coordinator, last_target
from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition
from balancer.autoscaling.assigned.pauses import Pauses
from balancer.autoscaling.assigned.settings import ControlSettings
from balancer.autoscaling.errors import AutoscalingError, NotYetError
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.policy import Decision
from metrics_reporter.clocks import boot_clock

log = logging.getLogger("counterpoise.assigned")

_SLICE = 0.05


class Vote(Protocol):
    """Which controller of a group acts; an :class:`~balancer.controller.Election` is one."""

    @property
    def acting(self) -> bool:
        """Whether this process acts; False as soon as that is not certain."""

    @property
    def epoch(self) -> int | None:
        """A number that is higher than those of all that have acted before."""


class GroupController:
    """Carries assignments out through the control topic of a group, in a thread of its own.

    It sends only while the vote is held, so one controller speaks at a time; one that takes over
    first asks what consumers hold. How that is safe, and why every wait ends, is said in
    :class:`~balancer.autoscaling.assigned.coordinator.Coordinator`.

    Parameters
    ----------
    bootstrap_servers
        Addresses of brokers.
    group
        The consumer group.
    vote
        Asked before anything is sent; without one, this only listens.
    consumers
        How many consumers have a partition of the control topic of their own, if it is to be made.
    properties
        Further properties of the librdkafka clients.
    settings
        Tunable numbers.

    Raises
    ------
    AutoscalingError
        If the control topic cannot have its name.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        vote: Vote | None,
        consumers: int,
        *,
        properties: Mapping[str, Any] | None = None,
        settings: ControlSettings | None = None,
    ) -> None:
        self._servers, self._properties = bootstrap_servers, dict(properties or {})
        self._topic, self._consumers = control_topic(group), consumers
        self._settings, self._vote = settings or ControlSettings(), vote
        self._lock = threading.Lock()
        self._coordinator: Coordinator | None = None
        # the last heartbeat of each consumer, and when it was heard
        self._heard: dict[str, tuple[Heartbeat, float]] = {}
        self._pauses = Pauses()
        self._listens_since = float("inf")
        # why Kafka lets it not speak or listen
        self._refused: AutoscalingError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control topic", daemon=True)

    def start(self) -> GroupController:
        """Make the control topic, and begin to listen.

        Raises
        ------
        AutoscalingError
            If the topic cannot be made or is not there, or the user may not read and write it.
        """
        servers, given, topic = self._servers, self._properties, self._topic
        s, speaks = self._settings, self._vote is not None
        if speaks:
            make_topic(
                servers, given, topic, self._consumers + 1, s.answer_seconds, copies=s.copies
            )
        self._channel = Channel(servers, given, topic, s.answer_seconds)
        try:
            self._channel.partitions(s.answer_seconds)
            if speaks:
                check_rights(servers, given, topic, s.answer_seconds)
        except BaseException:
            self._channel.close()
            raise
        self._channel.read(CONTROLLER)
        self._thread.start()
        return self

    def close(self) -> None:
        """Say nothing more; consumers read on until their lease is over."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._channel.close()

    def __enter__(self) -> GroupController:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def members(self) -> Mapping[str, Sequence[Partition]]:
        """What each consumer that is alive reads.

        Raises
        ------
        NotYetError
            While another controller acts, or consumers have not said what they read.
        AutoscalingError
            If Kafka refuses to let the user read or write the control topic.
        """
        now = boot_clock()
        with self._lock:
            if self._refused is not None:
                raise AutoscalingError(str(self._refused))
            if self._vote is None:
                return self._overheard(now)
            coordinator = self._coordinator
            if coordinator is None or not self._speaks(coordinator):
                raise NotYetError("another controller acts, or none has been elected yet")
            found = coordinator.members(now)
        if found is None:
            raise NotYetError("consumers are asked what they read, which takes as long as a lease")
        return {name: sorted(partitions) for name, partitions in found.items()}

    def assign(self, observation: Observation, decision: Decision) -> bool:
        """Say which consumer is to read which partition; others stay with their consumer.

        Returns
        -------
        bool
            False if another controller assigns. One that only listens, in a dry run, assigns
            nothing and knows of no other one.
        """
        if self._vote is None:
            return True
        named = observation.targets(decision).items()
        split = ((partition.rpartition("-"), to) for partition, to in named)
        parsed = {(topic, int(number)): to for (topic, _, number), to in split}
        with self._lock:
            if self._coordinator is None:
                return False
            self._coordinator.assign(parsed)
            return self._speaks(self._coordinator)

    def capacities(self) -> Mapping[str, float]:
        """Events/s that consumers can process, as they have measured."""
        with self._lock:
            latest = self._latest(boot_clock())
        return {beat.consumer: beat.capacity for beat in latest if beat.capacity is not None}

    def rebalance_seconds(self) -> float | None:
        """Median of the last times in which a partition that moved was not read."""
        with self._lock:
            return self._pauses.times.median

    def _overheard(self, now: float) -> Mapping[str, Sequence[Partition]]:
        if now < self._listens_since + self._settings.silent_seconds:
            raise NotYetError("listening to what consumers say")
        return {beat.consumer: sorted(beat.held) for beat in self._latest(now)}

    def _latest(self, now: float) -> list[Heartbeat]:
        """The last heartbeat of each consumer that is heard of; the others are forgotten."""
        oldest = now - self._settings.silent_seconds
        self._heard = {
            name: (beat, at)
            for name, (beat, at) in self._heard.items()
            if at >= oldest and not beat.leaving
        }
        return [beat for beat, _ in self._heard.values()]

    def _speaks(self, coordinator: Coordinator) -> bool:
        vote = self._vote
        return vote is not None and vote.acting and vote.epoch == coordinator.epoch

    def _run(self) -> None:
        self._listens_since = boot_clock()
        while not self._closing.is_set():
            try:
                self._talk(self._channel.receive(_SLICE))
            except AutoscalingError as error:
                self._refused = error
                self._closing.wait(1.0)
            except Exception:
                log.exception("control topic")
                self._closing.wait(1.0)

    def _talk(self, values: list[bytes]) -> None:
        now = boot_clock()
        if values:
            self._refused = None
        beats = [beat for value in values if (beat := Heartbeat.decode(value)) is not None]
        with self._lock:
            for beat in beats:
                self._heard[beat.consumer] = beat, now
                self._pauses.heard(beat, now)
            coordinator = self._acting()
            if coordinator is None:
                return
            for beat in beats:
                coordinator.receive(beat, now)
            messages = coordinator.messages(boot_clock())
            # Checked after the heartbeats were received, as the protocol demands.
            if self._speaks(coordinator):
                for place, message in messages:
                    self._channel.send(place, message.encode())

    def _restore(self, coordinator: Coordinator) -> None:
        """Read what the last controller has said: it counts as long as rounds fail."""
        s = self._settings
        while not self._closing.wait(_SLICE) and self._speaks(coordinator):
            try:
                values = last_messages(
                    self._servers, self._properties, self._topic, s.read_back, s.answer_seconds
                )
            except AutoscalingError as error:
                log.warning("what was assigned before is not known yet: %s", error)
                self._closing.wait(1.0)
                continue
            told = [found for value in values if (found := Assignment.decode(value)) is not None]
            with self._lock:
                coordinator.restore(last_target(told))
            return

    def _acting(self) -> Coordinator | None:
        """What is known in this epoch; None if another controller acts."""
        vote = self._vote
        if vote is None or not vote.acting or (epoch := vote.epoch) is None:
            return None
        if self._coordinator is None or self._coordinator.epoch != epoch:
            self._coordinator = Coordinator(epoch, boot_clock(), self._settings)
            # consumers are answered meanwhile
            threading.Thread(
                target=self._restore, args=(self._coordinator,), name="last target", daemon=True
            ).start()
        return self._coordinator
