from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import PrivateAttr

from cluster_model import Snapshot, scopes
from cluster_model.scopes import Grouping, PerTopic
from goals import (
    Apart,
    BalanceCost,
    BrokerSetAwareness,
    Cluster,
    CollocationGoal,
    DiskCapacity,
    DiskUsageDistribution,
    EligibleLeaders,
    Goal,
    GoalError,
    GroupCapacity,
    GroupUsageDistribution,
    HostCapacity,
    LeaderBytesInDistribution,
    LeaderReplicaDistribution,
    LoadCost,
    MinTopicLeaders,
    MoveCost,
    Near,
    NetworkInUsageDistribution,
    NetworkOutUsageDistribution,
    OnlineReplicas,
    PotentialNetworkOut,
    PreferredLeader,
    PreferredLeaderRack,
    Price,
    RackAwareDistribution,
    RackAwareness,
    RackFailureCapacity,
    ReplicaCapacity,
    ReplicaDistribution,
    ResourceCapacity,
    SpreadAcross,
    State,
    TopicLeaderDistribution,
    TopicRackDistribution,
    TopicReplicaDistribution,
    TransientCapacity,
    UsageDistribution,
    at_most,
    available,
    testing,
)
from goals.testing import assert_conforms, check_goal, example_snapshots


def of_resources(goal: Callable[[str], Goal]) -> Iterator[Any]:
    """Goals of one class: of a resource that follows the leader, and of one that does not."""
    yield goal("network_out")
    yield goal("disk")
    yield from (pytest.param(goal(r), marks=pytest.mark.soak) for r in ("cpu", "network_in"))


GOALS: list[Any] = [
    RackAwareness(),
    RackAwareDistribution(),
    BrokerSetAwareness(),
    TopicRackDistribution(),
    ReplicaCapacity(limit=24),
    *of_resources(lambda r: ResourceCapacity(resource=r, threshold=0.75)),
    *of_resources(lambda r: HostCapacity(resource=r, threshold=0.7)),
    *of_resources(lambda r: GroupCapacity(resource=r, threshold=0.55, attribute="zone")),
    *of_resources(lambda r: UsageDistribution(resource=r)),
    *of_resources(lambda r: GroupUsageDistribution(resource=r, attribute="zone")),
    UsageDistribution(resource="disk", low_utilization=0.6),
    PotentialNetworkOut(threshold=1.7),
    ReplicaDistribution(),
    LeaderReplicaDistribution(),
    LeaderBytesInDistribution(),
    TopicReplicaDistribution(threshold=1.1, min_gap=1),
    TopicLeaderDistribution(),
    MinTopicLeaders(topics="topic-.*"),
    MinTopicLeaders(topics="topic-.*", minimum=0),
    PreferredLeader(),
    DiskCapacity(threshold=0.7),
    DiskUsageDistribution(),
    NetworkInUsageDistribution(),
    NetworkOutUsageDistribution(baseline=1e9),
    OnlineReplicas(),
    EligibleLeaders(),
    CollocationGoal(),
    *of_resources(lambda r: RackFailureCapacity(resource=r, limit=0.9)),
    *of_resources(lambda r: TransientCapacity(resource=r, limit=0.9)),
    *of_resources(lambda r: LoadCost(resource=r, above=0.4)),
    LoadCost(resource="disk", above="safe"),
    BalanceCost(resource="cpu", other="network_in", ratio=1e6),
    Price(attribute="price"),
    MoveCost(),
    MoveCost(cost="replica"),
    MoveCost(cost="topic attribute size"),
    MoveCost(by="broker attribute zone", factors={"a": {"b": 3.0}, "b": {"a": 0.5}}),
    SpreadAcross(attribute="broker", at_least=6),
    Apart(by="topic", at_most=5),
    Apart(by="tenant", at_most=8),
    Apart(by="tenant", attribute="zone", at_most=35),
    Near(attribute="broker"),
    PreferredLeaderRack(attribute="home"),
    PreferredLeaderRack(attribute="home", followers=True),
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Few actions and cells on each cluster; all of them are part of the soak."""
    if request.node.get_closest_marker("soak") is None:
        monkeypatch.setattr(testing, "_WALK", 16)
        monkeypatch.setattr(testing, "_UNMET_CELLS", 2)


each_goal = pytest.mark.parametrize("goal", GOALS, ids=lambda goal: getattr(goal, "name", None))


@each_goal
def test_built_in_goals_conform_and_are_really_put_to_the_test(goal: Goal) -> None:
    report = check_goal(goal)
    assert report.problems == []
    assert report.clusters
    assert report.actions
    assert not report.notes


@pytest.mark.soak
@each_goal
def test_built_in_goals_conform_on_other_clusters(goal: Goal) -> None:
    assert_conforms(goal, seed=1)


def test_every_built_in_goal_is_tested() -> None:
    assert {type(goal) for goal in GOALS} >= set(available().values())


class Step(Goal):
    """At most 15 replicas."""

    def score(self, state: State) -> Any:
        return state.replica_count <= 15


class Writes(Goal):
    """Changes what it is given."""

    def score(self, state: State) -> Any:
        count = state.replica_count
        count *= 2
        return count * 0


class Relative(Goal):
    """Depends on which brokers are scored together."""

    def score(self, state: State) -> Any:
        return state.replica_count / max(state.replica_count.max(initial=1), 1)


class Large(Goal):
    """Not normalised."""

    def score(self, state: State) -> Any:
        return state.replica_count


class Undefined(Goal):
    """Divides by nothing."""

    def score(self, state: State) -> Any:
        with np.errstate(all="ignore"):
            return state.replica_count * 0 / 0


class Whole(Goal):
    """One score for everything."""

    def score(self, state: State) -> Any:
        return 1.0


class Random(Goal):
    """Rolls dice."""

    def score(self, state: State) -> Any:
        return np.random.default_rng().uniform(size=state.replica_count.shape)


class Reverse(Goal):
    """Falls where it should rise: content with nobody."""

    def score(self, state: State) -> Any:
        return np.full(state.replica_count.shape, 0.3)


class Silent(Goal):
    def score(self, state: State) -> Any:
        return np.ones(state.replica_count.shape)


class Drifting(Goal):
    """Its limit moves with every call."""

    _calls: list[int] = []  # noqa: RUF012

    def score(self, state: State) -> Any:
        self._calls.append(1)
        return np.full(state.replica_count.shape, 1 / len(self._calls))


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        (Step, "conditions 3 and 4: it scores only 0 and 1"),
        (Writes, "may not change the arrays"),
        (Relative, "a cell scored alone has a different score"),
        (Large, "condition 1: a score of"),
        (Undefined, "condition 1: a score is not a finite number"),
        (Whole, "score() returned an array of shape ()"),
        (Random, "scoring the same state twice"),
        (Reverse, "condition 4: no action raises"),
        (Silent, "it has no docstring"),
        (Drifting, "scoring the same state twice"),
        (ResourceCapacity, "it needs values for resource"),
    ],
)
def test_the_kit_says_what_is_wrong(goal: type[Goal], said: str) -> None:
    clusters = example_snapshots()[:1]
    report = check_goal(goal, clusters=clusters)
    assert not report.ok
    assert any(said in problem for problem in report.problems), report.problems
    with pytest.raises(AssertionError, match="does not conform"):
        assert_conforms(goal, clusters=clusters)


def test_a_goal_that_is_met_everywhere_is_noted() -> None:
    report = check_goal(ReplicaCapacity)
    assert report.ok
    assert "try tighter thresholds" in report.notes[0]


@pytest.mark.parametrize("clusters", [None, []])
def test_a_goal_that_was_tried_on_no_cluster_does_not_conform(clusters: list[Any] | None) -> None:
    report = check_goal(UsageDistribution(resource="dsk"), clusters=clusters)
    assert report.clusters == 0
    assert not report.ok
    (said,) = report.problems
    assert said.startswith("it was tried on no cluster")
    assert ("no resource 'dsk'; it has cpu" in said) is (clusters is None)


def test_equal_seeds_give_equal_reports() -> None:
    assert check_goal(ReplicaDistribution, seed=3) == check_goal(ReplicaDistribution, seed=3)


class _Zoned(Goal):
    """No zone holds more than `limit` replicas."""

    scope: ClassVar = Grouping("zone")
    limit: int = 60

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, self.limit)


class _TenantsPerZone(Goal):
    """No tenant of number 2 or above has more than `limit` replicas of a topic in a zone."""

    scope: ClassVar = PerTopic(Grouping("zone"))
    requires: ClassVar = ("topic attribute tenant",)
    limit: int = 8
    _limit: Any = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        self._limit = np.where(cluster.topic_attribute("tenant") >= 2, self.limit, np.inf)

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, self._limit[state.topic])


class _OwnZone(Goal):
    """Few replicas of topics of a tenant are in the zone `zone`, at most `limit` on a broker."""

    scope: ClassVar = scopes.TOPIC
    requires: ClassVar = ("broker attribute zone", "topic attribute tenant")
    zone: str = "a"
    limit: int = 3
    _limit: Any = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        zone, tenant = cluster.broker_attribute("zone"), cluster.topic_attribute("tenant")
        if zone.dtype.kind != "U" or tenant.dtype.kind != "U":
            raise GoalError("zones and tenants: numbers found, text expected")
        held = (zone[:, None] == self.zone) & (tenant == "b")
        self._limit = np.where(held, self.limit, np.inf)

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, self._limit[state.broker, state.topic])


class _Uplink(Goal):
    """No broker receives more than `share` of its uplink."""

    requires: ClassVar = ("network_in", "broker attribute uplink")
    share: float = 0.8
    _limit: Any = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        self._limit = self.share * cluster.broker_attribute("uplink")

    def score(self, state: State) -> Any:
        return at_most(state.load("network_in"), self._limit[state.broker])


class _WrongWithNumbers(_Uplink):
    """Scores of more than 1 for numbers; text it cannot read."""

    def score(self, state: State) -> Any:
        return 2 * super().score(state)


class _WrongForAll(_Uplink):
    """Reads an attribute in a way that fits no value."""

    def prepare(self, cluster: Cluster) -> None:
        self._limit = cluster.broker_attribute("uplink").reshape(-1, 7)


class _WrongWithLarge(_Uplink):
    """Raises an error for numbers as large as real ones; text it cannot read."""

    def prepare(self, cluster: Cluster) -> None:
        if (cluster.broker_attribute("uplink") * 1.0 > 5).any():
            raise ValueError("a bug")
        super().prepare(cluster)


@pytest.fixture
def one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    made = example_snapshots()[:1]
    monkeypatch.setattr(testing, "example_snapshots", lambda seed: made)


@pytest.mark.parametrize(
    ("goal", "clusters"),
    [(_Zoned(), 1), (_TenantsPerZone(), 2), (_OwnZone(), 3), (_Uplink(), 2)],
    ids=lambda found: getattr(found, "name", None),
)
@pytest.mark.usefixtures("one_cluster")
def test_goals_with_attributes_conform(goal: Goal, clusters: int) -> None:
    report = check_goal(goal)
    assert report.problems == []
    assert report.clusters == clusters
    assert not report.notes


@pytest.mark.usefixtures("one_cluster")
def test_faults_in_reading_attributes_are_found() -> None:
    (problem,) = check_goal(_WrongWithNumbers).problems
    assert problem == "condition 1: a score of 2 found, 0 to 1 expected"
    assert any("a bug" in problem for problem in check_goal(_WrongWithLarge).problems)
    problems = check_goal(_WrongForAll).problems
    assert problems
    assert all("cannot reshape" in problem for problem in problems)


class _Inconsistent(scopes.BrokerScope):
    """Halves of the cluster, which are others for one replica than for many."""

    def members(self, snapshot: Snapshot) -> Any:
        return np.arange(snapshot.n_brokers) % 2

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return "even", "odd"

    def keys(self, snapshot: Snapshot, partition: Any, broker: Any, disk: Any) -> Any:
        return (broker + (len(broker) == 1)) % 2


class _OfHalves(Goal):
    """Few replicas in each half."""

    scope: ClassVar = _Inconsistent("half", "half", "half")

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, 50)


def test_a_scope_that_contradicts_itself_is_found() -> None:
    report = check_goal(_OfHalves())
    assert [p for p in report.problems if p.startswith("its scope is not consistent: after an")]
