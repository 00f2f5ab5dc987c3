"""A recorded Kafka Streams application: loads of its tasks from the pages of its instances."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from stream_job_cases import served, streams_pages

from cluster_model import Snapshot, SnapshotError
from cluster_model.kafka_streams import read_kafka_streams
from metrics_reporter import ReporterError
from metrics_reporter.exposition import parse

PREFIX = "kafka_streams_stream_"
OF_TASK = f"{PREFIX}task_metrics_process"
LATENCY, RATE = f"{OF_TASK}_latency_avg", f"{OF_TASK}_rate"
OF_THREAD = f"{PREFIX}thread_metrics_process"
RATIO = f"{PREFIX}task_metrics_active_process_ratio"
CONSUMED = f"{PREFIX}topic_metrics_records_consumed"
STORES = f"{PREFIX}state_metrics_num_open_iterators"
FILES = f"{PREFIX}state_metrics_total_sst_files_size"
MEMORY = f"{PREFIX}state_metrics_cur_size_all_mem_tables"
# Two instances record at level debug, the third at Kafka's default.
DEBUG, INFO = streams_pages()[:2], streams_pages()[2]


def recorded(page: str, name: str) -> dict[tuple[str, str], float]:
    """A metric of a page by thread and task."""
    return {
        (labels["thread_id"], labels.get("task_id", "")): value
        for found, labels, value, _ in parse(page)[0]
        if found == name
    }


def client(page: str) -> str:
    """The id of the client of a page."""
    (id_,) = {thread.rpartition("-Stream")[0] for thread, _ in recorded(page, f"{OF_THREAD}_rate")}
    return id_


FIRST, SECOND, THIRD = map(client, streams_pages())


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


def named(task: str) -> str:
    """A task by its subtopology and partition."""
    return "subtopology-{}-{}".format(*task.split("_"))


def test_every_active_task_has_its_instance_and_a_load() -> None:
    s, _ = read(*streams_pages())
    assert s.broker_ids.tolist() == sorted((FIRST, SECOND, THIRD))
    assert s.capacity.tolist() == [[200.0]] * 3
    # There is a standby copy of each store too: subtopology 1 is on two instances.
    assert sorted(loads(s)) == [f"subtopology-{i}-{j}" for i in range(2) for j in range(6)]
    for page in streams_pages():
        active = {named(task) for _, task in recorded(page, CONSUMED)}
        assert active == {name for name, (_, at) in loads(s).items() if at == client(page)}
    assert (s.leader_load > 0).all()
    assert s.creatable.all()
    assert not len(s.traffic_rate)


def test_loads_at_level_debug_are_the_time_that_each_task_took() -> None:
    found = loads(read(*streams_pages())[0])
    for page in DEBUG:
        latency, rate = recorded(page, LATENCY), recorded(page, RATE)
        assert latency.keys() == rate.keys()
        assert rate
        for thread, ratio in recorded(page, f"{OF_THREAD}_ratio").items():
            of_thread = [task for task in rate if task[0] == thread[0]]
            for task in of_thread:
                percent = latency[task] / 1e9 * rate[task] * 100
                assert found[named(task[1])][0] == pytest.approx(percent, abs=1e-6)
            # What a thread itself measures has what it does between two records too.
            total = sum(found[named(task)][0] for _, task in of_thread)
            assert 0.5 * ratio < total / 100 < 1.05 * ratio


def test_loads_at_level_info_are_the_time_of_the_thread_by_consumed_records() -> None:
    s, said = read(*streams_pages())
    consumed = recorded(INFO, CONSUMED)
    # What is recorded at level debug is there all the same, as if no task did anything.
    assert set(recorded(INFO, RATE).values()) == {0.0}
    found = loads(s)
    for thread, latency in recorded(INFO, f"{OF_THREAD}_latency_avg").items():
        percent = latency / 1e3 * recorded(INFO, f"{OF_THREAD}_rate")[thread] * 100
        of_thread = {task: n for (of, task), n in consumed.items() if of == thread[0]}
        for task, records in of_thread.items():
            share = records / sum(of_thread.values())
            assert found[named(task)][0] == pytest.approx(percent * share, abs=1e-6)
    assert said == [
        f"the loads of {len(consumed)} of 12 tasks are estimated from the records that they have "
        "consumed; metrics.recording.level=DEBUG measures them"
    ]


def test_a_thread_with_one_task_needs_no_estimate() -> None:
    (task, *others) = sorted(task for _, task in recorded(INFO, CONSUMED))
    page = INFO
    for other in others:
        page = "\n".join(line for line in page.splitlines() if f'task_id="{other}"' not in line)
    s, said = read(page)
    assert said == []
    (thread,) = (of for of, id_ in recorded(INFO, CONSUMED) if id_ == task)
    percent = (
        recorded(INFO, f"{OF_THREAD}_latency_avg")[thread, ""]
        * recorded(INFO, f"{OF_THREAD}_rate")[thread, ""]
        / 10
    )
    assert s.broker_ids.tolist() == [THIRD]
    assert s.leader_load[:, 0].tolist() == pytest.approx([percent])


@pytest.mark.parametrize("value", ["0.0", "1.0", "NaN"])
def test_the_ratio_of_the_last_iteration_is_not_a_load(value: str) -> None:
    # Within seconds, a recorded application reported all three for the same task.
    pages = [re.sub(rf"(?m)^({RATIO}{{.*}}) .*$", rf"\1 {value}", p) for p in streams_pages()]
    assert pages != streams_pages()
    assert loads(read(*pages)[0]) == loads(read(*streams_pages())[0])


def test_the_state_of_a_task_is_that_of_its_stores() -> None:
    s, _ = read(*streams_pages())
    sizes = dict(zip(loads(s), s.state_size.tolist(), strict=True))
    for page in streams_pages():
        files, memory = recorded(page, FILES), recorded(page, MEMORY)
        # More stores than active tasks: there are standby copies, which do not count.
        active = {task: value for task, value in files.items() if task in recorded(page, CONSUMED)}
        assert len(active) < len(files)
        for task, size in active.items():
            assert size > 0
            assert sizes[named(task[1])] == size + memory[task]
    # Subtopology 0 has no store.
    assert {name for name, size in sizes.items() if not size} == {
        f"subtopology-0-{i}" for i in range(6)
    }


def of_memory(page: str) -> str:
    """The page with a store in memory, which reports no size, beside each in RocksDB."""
    lines = [line for line in page.splitlines() if line.startswith(STORES)]
    store, another = 'rocksdb_state_id="totals"', 'in_memory_state_id="recent"'
    return "\n".join([page, *(line.replace(store, another) for line in lines)])


@pytest.mark.parametrize(("change", "sized"), [(of_memory, 6), (lambda p: without(p, STORES), 6)])
def test_a_store_of_unknown_size_is_not_empty(change: Callable[[str], str], sized: int) -> None:
    s, said = read(*map(change, streams_pages()))
    assert not len(s.state_size)
    assert said[1] == (
        f"{sized} of 12 tasks report the size of their state; as those of the others are unknown, "
        "every move costs the same"
    )


def test_an_idle_task_has_no_load_and_an_unknown_load_is_not_zero() -> None:
    first = DEBUG[0]
    (thread, task) = min(recorded(first, RATE))
    labels = f'{{task_id="{task}",thread_id="{thread}"}}'
    idle = f"{without(without(first, LATENCY, task), RATE, task)}\n{RATE}{labels} 0.0"
    s, _ = read(f"{idle}\n{LATENCY}{labels} NaN\n")
    assert loads(s)[named(task)] == (0.0, FIRST)
    # Neither its own latency nor that of its thread.
    nothing = without(without(first, LATENCY, task), OF_THREAD)
    s, said = read(nothing)
    of_thread = {named(id_) for of, id_ in recorded(first, RATE) if of == thread}
    assert not of_thread & loads(s).keys()
    assert said[0].startswith(f"{len(of_thread)} of {len(recorded(first, RATE))} tasks (such as ")


def test_names_with_the_end_of_a_counter_are_known_too() -> None:
    page = INFO.replace(CONSUMED, f"{CONSUMED}_total")
    assert loads(read(page)[0]) == loads(read(INFO)[0])


def test_malformed_lines_are_counted_and_skipped() -> None:
    thread = f'thread_id="{FIRST}-StreamThread-1"'
    lines = [f'{RATE}{{task_id="{task}",{thread}}} {n}' for task, n in (("0-9", 1), ("0_9", -1))]
    s, said = read("\n".join([f"{DEBUG[0]}nonsense", *lines]), DEBUG[1])
    assert s.n_partitions == sum(len(recorded(page, RATE)) for page in DEBUG)
    assert said == ["3 malformed metrics skipped"]


IDLE = f'{OF_THREAD}_rate{{thread_id="new-StreamThread-1"}} 0.0\n'


def test_a_task_counts_once_and_idle_instances_count_too() -> None:
    s, _ = read(*streams_pages(), IDLE)
    assert s.n_partitions == 12
    assert s.broker_ids.tolist() == [*sorted((FIRST, SECOND, THIRD)), "new"]
    assert s.capacity.tolist() == [[200.0], [200.0], [200.0], [100.0]]
    here, there = (min(recorded(page, RATE))[1] for page in DEBUG)
    s, said = read(DEBUG[0], DEBUG[1].replace(f'"{there}"', f'"{here}"'))
    assert "1 task reported by two threads, of which one counts" in said
    assert len(loads(s)) == s.n_partitions


def test_instances_with_one_client_id_stay_apart_and_an_address_counts_once() -> None:
    first, second = (page.replace(client(page), "shop") for page in DEBUG)
    with served({"/1": first, "/2": second}) as url:
        s = read_kafka_streams([f"{url}/1", f"{url}/2", f"{url}/1"])
    assert s.broker_ids.tolist() == [f"shop ({url}/1)", f"shop ({url}/2)"]
    assert s.capacity.tolist() == [[200.0], [200.0]]
    tasks = np.bincount(s.replica_broker)
    assert tasks.tolist() == [len(recorded(page, RATE)) for page in DEBUG]


def test_a_named_topology_has_its_name() -> None:
    s, _ = read(*(page.replace('task_id="', 'task_id="shop__') for page in streams_pages()))
    assert s.topics == ("shop-subtopology-0", "shop-subtopology-1")


def test_pages_of_others_and_missing_pages_are_errors() -> None:
    with pytest.raises(SnapshotError, match="no metrics of a thread of Kafka Streams"):
        read("up 1\n")
    with pytest.raises(SnapshotError, match="no task with a load"):
        read(IDLE)
    with served({}) as url, pytest.raises(ReporterError, match="HTTP status 404 found"):
        read_kafka_streams([f"{url}/metrics"])
    with (
        served({"/m": "up 1\n"}, 5.0) as url,
        pytest.raises(ReporterError, match=r"timed out|not read completely"),
    ):
        read_kafka_streams([f"{url}/m"], timeout=0.2)


def run(*args: object) -> Any:
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_from_the_pages_to_an_assignment(tmp_path: Path) -> None:
    snapshot, file = tmp_path / "app.json", tmp_path / "assignments.json"
    pages = [*streams_pages(), IDLE]
    with served({f"/{i}": page for i, page in enumerate(pages)}) as url:
        urls = [f"{url}/{i}" for i in range(len(pages))]
        read_in = run("snapshot", "kafka-streams", *urls, "-o", snapshot)
    assert read_in.exit_code == 0, read_in.output
    assert f"warning: the loads of {len(recorded(INFO, CONSUMED))} of 12 tasks" in read_in.stderr
    run("propose", snapshot, "--strategy", "milp", "--assignments-json", file)
    assigned = json.loads(file.read_text())
    nodes = {f"{name}-{i}": node for name, of in assigned.items() for i, node in of.items()}
    before = loads(read(*streams_pages())[0])
    assert nodes.keys() == before.keys()
    assert set(nodes.values()) == {FIRST, SECOND, THIRD, "new"}
    percent = dict.fromkeys((FIRST, SECOND, THIRD, "new"), 0.0)
    for name, node in nodes.items():
        percent[node] += before[name][0]
    # The new instance has one thread, the others have two.
    mean = sum(percent.values()) / 7
    assert percent["new"] == pytest.approx(mean, rel=0.5)
    assert run("snapshot", "kafka-streams", "nowhere", "-o", snapshot).exit_code == 2
