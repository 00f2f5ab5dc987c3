"""Consumers with assigned partitions: nothing is lost or read by two, even when one is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from consumer_groups import AutoscaleRun, Load, Written, living, margin
from kafka_cases import python_environment
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer.autoscaling.assigned import ControlSettings, GroupController
from balancer.autoscaling.errors import NotYetError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.policy import Decision
from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 6
# What a consumer is said to process; it does more, so that it can catch up. It is little, so that a
# slow machine can do it.
CAPACITY = 40
SLA = 5.0
INTERVAL, WINDOW, REACTION = 1.0, 5.0, 3.0
ELECTION = 6.0
# No event waits longer, but for the margin of the machine. The model: its reader is dead until its
# lease is over, or there are too few consumers until the window shows it, a round decides and the
# change takes effect; then the SLA.
BOUND = ControlSettings().wait_seconds + WINDOW + INTERVAL + REACTION + SLA
_CONSUMER = f"""
import json, os, signal, sys, time
from balancer.autoscaling.assigned import AssignedConsumer

bootstrap, group, folder = sys.argv[1:]
log = open(os.path.join(folder, str(os.getpid())), "w", buffering=1)

def tell(*what):
    log.write(json.dumps([time.monotonic(), *what]) + "\\n")

def tells(what):
    return lambda partitions: [tell(what, number) for _, number in sorted(partitions)]

tell("name", os.environ["COUNTERPOISE_CONSUMER"])
with AssignedConsumer(bootstrap, group, on_start=tells("start"), on_stop=tells("stop")) as consumer:
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    for record in consumer:
        waited = time.time() - record.timestamp()[1] / 1e3
        tell("begin", record.partition(), record.offset(), waited)
        time.sleep(1 / {CAPACITY * 1.5})
        tell("end", record.partition(), record.offset())
"""


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"assigned-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": PARTITIONS, "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    return name


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str, ends: ExitStack) -> Load:
    started = Load(kafka_cluster.bootstrap, topic, [1.0] * PARTITIONS)
    ends.callback(started.stop)
    return started


@pytest.fixture
def start(kafka_cluster: KafkaCluster, topic: str, ends: ExitStack) -> Callable[..., AutoscaleRun]:
    def started(*words: object, stated: bool = True, **soon: float) -> AutoscaleRun:
        known = ("--capacity", str(CAPACITY), "--rebalance-time", "1s") if stated else ()
        controller = AutoscaleRun.start(
            "--bootstrap-server", kafka_cluster.bootstrap, "--group", f"{topic}-readers",
            "--topics", topic, *known, "--assignor", "assigned",
            "--interval", f"{INTERVAL:g}s", "--window", f"{WINDOW:g}s",
            "--reaction-time", f"{REACTION:g}s",
            "--sla", f"{SLA:g}s", "--down-cooldown", "5s", "--maximum", "6",
            *words, **soon,
        )  # fmt: skip
        ends.callback(controller.process.wait)
        ends.callback(controller.process.kill)
        return controller

    return started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "written"
    found.mkdir()
    return found


@pytest.fixture
def command(kafka_cluster: KafkaCluster, topic: str, tmp_path: Path, folder: Path) -> list[str]:
    script = tmp_path / "consumer.py"
    script.write_text(_CONSUMER, encoding="utf-8")
    given = (sys.executable, script, kafka_cluster.bootstrap, f"{topic}-readers", folder)
    return list(map(str, given))


@pytest.mark.soak
def test_a_skewed_load_is_followed_from_one_to_six_and_back_with_kills(
    load: Load, start: Callable[..., AutoscaleRun], command: list[str], folder: Path
) -> None:
    chance = random.Random(15)
    first = start("--command", " ".join(command))
    first.wait_settled(1, 100)
    load.rates = [36.0, 32.0, 28.0, 32.0, 24.0, 28.0]
    first.wait_settled(6, 600)
    for _ in range(2):
        time.sleep(chance.uniform(0.0, 2.0))
        os.kill(chance.choice(living(folder)), signal.SIGKILL)
    first.wait_settled(6, 600)
    time.sleep(chance.uniform(0.0, 2.0))
    # its consumers end with it
    first.kill()
    killed = time.monotonic()
    second = start("--command", " ".join(command))
    second.wait_settled(6, 600)
    at_six, six = time.monotonic(), load.rates
    load.rates = [2.0, 2.0, 2.0, 36.0, 2.0, 2.0]
    second.wait_settled(2, 300)
    at_two, two = time.monotonic(), load.rates
    load.rates = [0.0] * PARTITIONS
    load.stop()
    second.wait_settled(1, 0)
    second.end()
    assert second.process.returncode == 0
    written = Written.read(folder)
    written.report("kill -9 of two consumers, and of a controller with its consumers")
    written.check_one_reader()
    written.check_nothing_lost(load.sent)
    seconds = BOUND + margin()
    # another controller must have been elected first
    written.check_model(load)
    written.check_bound(seconds + ELECTION)
    written.check_balanced(load, at_six, six, CAPACITY, WINDOW)
    written.check_balanced(load, at_two, two, CAPACITY, WINDOW)
    assert not living(folder)
    assert not [r for r in (*first.rounds, *second.rounds) if r["kind"] == "failed"]
    # events of before the controller was killed have waited for nothing but consumers
    assert max(written.waited_before(killed)) < seconds


@pytest.mark.soak
def test_what_is_not_stated_is_measured_and_each_event_is_read_by_one_whatever_is_killed(
    load: Load, start: Callable[..., AutoscaleRun], command: list[str], folder: Path
) -> None:
    words = ("--command", " ".join(command), "--maximum", 2)
    soon = {"lease": 3.0, "session": 2.0}
    first = start(*words, stated=False, **soon)

    def settled(run: AutoscaleRun, since: int = 0) -> bool:
        last = next((r for r in reversed(run.rounds[since:]) if "consumers" in r), None)
        return (
            last is not None
            and len(last["capacity_measured"]) > 1
            and last["running"] == last["consumers"]
            and not last["moves"]
        )

    load.rates = [14.0, 12.0, 10.0, 14.0, 12.0, 10.0]
    wait_for(
        lambda: settled(first) and first.last()["rebalance_measured"] is not None,
        first.last_rounds,
    )
    last = first.last()
    assert "consumers" not in next(r for r in first.rounds if "being measured" in r["reason"])
    # it sleeps for the rest of its time, and never processes more
    assert all(0 < rate <= CAPACITY * 1.5 for rate in last["capacity_measured"].values())
    assert last["rebalance_seconds"] == last["rebalance_measured"] > 0
    os.kill(living(folder)[0], signal.SIGKILL)
    # another controller acts, and starts consumers; those of this one end when it is resumed
    first.process.send_signal(signal.SIGSTOP)
    second = start(*words, stated=False, **soon)
    wait_for(lambda: bool(second.last()), second.last_rounds)
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: settled(second), second.last_rounds)
    # its consumers end with it, and the first one acts again
    second.kill()
    since = len(first.rounds)
    wait_for(lambda: settled(first, since), first.last_rounds)
    load.rates = [0.0] * PARTITIONS
    load.stop()
    wait_for(lambda: first.last()["lag"] == 0, first.last_rounds)
    first.end()
    assert first.process.returncode == 0
    written = Written.read(folder)
    written.check_one_reader()
    written.check_nothing_lost(load.sent)
    assert not living(folder)


@pytest.mark.soak
def test_controllers_that_are_killed_or_frozen_change_nothing_for_consumers(
    load: Load,
    start: Callable[..., AutoscaleRun],
    command: list[str],
    folder: Path,
    ends: ExitStack,
) -> None:
    chance = random.Random(16)
    load.rates = [24.0, 4.0, 20.0, 4.0, 16.0, 4.0]
    first = start()
    wait_for(lambda: bool(first.rounds), lambda: first.rounds)
    for n in range(3):
        consumer = subprocess.Popen(
            command, env={**python_environment(), "COUNTERPOISE_CONSUMER": f"consumer-{n}"}
        )
        ends.callback(consumer.wait)
        ends.callback(consumer.kill)

    def settled(controller: AutoscaleRun) -> bool:
        last = controller.last()
        return bool(last) and last["running"] == 3 and last["lag"] < 300 and not last["moves"]

    wait_for(lambda: settled(first), lambda: first.rounds[-4:])
    second = start()
    wait_for(lambda: bool(second.rounds), lambda: second.rounds)
    time.sleep(chance.uniform(0.0, 2.0))
    # another controller acts, and this one comes back with what it knew before
    first.process.send_signal(signal.SIGSTOP)
    held_from = time.monotonic()
    wait_for(lambda: bool(second.last()), lambda: second.rounds[-4:])
    taken_over = time.monotonic()
    # the new controller decides by its own short look at the load, and may move something
    moved = int(second.last()["moves"])
    first.process.send_signal(signal.SIGCONT)
    load.rates = [4.0, 24.0, 4.0, 20.0, 4.0, 16.0]
    time.sleep(chance.uniform(2.0, 5.0))
    second.process.kill()
    again = len(first.rounds)
    wait_for(
        lambda: any("consumers" in r for r in first.rounds[again:]) and settled(first),
        lambda: first.rounds[-4:],
    )
    load.rates = [0.0] * PARTITIONS
    load.stop()
    wait_for(lambda: first.last()["lag"] == 0, lambda: first.rounds[-4:])
    # the last rounds have moved nothing, and no consumer has more than it can process
    wait_for(lambda: settled(first), lambda: first.rounds[-4:])
    written = Written.read(folder)
    first.end()
    ends.close()
    written.report(f"no controller for {taken_over - held_from:.1f} s, then kill -9 of one")
    written.check_one_reader()
    written.check_nothing_lost(load.sent)
    written.check_model(load)
    written.check_bound(BOUND + margin())
    # a consumer goes on while controllers change, apart from what the new one has decided
    held = [s for s in written.stays if s.began < held_from and s.ended > taken_over]
    assert PARTITIONS - moved <= len(held) <= PARTITIONS
    assert not living(folder)


class Vote:
    """A vote that is always held."""

    acting = True

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


def test_a_controller_that_never_decides_goes_on_with_what_the_last_one_has_said(
    kafka_cluster: KafkaCluster, topic: str, command: list[str], folder: Path, load: Load,
    ends: ExitStack,
) -> None:  # fmt: skip
    names, settings = ("a", "b"), ControlSettings(lease_seconds=2.5)
    held = {name: [(topic, n) for n in range(3 * i, 3 * i + 3)] for i, name in enumerate(names)}
    everything = {"b": held["a"] + held["b"]}

    def controller(epoch: int) -> GroupController:
        return GroupController(
            kafka_cluster.bootstrap, f"{topic}-readers", Vote(epoch), 2, settings=settings
        )

    def reads(by: GroupController, expected: dict[str, list[tuple[str, int]]]) -> None:
        def found() -> bool:
            with suppress(NotYetError):
                return dict(by.members()) == expected
            return False

        wait_for(found, lambda: "who reads what is another")

    group = Group(
        rate=np.ones(PARTITIONS),
        lag=np.zeros(PARTITIONS),
        consumer=np.repeat(np.arange(2), 3),
        capacity=np.full(2, 100.0),
        new_capacity=100.0,
    )
    partitions = tuple(f"{topic}-{n}" for n in range(PARTITIONS))
    seen = Observation(name=topic, group=group, partitions=partitions, consumers=names)
    processes = {}
    with controller(1) as first:
        for name in names:
            processes[name] = subprocess.Popen(
                command, env={**python_environment(), "COUNTERPOISE_CONSUMER": name}
            )
            ends.callback(processes[name].wait)
            ends.callback(processes[name].kill)
        reads(first, {name: [] for name in names})
        assert first.assign(seen, Decision(consumer=group.consumer, reason="as it is"))
        reads(first, held)
    processes["a"].kill()
    # without a controller, nobody reads once the lease is over
    log = folder / str(processes["b"].pid)
    wait_for(lambda: log.read_text().count('"stop"') == 3, log.read_text)
    with controller(2) as second:
        reads(second, everything)
    with controller(3) as third:
        reads(third, everything)


def test_write_speeds_are_published_and_limit_what_a_consumer_reads(
    kafka_cluster: KafkaCluster, topic: str, load: Load, start: Callable[..., AutoscaleRun],
    ends: ExitStack,
) -> None:  # fmt: skip
    speeds = f"{topic}-speeds"
    load.event = random.Random(1).randbytes(10_000)
    load.rates = [10.0] * PARTITIONS
    monitor = subprocess.Popen(
        [sys.executable, "-c", "from balancer.cli import main; main()", "autoscale", "monitor",
         "--bootstrap-server", kafka_cluster.bootstrap, "--topics", topic, "--to", speeds,
         "--interval", "1s", "--window", "5s"],
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
    )  # fmt: skip
    ends.callback(monitor.wait)
    ends.callback(monitor.kill)
    assert monitor.stdout is not None
    while not monitor.stdout.readline().startswith("published"):
        assert monitor.poll() is None
    # Six partitions of 100 kB/s each: a consumer of 320 kB/s that is filled to 90 % takes two, so
    # three are needed, while two could process the events.
    controller = start(
        "--command", "sleep 100", "--dry-run", "--assignor", "packed", "--byte-capacity", "320kB/s",
        "--write-speeds", speeds,
    )  # fmt: skip
    wait_for(lambda: controller.last().get("consumers") == 3, lambda: controller.rounds[-4:])
    controller.end()
    monitor.send_signal(signal.SIGTERM)
    assert monitor.wait(30.0) == 0
