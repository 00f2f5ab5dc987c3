"""Our assignments against those that Kafka's own assignor made of random states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded_vectors import kafkas, load

from balancer.assignment import StateDocument, TaskAssignor, build_state
from benchmarks.harness.task_states import random_document
from benchmarks.subjects.kafka_streams import KafkaStreams
from benchmarks.tasks_parity import compare

VECTORS = load()


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_the_assignment_is_kafkas(number: int) -> None:
    vector = VECTORS[number]
    document = StateDocument.model_validate(vector["state"])
    found = TaskAssignor(document.configs).assign(build_state(document))
    by_instance = found.tasks_by_instance()
    ours: dict[str, Any] = {
        "active": {i: [*map(str, of["active"])] for i, of in by_instance.items()},
        "standby": {
            i: [*map(str, sorted(of["standby"] + of["warmup"]))] for i, of in by_instance.items()
        },
        "probing": found.probing_rebalance,
    }
    assert ours == {key: vector[key] for key in ours}


@pytest.mark.peer
def test_the_vectors_are_what_kafka_answers_today() -> None:
    with KafkaStreams() as kafka:
        for vector in VECTORS:
            found = kafkas(StateDocument.model_validate(vector["state"]), kafka)
            assert found == {key: vector[key] for key in found}


@pytest.mark.peer
def test_our_assignments_of_random_states_are_kafkas() -> None:
    with KafkaStreams() as kafka:
        for number in range(300):
            document = random_document(np.random.default_rng((15, number)))
            assert compare(document, kafka).difference == "", number
