"""Cruise Control's goals, and which goals of ours judge the same with which fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Equivalent:
    """One of our goals that stands for one of Cruise Control's, or for a part of it.

    Parameters
    ----------
    goal
        Its name.
    resource
        The resource that it judges, which a capacity must be known of.
    fields
        Its fields to the keys of Cruise Control that set them.
    multiplied
        Whether goal.violation.distribution.threshold.multiplier applies to its threshold.
    """

    goal: str
    resource: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    multiplied: bool = False

    @property
    def takes_resource(self) -> bool:
        """Whether the resource is a field of the goal; others judge always the same one."""
        return self.goal in ("ResourceCapacity", "HostCapacity", "UsageDistribution")

    @property
    def label(self) -> str:
        """The goal, with the resource if that is a field of it."""
        return f"{self.goal}[{self.resource}]" if self.takes_resource else self.goal


class ConvertedGoal(NamedTuple):
    """A goal of Cruise Control, ours (empty if there is none), and what to know about it."""

    goal: str
    ours: tuple[str, ...]
    note: str = ""


def _capacity(goal: str, resource: str, key: str) -> Equivalent:
    return Equivalent(goal, resource, {"threshold": f"{key}.capacity.threshold"})


def _usage(resource: str, key: str) -> tuple[Equivalent, ...]:
    fields = {
        "threshold": f"{key}.balance.threshold",
        "low_utilization": f"{key}.low.utilization.threshold",
    }
    return (Equivalent("UsageDistribution", resource, fields, multiplied=True),)


_IN, _OUT = "network.inbound", "network.outbound"
# Goals by the name of their class; those that judge a host judge the brokers of a host together.
EQUIVALENTS: dict[str, tuple[Equivalent, ...]] = {
    "RackAwareGoal": (Equivalent("RackAwareness"),),
    "RackAwareDistributionGoal": (Equivalent("RackAwareDistribution"),),
    "BrokerSetAwareGoal": (
        Equivalent(
            "BrokerSetAwareness",
            fields={"exempt": "topics.with.min.leaders.per.broker"},
        ),
    ),
    "MinTopicLeadersPerBrokerGoal": (
        Equivalent(
            "MinTopicLeaders",
            fields={
                "topics": "topics.with.min.leaders.per.broker",
                "minimum": "min.topic.leaders.per.broker",
            },
        ),
    ),
    "ReplicaCapacityGoal": (
        Equivalent("ReplicaCapacity", fields={"limit": "max.replicas.per.broker"}),
    ),
    "DiskCapacityGoal": (_capacity("ResourceCapacity", "disk", "disk"),),
    "NetworkInboundCapacityGoal": (_capacity("HostCapacity", "network_in", _IN),),
    "NetworkOutboundCapacityGoal": (_capacity("HostCapacity", "network_out", _OUT),),
    "CpuCapacityGoal": (
        _capacity("ResourceCapacity", "cpu", "cpu"),
        _capacity("HostCapacity", "cpu", "cpu"),
    ),
    "ReplicaDistributionGoal": (
        Equivalent(
            "ReplicaDistribution",
            fields={"threshold": "replica.count.balance.threshold"},
            multiplied=True,
        ),
    ),
    "PotentialNwOutGoal": (_capacity("PotentialNetworkOut", "network_out", _OUT),),
    "DiskUsageDistributionGoal": _usage("disk", "disk"),
    "NetworkInboundUsageDistributionGoal": _usage("network_in", _IN),
    "NetworkOutboundUsageDistributionGoal": _usage("network_out", _OUT),
    "CpuUsageDistributionGoal": _usage("cpu", "cpu"),
    "TopicReplicaDistributionGoal": (
        Equivalent(
            "TopicReplicaDistribution",
            fields={
                "threshold": "topic.replica.count.balance.threshold",
                "min_gap": "topic.replica.count.balance.min.gap",
                "max_gap": "topic.replica.count.balance.max.gap",
            },
            multiplied=True,
        ),
    ),
    "LeaderReplicaDistributionGoal": (
        Equivalent(
            "LeaderReplicaDistribution",
            fields={"threshold": "leader.replica.count.balance.threshold"},
            multiplied=True,
        ),
    ),
    "LeaderBytesInDistributionGoal": (
        Equivalent(
            "LeaderBytesInDistribution",
            "network_in",
            {
                "threshold": f"{_IN}.balance.threshold",
                "low_utilization": f"{_IN}.low.utilization.threshold",
            },
        ),
    ),
    "PreferredLeaderElectionGoal": (Equivalent("PreferredLeader"),),
    "IntraBrokerDiskCapacityGoal": (_capacity("DiskCapacity", "disk", "disk"),),
    "IntraBrokerDiskUsageDistributionGoal": (
        Equivalent("DiskUsageDistribution", "disk", {"threshold": "disk.balance.threshold"}),
    ),
}
_ASSIGNER = (
    "a mode of Cruise Control that rebuilds the placement; RackAwareness and UsageDistribution "
    "move no more than needed"
)
WITHOUT_EQUIVALENT = {
    "KafkaAssignerEvenRackAwareGoal": _ASSIGNER,
    "KafkaAssignerDiskUsageDistributionGoal": _ASSIGNER,
}
_BY_CAPACITY = (
    "shares follow the brokers' capacities; Cruise Control's mean is the same for all brokers"
)
NOTES = {
    "BrokerSetAwareGoal": "a topic belongs to the set that holds most of its replicas; Cruise "
    "Control assigns it by a hash of its name",
    "PreferredLeaderElectionGoal": "Cruise Control moves leaders to the first replica; here goals "
    "of a higher tier may keep one elsewhere",
    "LeaderBytesInDistributionGoal": _BY_CAPACITY,
    "ReplicaDistributionGoal": _BY_CAPACITY,
    "LeaderReplicaDistributionGoal": _BY_CAPACITY,
    "TopicReplicaDistributionGoal": _BY_CAPACITY,
}
# Thresholds that Cruise Control's code has by default.
_DEFAULT_THRESHOLD, _DEFAULT_THRESHOLDS = 1.1, {"TopicReplicaDistribution": 3.0}
# The code's default of default.goals.
DEFAULT_GOALS = (
    "RackAwareGoal",
    "MinTopicLeadersPerBrokerGoal",
    "ReplicaCapacityGoal",
    "DiskCapacityGoal",
    "NetworkInboundCapacityGoal",
    "NetworkOutboundCapacityGoal",
    "CpuCapacityGoal",
    "ReplicaDistributionGoal",
    "PotentialNwOutGoal",
    "DiskUsageDistributionGoal",
    "NetworkInboundUsageDistributionGoal",
    "NetworkOutboundUsageDistributionGoal",
    "CpuUsageDistributionGoal",
    "TopicReplicaDistributionGoal",
    "LeaderReplicaDistributionGoal",
    "LeaderBytesInDistributionGoal",
)
# Classes whose isHardGoal() is true: the list hard.goals changes no goal's hardness.
HARD = frozenset(
    (
        "RackAwareGoal",
        "RackAwareDistributionGoal",
        "BrokerSetAwareGoal",
        "MinTopicLeadersPerBrokerGoal",
        "ReplicaCapacityGoal",
        "DiskCapacityGoal",
        "NetworkInboundCapacityGoal",
        "NetworkOutboundCapacityGoal",
        "CpuCapacityGoal",
        "IntraBrokerDiskCapacityGoal",
    )
)


def short_name(goal: str) -> str:
    """A goal's class without its package."""
    return goal.rpartition(".")[2]


def converted(
    names: Sequence[str], values: Mapping[str, Any], resources: Sequence[str], multiplier: float = 1
) -> tuple[list[dict[str, Any]], list[ConvertedGoal]]:
    """Entries of a goals file for goals in order of priority, and what became of each goal.

    Parameters
    ----------
    names
        Classes of Cruise Control's goals, with or without their package.
    values
        Key of Cruise Control to its value, for those that a configuration gives.
    resources
        Resources of known capacity: goals of other ones are left out.
    multiplier
        Factor on the thresholds of distribution goals.
    """
    entries: list[dict[str, Any]] = []
    rows = []
    for tier, name in enumerate(dict.fromkeys(map(short_name, names))):
        made, labels = [], []
        unknown = set()
        for like in EQUIVALENTS.get(name, ()):
            if like.resource is not None and like.resource not in resources:
                unknown.add(like.resource)
                continue
            entry: dict[str, Any] = {"goal": like.goal}
            if like.takes_resource:
                entry["resource"] = like.resource
            entry |= {f: values[key] for f, key in like.fields.items() if key in values}
            if like.multiplied and multiplier != 1:
                base = entry.get(
                    "threshold", _DEFAULT_THRESHOLDS.get(like.goal, _DEFAULT_THRESHOLD)
                )
                entry["threshold"] = round(base * multiplier, 12)
            made.append({**entry, "tier": tier})
            labels.append(like.label)
        entries += made
        if unknown:
            note = f"left out: no capacity of {', '.join(sorted(unknown))} is known"
        elif name in EQUIVALENTS:
            note = NOTES.get(name, "")
        else:
            note = WITHOUT_EQUIVALENT.get(name, "a goal of your own: write it in Python")
        rows.append(ConvertedGoal(name, tuple(labels), note))
    return entries, rows
