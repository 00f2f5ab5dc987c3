"""How long a group on a real Kafka takes to follow its load, step by step (seed 000, VI-F)."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.autoscaling.autoscaler import decide_once
from balancer.autoscaling.errors import NotYetError
from balancer.autoscaling.kafka_observer import KafkaObserver, Working
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed import DecisionWriter
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policy import stay
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.replicas import LocalProcesses
from benchmarks.harness.brokers import real_kafka
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model.kafka import admin_client
from metrics_reporter.clients import create

_NAME = "scale-out"
_ROUNDS = 3
_WINDOWS = {"window 30 s": 30.0, "window 10 s": 10.0}
_WORKER = "benchmarks.harness.packed_worker"
# Events/s of each partition before and after, and what a consumer can process.
_BEFORE = (5,) * 12
_AFTER = (90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 10, 5)
_CAPACITY = 100.0
# Share of the new load from which it counts as measured.
_MEASURED = 0.98
_STEPS = (
    "Δt1, the load is measured",
    "Δt2, decision and request",
    "Δt3, consumers have started",
    "Δt4, partitions are with their consumers",
)
_DEADLINE = 120.0


class _Steps(NamedTuple):
    """Seconds of each step, and consumers before and after."""

    seconds: tuple[float, float, float, float]
    before: int
    after: int


@benchmark(_NAME, sizes=tuple(_WINDOWS))
def scale_out(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Seconds from a change of load until the group follows: measured, decided, started, assigned.

    A real Kafka with one broker, consumers as processes of this machine that follow the decision
    through the group's assignor. ``--rounds`` is the number of changes.
    """
    kafka = real_kafka()
    for size in sizes:
        found = []
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                kafka.KafkaCluster(brokers=1, log_dirs=1, directory=Path(folder)) as cluster,
            ):
                for number in range(_ROUNDS if options.rounds is None else options.rounds):
                    options.log(f"{_NAME} {size}: change {number}")
                    found.append(_change(cluster.bootstrap, number, _WINDOWS[size], Path(folder)))
        except kafka.RealKafkaError as error:
            raise BenchmarkError(" ".join(str(error).split())) from None
        for step, seconds in zip(_STEPS, np.array([f.seconds for f in found]).T, strict=True):
            yield Row(
                _NAME, size, "counterpoise", f"{step}: mean", float(seconds.mean()), "seconds"
            )
            yield Row(_NAME, size, "counterpoise", f"{step}: most", float(seconds.max()), "seconds")
        for metric, values in (
            ("consumers before", [f.before for f in found]),
            ("consumers after", [f.after for f in found]),
        ):
            yield Row(_NAME, size, "counterpoise", metric, float(np.mean(values)), "consumers")


def _change(bootstrap: str, number: int, window: float, folder: Path) -> _Steps:
    """One group whose load grows."""
    topic, group, decisions = f"load-{number}", f"readers-{number}", f"decisions-{number}"
    logs = folder / group
    logs.mkdir()
    connect = partial(admin_client, bootstrap, None, timeout=30.0)
    with connect() as ask:
        new = {topic: {"num_partitions": len(_BEFORE), "replication_factor": 1}}
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    # heartbeats and the second round of a cooperative rebalance
    working = Working(_CAPACITY, 1.0, 2.0, blocking=False, window=window)
    observer = KafkaObserver(connect, group, [topic], working, new=True)
    writer = DecisionWriter(connect, {"bootstrap.servers": bootstrap}, group, topic=decisions)
    command = [sys.executable, "-m", _WORKER, bootstrap, group, topic, decisions, str(logs)]
    load = _Load(bootstrap, topic)
    with load, LocalProcesses(command) as consumers:
        consumers.request(1, consumers.count())
        _until(lambda: _readers(logs) == [0] * len(_BEFORE), "the first consumer")
        settled = time.monotonic() + window
        while time.monotonic() < settled:
            seen = _look(observer)
            if seen is not None:
                # as the autoscaler does in every round
                writer.write(seen, stay(seen.group, "the load before"))
            time.sleep(1.0)
        load.rates = _AFTER
        began = time.time()
        seen = _look(observer)
        while seen is None or seen.group.rate.sum() < _MEASURED * sum(_AFTER):
            if time.time() - began > window + _DEADLINE:
                raise BenchmarkError("the load was not measured in time")
            time.sleep(0.2)
            seen = _look(observer)
        measured = time.time()
        decision = decide_once(seen, RepairPolicy(AutoscalingParameters(sla=5.0)))
        if not writer.write(seen, decision):
            raise BenchmarkError("the decision was not written")
        before = seen.group.consumers
        after = before + decision.start - len(decision.stop)
        consumers.request(after, consumers.count())
        requested = time.time()
        _until(lambda: len(_ready(logs)) == after, "consumers to start")
        started = max(_ready(logs))
        wanted = _parts(decision.consumer.tolist())
        _until(lambda: _parts(_readers(logs)) == wanted, "partitions to move")
        assigned = max([*_changed(logs), started])
    seconds = (measured - began, requested - measured, started - requested, assigned - started)
    return _Steps(seconds, before, after)


class _Load:
    """Writes events to each partition at its rate, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.rates: tuple[int, ...] = _BEFORE
        self._topic, self._stop = topic, threading.Event()
        self._producer = create("Producer", {"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = [0.0] * len(_BEFORE)
        last = time.monotonic()
        while not self._stop.wait(0.02):
            now = time.monotonic()
            for partition, rate in enumerate(self.rates):
                due[partition] += rate * (now - last)
                while due[partition] >= 1:
                    self._producer.produce(self._topic, b"event", partition=partition)
                    due[partition] -= 1
            last = now
            self._producer.poll(0)
        self._producer.flush(10.0)


def _look(observer: KafkaObserver) -> Observation | None:
    """What the observer sees; None while there is nothing to decide on."""
    try:
        return observer.observe()
    except NotYetError:
        return None


def _until(what: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not what():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"waited {_DEADLINE:g} s for {name}")
        time.sleep(0.02)


def _lines(logs: Path) -> dict[str, list[list[str]]]:
    """The whole lines that each consumer has written, as words."""
    return {
        path.name: [
            line.split()
            for line in path.read_text(encoding="utf-8").rpartition("\n")[0].split("\n")
        ]
        for path in logs.iterdir()
        if path.stat().st_size
    }


def _ready(logs: Path) -> list[float]:
    """When each consumer was ready."""
    found = (lines[0] for lines in _lines(logs).values())
    return [float(words[0]) for words in found if words[1:] == ["ready"]]


def _changed(logs: Path) -> list[float]:
    """When each consumer's partitions changed last."""
    return [float(lines[-1][0]) for lines in _lines(logs).values() if lines[-1]]


def _readers(logs: Path) -> list[int]:
    """The consumer of each partition; -1 if none or more than one reads it."""
    found = [-1] * len(_BEFORE)
    for consumer, (_, lines) in enumerate(sorted(_lines(logs).items())):
        for word in lines[-1][1:] if lines[-1][1:] != ["ready"] else ():
            found[int(word)] = consumer if found[int(word)] < 0 else -1
    return found


def _parts(consumer: Sequence[int]) -> set[frozenset[int]] | None:
    """Which partitions are read together, by any consumer; None if one has no reader."""
    if -1 in consumer:
        return None
    return {frozenset(p for p, owner in enumerate(consumer) if owner == c) for c in set(consumer)}
