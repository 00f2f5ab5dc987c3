"""Drivers and an executor are killed -9 amid batches: the archive has every message once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_cases import create_topic
from real_kafka import KafkaCluster
from standalone import standalone

from cluster_model.history.metadata import MetadataLog
from cluster_model.kafka import admin_client
from metrics_reporter import Record, encode

ROOT = Path(__file__).parents[2]
PLACES = [str(ROOT), str(ROOT / "tests" / "support")]
PARTITIONS = 3
AT_ONCE = 400
T = 1_700_000_000_000

# Archives until batch `at`, in the middle of which (or after which) it dies, with its JVM.
DYING = """
import os, signal, sys, threading, time
from pathlib import Path
from cluster_model.history import archive
from cluster_model.history.session import spark_session

bootstrap, topic, path, moment, at, at_once = sys.argv[1:]
spark = spark_session("local[2]", kafka=True, delta=True, config={"spark.ui.enabled": "false"})
jvm = spark.sparkContext._gateway.proc.pid
write = archive.write_batch

def die():
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

def files():
    return set(Path(path).rglob("messages/cluster=c/**/*.parquet"))

def die_writing():
    before = files()
    while files() == before:
        time.sleep(0.001)
    die()

def dying(rows, path, batch, **how):
    if batch == int(at) and moment == "writing":
        threading.Thread(target=die_writing).start()
    write(rows, path, batch, **how)
    if batch == int(at):
        die()

archive.write_batch = dying
query = archive.archive_topic(
    spark, bootstrap, topic, path, cluster="c", every=0, max_messages=int(at_once)
)
query.awaitTermination()
"""

# Archives the rest with the command, if there are words for it. Prints what is in the archive, and
# in the topic.
READING = """
import json, sys
from cluster_model.history.archive import compact, read_archive
from cluster_model.history.read import read_topic
from cluster_model.history.session import spark_session
from command_line import invoke

bootstrap, topic, path, *words = sys.argv[1:]
if words:
    done = invoke(words)
    print(done.output)
    assert done.exit_code == 0
spark = spark_session("local[2]", kafka=True, delta=True, config={"spark.ui.enabled": "false"})
columns = ("source_partition", "source_offset", "time_ms", "broker", "bytes_in", "problem")

def told(rows):
    return sorted([list(r) for r in rows.select(*columns).collect()], key=lambda r: r[:2])

archived = told(read_archive(spark, path))
done = compact(spark, path)
print(json.dumps({
    "archived": archived,
    "compacted": told(read_archive(spark, path)),
    "days": done.days,
    "topic": told(read_topic(spark, bootstrap, topic)),
}))
"""


def run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return python("-c", script, *args)


def python(*args: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [*PLACES, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        timeout=600,
    )


def produce(kafka: KafkaCluster, topic: str, first: int, count: int) -> list[list[Any]]:
    """Send records, and a few messages that are none; returns what the archive is to hold."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 20})
    sent: list[list[Any]] = []

    def delivered(number: int) -> Any:
        def note(error: Any, message: Any) -> None:
            assert error is None
            place = [message.partition(), message.offset()]
            if number % 50 == 0:
                sent.append([*place, None, None, None, "malformed"])
            else:
                sent.append([*place, T + number, number % 5, float(number), None])

        return note

    for n in range(first, first + count):
        record = Record(T + n, n % 5, {"bytes_in": float(n)}, "t", n % 7)
        value = b"junk" if n % 50 == 0 else encode(record)
        producer.produce(topic, value, partition=n % PARTITIONS, on_delivery=delivered(n))
    assert producer.flush(60) == 0
    return sent


def files(archive: Path) -> set[Path]:
    """Files of messages, committed or not."""
    return {*archive.glob("messages/cluster=c/**/*.parquet")}


def batches(path: Path, topic: str, kind: str) -> list[str]:
    """Numbers of batches that Spark planned (`offsets`), or knows to be done (`commits`)."""
    at = path / "checkpoints" / "cluster=c" / topic / kind
    return sorted((p.name for p in at.iterdir() if p.name.isdecimal()), key=int)


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"to-archive-{uuid.uuid4().hex[:8]}"
    with admin_client(kafka_cluster.bootstrap, timeout=30) as ask:
        create_topic(ask, name, {n: [n, (n + 1) % 3] for n in range(PARTITIONS)})
    return name


def killed(kafka: KafkaCluster, topic: str, archive: Path, moment: str, at: int) -> None:
    """Archive until a driver and its JVM are killed in the middle of a batch, or after it."""
    died = run(DYING, kafka.bootstrap, topic, str(archive), moment, str(at), str(AT_ONCE))
    assert died.returncode == -9, died.stderr[-2000:]
    assert batches(archive, topic, "offsets")[-1] == str(at)
    assert batches(archive, topic, "commits")[-1] == str(at - 1)


def going_on(kafka: KafkaCluster, topic: str, archive: Path) -> list[str]:
    """Words of the command that goes on where others died, and keeps the metadata beside."""
    capacity = archive.parent / "capacity.yaml"
    capacity.write_text("default: {cpu: 200, network_in: 1e9, network_out: 1e9}")
    return [
        "history", "archive", str(archive), "--cluster", "c", "--once",
        "--capacity", str(capacity), "--bootstrap-server", kafka.bootstrap,
        "--metrics-topic", topic, "--metadata", str(archive.parent / "metadata"),
        "--timeout", "60",
    ]  # fmt: skip


def check(
    kafka: KafkaCluster, topic: str, archive: Path, sent: list[list[Any]], *words: str
) -> str:
    """Find all that was sent once in the archive, also compacted; returns what is said before."""
    read = run(READING, kafka.bootstrap, topic, str(archive), *words)
    assert read.returncode == 0, read.stderr[-2000:]
    *said, last = read.stdout.splitlines()
    found = json.loads(last)
    expected = sorted(sent, key=lambda row: row[:2])
    assert found["archived"] == expected
    assert found["compacted"] == expected
    assert found["topic"] == expected
    assert found["days"] >= 1
    assert topic in MetadataLog(archive.parent / "metadata").at(0).topics
    return "".join(said)


def ended(said: str, topic: str, archive: Path) -> bool:
    # Where the line is broken depends on the length of the path.
    return "".join(said.split()).endswith(f"messagesof{topic}archivedto{archive}")


def test_the_command_archives_every_message_once(
    kafka_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    sent, archive = produce(kafka_cluster, topic, 0, 1000), tmp_path / "archive"
    words = going_on(kafka_cluster, topic, archive)
    assert ended(check(kafka_cluster, topic, archive, sent, *words), topic, archive)


@pytest.mark.soak
def test_what_was_killed_within_a_batch_loses_nothing_and_repeats_nothing(
    kafka_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    sent, archive = produce(kafka_cluster, topic, 0, 1000), tmp_path / "archive"
    killed(kafka_cluster, topic, archive, "writing", 1)
    words = going_on(kafka_cluster, topic, archive)
    assert ended(check(kafka_cluster, topic, archive, sent, *words), topic, archive)


@pytest.mark.soak
def test_a_killed_archive_loses_nothing_and_repeats_nothing(
    kafka_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    sent, archive = produce(kafka_cluster, topic, 0, 3000), tmp_path / "archive"
    for moment, at in (("writing", 1), ("written", 3)):
        killed(kafka_cluster, topic, archive, moment, at)
        sent += produce(kafka_cluster, topic, len(sent), 500)
    before = files(archive)
    with (
        standalone(tmp_path) as cluster,
        cluster.executor_killed_when(lambda: files(archive) != before),
    ):
        words = going_on(kafka_cluster, topic, archive)
        words += ["--master", cluster.address, "--conf", "spark.executor.memory=640m"]
        done = python("-c", "from balancer.cli import main; main()", *words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ended(done.stdout, topic, archive)
    check(kafka_cluster, topic, archive, sent)
