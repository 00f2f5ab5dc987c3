"""How long one decision on a large consumer group takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from balancer.autoscaling.group import Group
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.repairing import RepairPolicy
from benchmarks.registry import Options, Row, benchmark

_NAME = "pack-scale"
_SIZES = {"100000x5000": (100_000, 5_000), "1000000x2000": (1_000_000, 2_000)}
# Mean use of the consumers before the rates change, and by how much each rate changes at most.
_USE, _CHANGE = 0.8, 0.5
# Time limit of Kafka's own test of its sticky assignor with 1,000,000 partitions and 2,000
# consumers, in which two assignments are made (AbstractStickyAssignorTest,
# testLargeAssignmentAndGroupWithUniformSubscription).
_KAFKA = {"1000000x2000": 30.0}


def large_group(partitions: int, consumers: int, seed: int) -> Group:
    """A group that was packed well until its rates changed."""
    rng = np.random.default_rng(seed)
    rate = rng.pareto(2.5, partitions) + 0.2
    rate = np.minimum(rate, 30 * rate.mean())
    consumer = rng.permutation(np.arange(partitions) % consumers)
    capacity = rate.sum() / consumers / _USE
    changed = rate * rng.uniform(1 - _CHANGE, 1 + _CHANGE, partitions)
    return Group(
        rate=changed,
        lag=np.zeros(partitions),
        consumer=consumer,
        capacity=np.full(consumers, capacity),
        new_capacity=capacity,
        rebalance_seconds=0.05,
    )


@benchmark(_NAME, sizes=tuple(_SIZES))
def pack_scale(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Processor time of one decision on a group of up to a million partitions."""
    for size in sizes:
        group = large_group(*_SIZES[size], options.seed)
        load = group.load(group.consumer, group.rate)
        policy = RepairPolicy(AutoscalingParameters())
        began = time.process_time()
        decision = policy.decide(group, 0.0)
        spent = time.process_time() - began
        after = group.load(decision.consumer, group.rate, group.consumers + decision.start)
        use, name = group.capacity[0], "ours"
        yield Row(_NAME, size, name, "processor time", spent, "seconds")
        yield Row(_NAME, size, name, "partitions moved", decision.moves, "count")
        yield Row(_NAME, size, name, "Rscore", decision.rscore, "ratio")
        yield Row(_NAME, size, name, "consumers", float((after > 0).sum()), "count")
        yield Row(_NAME, size, name, "use before, max", float(load.max() / use), "ratio")
        yield Row(_NAME, size, name, "use, max", float(after.max() / use), "ratio")
        if size in _KAFKA:
            yield Row(
                _NAME,
                size,
                "Kafka's sticky assignor",
                "limit of its own test, two assignments",
                _KAFKA[size],
                "seconds",
            )
