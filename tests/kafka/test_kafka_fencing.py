"""On a real Kafka: a process that slept past its vote touches nothing; two never act at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_cases import clear, filled_topic, throttles
from kafka_plans import move, plan_of
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer.controller import Election
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.fence import Fence
from balancer.execution.journal import read_journal
from balancer.execution.stop import Stop
from balancer.execution.throttle import (
    LEADER_REPLICAS,
    marked,
)
from cluster_model.kafka import KafkaSourceError, admin_client

SESSION = 4.0
TIMEOUT = 240.0
COMMAND = [sys.executable, "-c", "from balancer.cli import main; main()"]


@pytest.fixture
def cluster(kafka_cluster: KafkaCluster) -> KafkaCluster:
    """Brokers without topics and votes, as a controller looks at all that there is."""
    clear(kafka_cluster)
    return kafka_cluster


@pytest.fixture
def kafka(cluster: KafkaCluster) -> Iterator[Kafka]:
    found = Kafka(cluster.bootstrap)
    yield found
    found.close()


@pytest.fixture
def topic(cluster: KafkaCluster) -> Iterator[str]:
    """Three partitions of some megabytes on brokers 0 and 1."""
    with filled_topic(cluster, "fenced") as name:
        yield name


def plan_file(path: Path, topic: str, source: int = 1, destination: int = 2) -> Path:
    document = plan_of(*(move(topic, n, source, destination) for n in range(3)))
    path.mkdir(exist_ok=True)
    file = path / "plan.json"
    file.write_text(document.model_dump_json())
    return file


def start(cluster: KafkaCluster, path: Path, *options: object) -> subprocess.Popen[str]:
    """``counterpoise execute`` in a directory of its own."""
    path.mkdir(exist_ok=True)
    given = ["--bootstrap-server", cluster.bootstrap, "--session", SESSION, *options]
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [*COMMAND, "execute", *map(str, given)],
        cwd=path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )


# One replica after another, and so slowly that none of them arrives during a test.
SLOWLY = ("--yes", "--throttle", "50kB/s", "--moves", "1")


def left(cluster: KafkaCluster, group: str = "counterpoise-controller") -> None:
    """Wait until a group of voters has no member, as all sessions are over."""
    with admin_client(cluster.bootstrap) as ask:

        def empty() -> bool:
            found = ask(lambda admin: admin.describe_groups([group]))
            return not found[group]["members"]

        eventually(empty, "the group is empty")


def picture(kafka: Kafka, topic: str) -> Any:
    """All that an execution may have written: throttles, reassignments, replicas."""
    partitions = kafka.view([topic]).partitions
    return throttles(kafka, topic), {
        k: (p.replicas, p.adding, p.removing) for k, p in partitions.items()
    }


def moving(kafka: Kafka, topic: str) -> bool:
    return any(p.moving for p in kafka.view([topic]).partitions.values())


def await_move(process: subprocess.Popen[str], kafka: Kafka, topic: str) -> None:
    """Wait until a process moves something of the topic."""

    def begun() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return moving(kafka, topic)

    eventually(begun, "it moves")


eventually = partial(wait_for, unless=(KafkaSourceError,))


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def end_with(stack: ExitStack, process: subprocess.Popen[Any]) -> None:
    stack.callback(process.wait)
    stack.callback(process.kill)


def test_an_execution_that_slept_past_its_lease_touches_nothing(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    # Its successor waits for what arrives.
    slowly = ("--yes", "--throttle", "500kB/s", "--moves", "1")
    sleeper = start(cluster, here, plan_file(here, topic), *slowly)
    end_with(processes, sleeper)
    await_move(sleeper, kafka, topic)
    sleeper.send_signal(signal.SIGSTOP)
    # On another machine: from the marks alone, and then a plan of its own.
    successor = start(cluster, there, "--recover")
    said = successor.communicate(timeout=TIMEOUT)[0]
    assert successor.returncode == 0, said
    assert "journal is out of reach" in said
    assert throttles(kafka, topic) == {}
    # Should it sleep past its lease too, its recovery waits for what moves.
    slow = ("--yes", "--throttle", "150kB/s", "--moves", "1")
    begun = start(cluster, there, plan_file(there, topic, 0, 2), *slow)
    end_with(processes, begun)
    await_move(begun, kafka, topic)
    eventually(lambda: throttles(kafka, topic), "the successor throttles")
    before = picture(kafka, topic)
    epoch = marked(
        before[0][ConfigResource("topic", topic)][LEADER_REPLICAS], "counterpoise-controller"
    )
    begun.send_signal(signal.SIGSTOP)
    sleeper.send_signal(signal.SIGCONT)
    said = sleeper.communicate(timeout=TIMEOUT)[0]
    assert sleeper.returncode == 1, said
    assert "the vote was lost" in said
    after = picture(kafka, topic)
    assert after[0] == before[0]
    # A move that is complete leaves the list of those under way, and no other comes.
    for key, (replicas, adding, _) in after[1].items():
        assert set(adding) <= set(before[1][key][1])
        assert set(replicas) <= set(before[1][key][0])
    found = read_journal(here / "counterpoise-execution.journal")
    assert found is not None
    assert found.ended is None
    assert epoch is not None
    assert found.epoch is not None
    assert epoch.epoch is not None
    assert found.epoch < epoch.epoch
    begun.send_signal(signal.SIGCONT)
    begun.terminate()
    begun.communicate(timeout=TIMEOUT)
    for path in (there, here):
        # One may have slept past its lease too; then its journal is there for it.
        last = start(cluster, path, "--recover")
        said = last.communicate(timeout=TIMEOUT)[0]
        assert last.returncode in (0, 1), said
        journal = read_journal(path / "counterpoise-execution.journal")
        assert journal is not None
        assert journal.closed
    assert throttles(kafka, topic) == {}
    assert not moving(kafka, topic)


def test_of_two_executions_at_once_one_refuses(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    both = []
    for name in ("here", "there"):
        path = tmp_path / name
        both.append(start(cluster, path, plan_file(path, topic), *SLOWLY))
        end_with(processes, both[-1])
    eventually(lambda: any(p.poll() is not None for p in both), "one refuses")
    refused, acting = sorted(both, key=lambda p: p.poll() is None)
    said = refused.communicate()[0]
    assert refused.returncode == 2, said
    last = said.splitlines()[-1]
    assert "acts on this cluster, or did last (group counterpoise-controller)" in last
    assert f"process {acting.pid}" in last
    assert "Traceback" not in said
    assert moving(kafka, topic)
    acting.terminate()
    said = acting.communicate(timeout=TIMEOUT)[0]
    assert "stopped: " in said
    assert throttles(kafka, topic) == {}
    names = {p.name for d in ("here", "there") for p in (tmp_path / d).glob("*.journal")}
    assert names == {"counterpoise-execution.journal"}
    assert len(list(tmp_path.glob("*/*.journal"))) == 1


class Running:
    """``counterpoise run --execute`` in a process of its own, which evens out disks slowly."""

    def __init__(
        self,
        cluster: KafkaCluster,
        path: Path,
        name: str,
        processes: ExitStack,
        session: float = SESSION,
        **settings: Any,
    ) -> None:
        self.settings, self.journal = path / f"{name}.yaml", path / f"{name}.journal"
        capacity, goals = path / "capacity.yaml", path / "goals.yaml"
        self._settings = {**EVENLY, **settings}
        self.change()
        capacity.write_text(yaml.safe_dump({"default": {"disk": 1e12}}))
        disk = {"goal": "UsageDistribution", "resource": "disk", "threshold": 1.3}
        goals.write_text(yaml.safe_dump({"goals": [disk]}))
        self._log = path / f"{name}.log"
        given = ["--bootstrap-server", cluster.bootstrap, "--capacity", capacity, "--execute"]
        given += ["--settings", self.settings, "--goals", goals]
        given += ["--session", session, "--journal", self.journal]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "run", *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        end_with(processes, self.process)

    def change(self, **settings: Any) -> None:
        """Write its settings file."""
        self._settings = {**self._settings, **settings}
        # At once, so that it never reads a part.
        new = self.settings.with_suffix(".new")
        new.write_text(yaml.safe_dump(self._settings))
        new.rename(self.settings)

    @property
    def log(self) -> str:
        """What it logged."""
        return self._log.read_text()

    def tail(self) -> str:
        """The end of its log."""
        return self.log[-8000:]

    def said(self, words: str, after: str = "") -> bool:
        """Whether it logged these words, after others."""
        assert self.process.poll() is None, self.log
        return words in self.log.partition(after)[2] if after else words in self.log

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Tell it to end, and wait for that."""
        self.send(signal.SIGTERM)
        assert self.process.wait(TIMEOUT) == 0, self.log


EVENLY: dict[str, Any] = {
    "interval": 0.5,
    "settle": 0,
    "max_share_per_cycle": 1.0,
    "goal_violations": {"cooldown": "1h", "rounds": 1, "min_gain_per_share": 0.0},
    "execution": {"progress_interval": 0.2, "throttle": 500_000, "concurrent_moves": 1},
}


def test_a_controller_that_slept_past_its_lease_writes_nothing_and_stands_by(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    # What the first moves does not arrive before the second has taken over.
    slow = {**EVENLY["execution"], "throttle": 100_000}
    first = Running(cluster, tmp_path, "first", processes, execution=slow)
    eventually(lambda: first.said("this one acts"), first.tail)
    # It must sleep longer than its lease, but not the other while that one is held still.
    second = Running(cluster, tmp_path, "second", processes, session=180.0, execution=slow)
    eventually(lambda: moving(kafka, topic), "the first moves")
    eventually(lambda: second.said("standby:"), "the second stands by")
    found = read_journal(first.journal)
    assert found is not None
    assert found.epoch is not None
    first.send(signal.SIGSTOP)

    def epoch() -> int:
        """Epoch of the marks."""
        values = throttles(kafka, topic).get(ConfigResource("topic", topic), {})
        mark = marked(values.get(LEADER_REPLICAS), "counterpoise-controller")
        return 0 if mark is None else mark.epoch or 0

    def succeeded() -> bool:
        return epoch() > (found.epoch or 0) and moving(kafka, topic)

    eventually(succeeded, "the second moves, and says so in its marks")
    newer = epoch()
    # While the second is held still, nobody can join and then learn who has the vote.
    first.send(signal.SIGCONT)
    eventually(lambda: first.said("vote lost"), first.tail)
    second.send(signal.SIGSTOP)
    assert epoch() == newer
    before = picture(kafka, topic)
    eventually(lambda: first.said("standby:", after="vote lost"), first.tail)
    assert first.said("this one no longer acts")
    after = picture(kafka, topic)
    assert after[0] == before[0]
    # A move that is complete leaves the list of those under way, and no other comes.
    for key, (replicas, adding, _) in after[1].items():
        assert set(adding) <= set(before[1][key][1])
        assert set(replicas) <= set(before[1][key][0])
    # The first never acted beside it.
    assert first.log.count("this one acts") == 1
    second.send(signal.SIGCONT)
    second.end()
    # What its journal holds is ended by now, which it finds once it acts again.
    eventually(lambda: first.said("this one acts", after="vote lost"), first.tail)
    eventually(lambda: (found := read_journal(first.journal)) and found.closed, "it recovers")
    first.end()
    assert throttles(kafka, topic) == {}
    assert not moving(kafka, topic)


def test_a_controller_whose_lease_lapsed_with_nobody_in_between_carries_on(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    alone = Running(cluster, tmp_path, "alone", processes)
    eventually(lambda: moving(kafka, topic), "it moves")
    before = read_journal(alone.journal)
    assert before is not None
    alone.send(signal.SIGSTOP)
    left(cluster)
    alone.send(signal.SIGCONT)
    eventually(lambda: alone.said(": done after"), "it ends well")
    found = read_journal(alone.journal)
    assert found is not None
    assert found.closed
    assert found.epoch == before.epoch
    assert set(found.states.values()) == {"completed"}
    assert found.tasks.keys() == before.tasks.keys()
    assert "vote lost" not in alone.log
    alone.end()
    assert throttles(kafka, topic) == {}


def test_a_paused_controller_lets_an_execution_act(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    controller = Running(cluster, tmp_path, "controller", processes, goal_violations={"act": False})
    eventually(lambda: controller.said("this one acts"), "the controller acts")
    controller.change(execute=False)
    eventually(lambda: controller.said("this one no longer acts"), "it has stepped down")
    here = tmp_path / "here"
    beside = start(cluster, here, plan_file(here, topic), *SLOWLY)
    end_with(processes, beside)
    await_move(beside, kafka, topic)
    controller.change(execute=True)
    beside.terminate()
    said = beside.communicate(timeout=TIMEOUT)[0]
    assert "stopped: " in said
    assert throttles(kafka, topic) == {}
    again = "this one no longer acts"
    eventually(lambda: controller.said("this one acts", after=again), "the controller acts again")
    controller.end()


def test_a_controller_beside_an_execution(
    cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, processes: ExitStack
) -> None:
    controller = Running(cluster, tmp_path, "controller", processes, goal_violations={"act": False})
    eventually(lambda: controller.said("this one acts"), "the controller acts")
    here = tmp_path / "here"
    beside = start(cluster, here, plan_file(here, topic), *SLOWLY)
    said = beside.communicate(timeout=TIMEOUT)[0]
    assert beside.returncode == 2, said
    assert f"counterpoise run, process {controller.process.pid}" in said
    assert throttles(kafka, topic) == {}
    assert not moving(kafka, topic)
    controller.end()
    after = start(cluster, here, plan_file(here, topic), "--yes")
    said = after.communicate(timeout=TIMEOUT)[0]
    assert after.returncode == 0, said
    assert throttles(kafka, topic) == {}


def test_epochs_rise_and_a_vote_that_nobody_else_had_keeps_its_own(cluster: KafkaCluster) -> None:
    options: dict[str, Any] = {"group": f"vote-{uuid.uuid4().hex[:8]}", "session": SESSION}
    with Election(cluster.bootstrap, **options) as first:
        eventually(lambda: first.prove(1.0), "the first has the vote")
        one = first.epoch
        assert one is not None
        assert first.previous is None
        with Election(cluster.bootstrap, **options) as second:
            first.resign()
            assert not first.acting
            assert first.prove(0.5) is None
            eventually(lambda: second.prove(1.0), "the second has it")
            assert second.epoch is not None
            assert second.epoch > one
            assert second.previous == one
            first.rejoin()
            assert first.prove(2 * SESSION) is None
        eventually(lambda: first.prove(1.0), "the first has it again")
        assert first.epoch is not None
        assert first.epoch > second.epoch


# Stops itself between the proof of the vote and the sending of the write that it was for.
SLEEPS = """
import os, signal, sys
from balancer.controller import Election
from balancer.execution import VoteLostError
from balancer.execution.cluster import Kafka, Key
from balancer.execution.fence import Fence
from balancer.execution.stop import Stop

bootstrap, group, topic = sys.argv[1:]

class Sleeps(Election):
    proofs = 0

    def prove(self, within):
        epoch = super().prove(within)
        self.proofs += epoch is not None
        if self.proofs == 2 and epoch is not None:
            os.kill(os.getpid(), signal.SIGSTOP)
        return epoch

with Sleeps(bootstrap, group=group, session=4.0) as vote:
    fence = Fence(vote, 30.0, Stop(7.0))
    fence.begin()
    kafka = Kafka(bootstrap, fence=fence)
    kafka.view([topic])
    try:
        print(kafka.reassign({Key(topic, 0): (0, 2)}))
    except VoteLostError as error:
        print(error)
"""


@pytest.mark.parametrize("succeeded", [True, False], ids=["a successor", "nobody in between"])
def test_who_sleeps_between_the_proof_and_the_write_does_not_send_it(
    cluster: KafkaCluster, kafka: Kafka, topic: str, processes: ExitStack, succeeded: bool
) -> None:
    group = f"vote-{uuid.uuid4().hex[:8]}"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", SLEEPS, cluster.bootstrap, group, topic],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    end_with(processes, sleeper)
    assert os.WIFSTOPPED(os.waitpid(sleeper.pid, os.WUNTRACED)[1])
    with ExitStack() as stack:
        if succeeded:
            successor = Election(cluster.bootstrap, group=group, session=SESSION)
            stack.enter_context(successor)
            eventually(lambda: successor.prove(1.0), "the successor has the vote")
        else:
            left(cluster, group)
        sleeper.send_signal(signal.SIGCONT)
        said = sleeper.communicate(timeout=TIMEOUT)[0]
    replicas = kafka.view([topic]).partitions[Key(topic, 0)].replicas
    if succeeded:
        assert "the vote was lost, another has taken over" in said
        assert replicas == (0, 1)
    else:
        assert said == "{}\n"
        assert 2 in replicas


def test_a_client_whose_sends_cannot_be_checked_is_refused(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka.net.transport import KafkaTCPTransport

    send = KafkaTCPTransport._sock_send

    class Otherwise:
        """What sends in a release that has renamed its methods."""

        def __get__(self, transport: Any, owner: Any) -> Any:
            return lambda: send(transport)

        def __set__(self, transport: Any, value: Any) -> None: ...

    monkeypatch.setattr(KafkaTCPTransport, "_sock_send", Otherwise())
    with pytest.raises(KafkaSourceError, match="install kafka-python"):
        Kafka(cluster.bootstrap, fence=Fence(None, 0.0, Stop(7.0)))
    Kafka(cluster.bootstrap).close()


@pytest.mark.soak
def test_the_vote_outlives_every_broker_in_turn(cluster: KafkaCluster, kafka: Kafka) -> None:
    """The partition's leader and the group's coordinator die; two never act."""
    options: dict[str, Any] = {"group": f"vote-{uuid.uuid4().hex[:8]}", "session": 6.0}
    with (
        Election(cluster.bootstrap, **options) as first,
        Election(cluster.bootstrap, **options) as second,
    ):
        eventually(lambda: first.acting or second.acting, "one acts")
        for broker in (1, 2):
            cluster.kill(broker)

            def one_acts(gone: int = broker) -> bool:
                assert not (first.acting and second.acting)
                noticed = gone not in kafka.view([]).brokers
                return bool(noticed and (first.prove(1.0) or second.prove(1.0)))

            eventually(one_acts, "one acts again")
            cluster.restart(broker)
            eventually(
                lambda: any(
                    set(p.isr) == set(p.replicas) and len(p.isr) == 3
                    for p in kafka.view(["__counterpoise_controller"]).partitions.values()
                ),
                "all are in sync",
            )
