"""Compares our assignment of stream tasks with Kafka's own on random states."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    StateDocument,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    build_state,
)
from benchmarks.harness.task_states import random_document
from benchmarks.registry import Options, Row, benchmark
from benchmarks.subjects.kafka_streams import NAME, KafkaAssignment, KafkaStreams

_NAME = "tasks-parity"
_STATES = {"S": 2_000, "M": 20_000, "L": 200_000}
_OURS = "counterpoise"
_REPORTED_EVERY = 2_000
# States that are listed.
_LISTED = 10


@benchmark(_NAME, sizes=tuple(_STATES))
def tasks_parity(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Random states of stream applications: is our assignment the one that Kafka makes?

    With numba, the assignment of compiled loops is compared too.
    """
    for size in sizes:
        count = options.rounds or _STATES[size]
        differ: Counter[str] = Counter()
        total: Counter[str] = Counter()
        listed, ours, theirs = 0, 0.0, 0.0
        compiled = True
        try:
            TaskAssignor(compiled=True)
        except TaskAssignmentError as error:
            compiled = False
            options.log(f"left out: compiled loops ({error})")
        with KafkaStreams() as kafka:
            for number in range(count):
                document = random_document(np.random.default_rng((options.seed, number)))
                found = compare(document, kafka, compiled=compiled)
                ours += found.seconds
                theirs += found.kafka_seconds
                for kind in ("all", found.kind):
                    total[kind] += 1
                    differ[kind] += bool(found.difference)
                if found.difference:
                    listed += 1
                    if listed <= _LISTED:
                        state = document.model_dump_json(exclude_defaults=True)
                        options.log(f"state {number}: {found.difference}\n{state}")
                if (number + 1) % _REPORTED_EVERY == 0:
                    options.log(f"{number + 1} states, {listed} differ")
        for kind in sorted(total):
            yield Row(_NAME, size, _OURS, f"states, {kind}", total[kind], "")
            yield Row(_NAME, size, _OURS, f"differ, {kind}", differ[kind], "")
        yield Row(_NAME, size, _OURS, "processor time", ours, "s")
        yield Row(_NAME, size, NAME, "processor time", theirs, "s")


class Comparison:
    """Our assignment of a state next to Kafka's.

    Parameters
    ----------
    state, configs
        What is assigned.
    kafka
        Kafka's assignors.
    compiled
        Whether to compare also what compiled loops assign.

    Attributes
    ----------
    kind
        The strategy of rack awareness, and whether tags count; ``fallback`` without end offsets.
    difference
        The first thing that differs, in words; empty if nothing does.
    seconds, kafka_seconds
        Processor time of either assignment.
    """

    def __init__(
        self,
        state: ApplicationState,
        configs: AssignmentConfigs,
        kafka: KafkaStreams,
        *,
        compiled: bool = False,
    ) -> None:
        tags = ", tags" if configs.rack_aware_assignment_tags else ""
        self.kind = f"{configs.rack_aware_assignment_strategy}{tags}"
        if not state.offsets_known:
            self.kind = "fallback"
        theirs = kafka.assign(state, configs)
        start = time.process_time()
        ours = TaskAssignor(configs).assign(state)
        self.seconds = time.process_time() - start
        self.kafka_seconds = theirs.processor_seconds
        self.difference = _difference(state, ours, theirs)
        if compiled and not self.difference:
            found = _difference(state, TaskAssignor(configs, compiled=True).assign(state), theirs)
            self.difference = found and f"compiled: {found}"


def _difference(state: ApplicationState, ours: TaskAssignment, theirs: KafkaAssignment) -> str:
    """The first thing that differs, in words; empty if nothing does."""
    pairs = [
        {*zip(a.standby_task.tolist(), a.standby_instance.tolist(), strict=True)}
        for a in (ours, theirs)
    ]
    elsewhere = np.flatnonzero(ours.active != theirs.active)
    if len(elsewhere):
        t = int(elsewhere[0])
        here, there = (state.instances[a.active[t]] for a in (ours, theirs))
        return f"{state.task(t)} is active on {here}, with Kafka on {there}"
    if pairs[0] != pairs[1]:
        t, i = min(pairs[0] ^ pairs[1])
        who = "ours" if (t, i) in pairs[0] else "Kafka's"
        return f"only {who} has a standby of {state.task(t)} on {state.instances[i]}"
    if ours.probing_rebalance != theirs.probing_rebalance:
        return f"probing rebalance: {ours.probing_rebalance}, Kafka's differs"
    return ""


def compare(document: StateDocument, kafka: KafkaStreams, *, compiled: bool = False) -> Comparison:
    """Assign the tasks of a document, and have Kafka assign them."""
    return Comparison(build_state(document), document.configs, kafka, compiled=compiled)
