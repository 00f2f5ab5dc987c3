"""Records the messages that Kafka acknowledged, and checks that it still has them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from benchmarks.registry import BenchmarkError
from metrics_reporter.clients import MANUAL_POSITIONS

Place = tuple[str, int]
_ACKNOWLEDGE_SECONDS = 120.0
_READ_SECONDS = 120.0


class Ledger:
    """Writes numbered messages with ``acks=all`` for as long as it is open, and reads them back.

    Parameters
    ----------
    bootstrap
        Brokers.
    places
        Partitions to write to in turn.
    per_second, size
        Messages a second, and bytes of each.
    """

    def __init__(
        self, bootstrap: str, places: Sequence[Place], *, per_second: float = 300.0, size: int = 200
    ) -> None:
        # Here, so that benchmarks without a Kafka need no client.
        from confluent_kafka import Producer

        self._bootstrap, self._places = bootstrap, list(places)
        self._pause, self._filler = 1 / per_second, b" " * size
        self._lock = threading.Lock()
        # Numbers of each partition; a message may be read before it is acknowledged.
        self._acknowledged: dict[Place, set[int]] = {p: set() for p in places}
        self._seen: dict[Place, set[int]] = {p: set() for p in places}
        self._offsets: dict[Place, int] = dict.fromkeys(places, 0)
        self._closed = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(_ACKNOWLEDGE_SECONDS * 1000),
                "linger.ms": 5,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Ledger:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join()

    @property
    def acknowledged(self) -> int:
        """Number of messages that Kafka acknowledged."""
        with self._lock:
            return sum(map(len, self._acknowledged.values()))

    def lost(self, *, all_again: bool = False) -> int:
        """How many acknowledged messages cannot be read.

        Parameters
        ----------
        all_again
            Whether to read everything from the beginning, not just what is new.
        """
        with self._lock:
            missing = {place: set(numbers) for place, numbers in self._acknowledged.items()}
        start = dict.fromkeys(self._places, 0) if all_again else dict(self._offsets)
        before: dict[Place, set[int]] = {} if all_again else self._seen
        for place, seen, offset in self._read(start):
            missing[place] -= seen | before.get(place, set())
            self._seen[place] |= seen
            self._offsets[place] = offset
        return sum(map(len, missing.values()))

    def _write(self) -> None:
        number = 0
        while not self._closed.wait(self._pause):
            place = self._places[number % len(self._places)]
            value = b"%d" % number + self._filler
            try:
                self._producer.produce(
                    place[0], value, partition=place[1], on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            self._producer.poll(0)
            number += 1
        self._producer.flush(_ACKNOWLEDGE_SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            return
        place, number = (message.topic(), message.partition()), int(message.value())
        with self._lock:
            self._acknowledged[place].add(number)

    def _read(self, start: dict[Place, int]) -> list[tuple[Place, set[int], int]]:
        """Numbers from these offsets to the present end, and that end, of each partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "ledger",
                **MANUAL_POSITIONS,
                "auto.offset.reset": "error",
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        try:
            deadline = time.monotonic() + _READ_SECONDS
            end = {p: _end(consumer, TopicPartition(*p), deadline) for p in start}
            seen: dict[Place, set[int]] = {p: set() for p in start}
            at = dict(start)
            consumer.assign([TopicPartition(*p, offset) for p, offset in start.items()])
            while any(at[p] < end[p] for p in at):
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"messages could not be read in {_READ_SECONDS:g} s")
                for message in consumer.consume(10_000, 0.2):
                    if message.error() is not None:
                        continue
                    place = message.topic(), message.partition()
                    at[place] = message.offset() + 1
                    seen[place].add(int(message.value()))
        finally:
            consumer.close()
        return [(p, seen[p], at[p]) for p in start]


def _end(consumer: Any, place: Any, deadline: float) -> int:
    """End offset of a partition; a newly elected leader knows it only after a while."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return int(consumer.get_watermark_offsets(place, 10)[1])
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"end of {place} not reported: {error}") from None
            time.sleep(0.2)
