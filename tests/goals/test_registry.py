from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import snapshot

from cluster_model import InputError, synthetic_snapshot
from goals import GoalError, applicable, available, goals_for, load_goals, profiles

CRUISE_CONTROL = [
    "RackAwareness",
    "MinTopicLeaders",
    "ReplicaCapacity",
    "ResourceCapacity[disk]",
    "HostCapacity[network_in]",
    "HostCapacity[network_out]",
    "ResourceCapacity[cpu]",
    "HostCapacity[cpu]",
    "ReplicaDistribution",
    "PotentialNetworkOut",
    "UsageDistribution[disk]",
    "UsageDistribution[network_in]",
    "UsageDistribution[network_out]",
    "UsageDistribution[cpu]",
    "TopicReplicaDistribution",
    "LeaderReplicaDistribution",
    "LeaderBytesInDistribution",
]


def test_cruise_controls_sixteen_goals_in_their_order() -> None:
    goals: list[Any] = load_goals("cruise-control")
    assert [g.name for g in goals] == CRUISE_CONTROL
    assert sorted({g.tier for g in goals}) == list(range(16))
    assert [g.hard for g in goals] == [g.tier <= 6 for g in goals]
    assert goals[2].limit == 10000
    assert [g.threshold for g in goals if "Capacity[" in g.name] == [0.8, 0.8, 0.8, 0.7, 0.7]


def test_autobalancers_two_goals_share_a_soft_tier() -> None:
    goals: list[Any] = load_goals({"profile": "autobalancer"})
    assert [(g.tier, g.weight, g.hard) for g in goals] == [(0, 1.0, False)] * 2
    assert [(g.deviation, g.detect_threshold) for g in goals] == [(0.1, 1048576)] * 2


def test_the_default_vetoes_only_in_its_first_tier() -> None:
    assert [g.hard for g in load_goals()] == [g.tier == 0 for g in load_goals()]


def test_every_profile_loads_and_names_goals_that_exist() -> None:
    assert profiles() == [
        "autobalancer",
        "cruise-control",
        "default",
        "stateful-tasks",
        "stream-jobs",
    ]
    for profile in profiles():
        assert {type(g).__name__ for g in load_goals(profile)} <= set(available())


def test_goals_without_a_tier_stand_one_after_another() -> None:
    entries = ["RackAwareness", {"goal": "ReplicaCapacity", "tier": 4}, "ReplicaDistribution"]
    assert [g.tier for g in load_goals({"goals": entries})] == [0, 4, 5]
    entries = [{"goal": "ReplicaCapacity", "tier": 1}, {"goal": "RackAwareness", "tier": 0}]
    assert [g.name for g in load_goals({"goals": entries})] == ["RackAwareness", "ReplicaCapacity"]


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    yaml, toml = tmp_path / "goals.yaml", tmp_path / "goals.toml"
    yaml.write_text("goals:\n  - {goal: ReplicaCapacity, limit: 5000, hard: false, weight: 0.5}\n")
    toml.write_text(
        '[[goals]]\ngoal = "ReplicaCapacity"\nlimit = 5000\nhard = false\nweight = 0.5\n'
    )
    goal: Any
    (goal,) = load_goals(yaml)
    assert (goal.limit, goal.hard, goal.weight) == (5000, False, 0.5)
    assert load_goals(str(toml)) == [goal]
    yaml.write_text("profile: autobalancer\n")
    assert load_goals(yaml) == load_goals("autobalancer")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"profile": "fast"}, "profile 'fast' found, autobalancer, cruise-control, default"),
        ({"profile": "default", "goals": []}, "profile and goals found, either of them alone"),
        ({"goals": []}, "an empty list found"),
        ({"goals": "RackAwareness"}, "goals: 'RackAwareness' found, a list of goals expected"),
        ({"gaols": ["RackAwareness"]}, "gaols found, either a profile"),
        ({"goals": [3]}, "entry 0: 3 found, a name or a mapping with `goal` expected"),
        ({"goals": ["RackAwareness", "Rack"]}, "entry 1: goal 'Rack' found, one of"),
        (
            {"goals": [{"goal": "ReplicaCapacity", "limit": "many"}]},
            "goal ReplicaCapacity, field limit: 'many' found; a number expected",
        ),
        ({"goals": [{"goal": "ReplicaCapacity", "limit": "3"}]}, "'3' found; a number expected"),
        (
            {"goals": [{"goal": "ReplicaCapacity", "limit": 10**400}]},
            "field limit: 10000000000000000000",
        ),
        (
            {"goals": [{"goal": "MinTopicLeaders", "minimum": 1e20}]},
            "field minimum: 1e+20 found; a whole number below 2**31 expected",
        ),
        ({"goals": [{"goal": "ReplicaCapacity", "limit": True}]}, "True found; a number expected"),
        ({"goals": [{"goal": "ReplicaCapacity", "tier": "1"}]}, "'1' found; a number expected"),
        ({"goals": [{"goal": "ReplicaCapacity", "hard": "no"}]}, "true or false expected"),
        ({"goals": [{"goal": "ReplicaCapacity", "hard": 1}]}, "1 found; true or false expected"),
        *(
            (
                {"goals": [{"goal": "ResourceCapacity", "resource": "disk", "threshold": t}]},
                f"goal ResourceCapacity, field threshold: {t!r} found; {expected}",
            )
            for t, expected in (
                ("0_8", "a number expected"),
                (5e-324, "a share of the capacity from 1e-09 to 5 expected"),
                (1e300, "a share of the capacity from 1e-09 to 5 expected"),
            )
        ),
        (
            {"goals": [{"goal": "ReplicaCapacity", "weight": 10**400}]},
            "goal ReplicaCapacity, field weight: 1000",
        ),
        (
            {"goals": [{"goal": "ReplicaCapacity", "weight": 0}]},
            "goal ReplicaCapacity, field weight: 0 found; input should be greater than 0",
        ),
        (
            {"goals": [{"goal": "ReplicaCapacity", "limt": 3}]},
            "goal ReplicaCapacity, field limt: not a field of it; it has hard, weight, tier, limit",
        ),
        ({"goals": ["ResourceCapacity"]}, "goal ResourceCapacity, field resource: none found"),
        (
            {"goals": [{"goal": "MinTopicLeaders", "topics": "("}]},
            "goal MinTopicLeaders, field topics: '(' found; a regular expression expected",
        ),
        (
            {"goals": [{"goal": "TopicReplicaDistribution", "min_gap": 50}]},
            "max_gap at least min_gap (50) expected",
        ),
        ("missing.yaml", "'missing.yaml' found, a file or a profile"),
    ],
)
def test_a_bad_configuration_is_one_clear_sentence(config: Any, said: str) -> None:
    with pytest.raises(GoalError) as error:
        load_goals(config)
    assert isinstance(error.value, InputError)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "goals: ["), ("a.toml", "goals = ["), ("b.yaml", "- 1\n")]
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(GoalError) as error:
        load_goals(tmp_path / name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "profile: default\ngoals: [RackAwareness]\n"),
        ("a.toml", 'profile = "default"\ngoals = ["RackAwareness"]\n'),
        ("b.yaml", "profile: default\nweight: 3\n"),
    ],
)
def test_nothing_beside_the_profile_of_a_file_is_dropped(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(GoalError) as error:
        load_goals(tmp_path / name)
    said = str(error.value)
    assert said.startswith(f"goals file {tmp_path / name}: goals: profile and ")
    assert said.endswith("found, either of them alone expected")


def test_a_profile_leaves_out_what_a_snapshot_lacks() -> None:
    names = [g.name for g in goals_for(snapshot([[0], [1]], brokers=2))]
    assert "UsageDistribution[disk]" in names
    assert not [n for n in names if "network" in n.lower() or "cpu" in n or "BrokerSet" in n]


def test_a_list_of_ones_own_may_not_ask_for_what_a_snapshot_lacks() -> None:
    one = snapshot([[0], [1]], brokers=2)
    for value in ("gpu", ""):
        config = {"goals": [{"goal": "UsageDistribution", "resource": value}]}
        with pytest.raises(GoalError, match=f"the snapshot has no resource '{value}'; it has disk"):
            goals_for(one, config)
    with pytest.raises(GoalError, match="DiskCapacity: the snapshot has no disks"):
        goals_for(one, {"goals": ["DiskCapacity"]})
    with pytest.raises(GoalError, match="BrokerSetAwareness: the snapshot has no broker sets"):
        applicable(load_goals({"goals": ["BrokerSetAwareness"]}), one, strict=True)
    jbod = synthetic_snapshot(brokers=4, partitions=20, racks=2, replication_factor=2)
    assert applicable(load_goals({"goals": ["DiskCapacity"]}), jbod, strict=False) == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{goal: DiskCapacity, threshold: 80}", "DiskCapacity, field threshold: 80 found; a share"),
        ("{goal: ResourceCapacity, resource: disk, threshold: 70}", "(0.8 means 80 %)"),
        ("{goal: HostCapacity, resource: cpu, threshold: 0}", "(0.8 means 80 %)"),
        ("{goal: PotentialNetworkOut, threshold: 80}", "(0.8 means 80 %)"),
        ("{goal: ReplicaDistribution, threshold: 110}", "(1.1 means 10 % above it)"),
        ("{goal: DiskUsageDistribution, threshold: 110}", "(1.1 means 10 % above it)"),
        ("{goal: TopicReplicaDistribution, threshold: 300}", "(1.1 means 10 % above it)"),
        ("{goal: NetworkInUsageDistribution, baseline: 1XB}", "'1XB' found; bytes/s like"),
    ],
)
def test_percents_in_a_file_are_refused_with_file_field_and_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, said: str
) -> None:
    # A relative path: one that is too long for a message is cut.
    monkeypatch.chdir(tmp_path)
    file = Path("goals.yaml")
    file.write_text(f"goals: [{entry}]\n")
    with pytest.raises(GoalError) as error:
        load_goals(file)
    assert str(error.value).startswith(f"goals file {file}: goal ")
    assert said in str(error.value)


def test_rates_of_a_goal_are_taken_with_their_unit() -> None:
    (goal,) = load_goals(
        {"goals": [{"goal": "NetworkInUsageDistribution", "detect_threshold": "1MiB/s"}]}
    )
    assert goal.model_dump()["detect_threshold"] == 2**20
