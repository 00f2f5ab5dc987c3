"""The assignors that benchmarks of stateful tasks compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from balancer.assignment import ApplicationState, AssignmentConfigs, TaskAssignment, TaskAssignor
from balancer.assignment.simulation import Assignor
from benchmarks.registry import BenchmarkError
from benchmarks.subjects import kafka_streams
from benchmarks.subjects.kafka_streams import KafkaStreams, Kind

# The goals of the subject GOALS.
PROFILE = "stateful-tasks"
KAFKA, GOALS = "counterpoise, Kafka's target", "counterpoise, goals"
JVM, STICKY = f"{kafka_streams.NAME} (JVM)", "sticky, before KIP-441 (JVM)"


class _Upstream:
    """An assignor of Kafka Streams in a JVM, as one of ours."""

    kind: Kind = "high-availability"

    def __init__(self, jvm: KafkaStreams, configs: AssignmentConfigs) -> None:
        self._jvm, self._configs = jvm, configs

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        found = self._jvm.assign(state, self._configs, self.kind)
        return TaskAssignment(
            state=state,
            configs=self._configs,
            active=found.active,
            target=found.active,
            standby_task=found.standby_task,
            standby_instance=found.standby_instance,
            warmup=np.zeros(len(found.standby_task), np.bool_),
            movements=0,
            probing_rebalance=found.probing_rebalance,
        )


class _Sticky(_Upstream):
    """The assignor before KIP-441: it counts all state on disk as previous standbys."""

    kind: Kind = "sticky"

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        task = np.repeat(np.arange(state.n_tasks), np.diff(state.lag_offset))
        n = max(state.n_instances, 1)
        had = state.previous_task * n + state.previous_instance
        key, first = np.unique(
            np.concatenate([had, task * n + state.lag_instance]), return_index=True
        )
        active = np.concatenate([state.previous_active, np.zeros(len(task), np.bool_)])[first]
        return super().assign(
            replace(
                state,
                previous_task=key // n,
                previous_instance=key % n,
                previous_active=active,
            )
        )


@contextmanager
def task_assignors(
    names: Sequence[str], log: Callable[[str], None]
) -> Iterator[dict[str, Callable[[AssignmentConfigs], Assignor]]]:
    """Subject to the function that makes its assignor; without a JVM, those in one are left out."""
    with ExitStack() as stack:
        jvm: KafkaStreams | None = None
        if upstream := [name for name in names if name in (JVM, STICKY)]:
            try:
                jvm = stack.enter_context(KafkaStreams())
            except BenchmarkError as error:
                log(f"left out: {', '.join(upstream)} ({error})")
        makers: dict[str, Callable[[AssignmentConfigs], Assignor]] = {
            KAFKA: TaskAssignor,
            GOALS: partial(TaskAssignor, target=PROFILE),
        }
        if jvm is not None:
            makers |= {JVM: partial(_Upstream, jvm), STICKY: partial(_Sticky, jvm)}
        yield {name: makers[name] for name in names if name in makers}


def chosen_subjects(known: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The subjects asked for, in the order of those known; all if none is.

    Raises
    ------
    BenchmarkError
        For an unknown one.
    """
    for name in asked:
        if name not in known:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(known)}")
    return [name for name in known if not asked or name in asked]
