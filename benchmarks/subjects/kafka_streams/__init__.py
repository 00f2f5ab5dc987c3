"""Runs the assignors of Kafka Streams, as Apache released them, in one JVM."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

import numpy as np

from balancer.assignment import ApplicationState, AssignmentConfigs
from benchmarks.harness.brokers import real_kafka
from benchmarks.registry import BenchmarkError
from cluster_model.snapshot import Ints

NAME = "kafka-streams"
Kind = Literal["high-availability", "fallback", "sticky"]

_HERE = Path(__file__).parent
_CLASS = "org.apache.kafka.streams.processor.internals.assignment.AssignTasks"
_KINDS: Mapping[Kind, int] = {"high-availability": 0, "fallback": 1, "sticky": 2}
_STRATEGIES = {"none": 0, "min_traffic": 1, "balance_subtopology": 2}
_JVM = ("-Xmx3g", "-XX:+UseSerialGC", "-XX:-UsePerfData")


@dataclass(frozen=True, eq=False)
class KafkaAssignment:
    """What an assignor of Kafka Streams answered.

    Parameters
    ----------
    active : (T,) int
        Index of the instance that runs each task.
    standby_task, standby_instance : (S,) int
        The standby tasks, warm-ups among them, sorted by task, then instance.
    probing_rebalance
        Whether it asks for a probing rebalance.
    seconds, processor_seconds
        Time of its ``assign`` alone, and of the processor in it.
    """

    active: Ints
    standby_task: Ints
    standby_instance: Ints
    probing_rebalance: bool
    seconds: float
    processor_seconds: float


class KafkaStreams:
    """A JVM with Kafka's assignors; a context manager.

    Raises
    ------
    BenchmarkError
        Without Java, its compiler or Maven, or if it breaks off.
    """

    def __init__(self) -> None:
        command = [*_java(), _CLASS]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def assign(
        self,
        state: ApplicationState,
        configs: AssignmentConfigs,
        kind: Kind | None = None,
    ) -> KafkaAssignment:
        """Have one of Kafka's assignors assign the tasks of an application.

        By default the one that Kafka calls: ``fallback`` without end offsets.

        Raises
        ------
        BenchmarkError
            If it refuses, with its message.
        """
        if kind is None:
            kind = "high-availability" if state.offsets_known else "fallback"
        writer, reader = self._process.stdin, self._process.stdout
        if writer is None or reader is None:
            raise BenchmarkError(f"{NAME} has no input or output")
        try:
            writer.write(_request(state, configs, _KINDS[kind]))
            writer.flush()
            return _answer(reader, state)
        except (BrokenPipeError, EOFError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").splitlines()
            said = [line for line in lines if line and not line.startswith("SLF4J")]
            raise BenchmarkError(f"{NAME} ended: {said[0] if said else 'no output'}") from None


def _java() -> list[str]:
    """The command up to the class, which is compiled on first use."""
    kafka = real_kafka()
    try:
        class_path = kafka.class_path(_HERE / "pom.xml")
        java = kafka.java()
    except kafka.RealKafkaError as error:
        raise BenchmarkError(str(error)) from None
    javac = shutil.which("javac")
    if javac is None:
        raise BenchmarkError(f"{NAME} is driven by a class to compile: put `javac` on the PATH")
    source = _HERE / "AssignTasks.java"
    cache = Path(os.environ.get("COUNTERPOISE_CACHE") or "~/.cache/counterpoise").expanduser()
    digest = hashlib.sha256(source.read_bytes() + class_path.encode()).hexdigest()[:12]
    classes = cache / f"assign-tasks-{digest}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            fresh = Path(scratch) / "classes"
            done = subprocess.run(
                [javac, "-cp", class_path, "-d", str(fresh), str(source)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                said = (done.stdout + done.stderr).strip().splitlines()
                raise BenchmarkError(f"{source.name} could not be compiled: {said[:1]}")
            try:
                # In one step, so that a second run never finds half of it.
                fresh.rename(classes)
            except OSError:
                if not classes.exists():
                    raise
    return [java, *_JVM, "-cp", os.pathsep.join((str(classes), class_path))]


def _request(state: ApplicationState, configs: AssignmentConfigs, kind: int) -> bytes:
    """A state as AssignTasks.java reads it: big-endian ints, and longs for offsets."""
    tags = {
        tag: k for k, tag in enumerate(sorted({*state.tags, *configs.rack_aware_assignment_tags}))
    }
    out = bytearray()

    def ints(*values: int) -> None:
        out.extend(struct.pack(f">{len(values)}i", *values))

    def long(value: int) -> None:
        out.extend(struct.pack(">q", value))

    traffic = configs.rack_aware_assignment_traffic_cost
    non_overlap = configs.rack_aware_assignment_non_overlap_cost
    ints(kind)
    long(configs.acceptable_recovery_lag)
    ints(configs.max_warmup_replicas, configs.num_standby_replicas)
    ints(_STRATEGIES[configs.rack_aware_assignment_strategy])
    ints(-1 if traffic is None else traffic, -1 if non_overlap is None else non_overlap)
    named = configs.rack_aware_assignment_tags
    ints(len(named), *(tags[tag] for tag in named))

    ints(state.n_instances, *state.capacity.tolist())
    rack = state.rack.tolist() if len(state.rack) else [-1] * state.n_instances
    values = {tag: sorted({v for v in state.tags[tag] if v is not None}) for tag in state.tags}
    for i in range(state.n_instances):
        own = [
            (tags[tag], values[tag].index(value))
            for tag, column in state.tags.items()
            if (value := column[i]) is not None
        ]
        ints(rack[i], len(own), *(number for pair in own for number in pair))

    ints(state.n_tasks)
    unknown = (frozenset([-1]),)
    for t in range(state.n_tasks):
        ints(int(state.subtopology[t]), int(state.partition[t]), int(state.stateful[t]))
        long(int(state.end_offset[t]))
        sources = state.sources[t] if state.sources else unknown
        changelogs = state.changelogs[t] if state.changelogs else unknown
        for read in (sources, changelogs if state.stateful[t] else ()):
            ints(len(read))
            for partition in read:
                racks = sorted(partition) or [-1]
                ints(len(racks), *racks)

    lags = np.empty(len(state.lag), np.dtype([("t", ">i4"), ("i", ">i4"), ("lag", ">i8")]))
    lags["t"] = np.repeat(np.arange(state.n_tasks), np.diff(state.lag_offset))
    lags["i"], lags["lag"] = state.lag_instance, state.lag
    ints(len(lags))
    out.extend(lags.tobytes())
    previous = {
        (t, i): active
        for t, i, active in zip(
            state.previous_task.tolist(),
            state.previous_instance.tolist(),
            state.previous_active.tolist(),
            strict=True,
        )
    }
    # To Kafka an instance with state on disk had a standby.
    on_disk = zip(lags["t"].tolist(), lags["i"].tolist(), strict=True)
    previous = {**dict.fromkeys(on_disk, False), **previous}
    ints(len(previous))
    out.extend(np.array([(t, i, a) for (t, i), a in previous.items()], ">i4").tobytes())
    return bytes(out)


def _read(reader: IO[bytes], size: int) -> bytes:
    found = reader.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _answer(reader: IO[bytes], state: ApplicationState) -> KafkaAssignment:
    (probing,) = struct.unpack(">i", _read(reader, 4))
    if probing < 0:
        (length,) = struct.unpack(">H", _read(reader, 2))
        raise BenchmarkError(f"{NAME} refuses: {_read(reader, length).decode()}")
    elapsed, processor = struct.unpack(">qq", _read(reader, 16))
    active = np.full(state.n_tasks, -1)
    standbys: list[Ints] = [np.zeros((0, 2), np.int64)]
    for i in range(state.n_instances):
        for is_active in (True, False):
            (count,) = struct.unpack(">i", _read(reader, 4))
            tasks = np.frombuffer(_read(reader, 4 * count), ">i4").astype(np.int64)
            if is_active:
                active[tasks] = i
            else:
                standbys.append(np.stack((tasks, np.full(count, i)), 1))
    pairs = np.concatenate(standbys)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    return KafkaAssignment(
        active, pairs[:, 0], pairs[:, 1], bool(probing), elapsed / 1e9, processor / 1e9
    )
