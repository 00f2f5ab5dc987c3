"""Random states, and what Kafka's own assignor makes of them; a program that records them.

python tests/assignment/recorded_vectors.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from balancer.assignment import StateDocument, build_state

PATH = Path(__file__).with_name("recorded_vectors.json")
# Small states, so that one can be followed by hand.
MAX_CHARACTERS = 3_000
NUMBER = 120
# A larger one, in which Kafka's queue does not return the least loaded instance.
QUEUE_ORDER = (78, 5117)


def load() -> list[dict[str, Any]]:
    """The vectors: a ``state``, and Kafka's ``active``, ``standby`` and ``probing`` for it."""
    vectors: list[dict[str, Any]] = json.loads(PATH.read_text())["vectors"]
    return vectors


def record() -> None:
    """Have Kafka assign the tasks of random states, and write the file."""
    from benchmarks.harness.task_states import random_document
    from benchmarks.subjects.kafka_streams import KafkaStreams

    vectors: list[dict[str, Any]] = []
    with KafkaStreams() as kafka:
        number = 0
        while len(vectors) < NUMBER:
            document = random_document(np.random.default_rng((14, number)))
            number += 1
            record = document.model_dump(mode="json", exclude_defaults=True)
            if len(json.dumps(record)) <= MAX_CHARACTERS and document.tasks:
                vectors.append({"state": record, **kafkas(document, kafka)})
        document = random_document(np.random.default_rng(QUEUE_ORDER))
        record = document.model_dump(mode="json", exclude_defaults=True)
        vectors.append({"state": record, **kafkas(document, kafka)})
    source = (
        "HighAvailabilityTaskAssignor of kafka-streams 4.3.1, and its FallbackPriorTaskAssignor "
        "where offsets are not known, driven by benchmarks/subjects/kafka_streams"
    )
    lines = ",\n".join(json.dumps(vector) for vector in vectors)
    PATH.write_text(f'{{"source": {json.dumps(source)}, "vectors": [\n{lines}\n]}}\n')


def kafkas(document: StateDocument, kafka: Any) -> dict[str, Any]:
    """Kafka's assignment in the form of the file."""
    state = build_state(document)
    found = kafka.assign(state, document.configs)
    ids = [str(state.task(t)) for t in range(state.n_tasks)]
    standby: dict[str, list[str]] = {i: [] for i in state.instances}
    for t, i in zip(found.standby_task.tolist(), found.standby_instance.tolist(), strict=True):
        standby[state.instances[i]].append(ids[t])
    return {
        "active": {
            i: [ids[t] for t in np.flatnonzero(found.active == n).tolist()]
            for n, i in enumerate(state.instances)
        },
        "standby": standby,
        "probing": found.probing_rebalance,
    }


if __name__ == "__main__":
    record()
