"""Plans are for one cluster, carry a digest, and another cluster refuses them."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from execution_cases import FakeCluster, WonElection, move, plan_of
from typer.testing import Result

from balancer import Balancer, Identity, Plan, PlanDocument, load_plan
from balancer.execution import ExecutionError, Executor, Limits
from balancer.execution.cluster import ClusterClient, Key
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, load_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, simulated_source


def snapshot(**identity: Any) -> Snapshot:
    return replace(synthetic_snapshot(brokers=6, partitions=60, racks=3), **identity)


def proposed(**identity: Any) -> Plan:
    plan = Balancer().propose(snapshot(**identity))
    assert len(plan)
    return plan


def fake() -> FakeCluster:
    return FakeCluster({Key("a", n): (0, 1) for n in range(2)})


def executor(cluster: ClusterClient, path: Path) -> Executor:
    limits = Limits(progress_interval=0.1)
    return Executor("x:1", journal=path / "journal", limits=limits, connect=lambda: cluster)


def by_hand(**identity: Any) -> PlanDocument:
    return plan_of(move("a", 0, 1, 2)).model_copy(update={"identity": Identity(**identity)})


# --- what a plan says of itself


def test_a_plan_states_cluster_time_and_snapshot(tmp_path: Path) -> None:
    plan = proposed(cluster_id="c1", taken_ms=1_700_000_000_000, metadata_version=30)
    plan.save(tmp_path / "plan.json")
    found = load_plan(tmp_path / "plan.json")
    assert found.identity == plan.identity
    assert found.identity == Identity(
        cluster_id="c1",
        taken_ms=1_700_000_000_000,
        metadata_version=30,
        snapshot_digest=snapshot().digest(),
    )
    assert found.digest == found.content_digest == plan.digest


def test_equal_inputs_still_give_equal_bytes(tmp_path: Path) -> None:
    identity = {"cluster_id": "c1", "taken_ms": 5}
    save_snapshot(snapshot(**identity), tmp_path / "cluster.json")
    again = Balancer().propose(load_snapshot(tmp_path / "cluster.json"))
    assert proposed(**identity).to_json() == again.to_json()


def test_the_digest_is_of_the_content() -> None:
    digests = {
        proposed().digest,
        proposed(cluster_id="c1").digest,
        proposed(cluster_id="c1", taken_ms=1).digest,
        Balancer(seed=7).propose(snapshot(cluster_id="c1")).digest,
    }
    assert len(digests) == 4


def test_plans_of_earlier_releases_still_load(tmp_path: Path) -> None:
    old = json.loads(proposed().to_json())
    del old["identity"], old["digest"]
    (tmp_path / "plan.json").write_text(json.dumps(old))
    found = load_plan(tmp_path / "plan.json")
    assert (found.identity, found.digest) == (Identity(), None)
    assert check_plan(snapshot(), found).ok


@pytest.mark.parametrize("blocked", [True, False])
def test_plans_from_before_replicas_were_stated_keep_their_digest(
    tmp_path: Path, blocked: bool
) -> None:
    # As earlier releases wrote it: without the fields, and with the digest of the rest.
    old = json.loads(proposed(cluster_id="c1").to_json())
    del old["replicas"], old["budget"], old["unreached"], old["sizing"], old["digest"]
    if not blocked:
        del old["summary"]["blocked"]
    text = json.dumps(old, sort_keys=True, separators=(",", ":"))
    old["digest"] = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "plan.json").write_text(json.dumps(old))
    found = load_plan(tmp_path / "plan.json")
    assert found.digest == found.content_digest
    report = check_plan(snapshot(cluster_id="c1"), found)
    assert report.ok
    assert "replicas" in {u.field for u in report.unchecked}


# --- what the execution refuses


@pytest.mark.parametrize(
    ("planned", "stated", "said"),
    [
        ("fake", None, None),
        ("fake", "fake", None),
        (None, "fake", None),
        (None, None, r"names no cluster.*--cluster-id ID.*to cluster fake"),
        ("other", None, r"plan is for cluster other, but the brokers belong to cluster fake"),
        ("other", "fake", r"plan is for cluster other, but .* fake"),
        ("fake", "other", r"cluster other stated, but .* to cluster fake"),
        (None, "other", r"cluster other stated, but .* to cluster fake"),
    ],
)
def test_only_a_plan_of_this_cluster_is_executed(
    tmp_path: Path, planned: str | None, stated: str | None, said: str | None
) -> None:
    cluster = fake()
    running, plan = executor(cluster, tmp_path), by_hand(cluster_id=planned)
    if said is None:
        assert len(running.preview(plan, cluster_id=stated).tasks) == 1
        assert running.execute(plan, cluster_id=stated).state == "done"
        return
    for act in (running.preview, running.execute):
        with pytest.raises(ExecutionError, match=said):
            act(plan, cluster_id=stated)
    assert cluster.asked == []
    assert not (tmp_path / "journal").exists() or not (tmp_path / "journal").read_bytes()


def test_a_changed_plan_is_not_executed(tmp_path: Path) -> None:
    cluster, made = fake(), by_hand(cluster_id="fake")
    made = made.model_copy(update={"digest": made.content_digest})
    changed = made.model_copy(update={"actions": (move("a", 0, 1, 3),)})
    with pytest.raises(ExecutionError, match="changed after it was made: digest"):
        executor(cluster, tmp_path).execute(changed)
    assert cluster.asked == []
    assert executor(cluster, tmp_path).execute(made).state == "done"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What the command carries plans out on."""
    found = fake()

    def connected(*args: Any, **options: Any) -> Executor:
        return Executor(*args, **options, connect=lambda: found)

    command = importlib.import_module("balancer.composition.execution")
    monkeypatch.setattr(command, "Executor", connected)
    monkeypatch.setattr(command, "Election", WonElection)
    return found


def command(path: Path, plan: PlanDocument | str, *options: str) -> Result:
    (path / "plan.json").write_text(plan if isinstance(plan, str) else plan.model_dump_json())
    given = [str(path / "plan.json"), "--bootstrap-server", "x:1"]
    return invoke(["execute", *given, "--journal", path / "j", *options])


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_the_command_refuses_in_a_sentence(
    cluster: FakeCluster, tmp_path: Path, yes: list[str]
) -> None:
    for plan, options, said in (
        (by_hand(), [], "names no cluster"),
        (by_hand(cluster_id="other"), [], "for cluster other"),
        (by_hand(), ["--cluster-id", "other"], "cluster other stated"),
        (
            proposed(cluster_id="fake").to_json().replace('"cost_total": ', '"cost_total": 1'),
            [],
            "changed after it was made",
        ),
    ):
        result = command(tmp_path, plan, *yes, *options)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert said in line
        assert cluster.asked == []
    assert command(tmp_path, by_hand(), "--cluster-id", "fake", *yes).exit_code == 0


@pytest.mark.parametrize(("days", "warned"), [(0.5, False), (3, True)])
def test_the_command_says_how_old_the_snapshot_is(
    cluster: FakeCluster, tmp_path: Path, days: float, warned: bool
) -> None:
    taken = int(1000 * (time.time() - days * 86400))
    result = command(tmp_path, by_hand(cluster_id="fake", taken_ms=taken))
    assert result.exit_code == 0
    assert (f"snapshot of the plan is {days:.1f} days old" in result.stderr) == warned


# --- what the checker says


def kinds(s: Snapshot, plan: PlanDocument) -> set[str]:
    return {m.kind for m in check_plan(s, plan).mismatches}


def test_the_checker_tells_another_snapshot_cluster_or_plan() -> None:
    start = snapshot(cluster_id="c1")
    plan = proposed(cluster_id="c1").document()
    assert check_plan(start, plan).ok
    assert kinds(replace(start, cluster_id="c2"), plan) == {"other cluster"}
    lagging = replace(start, lag=np.ones(start.n_partitions))
    assert kinds(lagging, plan) == {"other snapshot"}
    actions = (plan.actions[0].model_copy(update={"helped": {}}), *plan.actions[1:])
    assert "changed plan" in kinds(start, plan.model_copy(update={"actions": actions}))


# --- what keeps it


def test_the_live_model_keeps_the_identity_of_its_metadata() -> None:
    s = snapshot(cluster_id="c1", taken_ms=7, metadata_version=30)
    s = replace(s, reassigning=np.arange(s.n_partitions) == 3)
    model = ClusterModel(s)
    for report in islice(simulated_source(s), 11):
        model.add_all(report)
    found = model.snapshot()
    assert (found.cluster_id, found.taken_ms, found.metadata_version) == ("c1", 7, 30)
    assert found.reassigning.tolist() == s.reassigning.tolist()
    model.update(replace(s, taken_ms=8))
    assert model.snapshot().taken_ms == 8
    assert Balancer().propose(found).identity.cluster_id == "c1"
