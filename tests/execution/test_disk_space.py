"""A move that no longer fits on a disk is not started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from execution_cases import SIZE, FakeCluster, move, plan_of

from balancer.cli.execute import progress_texts
from balancer.controller.execution_progress import progress_record, progress_sentence
from balancer.execution import Executor, Limits, Outcome, Progress
from balancer.execution.cluster import HeldReplica, Key
from balancer.execution.disk_space import DiskSpace
from balancer.execution.tasks import Task
from cluster_model.log_dirs import FileSystem


def execute(cluster: FakeCluster, path: Path, *actions: Any, **limits: Any) -> Outcome:
    quick = {"progress_interval": 0.05, "task_timeout": 0.3} | limits
    running = Executor(
        "x:1", journal=path / "journal", limits=Limits(**quick), connect=lambda: cluster
    )
    return running.execute(plan_of(*actions))


def spaces(**usable: float) -> Mapping[int, Sequence[FileSystem]]:
    return {2: [FileSystem((f"/{name}",), free) for name, free in usable.items()]}


def task(number: int, size: float, *, log_dir: str | None = None, added: int = 2) -> Task:
    return Task(
        id=number, phase="move", topic="a", partition=number, origin=(0, 1), target=(0, added),
        dirs={} if log_dir is None else {added: log_dir}, bytes=size,
    )  # fmt: skip


def fit(room: Mapping[int, Sequence[FileSystem]], *tasks: Task, **more: Any) -> list[int]:
    found, _ = DiskSpace(lambda brokers: room, 1.0).fitting(
        tasks, more.get("running", ()), more.get("held", {}), 0.0
    )
    return [t.id for t in found]


def test_tasks_share_the_room_there_is_in_turn() -> None:
    assert fit(spaces(a=100), task(0, 60), task(1, 60), task(2, 40)) == [0, 2]
    assert fit(spaces(a=60, b=60), task(0, 50), task(1, 50), task(2, 50)) == [0, 1]


def test_the_room_is_that_of_the_directory_where_one_is_chosen() -> None:
    assert fit(spaces(a=10, b=60), task(0, 50, log_dir="/a"), task(1, 50, log_dir="/b")) == [1]
    shared = {2: [FileSystem(("/a", "/b"), 60)]}
    assert fit(shared, task(0, 50, log_dir="/a"), task(1, 50, log_dir="/b")) == [0]


def test_what_is_under_way_keeps_the_room_it_has_not_filled() -> None:
    begun = task(0, 80)
    half = {(Key("a", 0), 2): HeldReplica("/a", 50)}
    assert fit(spaces(a=100), task(1, 60), running=[begun]) == []
    assert fit(spaces(a=100), task(1, 60), running=[begun], held=half) == [1]


def test_of_a_broker_that_does_not_tell_everything_fits() -> None:
    assert fit(spaces(a=1), task(0, 60, added=3), task(1, 60, log_dir="/unknown")) == [0, 1]
    assert fit({}, task(0, 1e18)) == [0]


def test_a_task_waits_for_room_and_is_given_up_after_a_while() -> None:
    room = {2: [FileSystem(("/a",), 10.0)]}
    waiting = DiskSpace(lambda brokers: room, 1.0)
    one, two = task(0, 60), task(1, 5)
    assert waiting.fitting([one, two], (), {}, 0.0) == ([two], [])
    assert waiting.last([one, two]) == [two, one]
    room[2] = [FileSystem(("/a",), 100.0)]
    assert waiting.fitting([one], (), {}, 0.9) == ([one], [])
    room[2] = [FileSystem(("/a",), 10.0)]
    assert waiting.fitting([one], (), {}, 1.5) == ([], [])
    ((given_up, decision),) = waiting.fitting([one], (), {}, 2.6)[1]
    assert given_up == one
    assert decision.state == "cancelled"
    assert decision.note == "60 B do not fit on broker 2, which has 10 B free"


def test_an_execution_begins_only_what_fits_and_ends(tmp_path: Path) -> None:
    cluster = FakeCluster({Key("a", n): (0, 1) for n in range(2)})
    cluster.space = {2: [FileSystem(("/d",), SIZE / 2)], 3: [FileSystem(("/d",), SIZE)]}
    outcome = execute(cluster, tmp_path, move("a", 0, 1, 2), move("a", 1, 1, 3))
    assert (outcome.completed, outcome.cancelled) == (1, 1)
    assert cluster.asked == [(Key("a", 1), (0, 3))]
    assert any("do not fit on broker 2, which has 50 B free" in p for p in outcome.problems)


def test_the_progress_tells_how_many_tasks_wait_for_room(tmp_path: Path) -> None:
    cluster = FakeCluster({Key("a", n): (0, 1) for n in range(3)}, looks=4)
    cluster.space = {2: [FileSystem(("/d",), SIZE / 2)]}
    reported: list[Progress] = []
    limits = Limits(progress_interval=0.05, task_timeout=0.3)
    Executor("x:1", journal=tmp_path / "journal", limits=limits, connect=lambda: cluster).execute(
        plan_of(move("a", 0, 1, 2), move("a", 1, 1, 2), move("a", 2, 1, 3)),
        progress=reported.append,
    )
    waiting = [p for p in reported if p.waiting]
    assert waiting[0].waiting == 2
    assert waiting[0].waits_for == "room: 100 B do not fit on broker 2, which has 50 B free"
    assert reported[-1].waiting == 0
    text, _ = progress_texts(waiting[0])
    assert text.endswith("2 waiting for room: 100 B do not fit on broker 2, which has 50 B free")
    assert "2 waiting for room: 100 B do not fit" in progress_sentence(waiting[0])
    assert progress_record(waiting[0])["tasks_waiting"] == 2


def test_the_progress_tells_of_moves_held_back_by_partitions_under_min_isr(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster({Key("a", 0): (0, 1), Key("b", 0): (0, 1)})
    cluster.min_isr_of, cluster.out_of_sync = {"b": 2}, {Key("b", 0): {1}}
    reported: list[Progress] = []
    limits = Limits(progress_interval=0.05, task_timeout=0.3)
    Executor("x:1", journal=tmp_path / "journal", limits=limits, connect=lambda: cluster).execute(
        plan_of(move("a", 0, 1, 2)), progress=reported.append
    )
    assert (reported[0].waiting, reported[0].waits_for) == (1, "partitions under min ISR")


def test_room_that_is_made_meanwhile_is_used(tmp_path: Path) -> None:
    cluster = FakeCluster({Key("a", n): (0, 1) for n in range(2)})
    cluster.space = {2: [FileSystem(("/d",), SIZE / 2)]}

    def clean(found: FakeCluster) -> None:
        if found.replicas[Key("a", 1)] == (0, 3):
            found.space = {2: [FileSystem(("/d",), 2 * SIZE)]}

    cluster.on_view = clean
    outcome = execute(cluster, tmp_path, move("a", 0, 1, 2), move("a", 1, 1, 3), task_timeout=20.0)
    assert outcome.state == "done"
    assert cluster.replicas == {Key("a", 0): (0, 2), Key("a", 1): (0, 3)}
