"""Order and limits of the tasks that are started."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.execution.cluster import Key
from balancer.execution.limits import TaskOrder
from balancer.execution.task_order import choose, copying, ordered
from balancer.execution.tasks import Task


def task(
    number: int, source: int, added: int, size: float = 0.0, partition: int | None = None
) -> Task:
    return Task(
        id=number, phase="move", topic="a", partition=number if partition is None else partition,
        origin=(source,), target=(added,), bytes=size,
    )  # fmt: skip


def loads(t: Task) -> set[int]:
    return copying(t, {t.key: t.origin[0]})


TASKS = st.lists(st.tuples(st.integers(0, 4), st.integers(5, 9)), max_size=30).map(
    lambda pairs: [task(n, a, b) for n, (a, b) in enumerate(pairs)]
)


@given(TASKS, st.integers(0, 6), st.integers(1, 4), st.integers(1, 12), st.booleans())
def test_no_limit_is_exceeded_and_nothing_waits_that_could_begin(
    tasks: list[Task], running: int, per_broker: int, cluster: int, spread: bool
) -> None:
    busy, waiting = tasks[:running], tasks[running:]
    chosen = choose(waiting, busy, loads, per_broker=per_broker, cluster=cluster, spread=spread)
    before = Counter(b for t in busy for b in loads(t))
    after = Counter(b for t in (*busy, *chosen) for b in loads(t))
    assert len(chosen) <= max(0, cluster - len(busy))
    assert all(after[b] <= max(per_broker, before[b]) for b in after)
    assert len({t.id for t in chosen}) == len(chosen)
    if len(busy) + len(chosen) < cluster:
        for t in waiting:
            assert t in chosen or any(after[b] >= per_broker for b in loads(t))


@given(TASKS, st.integers(1, 4))
def test_the_plans_order_is_kept_between_tasks_of_the_same_brokers(
    tasks: list[Task], per_broker: int
) -> None:
    chosen = choose(tasks, [], loads, per_broker=per_broker, cluster=100)
    for t in chosen:
        assert all(e in chosen for e in tasks if e.id < t.id and loads(e) == loads(t))
    unlimited = choose(tasks, [], loads, per_broker=100, cluster=100, spread=False)
    assert unlimited == tasks


def test_brokers_take_turns() -> None:
    crowded = [task(n, 0, 5) for n in range(5)]
    other = task(5, 1, 6)
    assert choose([*crowded, other], [], loads, per_broker=5, cluster=2) == [crowded[0], other]
    assert (
        choose([*crowded, other], [], loads, per_broker=5, cluster=2, spread=False) == crowded[:2]
    )


def test_one_move_of_a_partition_at_a_time() -> None:
    first, second = task(0, 0, 5), task(1, 1, 6, partition=0)
    assert choose([first, second], [], loads, per_broker=5, cluster=9) == [first]
    assert choose([second], [first], loads, per_broker=5, cluster=9) == []


def test_taking_replicas_away_occupies_nobody() -> None:
    removal = Task(id=0, phase="move", topic="a", partition=0, origin=(0, 1), target=(0,))
    assert loads(removal) == set()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((), [0, 1, 2, 3]),
        (("plan_order", "smallest_first"), [0, 1, 2, 3]),
        (("smallest_first",), [1, 3, 0, 2]),
        (("largest_first",), [2, 0, 1, 3]),
        (("under_min_isr_first",), [3, 0, 1, 2]),
        (("postpone_under_replicated", "largest_first"), [2, 1, 3, 0]),
    ],
)
def test_strategies_decide_one_after_the_other(
    order: tuple[TaskOrder, ...], expected: list[int]
) -> None:
    tasks = [task(n, 0, 5, size) for n, size in enumerate((20, 10, 30, 10))]
    found = ordered(tasks, order, under_min_isr={Key("a", 3)}, under_replicated={Key("a", 0)})
    assert [t.id for t in found] == expected
