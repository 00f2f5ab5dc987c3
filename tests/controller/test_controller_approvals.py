"""A controller whose plans wait for approval, are held back, or are executed as approved."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from controller_cases import Applies, Ended, Progressed, Stage, Still, heavier, skewed
from waiting import LIMIT

from balancer.approval import Approvals, KeptProposal, ProposalStore, changes_since
from balancer.controller import Controller, in_thread
from balancer.execution import ChangedClusterError
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan

MANUAL = {"approval": {"mode": "manual"}, "goal_violations": {"rounds": 1}}


class Exact(Applies):
    """An executor that carries out documents of plans, and records their digests."""

    def __init__(self, model: Still) -> None:
        super().__init__(model)
        self.digests: list[str] = []
        self.ends = Ended()
        self.error: Exception | None = None
        self.may_end = threading.Event()
        self.may_end.set()
        self.asked_to_stop = threading.Event()

    def execute(self, plan: Plan, *, progress: Progressed = None) -> Ended:
        super().execute(plan, progress=progress)
        return self._end()

    def execute_exactly(self, plan: PlanDocument, *, progress: Progressed = None) -> Ended:
        if self.error is not None:
            raise self.error
        if changes := changes_since(plan, self.model.cluster):
            raise ChangedClusterError(changes)
        self.digests.append(plan.content_digest)
        return self._end()

    def stop(self) -> None:
        super().stop()
        self.asked_to_stop.set()
        self.may_end.set()

    def _end(self) -> Ended:
        self.asked_to_stop.clear()
        self.may_end.wait(30.0)
        return Ended(state="stopped") if self.asked_to_stop.is_set() else self.ends


class Vote:
    """A vote that a test gives and takes."""

    def __init__(self, acting: bool = True) -> None:
        self.acting = acting
        self.resigned = 0

    def resign(self) -> None:
        self.resigned += 1
        self.acting = False

    def rejoin(self) -> None:
        self.acting = True


def stage(settings: dict[str, Any] | None = None, **options: Any) -> tuple[Stage, Exact]:
    model = Still(skewed())
    executor = Exact(model)
    found = Stage(model.cluster, {**MANUAL, **(settings or {})}, executor=executor, **options)
    executor.model = found.model
    return found, executor


def proposed(found: Stage) -> KeptProposal:
    """Makes rounds until a proposal waits."""
    for _ in range(5):
        found.controller.step()
        found.now += 60
        kept = found.controller.approvals.store.all()
        if kept:
            return kept[-1]
    raise AssertionError(found.reason)


def approve(found: Stage, kept: KeptProposal, by: str = "ann") -> KeptProposal:
    return found.controller.approvals.approve(kept.id, kept.digest, by=by)


def state(found: Stage, kept: KeptProposal) -> str:
    return found.controller.approvals.store.get(kept.id).state


def test_a_plan_waits_and_is_executed_as_approved() -> None:
    found, executor = stage()
    kept = proposed(found)
    assert found.controller.decisions[-1].facts["proposal"] == kept.id
    assert "every plan needs approval" in found.reason
    found.rounds(3)
    assert not executor.digests
    approve(found, kept)
    found.controller.step()
    assert executor.digests == [kept.digest]
    assert state(found, kept) == "executed"
    started = next(d for d in reversed(found.controller.decisions) if d.kind == "started")
    assert "approved by ann" in started.reason
    assert started.facts["digest"] == kept.digest


def test_the_controller_offers_one_proposal_at_a_time() -> None:
    found, _ = stage()
    first = proposed(found)
    found.model.cluster = heavier(found.model.cluster, 1, 3.0)
    for _ in range(40):
        found.controller.step()
        found.now += 600
    kept = found.controller.approvals.store.all()
    assert [k.state for k in kept].count("open") <= 1
    assert kept[0].id == first.id


def test_a_cluster_that_changed_is_left_alone() -> None:
    found, executor = stage()
    kept = proposed(found)
    approve(found, kept)
    plan = found.controller.approvals.store.plan(kept.id)
    cluster = found.model.cluster
    action = next(a for a in plan.actions if a.kind == "move")
    topic = cluster.topics.index(action.topic)
    row = next(
        p
        for p in range(cluster.n_partitions)
        if (cluster.partition_topic[p], cluster.partition_number[p]) == (topic, action.partition)
    )
    start, end = cluster.replica_offset[row : row + 2].tolist()
    brokers = cluster.replica_broker.copy()
    brokers[start] = next(b for b in range(6) if b not in brokers[start:end].tolist())
    found.model.cluster = replace(cluster, replica_broker=brokers)
    found.controller.step()
    assert not executor.digests
    assert state(found, kept) == "stale"
    assert "propose again" in found.reason


@pytest.mark.parametrize(
    ("error", "ends", "expected"),
    [
        (ChangedClusterError(["a-0 is on [1]"]), Ended(), "stale"),
        (RuntimeError("boom"), Ended(), "failed"),
        (None, Ended(state="vote lost"), "failed"),
        (None, Ended(state="failed"), "failed"),
        (None, Ended(state="stopped"), "failed"),
    ],
)
def test_how_an_execution_ended_is_kept(
    error: Exception | None, ends: Ended, expected: str
) -> None:
    found, executor = stage()
    kept = proposed(found)
    executor.error, executor.ends = error, ends
    approve(found, kept)
    found.controller.step()
    assert state(found, kept) == expected
    assert found.controller.approvals.store.get(kept.id).outcome is not None
    before = len(executor.digests)
    found.rounds(3)
    # Approved once, tried once.
    assert len(executor.digests) == before


def test_an_executor_that_cannot_be_exact_executes_nothing() -> None:
    found = Stage(skewed(), MANUAL)
    kept = proposed(found)
    approve(found, kept)
    found.controller.step()
    assert state(found, kept) == "failed"
    assert not found.executor.plans


def test_a_vote_lost_between_approval_and_start_starts_nothing() -> None:
    vote = Vote()
    found, executor = stage(vote=vote)
    kept = proposed(found)
    approve(found, kept)
    vote.acting = False
    assert found.rounds(3) == ["standby"] * 3
    assert (executor.digests, state(found, kept)) == ([], "approved")
    vote.acting = True
    found.rounds(2)
    assert executor.digests == [kept.digest]


def test_a_controller_that_ends_starts_nothing_more() -> None:
    found, executor = stage()
    kept = proposed(found)
    approve(found, kept)
    snapshot = found.model.snapshot

    def ending() -> Any:
        # The end is asked for while the cluster is read.
        found.controller.stop()
        return snapshot()

    found.model.snapshot = ending  # type: ignore[method-assign]
    found.controller.step()
    assert (executor.digests, state(found, kept)) == ([], "approved")


def test_a_restart_executes_what_was_approved(tmp_path: Path) -> None:
    def desk() -> Approvals:
        return Approvals(
            ProposalStore(tmp_path), lambda: found.controller.settings.approval, lambda: found.now
        )

    found, executor = stage()
    found.controller.approvals = desk()
    kept = proposed(found)
    approve(found, kept)
    found.controller.approvals = desk()
    found.controller.step()
    assert executor.digests == [kept.digest]
    found.controller.approvals = desk()
    assert state(found, kept) == "executed"


def test_windows_hold_back_automatic_plans_but_not_healing() -> None:
    # The clock starts on a Tuesday at 22:13 UTC.
    window = {"days": ["wed"], "start": "00:00", "end": "23:00"}
    policy = {"approval": {"windows": [window]}}
    found, executor = stage(policy)
    kept = proposed(found)
    assert "no maintenance window" in found.reason
    assert not executor.plans
    approve(found, kept)
    found.rounds(2)
    assert not executor.digests
    found.now += 7200
    found.rounds(2)
    assert executor.digests == [kept.digest]
    healing, other = stage({**policy, "dead_brokers": {"heal_after": 0}})
    healing.model.with_states(dead=[3])
    healing.rounds(5)
    assert other.plans


def test_a_hold_lets_the_execution_in_progress_go_on() -> None:
    vote = Vote()
    found, executor = stage(spawn=in_thread, vote=vote)
    assert found.controller.wait(LIMIT)
    kept = proposed(found)
    approve(found, kept)
    executor.may_end.clear()
    found.controller.step()
    assert found.controller.work is not None
    found.controller.hold(True)
    assert found.rounds(3) == ["executing"] * 3
    assert executor.stops == 0
    assert vote.resigned == 0
    executor.may_end.set()
    assert found.controller.wait(LIMIT)
    assert state(found, kept) == "executed"
    found.controller.step()
    # Nothing is left to clean up: somebody else may act.
    assert vote.resigned == 1
    found.controller.hold(False)
    found.rounds(2)
    assert vote.acting


def test_a_hold_keeps_what_is_approved_until_it_ends() -> None:
    found, executor = stage()
    kept = proposed(found)
    approve(found, kept)
    found.controller.hold(True)
    found.rounds(3)
    assert not found.controller.executes
    assert (executor.digests, state(found, kept)) == ([], "approved")
    found.controller.hold(False)
    found.rounds(2)
    assert executor.digests == [kept.digest]


def test_proposals_of_a_controller_that_only_proposes_expire() -> None:
    now = [1_700_000_000.0]
    controller: Controller
    desk = Approvals(ProposalStore(), lambda: controller.settings.approval, lambda: now[0])
    found = Stage(skewed(), MANUAL, executor=None, approvals=desk)
    controller = found.controller
    kept = proposed(found)
    now[0] += 10**6
    controller.step()
    assert desk.store.get(kept.id).state in ("expired", "superseded")
