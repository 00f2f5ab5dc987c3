"""Finds by its marks in Kafka what an executor with an unreachable journal left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from balancer.execution.cluster import ClusterClient, ConfigResource, Key
from balancer.execution.errors import VoteLostError
from balancer.execution.journal import RecordedExecution
from balancer.execution.targets import Target
from balancer.execution.tasks import Task
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LISTS,
    MarkedList,
    ThrottleConfig,
    marked,
)

# Topics per request.
_TOPICS = 1000


def reconstructed_execution(
    cluster: ClusterClient, owner: str, epoch: int | None = None
) -> RecordedExecution | None:
    """Reconstruct an execution from the marks of an owner; None if there are none.

    Its tasks are the ongoing reassignments that copy throttled replicas; tasks it had not yet
    started are unknown. Rates that the marks state are its own: they are removed, since the
    previous rates of the brokers are unknown too.

    Raises
    ------
    VoteLostError
        If a mark has a newer epoch than this one: its execution belongs to another process.
    """
    view = cluster.view(None)
    lists: dict[tuple[ConfigResource, str], tuple[str, MarkedList]] = {}
    topics = sorted({key.topic for key in view.partitions})
    for first in range(0, len(topics), _TOPICS):
        asked = {ConfigResource("topic", t): LISTS for t in topics[first : first + _TOPICS]}
        for resource, values in cluster.configs(asked).items():
            for key, value in values.items():
                found = marked(value, owner)
                if value is None or found is None:
                    continue
                if epoch is not None and found.epoch is not None and found.epoch > epoch:
                    raise VoteLostError(
                        f"topic {resource.name} is throttled in epoch {found.epoch}, newer than "
                        f"{epoch}, the one of this execution: another acts, so nothing was "
                        f"touched; if none does, remove {key} from the topic (kafka-configs)"
                    )
                lists[resource, key] = value, found
    if not lists:
        return None
    throttles = [
        ThrottleConfig(kind=r.kind, name=r.name, key=key, found=found.found, ours=value)
        for (r, key), (value, found) in lists.items()
    ]
    copied = {
        (Key(r.name, partition), broker)
        for (r, key), (_, found) in lists.items()
        if key == FOLLOWER_REPLICAS
        for partition, broker in found.replicas
    }
    requested = [
        Target(
            topic=key.topic,
            partition=key.partition,
            origin=p.before,
            origin_leader=p.leader,
            target=p.settled,
            place=place,
        )
        for place, (key, p) in enumerate(sorted(view.partitions.items()))
        if p.adding and all((key, broker) in copied for broker in p.adding)
    ]
    tasks = {
        i: Task(
            id=i,
            phase="move",
            topic=w.topic,
            partition=w.partition,
            origin=w.origin,
            target=w.target,
        )
        for i, w in enumerate(requested)
    }
    return RecordedExecution(
        cluster.identity(),
        requested,
        tasks,
        dict.fromkeys(tasks, "in progress"),
        throttles=[*throttles, *_rates(cluster, [found for _, found in lists.values()])],
        adopted=True,
        epoch=epoch,
    )


def superseded(
    cluster: ClusterClient, recorded: RecordedExecution, owner: str | None
) -> set[ThrottleConfig]:
    """Throttles of a journal that are not in Kafka as it set them, by the marks.

    If there are any, another executor of the owner has ended the execution meanwhile, and
    the current content of those lists is not its own.
    """
    if owner is None:
        return set()
    own = [s for s in recorded.throttles if s.key in LISTS and marked(s.ours, owner)]
    now = cluster.configs({s.resource: LISTS for s in own})
    return {s for s in own if now.get(s.resource, {}).get(s.key) != s.ours}


def _rates(cluster: ClusterClient, lists: Iterable[MarkedList]) -> list[ThrottleConfig]:
    """Rates of the brokers in the lists that match those of the marks."""
    reported: dict[str, set[str]] = {}
    for found in lists:
        for _, number in found.replicas:
            reported.setdefault(str(number), set()).add(str(found.rate))
    keys: Sequence[str] = (LEADER_RATE, FOLLOWER_RATE)
    now = cluster.configs({ConfigResource("broker", broker): keys for broker in reported})
    settings = []
    for broker, rates in sorted(reported.items()):
        values = now.get(ConfigResource("broker", broker))
        for key in keys:
            # A broker that is away may have the rate; it is asked again once it is back.
            rate = min(rates) if values is None else values[key]
            if rate in rates:
                settings.append(
                    ThrottleConfig(kind="broker", name=broker, key=key, found=None, ours=rate)
                )
    return settings
