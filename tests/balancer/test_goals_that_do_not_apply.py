"""No goal is dropped silently: lists must apply, profiles state what they leave out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from balancer_cases import small
from command_line import invoke

from balancer import Balancer, Operation, PlanDocument
from balancer.composition.attributes import StatedAttributes
from balancer.controller.finding import View
from balancer.controller.settings import Settings
from balancer.controller.violations import GoalViolationDetector
from balancer.problem.operation import OperationError
from balancer.verification.checker import check_plan
from cluster_model.files import save_snapshot
from goals import GoalError, load_goals

SNAPSHOT = small()
TYPING_ERROR: dict[str, Any] = {"goals": [{"goal": "UsageDistribution", "resource": "dsk"}]}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    save_snapshot(SNAPSHOT, tmp_path / "cluster.json")
    return tmp_path / "cluster.json"


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "goals: [{goal: UsageDistribution, resource: dsk}]",
            "goal UsageDistribution[dsk]: the snapshot has no resource 'dsk'; it has cpu, "
            "network_in, network_out, disk",
        ),
        ("goals: [DiskCapacity]", "goal DiskCapacity: the snapshot has no disks"),
        ("goals: [BrokerSetAwareness]", "goal BrokerSetAwareness: the snapshot has no broker sets"),
    ],
)
def test_a_goal_of_a_file_that_does_not_apply_is_an_error(
    tmp_path: Path, config: str, said: str, as_text: bool
) -> None:
    path = tmp_path / "goals.yaml"
    path.write_text(config)
    with pytest.raises(GoalError) as error:
        Balancer(str(path) if as_text else path).propose(SNAPSHOT)
    assert str(error.value) == said


def test_a_goal_of_a_mapping_or_a_list_that_does_not_apply_is_an_error() -> None:
    for goals in (TYPING_ERROR, load_goals(TYPING_ERROR)):
        with pytest.raises(GoalError, match="no resource 'dsk'"):
            Balancer(goals).propose(SNAPSHOT)


def test_the_command_line_names_the_goal_and_exits_with_2(cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "goals.yaml"
    path.write_text("goals: [{goal: UsageDistribution, resource: dsk}]")
    done = invoke(["propose", cluster, "--goals", path])
    assert done.exit_code == 2
    assert "no resource 'dsk'; it has cpu, network_in, network_out, disk" in done.stderr


def test_a_profile_says_what_it_leaves_out(cluster: Path, tmp_path: Path) -> None:
    expected = {"BrokerSetAwareness": "goal BrokerSetAwareness: the snapshot has no broker sets"}
    file = tmp_path / "goals.yaml"
    file.write_text("profile: default")
    for profile in ({"profile": "default"}, file):
        assert Balancer(profile).propose(SNAPSHOT).goals_left_out == expected
    plan = Balancer("default").propose(SNAPSHOT)
    assert json.loads(plan.to_json())["goals_left_out"] == expected
    shown = invoke(["propose", cluster])
    assert f"Left out: {expected['BrokerSetAwareness']}" in shown.stdout


def test_a_pattern_that_matches_no_topic_is_a_warning(cluster: Path) -> None:
    goals = {"goals": [{"goal": "MinTopicLeaders", "topics": "ordrs"}]}
    asked = Operation(excluded_topics=("paymnts", "topic-0"), allow_unmatched=True)
    plan = Balancer(goals).propose(SNAPSHOT, asked)
    assert plan.warnings == (
        "goal MinTopicLeaders, field topics: 'ordrs' matches none of the snapshot's topics",
        "excluded_topics: 'paymnts' matches none of the snapshot's topics",
    )
    assert PlanDocument.model_validate_json(plan.to_json()).warnings == plan.warnings
    assert check_plan(SNAPSHOT, plan.document()).ok
    shown = invoke(["propose", cluster, "--exclude-topics", "paymnts", "--allow-unmatched"])
    assert "Warning: excluded_topics: 'paymnts' matches none" in shown.stdout


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("topic-*", "'topic-*' matches no topic, where a regular expression like 'topic-.*' is"),
        ("*-0", "a regular expression like '.*-0' expected (nothing to repeat at position 0)"),
        ("top.ic?", r"'top.ic?' matches no topic, where a regular expression like 'top\.ic.' is"),
        ("paymnts", "'paymnts' matches no topic; --allow-unmatched (allow_unmatched) is for"),
        ("", "'' matches no topic; "),
    ],
)
def test_an_exclusion_that_matches_nothing_is_an_error(
    cluster: Path, tmp_path: Path, pattern: str, said: str
) -> None:
    written = tmp_path / "plan.json"
    excluded = ["--exclude-topics", "topic-0", "--exclude-topics", pattern]
    done = invoke(["propose", cluster, *excluded, "-o", written])
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not written.exists()
    for kind in ("rebalance", "right_size", "fix_offline_replicas"):
        with pytest.raises(OperationError, match=re.escape(said)):
            Balancer().propose(SNAPSHOT, Operation(kind=kind, excluded_topics=(pattern,)))


def test_a_glob_in_other_places_is_answered_with_what_was_meant(cluster: Path) -> None:
    like = "where a regular expression like 'topic-.*' is expected"
    goals = {"goals": [{"goal": "MinTopicLeaders", "topics": "topic-*"}]}
    assert like in Balancer(goals).propose(SNAPSHOT).warnings[0]
    done = invoke(["propose", cluster, "--replication-factor", "topic-*=2"])
    assert done.exit_code == 2
    assert like in done.stderr
    notices: list[str] = []
    StatedAttributes(topics={"topic-*": {"team": "a"}}).applied(SNAPSHOT, notices.append)
    assert like in notices[0]


def test_patterns_that_match_warn_of_nothing() -> None:
    goals = {"goals": [{"goal": "MinTopicLeaders", "topics": "topic-.*"}]}
    assert Balancer(goals).propose(SNAPSHOT).warnings == ()
    warnings = Balancer("cruise-control").propose(SNAPSHOT).warnings
    assert all("no placement keeps" in warning for warning in warnings)


def test_a_controller_tells_of_a_goal_that_does_not_apply() -> None:
    detector = GoalViolationDetector(
        Settings().goal_violations, load_goals(TYPING_ERROR), strict=True
    )
    (finding,) = detector.look(View(SNAPSHOT, now=1000.0))
    assert finding.state == "waiting"
    assert "no resource 'dsk'" in finding.sentence
