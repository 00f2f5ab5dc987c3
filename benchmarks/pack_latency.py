"""Latency of groups that are packed every 30 s, by the model of two queues (seed 000, VI-C)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.allocation.packing.modified_any_fit import modified_any_fit
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from balancer.allocation.packing.repair import repair
from balancer.autoscaling.group import Group
from balancer.autoscaling.latency import (
    FewestConsumers,
    Stretches,
    TwoQueues,
    fewest_consumers,
    together,
    usable_capacity,
)
from balancer.problem.deadline import Deadline
from benchmarks.harness.figures import Panel, chosen, draw, stated
from benchmarks.harness.write_speeds import write_speeds
from benchmarks.registry import Options, Row, benchmark
from cluster_model.snapshot import Floats, Ints

_NAME = "pack-latency"
_PARTITIONS, _MEASUREMENTS, _DELTA = 32, 100, 5
_GENERATED = 5
_INTERVAL, _REBALANCE = 30.0, 5.0
# The bins of the packing, and what a consumer really reads: the ratio in the authors' program. The
# text derives 6/5, with which the bins are larger.
_CAPACITY, _READS = 100.0, 133.0
_USABLE = usable_capacity(_READS, _INTERVAL, _REBALANCE)
# The exact reference, and how long it may take for a measurement.
_EXACT, _EXACT_SECONDS = "exact", 1.0
# GitHub, landaudiogo/kafka-consumer-group-autoscaler (test/monitor_sequence): the stream behind
# the paper's Figures 5 to 8.
_STREAM = Path(__file__).parent / "published" / "write-speeds-delta5.json"
_PRICES = (0.5, 0.65, 1.0, 2.0)

# Packs a measurement: write speeds, and the consumer of each partition before.
_Pack = Callable[[Floats, Ints], Ints]


def _packing(speed: Floats, owner: Ints, capacity: float = _CAPACITY) -> Packing:
    return Packing(size=speed[:, None], owner=owner, capacity=np.array([capacity]))


def _modified(capacity: float, speed: Floats, owner: Ints) -> Ints:
    return modified_any_fit(_packing(speed, owner, capacity), "worst", by="sum")


def _repaired(price: float, speed: Floats, owner: Ints) -> Ints:
    return repair(_packing(speed, owner), RepairParameters(bin_price=price))


def _kafka(consumers: int, seed: int, speed: Floats, owner: Ints) -> Ints:
    """Equal numbers of partitions, drawn at random and never changed."""
    if (owner >= 0).all():
        return owner
    order = np.random.default_rng(seed).permutation(len(speed))
    found: Ints = order % consumers
    return found


_SUBJECTS: dict[str, Callable[[int], _Pack]] = {
    "mwf": lambda _: partial(_modified, _CAPACITY),
    "mwf, usable capacity": lambda _: partial(_modified, _USABLE),
    **{
        f"repair, a consumer worth {price:g}": lambda _, p=price: partial(_repaired, p)  # type: ignore[misc]
        for price in _PRICES
    },
    **{
        f"kd_{n}": lambda seed, n=n: partial(_kafka, n, seed)  # type: ignore[misc]
        for n in range(1, _PARTITIONS + 1)
    },
}
# Seconds at the 90th percentile of the data with a latency above 0, and mean consumers, as stated.
_PUBLISHED = {
    "mwf": (4.52, 15.0),
    "kd_15": (217.0, 15.0),
    "kd_24": (2.70, 24.0),
    "kd_30": (1.11, 30.0),
    "kd_31": (0.0, 31.0),
    "kd_32": (0.0, 32.0),
}


class Followed(NamedTuple):
    """Mean number of consumers over a stream, and the latencies of its data."""

    consumers: float
    latency: Stretches


def followed(pack: _Pack, stream: Floats) -> Followed:
    """One subject over a stream; each packing starts from the one before."""
    owner = np.full(stream.shape[1], -1, np.int64)
    queues = TwoQueues(_READS, _INTERVAL, _REBALANCE)
    stretches, consumers = [], []
    for speed in stream:
        after = pack(speed, owner)
        stretches.append(queues.follow(speed, owner, after))
        consumers.append(len(np.unique(after)))
        owner = after
    return Followed(float(np.mean(consumers)), together(stretches))


def subject(name: str, seed: int = 0) -> _Pack:
    """How a subject packs."""
    return _SUBJECTS[name](seed)


def fewest(speed: Floats, seconds: float = _EXACT_SECONDS) -> FewestConsumers:
    """The fewest consumers that a measurement can be packed into, within so many seconds."""
    partitions = len(speed)
    state = Group(
        rate=speed,
        lag=np.zeros(partitions),
        consumer=np.full(partitions, -1, np.int64),
        capacity=np.zeros(0),
        new_capacity=_CAPACITY,
    )
    return fewest_consumers(state, _INTERVAL, deadline=Deadline.after(seconds))


def published_stream() -> Floats:
    """(measurements, partitions) write speeds, in percent of a bin, of the authors' stream."""
    snapshots = json.loads(_STREAM.read_text(encoding="utf-8"))
    keys = sorted((topic, int(p)) for topic, parts in snapshots[0].items() for p in parts)
    return np.array([[s[t][str(p)] for t, p in keys] for s in snapshots], np.float64)


@benchmark(_NAME, sizes=("published", "generated"))
def pack_latency(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Latency and consumers of MWF, of ours, and of Kafka's assignment (Figures 5 to 8).

    Latencies are those of all data, and of the data with a latency above 0 ("late"), which are what
    the paper states. In the model, the latency of a queue that moved falls evenly from 5 s to 0. As
    long as every consumer catches up within the interval, which a packing within the bins does,
    the 90th percentile of late data is therefore 4.5 s for everybody who moves anything: the least
    possible is stated, and how far a subject is above it. What differs is how much data is late.
    "p90 of as much as MWF's late" compares equal amounts of data: it is the latency that a tenth
    of the data that MWF has late exceeds.

    "mwf, usable capacity" packs into what a consumer can be assigned so that it catches up within
    an interval by the derivation of the text. "exact" packs each measurement into the fewest
    consumers, for at most a second, and states a lower bound beside them; it moves whatever it
    likes, so it has no latency.
    """
    names = [n for n in chosen(options, (*_SUBJECTS, _EXACT)) if n != _EXACT]
    exact = _EXACT in chosen(options, (*_SUBJECTS, _EXACT))
    panels = []
    for size in sizes:
        rounds = _GENERATED if options.rounds is None else options.rounds
        streams = (
            [published_stream()]
            if size == "published"
            else [
                write_speeds(_PARTITIONS, _MEASUREMENTS, _DELTA, seed=options.seed + k)
                for k in range(rounds)
            ]
        )
        runs = {
            name: [followed(subject(name, options.seed + k), s) for k, s in enumerate(streams)]
            for name in {"mwf": 0, **dict.fromkeys(names)}
        }
        base = together([run.latency for run in runs["mwf"]]).above(0.0)
        points: dict[str, tuple[float, float]] = {}
        for name in names:
            options.log(f"{_NAME} {size}: {name}")
            latency = together([run.latency for run in runs[name]])
            total = float(latency.amount.sum())
            consumers = float(np.mean([run.consumers for run in runs[name]]))
            yield Row(_NAME, size, name, "consumers, mean", consumers, "consumers")
            for share in (0.5, 0.9, 0.99):
                label = f"p{share * 100:g}"
                yield Row(
                    _NAME, size, name, f"latency, {label}", latency.percentile(share), "seconds"
                )
                late = latency.percentile(share, late_only=True)
                yield Row(_NAME, size, name, f"latency of late data, {label}", late, "seconds")
                if share == 0.9 and late > 0:
                    metric = "latency of late data, p90: above the least possible"
                    yield Row(
                        _NAME, size, name, metric, round(late - share * _REBALANCE, 6), "seconds"
                    )
            yield Row(_NAME, size, name, "late data", latency.above(0.0) / total, "ratio")
            paired = latency.percentile(1 - 0.1 * base / total)
            metric = "latency, p90 of as much as MWF's late"
            yield Row(_NAME, size, name, metric, paired, "seconds")
            if name in _PUBLISHED and size == "published":
                p90, mean = _PUBLISHED[name]
                metric = "latency of late data, p90"
                yield stated(_NAME, size, name, metric, p90, "seconds")
                yield stated(_NAME, size, name, "consumers, mean", mean, "consumers")
            points[name] = (consumers, latency.above(0.0) / total)
        if exact:
            options.log(f"{_NAME} {size}: {_EXACT}")
            found = [fewest(speed) for stream in streams for speed in stream]
            mean = float(np.mean([f.consumers for f in found]))
            bound = float(np.mean([f.bound for f in found]))
            yield Row(_NAME, size, _EXACT, "consumers, mean", mean, "consumers")
            metric = "consumers, mean: lower bound"
            yield Row(_NAME, size, _EXACT, metric, bound, "consumers")
        lines = {n: ([x], [y]) for n, (x, y) in points.items() if not n.startswith("kd_")}
        kafka = [p for n, p in points.items() if n.startswith("kd_")]
        if kafka:
            lines["Kafka"] = ([x for x, _ in kafka], [y for _, y in kafka])
        panels.append(Panel(size, "consumers", "share of data with a latency", lines))
    draw(options, _NAME, panels)
