"""Lists every reader of files and messages, with valid documents and a second check of results."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from balancer import Balancer, load_plan
from balancer.backtest.configuration import load_configurations
from balancer.composition.client import client_properties, java_properties
from balancer.controller.settings import Settings, as_settings, load_settings
from balancer.execution.journal import Journal, changed, planned, read_journal, throttles_left
from balancer.execution.targets import Target
from balancer.execution.tasks import make_tasks
from balancer.execution.throttle import ThrottleConfig
from balancer.planning.document import PlanDocument
from benchmarks.harness.mutation import corrupted, mutated_json, mutated_npz, npz
from cluster_model import Snapshot, load_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.capacities import as_capacities, load_capacities
from goals import load_goals
from metrics_reporter import encode
from metrics_reporter.exposition import parse
from metrics_reporter.prometheus import (
    DEFAULT_RULES,
    PrometheusOptions,
    Rulebook,
    load_prometheus,
    records_of,
)


class ReaderError(Exception):
    """A second reading disagrees with the reader's result."""


@dataclass(frozen=True)
class Reader:
    """A reader and its possible inputs.

    Parameters
    ----------
    name
        Name of the reader.
    suffix
        Suffix of its files.
    seeds
        Valid documents.
    read
        Reads a file and checks the result a second time; returns how many parts of it were skipped
        and counted.
    twist
        Breaks a document in ways that its format allows; None if it consists of bytes only.
    """

    name: str
    suffix: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], int]
    twist: Callable[[Random], bytes] | None = None

    def mutant(self, seed: int, number: int) -> bytes:
        """The same bytes for the same numbers."""
        dice = Random(f"{self.name} {seed} {number}")
        if self.twist is not None and dice.random() < 0.6:
            return self.twist(dice)
        return corrupted(dice, self.seeds)


def all_readers() -> dict[str, Reader]:
    """Readers by name."""
    snapshot = synthetic_snapshot(
        brokers=4, partitions=8, racks=2, topics=2, disks_per_broker=2, dead_brokers=1, seed=1
    )
    with TemporaryDirectory() as folder:
        json_file, npz_file, journal_file = (
            Path(folder, name) for name in ("s.json", "s.npz", "journal")
        )
        save_snapshot(snapshot, json_file)
        save_snapshot(snapshot, npz_file)
        snapshot_json = json_file.read_bytes()
        with np.load(npz_file) as arrays:
            snapshot_npz = npz(arrays)
        _write_journal(journal_file)
        journal = journal_file.read_bytes()
    plan = Balancer().propose(snapshot).document().model_dump(mode="json")
    plan["actions"] = plan["actions"][:5]
    lines = [json.loads(line) for line in journal.splitlines()]

    def twisted_journal(dice: Random) -> bytes:
        records = list(lines)
        at = dice.randrange(len(records))
        kind = dice.randrange(4)
        if kind == 0:
            records.insert(dice.randrange(len(records) + 1), records[at])
        elif kind == 1:
            del records[at]
        text = [json.dumps(r) for r in records]
        if kind > 1:
            text[at] = mutated_json(dice, records[at])
        return ("\n".join(text) + "\n").encode("utf-8", "surrogatepass")

    archive = Reader(
        "snapshot npz", ".npz", (snapshot_npz,), _snapshot, lambda d: mutated_npz(d, snapshot_npz)
    )
    found = [
        _document("snapshot json", ".json", json.loads(snapshot_json), _snapshot, snapshot_json),
        archive,
        _document("plan", ".json", plan, _plan),
        _document("goals yaml", ".yaml", _GOALS, _goals, yaml.safe_dump(_GOALS).encode()),
        Reader("goals toml", ".toml", (_GOALS_TOML,), _goals),
        _document("settings", ".yaml", _SETTINGS, _settings, yaml.safe_dump(_SETTINGS).encode()),
        _document("capacity", ".yaml", _CAPACITY, _capacity, yaml.safe_dump(_CAPACITY).encode()),
        _document("exporters", ".yaml", _EXPORTERS, _exporters,
                  yaml.safe_dump(_EXPORTERS).encode()),
        _document("configurations", ".yaml", _CONFIGURATIONS, _configurations),
        Reader("journal", "", (journal,), _journal, twisted_journal),
        Reader("client properties", ".properties", (_PROPERTIES,), _properties),
        Reader("prometheus text", ".txt", (_PAGE,), _page),
    ]  # fmt: skip
    return {reader.name: reader for reader in found}


def _document(
    name: str, suffix: str, content: Any, read: Callable[[Path], int], *seeds: bytes
) -> Reader:
    return Reader(
        name,
        suffix,
        (json.dumps(content).encode(), *seeds),
        read,
        lambda dice: mutated_json(dice, content).encode("utf-8", "surrogatepass"),
    )


def _same(found: Any, again: Any) -> int:
    if found != again:
        raise ReaderError(f"{found!r:.300} was accepted, {again!r:.300} found on a second reading")
    return 0


def _snapshot(path: Path) -> int:
    found = load_snapshot(path)
    if not isinstance(found, Snapshot) or np.any(found.broker_ids < 0):
        raise ReaderError("a snapshot with a broker below 0 was accepted")
    # In the other format, which shares the least code.
    other = path.with_name("again" + (".npz" if path.suffix == ".json" else ".json"))
    save_snapshot(found, other)
    return _same(found, load_snapshot(other))


def _plan(path: Path) -> int:
    found = load_plan(path)
    again = path.with_name("again.json")
    again.write_text(json.dumps(found.model_dump(mode="json"), allow_nan=False))
    same = load_plan(again)
    assert isinstance(same, PlanDocument)
    return _same(found, same)


def _goals(path: Path) -> int:
    found = load_goals(path)
    again = [{"goal": type(g).__name__, **g.model_dump(mode="json")} for g in found]
    return _same(found, load_goals({"goals": again}))


def _settings(path: Path) -> int:
    found = load_settings(path)
    assert isinstance(found, Settings)
    return _same(found, as_settings(found.model_dump(mode="json")))


def _capacity(path: Path) -> int:
    found = load_capacities(path)
    return _same(found, as_capacities(json.loads(found.model_dump_json()) or None))


def _exporters(path: Path) -> int:
    found = load_prometheus(path)
    return _same(found, PrometheusOptions.model_validate(found.model_dump()))


def _configurations(path: Path) -> int:
    names = [c.name for c in load_configurations(path)]
    return _same(len(names), len(set(names)))


def _journal(path: Path) -> int:
    found = read_journal(path)
    if found is None:
        raise ReaderError("no journal found where one is")
    again = path.with_name("again")
    journal = Journal(again)
    ended = [] if found.ended is None else [{"record": "end", "state": found.ended}]
    asked = [] if found.stop is None else [{"record": "stop", "rollback": found.stop != "stop"}]
    journal.begin(
        found.cluster,
        [
            *planned(found.targets, found.tasks.values()),
            *(changed(i, state, found.notes.get(i, "")) for i, state in found.states.items()),
            throttles_left(found.throttles),
            *asked,
            *([{"record": "adopted"}] if found.adopted else []),
            *([{"record": "back"}] if found.going_back else []),
            *ended,
        ],
    )
    journal.close()
    same = read_journal(again)
    assert same is not None
    for one in (found, same):
        one.notes = {i: note for i, note in one.notes.items() if note}
    return _same(found, same)


def _properties(path: Path) -> int:
    found = java_properties(path)
    client_properties(path)
    again = path.with_name("again.properties")
    again.write_text("".join(f"{k}={v}\n" for k, v in found.items()), encoding="utf-8")
    return _same(found, java_properties(again))


def _page(path: Path) -> int:
    text = path.read_bytes().decode("utf-8", "replace")
    samples, malformed = parse(text)
    stripped = (line.strip() for line in text.split("\n"))
    given = sum(bool(line) and not line.startswith("#") for line in stripped)
    _same(len(samples) + malformed, given)
    rulebook = Rulebook(DEFAULT_RULES, "topic", "partition")
    before, now = rulebook.read(0.0, samples[: len(samples) // 2]), rulebook.read(10.0, samples)
    for record in records_of(1, 1_700_000_000_000, before, now):
        if not all(np.isfinite(v) and v >= 0 for v in record.metrics.values()):
            raise ReaderError(f"{record} was reported")
        encode(record)
    return malformed


def _write_journal(path: Path) -> None:
    requested = [
        Target(topic="a", partition=0, origin=(0, 1), target=(0, 2), size=5.0),
        Target(topic="b", partition=1, origin=(0, 1), target=(1, 0), leader=1, place=1),
    ]
    tasks = make_tasks(requested)
    journal = Journal(path)
    journal.begin("cluster", planned(requested, tasks))
    throttle = ThrottleConfig(kind="broker", name="1", key="leader.replication.throttled.rate",
                       found=None, ours="1000")  # fmt: skip
    journal.append(throttles_left([throttle]))
    journal.append(*(changed(task.id, "in progress") for task in tasks))
    journal.append(changed(tasks[0].id, "completed"), changed(tasks[1].id, "dead", "broker 2 away"))
    journal.append({"record": "stop", "rollback": False}, {"record": "adopted"})
    journal.append({"record": "end", "state": "stopped"})
    journal.close()


_GOALS: dict[str, Any] = {
    "goals": [
        "RackAwareness",
        {"goal": "ResourceCapacity", "resource": "disk", "hard": True},
        {"goal": "UsageDistribution", "resource": "cpu", "threshold": 1.1, "weight": 2.0},
        {"goal": "ReplicaDistribution", "tier": 7},
    ]
}
_GOALS_TOML = b"""[[goals]]
goal = "ResourceCapacity"
resource = "disk"  # bytes
hard = true

[[goals]]
goal = "UsageDistribution"
resource = 'cpu'
weight = 2.5
"""
_SETTINGS: dict[str, Any] = {
    "execute": True,
    "interval": "30s",
    "max_moves": 100,
    "max_bytes": 1e12,
    "excluded_topics": ["^__", "a.*"],
    "goal_violations": {"margin": 0.1, "rounds": 3},
    "dead_brokers": {"heal_after": "45m", "max_failed": 2},
    "slow_brokers": {"signals": {"log_flush_time_ms_p999": 10.0}},
    "missing_replicas": {"topics": {"orders": 3}},
    "drained_brokers": {"brokers": [1, 2]},
    "webhooks": [{"url": "https://chat.example/hooks/1", "timeout": 2}],
}
_CAPACITY: dict[str, Any] = {
    "default": {"cpu": 800, "network_in": 1e9},
    "brokers": {"1": {"cpu": 1600}, "2": {"disk": 4e12}},
}
_EXPORTERS: dict[str, Any] = {
    "endpoints": {"1": "http://broker-1:7071/metrics", "2": "http://u:p@broker-2:7071/"},
    "metrics": [
        {"name": "acme_(a|b)_total", "metric": "bytes_in", "kind": "counter", "scale": 2.0},
        {"name": "c", "metric": "cpu", "where": {"env": "prod"}},
    ],
    "topic_label": "t",
}
_CONFIGURATIONS: dict[str, Any] = {
    "careful": {"goals": "default", "settings": {"max_moves": 10}, "seed": 1, "span": "1h"},
    "bold": {"goals": ["RackAwareness"], "statistic": "p95", "copy_rate": 1e8},
}
_PROPERTIES = rb"""# of a client
security.protocol=SASL_SSL
sasl.mechanism : SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="me" password="se\"cret";
ssl.truststore.type PEM
ssl.truststore.location=/etc/ca.pem
ssl.key.pem=-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----
"""
_PAGE = b"""# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total 1.5e9
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 1.2e9
kafka_log_log_size{topic="orders",partition="0"} 123456.0 1700000000000
kafka_log_log_logendoffset{topic="orders",partition="0"} 99
kafka_cluster_partition_replicascount{topic="orders",partition="0"} 3
process_cpu_seconds_total 77.25
process_start_time_seconds 1.7e9
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.999"} 12.5
odd{a="x\\"y\\\\z\\n"} NaN
"""


def rows_of(messages: list[bytes]) -> tuple[int, int]:
    """Messages as rows of the archive, decoded as Spark's workers do: records, and others."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from cluster_model.history.decode import decode_rows
    from cluster_model.history.schema import DECODED, MESSAGES

    n = len(messages)
    values: dict[str, Any] = {
        field.name: messages if field.name == "value" else ["c"] * n if pa.types.is_string(
            field.type) else list(range(n))
        for field in to_arrow_schema(MESSAGES)
    }  # fmt: skip
    schema = to_arrow_schema(MESSAGES)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(values[f.name]).cast(f.type) for f in schema], schema=schema
    )
    found = decode_rows(rows, None, to_arrow_schema(DECODED))
    file = io.BytesIO()
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_batches([found]), file)
    kept = pq.read_table(file).column("problem").to_pylist()
    if len(kept) != n:
        raise ReaderError(f"{len(kept)} rows found of {n} messages")
    others = sum(problem is not None for problem in kept)
    return n - others, others
