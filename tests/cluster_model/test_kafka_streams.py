"""A Kafka Streams application: loads of its tasks from the pages of its instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_job_cases import served, streams_pages
from typer.testing import CliRunner

from balancer.cli.app import app
from cluster_model import Snapshot, SnapshotError
from cluster_model.kafka_streams import read_kafka_streams
from metrics_reporter import ReporterError

FIRST = "clicks-3f0e3a52-7a44-4c0e-9b7c-2f60b6b0a9d1"
SECOND = "clicks-b81d2c9e-0f3d-4f7a-8d11-6c5a4e3b2a10"
RATIO = "kafka_streams_stream_task_metrics_active_process_ratio"
STATE = "kafka_streams_stream_state_metrics_total_sst_files_size"


def read(*pages: str) -> tuple[Snapshot, list[str]]:
    """The snapshot of an application with these pages, and what is said about it."""
    said: list[str] = []
    with served({f"/{i}": page for i, page in enumerate(pages)}) as url:
        urls = [f"{url}/{i}" for i in range(len(pages))]
        return read_kafka_streams(urls, warn=said.append), said


def loads(s: Snapshot) -> dict[str, tuple[float, str]]:
    """Load and instance by subtopology and partition."""
    return {
        f"{s.topics[topic]}-{number}": (round(load, 6), s.broker_ids[broker])
        for topic, number, load, broker in zip(
            s.partition_topic.tolist(),
            s.partition_number.tolist(),
            s.leader_load[:, 0].tolist(),
            s.replica_broker.tolist(),
            strict=True,
        )
    }


def without(page: str, name: str, task: str = "") -> str:
    """The page without a metric, or without it for one task."""
    return "\n".join(
        line
        for line in page.splitlines()
        if not (line.startswith(name) and (not task or f'task_id="{task}"' in line))
    )


def test_the_sample_becomes_a_snapshot() -> None:
    s, said = read(*streams_pages())
    assert s.broker_ids.tolist() == [FIRST, SECOND]
    assert s.capacity.tolist() == [[200.0], [200.0]]
    assert loads(s) == {
        "subtopology-0-0": (40.0, FIRST),
        "subtopology-0-1": (15.0, FIRST),
        "subtopology-0-2": (10.0, SECOND),
        "subtopology-1-0": (40.0, FIRST),
        "subtopology-1-1": (45.0, FIRST),
        "subtopology-1-2": (5.0, SECOND),
    }
    assert s.creatable.all()
    assert not len(s.traffic_rate)
    # Subtopology 0 has no store that reports its size: it is unknown, not 0.
    assert not len(s.state_size)
    assert said == [
        "3 of 6 tasks report the size of their state; as those of the others are unknown, every "
        "move costs the same"
    ]


def test_sizes_count_if_every_task_has_one() -> None:
    pages = [
        "\n".join(line for line in page.splitlines() if 'task_id="0_' not in line)
        for page in streams_pages()
    ]
    s, said = read(*pages)
    assert said == []
    assert s.state_size.tolist() == [6.1e7, 9.4e7, 1.2e7]


def test_without_ratios_a_thread_is_divided_by_the_rates_of_records() -> None:
    s, _ = read(*(without(page, RATIO) for page in streams_pages()))
    found = loads(s)
    assert found["subtopology-0-0"][0] == 64.0
    assert found["subtopology-1-0"][0] == 16.0
    assert found["subtopology-0-2"][0] == 10.0


def test_an_unknown_load_is_not_zero() -> None:
    first, second = streams_pages()
    unknown = without(without(first, RATIO, "0_0"), "kafka_streams_stream_task_metrics_process")
    unknown += f'\n{RATIO}{{task_id="0_0",thread_id="{FIRST}-StreamThread-1"}} NaN\n'
    s, said = read(unknown, second)
    assert "subtopology-0-0" not in loads(s)
    assert s.n_partitions == 5
    assert said[0].startswith("1 of 6 tasks (such as 0_0) have no process ratio")


def test_malformed_lines_are_counted_and_skipped() -> None:
    first, second = streams_pages()
    thread = f'thread_id="{FIRST}-StreamThread-1"'
    lines = [f'{RATIO}{{task_id="{task}",{thread}}} {n}' for task, n in (("0-9", 1), ("0_9", -1))]
    bad = "\n".join([f"{first}nonsense", *lines])
    s, said = read(bad, second)
    assert s.n_partitions == 6
    assert said[0] == "3 malformed metrics skipped"


def test_a_task_counts_once_and_idle_instances_count_too() -> None:
    first, second = streams_pages()
    idle = 'kafka_streams_stream_thread_metrics_process_ratio{thread_id="new-StreamThread-1"} NaN'
    s, _ = read(first, second, idle)
    assert s.n_partitions == 6
    assert s.broker_ids.tolist() == [FIRST, SECOND, "new"]
    assert s.capacity.tolist() == [[200.0], [200.0], [100.0]]
    moved = second.replace('"0_2"', '"0_1"')
    _, said = read(first, moved)
    assert "1 task reported by two threads, of which one counts" in said


def test_instances_with_one_client_id_stay_apart_and_an_address_counts_once() -> None:
    first, second = (
        page.replace(FIRST, "shop").replace(SECOND, "shop") for page in streams_pages()
    )
    with served({"/1": first, "/2": second}) as url:
        s = read_kafka_streams([f"{url}/1", f"{url}/2", f"{url}/1"])
    assert s.broker_ids.tolist() == [f"shop ({url}/1)", f"shop ({url}/2)"]
    assert s.capacity.tolist() == [[200.0], [200.0]]
    load = np.bincount(s.replica_broker, s.leader_load[:, 0])
    assert load.tolist() == pytest.approx([140, 15])


def test_a_named_topology_has_its_name() -> None:
    s, _ = read(*(page.replace('task_id="', 'task_id="shop__') for page in streams_pages()))
    assert s.topics == ("shop-subtopology-0", "shop-subtopology-1")


def test_pages_of_others_and_missing_pages_are_errors() -> None:
    with pytest.raises(SnapshotError, match="no metrics of a thread of Kafka Streams"):
        read("up 1\n")
    with pytest.raises(SnapshotError, match="no task with a load"):
        read('kafka_streams_stream_thread_metrics_process_ratio{thread_id="a-StreamThread-1"} 0.5')
    with served({}) as url, pytest.raises(ReporterError, match="HTTP status 404 found"):
        read_kafka_streams([f"{url}/metrics"])
    with (
        served({"/m": "up 1\n"}, 5.0) as url,
        pytest.raises(ReporterError, match=r"timed out|not read completely"),
    ):
        read_kafka_streams([f"{url}/m"], timeout=0.2)


def run(*args: object) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_from_the_pages_to_an_assignment(tmp_path: Path) -> None:
    snapshot, file = tmp_path / "app.json", tmp_path / "assignments.json"
    first, second = streams_pages()
    with served({"/1": first, "/2": second}) as url:
        read_in = run("snapshot", "kafka-streams", f"{url}/1", f"{url}/2", "-o", snapshot)
    assert read_in.exit_code == 0, read_in.output
    assert "warning: 3 of 6 tasks report the size" in read_in.stderr
    run("propose", snapshot, "--strategy", "milp", "--assignments-json", file)
    assigned = json.loads(file.read_text())
    on_second = [
        load
        for name, (load, _) in loads(read(first, second)[0]).items()
        if assigned[name.rpartition("-")[0]][name[-1]] == SECOND
    ]
    # 140 and 15 before; even is 77.5.
    assert 65 <= sum(on_second) <= 90
    assert run("snapshot", "kafka-streams", "nowhere", "-o", snapshot).exit_code == 2
