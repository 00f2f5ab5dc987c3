"""Reads a consumer group from a file: its consumers, its partitions, and what a change takes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from metrics_reporter.documents import Number, as_model, load_mapping, shown
from metrics_reporter.quantities import WithDuration, WithRate

_Positive = Annotated[Number, Field(gt=0)]
_NotNegative = Annotated[Number, Field(ge=0)]
_Name = Annotated[str, Field(min_length=1)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConsumerRecord(_Record):
    """A running consumer.

    Parameters
    ----------
    name
        Its name.
    capacity
        Events/s that it can process; as a new one if left out.
    """

    name: _Name
    capacity: _Positive | None = None


class GroupPartitionRecord(_Record):
    """A partition that the group reads.

    Parameters
    ----------
    topic, partition
        Which one.
    rate
        Events/s that arrive.
    lag
        Events that wait.
    write_speed
        Bytes/s that are written, like ``2MB/s``; of all partitions or of none.
    consumer
        Name of the consumer that reads it.
    """

    topic: _Name
    partition: Annotated[int, Field(ge=0, strict=True)]
    rate: _NotNegative
    lag: _NotNegative = 0.0
    write_speed: Annotated[_NotNegative, WithRate] | None = None
    consumer: _Name | None = None


class GroupDocument(_Record):
    """A consumer group.

    Parameters
    ----------
    group
        Its name.
    capacity
        Events/s that a new consumer can process.
    byte_capacity
        Bytes/s that a new consumer can read, like ``50MB/s``; no limit if left out. It needs the
        write speed of each partition.
    rebalance_time
        How long partitions are not read when their consumers change, like ``50ms``.
    reaction_time
        Time until a change takes effect: consumers start, and the others hear of it.
    blocking
        Whether a rebalance stops all consumers, or only the partitions that move.
    consumers
        Those that run.
    partitions
        Those that are read.
    """

    group: _Name
    capacity: _Positive
    byte_capacity: Annotated[_Positive, WithRate] | None = None
    rebalance_time: Annotated[_NotNegative, WithDuration] = 0.0
    reaction_time: Annotated[_NotNegative, WithDuration] = 0.0
    blocking: bool = True
    consumers: tuple[ConsumerRecord, ...] = ()
    partitions: tuple[GroupPartitionRecord, ...]


def load_group(path: str | Path) -> Observation:
    """Read a group file, YAML or JSON.

    Raises
    ------
    AutoscalingError
        If it cannot be read, or naming the field, the value and what is expected.
    """
    where = f"group file {path}"
    content = load_mapping(path, where, AutoscalingError, "a mapping with partitions")
    return as_observation(as_model(GroupDocument, content, where, AutoscalingError), where)


def as_observation(document: GroupDocument, where: str) -> Observation:
    """The group of a document; `where` begins the sentences about it."""
    consumers = {c.name: i for i, c in enumerate(document.consumers)}
    if len(consumers) < len(document.consumers):
        raise AutoscalingError(f"{where}: consumers found twice, each once expected")
    rows = sorted(document.partitions, key=lambda p: (p.topic, p.partition))
    names = [f"{p.topic}-{p.partition}" for p in rows]
    for before, name in pairwise(names):
        if before == name:
            raise AutoscalingError(f"{where}: partition {shown(name)} found twice")
    if not rows:
        raise AutoscalingError(f"{where}: no partitions found, at least 1 expected")
    for p in rows:
        if p.consumer is not None and p.consumer not in consumers:
            raise AutoscalingError(
                f"{where}: partition {p.topic}-{p.partition}: consumer {shown(p.consumer)} found, "
                "one of consumers expected"
            )
    speeds = [p.write_speed for p in rows if p.write_speed is not None]
    if speeds and len(speeds) < len(rows):
        raise AutoscalingError(
            f"{where}: write_speed of {len(speeds)} of {len(rows)} partitions found, of all or "
            "of none expected"
        )
    if document.byte_capacity is not None and not speeds:
        raise AutoscalingError(
            f"{where}: byte_capacity found, write_speed of each partition expected with it"
        )
    group = Group(
        rate=np.array([p.rate for p in rows], np.float64),
        lag=np.array([p.lag for p in rows], np.float64),
        consumer=np.array(
            [-1 if p.consumer is None else consumers[p.consumer] for p in rows], np.int64
        ),
        capacity=np.array([c.capacity or document.capacity for c in document.consumers]),
        new_capacity=document.capacity,
        speed=np.array(speeds, np.float64),
        byte_capacity=document.byte_capacity or np.inf,
        rebalance_seconds=document.rebalance_time,
        reaction_seconds=document.reaction_time,
        blocking=document.blocking,
        partition_names=tuple(names),
        consumer_names=tuple(consumers),
    )
    return Observation(
        name=document.group,
        group=group,
        partitions=tuple(names),
        consumers=tuple(consumers),
    )
