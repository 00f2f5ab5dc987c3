"""Goals: score how content each broker, topic, disk or partition is, from 0 to 1."""

from goals.availability import EligibleLeaders, OnlineReplicas
from goals.capacity import (
    HostCapacity,
    PotentialNetworkOut,
    RackFailureCapacity,
    ReplicaCapacity,
    ResourceCapacity,
    TransientCapacity,
)
from goals.cluster import Cluster
from goals.collocation import CollocationGoal
from goals.costs import BalanceCost, LoadCost, MoveCost, Price
from goals.curves import at_least, at_most, band, distance
from goals.disks import DiskCapacity, DiskUsageDistribution
from goals.distribution import (
    LeaderBytesInDistribution,
    LeaderReplicaDistribution,
    ReplicaDistribution,
    UsageDistribution,
)
from goals.goal import Goal, GoalError, Infeasibility, Relaxation
from goals.grouped import GroupCapacity, GroupUsageDistribution
from goals.groups import Groups, Pairs, pairs_of
from goals.leadership import PreferredLeader, PreferredLeaderRack
from goals.network import NetworkInUsageDistribution, NetworkOutUsageDistribution
from goals.racks import (
    BrokerSetAwareness,
    RackAwareDistribution,
    RackAwareness,
    TopicRackDistribution,
)
from goals.registry import (
    applicable,
    available,
    goals_for,
    inapplicable,
    load_goals,
    parameters_of,
    profile_of,
    profiles,
    unmatched,
)
from goals.relations import Apart, Near, SpreadAcross
from goals.state import State
from goals.topics import MinTopicLeaders, TopicLeaderDistribution, TopicReplicaDistribution

__all__ = [
    "Apart",
    "BalanceCost",
    "BrokerSetAwareness",
    "Cluster",
    "CollocationGoal",
    "DiskCapacity",
    "DiskUsageDistribution",
    "EligibleLeaders",
    "Goal",
    "GoalError",
    "GroupCapacity",
    "GroupUsageDistribution",
    "Groups",
    "HostCapacity",
    "Infeasibility",
    "LeaderBytesInDistribution",
    "LeaderReplicaDistribution",
    "LoadCost",
    "MinTopicLeaders",
    "MoveCost",
    "Near",
    "NetworkInUsageDistribution",
    "NetworkOutUsageDistribution",
    "OnlineReplicas",
    "Pairs",
    "PotentialNetworkOut",
    "PreferredLeader",
    "PreferredLeaderRack",
    "Price",
    "RackAwareDistribution",
    "RackAwareness",
    "RackFailureCapacity",
    "Relaxation",
    "ReplicaCapacity",
    "ReplicaDistribution",
    "ResourceCapacity",
    "SpreadAcross",
    "State",
    "TopicLeaderDistribution",
    "TopicRackDistribution",
    "TopicReplicaDistribution",
    "TransientCapacity",
    "UsageDistribution",
    "applicable",
    "at_least",
    "at_most",
    "available",
    "band",
    "distance",
    "goals_for",
    "inapplicable",
    "load_goals",
    "pairs_of",
    "parameters_of",
    "profile_of",
    "profiles",
    "unmatched",
]
