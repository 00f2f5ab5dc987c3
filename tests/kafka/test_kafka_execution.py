"""Executions on a real Kafka: throttled, killed, stopped, disturbed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from kafka_cases import create_topic, delete_topic, executor, filled_topic, throttles
from kafka_plans import plan_of
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from balancer import Action, Balancer, Operation, PlanDocument
from balancer.execution import Executor, Limits, Progress
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    marked,
)
from cluster_model.kafka import admin_client, read_cluster

# Slow enough for a test to be there before it ends.
SLOW = 1e6


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> Iterator[str]:
    """Three partitions of some megabytes, all on brokers 0 and 1; deleted afterwards."""
    with filled_topic(kafka_cluster, "moving") as name:
        yield name


def act(
    kind: str, topic: str, partition: int, source: int, destination: int, **more: Any
) -> Action:
    return Action.model_validate(
        {"kind": kind, "topic": topic, "partition": partition, "source": source,
         "destination": destination, **more}
    )  # fmt: skip


def moves(topic: str) -> list[Action]:
    """Every partition's follower to broker 2."""
    return [act("move", topic, n, 1, 2) for n in range(3)]


def replicas(kafka: Kafka, topic: str) -> list[tuple[int, ...]]:
    found = kafka.view([topic]).partitions
    return [found[Key(topic, n)].replicas for n in range(len(found))]


@contextmanager
def executing(
    kafka_cluster: KafkaCluster,
    kafka: Kafka,
    topic: str,
    plan: PlanDocument,
    path: Path,
    *options: str,
) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, once it moves something, slowly."""
    file = path / "plan.json"
    file.write_text(plan.model_dump_json())
    command = [sys.executable, "-c", "from balancer.cli import main; main()", "execute", str(file)]
    command += ["--bootstrap-server", kafka_cluster.bootstrap, "--journal", str(path / "journal")]
    command += ["--yes", "--throttle", "1MB/s", "--moves", "1", *options]
    with moving(kafka, topic, command) as process:
        yield process


@contextmanager
def moving(kafka: Kafka, topic: str, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that executes, once it moves something of the topic."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: any(p.moving for p in kafka.view([topic]).partitions.values()), "it moves")
        yield process
    finally:
        process.kill()
        process.wait()


def in_sync(kafka: Kafka, topic: str) -> bool:
    return all(set(p.isr) == set(p.replicas) for p in kafka.view([topic]).partitions.values())


def test_the_command_carries_a_plan_out_throttled(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    actions = [act("leadership", topic, 0, 0, 1), *moves(topic)[1:], act("move", topic, 0, 0, 2)]
    plan.write_text(plan_of(*actions).model_dump_json())
    options = ["--bootstrap-server", kafka_cluster.bootstrap, "--journal", str(tmp_path / "j")]

    def run(*more: str) -> str:
        result = invoke(["execute", plan, *options, *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    reported = run()
    assert f"{topic}-1: replicas 0,1 to 0,2" in reported
    assert f"{topic}-0: leader 1" in reported
    assert replicas(kafka, topic) == [(0, 1)] * 3

    seen: list[dict[ConfigResource, dict[str, str]]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            seen.append(throttles(kafka, topic))

    thread = threading.Thread(target=watch)
    thread.start()
    reported = run("--yes", "--throttle", "3MB/s")
    done.set()
    thread.join()
    assert reported.startswith("done: 4 tasks completed, 0 failed, 0 cancelled; 1")
    assert replicas(kafka, topic) == [(1, 2), (0, 2), (0, 2)]
    assert kafka.view([topic]).partitions[Key(topic, 0)].leader == 1
    # Whole KiB/s, as the marks tell it.
    both = {LEADER_RATE: "2999296", FOLLOWER_RATE: "2999296"}
    full = [s for s in seen if len(s) == 4]
    assert full
    for found in full:
        for b in range(3):
            assert found[ConfigResource("broker", str(b))] == both
        mine = found[ConfigResource("topic", topic)]
        lead, follow = (
            marked(mine[key], "counterpoise-controller")
            for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        )
        assert lead is not None
        assert follow is not None
        assert lead.replicas == {(n, b) for n in range(3) for b in (0, 1)}
        assert follow.replicas == {(n, 2) for n in range(3)}
        assert lead.epoch == follow.epoch is not None
    assert throttles(kafka, topic) == {}
    assert "done" in (tmp_path / "j").read_text().splitlines()[-1]
    recovered = invoke(["execute", "--recover", *options])
    assert recovered.exit_code == 0
    assert "nothing is left" in recovered.stdout


@pytest.mark.parametrize(
    "operation", [Operation(), Operation(kind="demote_brokers", brokers=(0,))], ids=lambda o: o.kind
)
def test_a_proposed_plan_ends_as_proposed(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, operation: Operation
) -> None:
    plan = Balancer().propose(read_cluster(kafka_cluster.bootstrap, resources=("disk",)), operation)
    assert len(plan)
    outcome = executor(kafka_cluster, tmp_path, throttle=20e6).execute(plan)
    assert (outcome.state, outcome.problems, outcome.differences) == ("done", (), ())
    end, after = plan.final_snapshot(), read_cluster(kafka_cluster.bootstrap, resources=("disk",))
    assert end.topics == after.topics
    ids = end.broker_ids
    assert ids[end.replica_broker].tolist() == after.broker_ids[after.replica_broker].tolist()
    assert end.leader.tolist() == after.leader.tolist()
    assert [end.disk_path[d] for d in end.replica_disk] == [
        after.disk_path[d] for d in after.replica_disk
    ]


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_killed_in_the_middle_it_is_recovered(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path, one_at_a_time: bool
) -> None:
    plan = plan_of(*moves(topic), act("leadership", topic, 1, 0, 2))
    more = ["--one-replica-at-a-time"] * one_at_a_time
    with executing(kafka_cluster, kafka, topic, plan, tmp_path, *more) as process:
        process.kill()
        process.communicate()
    assert throttles(kafka, topic)
    assert (0, 1) in replicas(kafka, topic)
    again = executor(kafka_cluster, tmp_path, throttle=100e6)
    outcome = again.recover()
    assert outcome is not None
    assert (outcome.state, outcome.problems, outcome.differences) == ("done", (), ())
    assert outcome.completed == 4
    assert replicas(kafka, topic) == [(0, 2), (2, 0), (0, 2)]
    assert kafka.view([topic]).partitions[Key(topic, 1)].leader == 2
    assert throttles(kafka, topic) == {}
    assert again.recover() is None


def test_killed_on_another_machine_its_successor_takes_the_throttles_off(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    """As a controller of the same group does that acts next; Kafka takes the marks."""
    owner = f"group-{topic}"
    others = {LEADER_REPLICAS: "8:2,7:1"}
    assert kafka.set_configs({ConfigResource("topic", topic): others}) == {}
    plan, there, here = tmp_path / "plan.json", tmp_path / "there", tmp_path / "here"
    plan.write_text(plan_of(*moves(topic)).model_dump_json())
    code = (
        "import sys; from pathlib import Path; from balancer import load_plan\n"
        "from balancer.execution import Executor, Limits\n"
        "bootstrap, journal, owner, plan = sys.argv[1:]\n"
        f"limits = Limits(throttle={SLOW}, concurrent_moves=1)\n"
        "Executor(bootstrap, journal=Path(journal), limits=limits, owner=owner)"
        ".execute(load_plan(plan))"
    )
    command = [sys.executable, "-c", code, kafka_cluster.bootstrap, str(there), owner, str(plan)]
    with moving(kafka, topic, command) as process:
        process.kill()
        process.communicate()
    assert not in_sync(kafka, topic)
    found = throttles(kafka, topic)
    rate = str(int(SLOW) // 1024 * 1024)
    assert found[ConfigResource("broker", "2")] == {LEADER_RATE: rate, FOLLOWER_RATE: rate}
    mark = marked(found[ConfigResource("topic", topic)][FOLLOWER_REPLICAS], owner)
    assert mark is not None
    assert mark.replicas == {(0, 2), (1, 2), (2, 2)}
    # Who is of another name leaves it alone.
    limits = Limits.of(progress_interval=0.3)
    stranger = Executor(kafka_cluster.bootstrap, journal=here, limits=limits, owner="stranger")
    assert stranger.recover() is None
    again = Executor(kafka_cluster.bootstrap, journal=here, limits=limits, owner=owner)
    outcome = again.recover()
    assert outcome is not None
    assert (outcome.state, outcome.completed, outcome.differences) == ("done", 1, ())
    assert replicas(kafka, topic) == [(0, 2), (0, 1), (0, 1)]
    assert throttles(kafka, topic) == {ConfigResource("topic", topic): others}
    assert again.recover() is None
    # The dead one is back, with its own journal: it begins nothing more.
    late = Executor(kafka_cluster.bootstrap, journal=there, limits=limits, owner=owner).recover()
    assert late is not None
    assert late.state == "stopped"
    assert replicas(kafka, topic) == [(0, 2), (0, 1), (0, 1)]
    assert throttles(kafka, topic) == {ConfigResource("topic", topic): others}


def test_ctrl_c_stops_it_in_good_order(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    with executing(kafka_cluster, kafka, topic, plan_of(*moves(topic)), tmp_path) as process:
        process.send_signal(signal.SIGINT)
        reported, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "Stopping" in reported
    assert "stopped: " in reported
    assert "Traceback" not in reported
    assert not any(p.moving for p in kafka.view([topic]).partitions.values())
    assert throttles(kafka, topic) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None


@pytest.mark.soak
def test_a_broker_killed_costs_its_moves_and_no_more(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    actions = [*moves(topic)[:2], act("leadership", topic, 2, 0, 1)]
    running = executor(kafka_cluster, tmp_path, throttle=SLOW)
    killed = threading.Event()

    def kill(progress: Progress) -> None:
        if progress.running and not killed.is_set():
            killed.set()
            kafka_cluster.kill(2)

    try:
        outcome = running.execute(plan_of(*actions), progress=kill)
        assert killed.is_set()
        assert outcome.state == "failed"
        assert (outcome.completed, outcome.failed) == (1, 2)
        assert sum("broker 2 is gone" in p for p in outcome.problems) == 2
        assert len(outcome.differences) == 2
        assert replicas(kafka, topic) == [(0, 1), (0, 1), (1, 0)]
        assert not any(p.moving for p in kafka.view([topic]).partitions.values())
        assert ConfigResource("topic", topic) not in throttles(kafka, topic)
    finally:
        kafka_cluster.restart(2)
    recovered = executor(kafka_cluster, tmp_path).recover()
    assert recovered is not None
    assert throttles(kafka, topic) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None
    # The broker is back: the same plan now succeeds.
    outcome = executor(kafka_cluster, tmp_path).execute(plan_of(*moves(topic)[:2]))
    assert outcome.state == "done", outcome
    assert in_sync(kafka, topic)


@pytest.mark.soak
def test_the_broker_that_is_asked_is_killed_and_another_answers(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    """Brokers that lose nothing by it may be restarted while a plan is carried out."""
    killed = threading.Event()
    restart = threading.Thread(target=kafka_cluster.restart, args=(1,))

    def kill(progress: Progress) -> None:
        if progress.running and not killed.is_set():
            killed.set()
            kafka_cluster.kill(1)
            restart.start()

    running = executor(kafka_cluster, tmp_path, throttle=3e6, broker_grace=60.0)
    outcome = running.execute(plan_of(*moves(topic)), progress=kill)
    assert killed.is_set()
    restart.join()
    assert outcome.state == "done", outcome
    assert replicas(kafka, topic) == [(0, 2)] * 3
    # Its throttle may have had to wait for it.
    executor(kafka_cluster, tmp_path).recover()
    assert throttles(kafka, topic) == {}


def test_stopped_with_rollback_all_is_as_before(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    running = executor(kafka_cluster, tmp_path, throttle=3e6, concurrent_moves=1)

    def stop(progress: Progress) -> None:
        if progress.completed and progress.running:
            running.stop(rollback=True)

    outcome = running.execute(plan_of(*moves(topic)), progress=stop)
    assert (outcome.state, outcome.differences) == ("rolled back", ())
    assert replicas(kafka, topic) == [(0, 1)] * 3
    assert not any(p.moving for p in kafka.view([topic]).partitions.values())
    assert throttles(kafka, topic) == {}
    assert in_sync(kafka, topic)


def test_a_reassignment_of_others_is_respected(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    theirs: dict[ConfigResource, Mapping[str, str | None]] = {
        ConfigResource("topic", topic): {LEADER_REPLICAS: "0:0,0:1", FOLLOWER_REPLICAS: "0:2"},
        **{
            ConfigResource("broker", str(b)): {LEADER_RATE: "1024", FOLLOWER_RATE: "1024"}
            for b in range(3)
        },
    }
    assert not kafka.set_configs(theirs)
    kafka.reassign({Key(topic, 0): (0, 2)})
    skipping = executor(kafka_cluster, tmp_path, others="skip")
    outcome = skipping.execute(plan_of(act("leadership", topic, 0, 0, 2), *moves(topic)[1:]))
    assert (outcome.state, outcome.completed, outcome.cancelled) == ("failed", 2, 1)
    assert any("others are reassigning it to 0, 2" in p for p in outcome.problems)
    found = kafka.view([topic]).partitions[Key(topic, 0)]
    assert (found.moving, found.settled) == (True, (0, 2))
    assert throttles(kafka, topic) == theirs

    waiting = executor(kafka_cluster, tmp_path)
    freed = threading.Event()

    def free(progress: Progress) -> None:
        if not freed.is_set():
            freed.set()
            kafka.set_configs({r: dict.fromkeys(v) for r, v in theirs.items()})

    outcome = waiting.execute(plan_of(act("leadership", topic, 0, 0, 2)), progress=free)
    assert outcome.state == "done", outcome
    assert kafka.view([topic]).partitions[Key(topic, 0)].leader == 2
    assert throttles(kafka, topic) == {}


def test_replicas_move_between_disks_and_to_chosen_ones(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    at = [(Key(topic, n), b) for n in range(3) for b in range(3)]
    before = kafka.held(at)

    def other(broker: int, log_dir: str) -> str:
        (found,) = set(kafka_cluster.log_dirs[broker]) - {log_dir}
        return found

    here = before[Key(topic, 0), 0].log_dir
    there = other(0, here)
    chosen = kafka_cluster.log_dirs[2]
    actions: Iterable[Action] = (
        act("move_disk", topic, 0, 0, 0, source_disk=here, destination_disk=there),
        act("move", topic, 1, 1, 2, destination_disk=chosen[0]),
        act("move", topic, 2, 1, 2, destination_disk=chosen[1]),
    )
    outcome = executor(kafka_cluster, tmp_path, log_dir_throttle=4e6).execute(plan_of(*actions))
    assert (outcome.state, outcome.differences) == ("done", ()), outcome
    after = kafka.held(at)
    assert after[Key(topic, 0), 0].log_dir == there
    assert [after[Key(topic, n), 2].log_dir for n in (1, 2)] == list(chosen)
    assert throttles(kafka, topic) == {}


def test_a_stopped_move_between_disks_stays_where_it_was(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    place = (Key(topic, 0), 0)
    here = kafka.held([place])[place].log_dir
    (there,) = set(kafka_cluster.log_dirs[0]) - {here}
    running = executor(kafka_cluster, tmp_path, log_dir_throttle=100e3)
    action = act("move_disk", topic, 0, 0, 0, source_disk=here, destination_disk=there)
    outcome = running.execute(
        plan_of(action), progress=lambda p: running.stop() if p.running else None
    )
    assert outcome.state == "stopped"
    found = kafka.held([place])[place]
    assert (found.log_dir, found.future_dir) == (here, None)
    assert throttles(kafka, topic) == {}


def test_a_deleted_topic_counts_as_done(
    kafka_cluster: KafkaCluster, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    with admin_client(kafka_cluster.bootstrap, timeout=30) as ask:
        create_topic(ask, other, {0: [0, 1]})
        deleted = threading.Event()

        def delete(progress: Progress) -> None:
            if progress.running and not deleted.is_set():
                deleted.set()
                delete_topic(ask, topic)

        running = executor(kafka_cluster, tmp_path, throttle=SLOW)
        try:
            outcome = running.execute(
                plan_of(*moves(topic), act("move", other, 0, 1, 2)), progress=delete
            )
        finally:
            delete_topic(ask, other)
            create_topic(ask, topic, {0: [0, 1]})
    assert outcome.state == "done", outcome
    assert sum("deleted" in p for p in outcome.problems) == 3


def test_a_secret_is_nowhere_reported(
    kafka_cluster: KafkaCluster,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = {"sasl.password": "hidden-word", "security.protocol": "PLAINTEXT"}
    with caplog.at_level("DEBUG"):
        running = Executor(kafka_cluster.bootstrap, journal=tmp_path / "journal", client=client)
        assert running.execute(plan_of(moves(topic)[0])).state == "done"
    assert "hidden-word" not in (tmp_path / "journal").read_text()
    assert "hidden-word" not in caplog.text
