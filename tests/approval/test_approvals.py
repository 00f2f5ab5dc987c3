"""The desk: decisions, restarts with damaged files, many at once; nothing approved is lost."""

from __future__ import annotations

import errno
import functools
import gzip
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from balancer import Balancer, Plan
from balancer.approval import ApprovalError, ApprovalPolicy, Approvals, KeptProposal, ProposalStore
from balancer.approval import store as store_module
from cluster_model import synthetic_snapshot

NAMES = ("ann", "bo", "cy")


@functools.cache
def plan_of(number: int) -> Plan:
    return Balancer("default").propose(
        synthetic_snapshot(brokers=6, partitions=36, racks=3, seed=number)
    )


class Desk:
    """Approvals with a clock and a policy that tests set."""

    def __init__(self, directory: Path | None = None, **policy: Any) -> None:
        self.now = 1_000_000.0
        self.policy = ApprovalPolicy.model_validate(policy)
        self.directory = directory
        self.seen: list[KeptProposal] = []
        self.restart()

    def restart(self) -> None:
        self.approvals = Approvals(
            ProposalStore(self.directory),
            lambda: self.policy,
            lambda: self.now,
            lambda proposal: self.seen.append(proposal),
        )

    def keep(self, number: int = 0, by: str = "ann", cause: str = "request") -> KeptProposal:
        self.now += 1
        return self.approvals.keep(
            plan_of(number), by=by, cause=cause, reason="a test", figures={"moves": 1}
        )

    def approve(self, kept: KeptProposal, by: str = "bo") -> KeptProposal:
        return self.approvals.approve(kept.id, kept.digest, by=by)

    def state(self, kept: KeptProposal) -> str:
        return self.approvals.store.get(kept.id).state


def test_a_plan_is_read_once_by_those_who_ask_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks several things about a plan at once; each reading of a large one takes long."""
    desk = Desk(tmp_path)
    kept = desk.keep()
    read, all_ask = [], threading.Barrier(4)
    text = ProposalStore.plan_text

    def slow(store: ProposalStore, identity: str) -> str:
        read.append(identity)
        time.sleep(0.2)
        return text(store, identity)

    def ask() -> None:
        all_ask.wait()
        desk.approvals.store.plan(kept.id)

    monkeypatch.setattr(ProposalStore, "plan_text", slow)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [kept.id]


def test_two_reviewers_are_two_people_and_not_who_asked() -> None:
    desk = Desk(reviewers=2)
    kept = desk.keep(by="ann")
    with pytest.raises(ApprovalError, match="asked for it"):
        desk.approve(kept, "ann")
    assert desk.approve(kept, "bo").state == "open"
    with pytest.raises(ApprovalError, match="approved it already"):
        desk.approve(kept, "bo")
    assert desk.approvals.next_approved() is None
    assert desk.approve(kept, "cy").state == "approved"
    found = desk.approvals.next_approved()
    assert found is not None
    assert [a.by for a in found.proposal.approvals] == ["bo", "cy"]


def test_a_stricter_policy_counts_for_proposals_that_wait() -> None:
    desk = Desk()
    kept = desk.keep(by="ann")
    desk.policy = ApprovalPolicy(reviewers=2)
    assert desk.approve(kept, "bo").state == "open"
    desk.policy = ApprovalPolicy(reviewers=1)
    # What has two reviewers keeps them.
    with pytest.raises(ApprovalError, match="asked for it"):
        desk.approve(kept, "ann")


def test_only_the_plan_that_was_looked_at_is_approved() -> None:
    desk = Desk()
    kept = desk.keep()
    for digest in (kept.digest[:12], "0" * 64, "", desk.keep(1).digest):
        with pytest.raises(ApprovalError, match="not this plan"):
            desk.approvals.approve(kept.id, digest, by="bo")
    with pytest.raises(ApprovalError, match="not found"):
        desk.approvals.approve("none", kept.digest, by="bo")


def test_time_ends_proposals_that_did_not_start() -> None:
    desk = Desk(expire_after=100)
    first, second, third = (desk.keep(n) for n in range(3))
    desk.approve(first)
    assert desk.approvals.next_approved() is not None
    desk.approve(second)
    desk.now += 100
    assert desk.approvals.next_approved() is None
    assert [desk.state(k) for k in (first, second, third)] == ["executing", "expired", "expired"]
    with pytest.raises(ApprovalError, match="is expired"):
        desk.approve(third)
    with pytest.raises(ApprovalError, match="is expired"):
        desk.approvals.reject(second.id, by="bo")


@pytest.mark.parametrize(("later", "state"), [(99.0, "executing"), (100.0, "expired")])
def test_what_expires_while_its_plan_is_read_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, state: str
) -> None:
    """Reading a plan of a million actions takes long."""
    desk = Desk(tmp_path, expire_after=100)
    kept = desk.keep()
    desk.approve(kept)
    text = ProposalStore.plan_text

    def slow(store: ProposalStore, identity: str) -> str:
        desk.now += later
        return text(store, identity)

    monkeypatch.setattr(ProposalStore, "plan_text", slow)
    assert (desk.approvals.next_approved() is not None) == (state == "executing")
    assert desk.state(kept) == state


def test_what_was_read_until_the_window_closed_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, expire_after=1e6, windows=[{"start": "00:00", "end": "02:00"}])
    desk.now = 86_400 * 12 + 3600.0
    kept = desk.keep()
    desk.approve(kept)
    text = ProposalStore.plan_text

    def slow(store: ProposalStore, identity: str) -> str:
        desk.now += 3600
        return text(store, identity)

    monkeypatch.setattr(ProposalStore, "plan_text", slow)
    assert desk.approvals.next_approved() is None
    assert desk.state(kept) == "approved"
    desk.now = 86_400 * 13 + 1800.0
    assert desk.approvals.next_approved() is not None


def test_a_newer_proposal_of_the_controller_supersedes_an_open_one_only() -> None:
    desk = Desk()
    old, other, asked = (
        desk.keep(0, "controller", "goal_violations"),
        desk.keep(1, "controller", "drained_brokers"),
        desk.keep(2, "ann"),
    )
    approved = desk.keep(3, "controller", "goal_violations")
    assert [desk.state(k) for k in (old, other, asked)] == ["superseded", "open", "open"]
    desk.approve(approved)
    desk.keep(4, "controller", "goal_violations")
    assert desk.state(approved) == "approved"
    with pytest.raises(ApprovalError, match="superseded"):
        desk.approve(old)


def test_the_same_plan_is_one_proposal_while_it_waits_or_executes() -> None:
    desk = Desk()
    kept, other = desk.keep(0), desk.keep(1)
    assert desk.keep(0) == kept
    desk.approve(kept)
    assert desk.keep(0).state == "approved"
    assert desk.approvals.next_approved() is not None
    assert desk.keep(0).state == "executing"
    desk.approvals.ended(kept.id, "failed", {})
    again = desk.keep(0)
    assert (again.state, again.approvals) == ("open", ())
    assert [p.id for p in desk.approvals.store.all()] == [kept.id, other.id, again.id]


@pytest.mark.parametrize("end", ["rejected", "failed", "stale", "interrupted", "expired"])
def test_a_plan_that_is_proposed_again_changes_no_record(tmp_path: Path, end: str) -> None:
    desk = Desk(tmp_path)
    kept = desk.keep()
    if end == "rejected":
        desk.approvals.reject(kept.id, by="bo")
    else:
        desk.approve(kept)
        desk.now += 10**6 if end == "expired" else 0
        assert (desk.approvals.next_approved() is None) == (end == "expired")
        desk.approvals.ended(kept.id, end, {"problems": ["x"]})
    if end == "interrupted":
        desk.restart()
    before = desk.approvals.store.get(kept.id)
    assert before.state == end
    again = desk.keep()
    assert again.digest == kept.digest
    assert desk.approvals.store.get(kept.id) == before
    desk.restart()
    assert desk.approvals.store.all() == (before, again)


def test_who_asked_for_a_plan_does_not_review_it_although_another_did_first() -> None:
    desk = Desk(reviewers=2)
    desk.keep(by="bo")
    own = desk.keep(by="ann")
    with pytest.raises(ApprovalError, match="asked for it"):
        desk.approve(own, "ann")


def test_an_id_is_a_number_of_32_bits_that_no_other_proposal_has_had(tmp_path: Path) -> None:
    now = time.time()
    for begin in (now, 1e6, 2.0**31 + 1.5e9, 1e12):
        desk = Desk(tmp_path / str(begin), keep=1, expire_after=1)
        desk.now = begin
        ids = [int(desk.keep(n).id) for n in range(3)]
        desk.now = begin - 1e5
        desk.restart()
        ids += [int(desk.keep(n, "bo").id) for n in range(3)]
        assert ids == sorted(set(ids))
        assert ids[0] > 0
        assert ids[-1] < 2**31
    # without the directory, or of another controller
    elsewhere = Desk()
    elsewhere.now = now + 10
    assert int(elsewhere.keep().id) > max(int(p.stem) for p in (tmp_path / str(now)).glob("*.json"))


def test_a_plan_without_actions_does_not_wait_for_anybody() -> None:
    desk = Desk()
    done = Balancer("default").propose(plan_of(0).final_snapshot())
    assert not len(done)
    kept = desk.approvals.keep(done, by="ann", cause="request", reason="", figures={})
    assert kept.state == "empty"
    with pytest.raises(ApprovalError, match="is empty, open expected"):
        desk.approve(kept)
    assert desk.approvals.next_approved() is None


def test_the_limit_removes_only_what_has_ended(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep=2)
    kept = [desk.keep(n) for n in range(4)]
    desk.approve(kept[0])
    assert len(desk.approvals.store.all()) == 4
    desk.approvals.reject(kept[1].id, by="bo")
    desk.approvals.reject(kept[2].id, by="bo")
    newest = desk.keep(4)
    assert [p.id for p in desk.approvals.store.all()] == [
        kept[0].id, kept[3].id, newest.id,
    ]  # fmt: skip
    names = {p.name.split(".")[0] for p in tmp_path.iterdir()}
    assert names == {p.id for p in desk.approvals.store.all()}


def test_windows_hold_approved_proposals_back() -> None:
    desk = Desk(windows=[{"start": "00:00", "end": "01:00"}], expire_after="3d")
    kept = desk.keep()
    desk.approve(kept)
    desk.now = 86_400 * 12 + 7200
    assert desk.approvals.next_approved() is None
    assert desk.state(kept) == "approved"
    desk.now = 86_400 * 13 + 1800
    assert desk.approvals.next_approved() is not None


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, reviewers=2)
    executing, approved, opened = (desk.keep(n) for n in range(3))
    for kept in (executing, approved):
        desk.approve(kept, "bo")
        desk.approve(kept, "cy")
    desk.approve(opened, "bo")
    assert desk.approvals.next_approved() is not None
    before = desk.approvals.store.all()
    desk.restart()
    after = desk.approvals.store.all()
    assert [p.model_copy(update={"state": "-"}) for p in before] == [
        p.model_copy(update={"state": "-"}) for p in after
    ]
    assert [desk.state(k) for k in (executing, approved, opened)] == [
        "interrupted", "approved", "open",
    ]  # fmt: skip
    found = desk.approvals.next_approved()
    assert found is not None
    assert found.plan.content_digest == approved.digest
    assert desk.approvals.next_approved() is None


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) * 50 + data[middle + 50 :]


def other_plan(data: bytes) -> bytes:
    return gzip.compress(plan_of(1).to_json().encode())


def moved_elsewhere(data: bytes) -> bytes:
    plan = json.loads(gzip.decompress(data))
    plan["actions"] = plan["actions"][:-1]
    return gzip.compress(json.dumps(plan).encode())


@pytest.mark.parametrize(
    "damage",
    [truncated, flipped, other_plan, moved_elsewhere, lambda data: b"", lambda data: b"{}", None],
)
def test_a_damaged_plan_fails_and_the_next_one_follows(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    desk = Desk(tmp_path)
    bad, good = desk.keep(0), desk.keep(2)
    desk.approve(bad)
    desk.approve(good)
    path = tmp_path / f"{bad.id}.plan.json.gz"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    desk.restart()
    found = desk.approvals.next_approved()
    assert found is not None
    assert found.proposal.id == good.id
    failed = desk.approvals.store.get(bad.id)
    assert failed.state == "failed"
    assert failed.outcome is not None
    assert "plan" in failed.outcome["problems"][0]


def test_foreign_and_damaged_records_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path, keep=1)
    kept = desk.keep(0)
    record = json.loads((tmp_path / f"{kept.id}.json").read_text())
    (tmp_path / "notes.json").write_text("[]")
    (tmp_path / "half.json").write_text(json.dumps(record)[:100])
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "copy.json").write_text(json.dumps(record))
    (tmp_path / "future.json").write_text(json.dumps({**record, "id": "future", "more": 1}))
    (tmp_path / "41.json").write_text(json.dumps(record))
    (tmp_path / "9999999999.json").write_text(json.dumps({**record, "id": "9999999999"}))
    outside = tmp_path.parent / "outside.json"
    outside.write_text("{}")
    climbing = {**record, "id": "../outside", "state": "rejected", "made": 0.0}
    (tmp_path / "climbing.json").write_text(json.dumps(climbing))
    desk.restart()
    assert [p.id for p in desk.approvals.store.all()] == [kept.id]
    assert sum("ignored" in r.message for r in caplog.records) == 9
    desk.approvals.reject(kept.id, by="bo")
    assert desk.keep(1).id == "42"
    assert outside.exists()


def full(path: Path, write: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_written_is_not_approved_and_an_end_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    kept, other = desk.keep(0), desk.keep(1)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_atomically", full)
        with pytest.raises(ApprovalError, match="No space"):
            desk.approve(kept)
        assert desk.state(kept) == "open"
    desk.approve(kept)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_atomically", full)
        assert desk.approvals.next_approved() is None
        assert desk.state(kept) == "approved"
        desk.now += 10**6
        desk.approvals.expire()
        assert desk.state(other) == "open"
        desk.now -= 10**6
    assert desk.approvals.next_approved() is not None
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_atomically", full)
        desk.approvals.ended(kept.id, "executed", {"state": "done"})
        assert desk.state(kept) == "executed"
    desk.restart()
    assert desk.state(kept) == "interrupted"


class Rush:
    """Decisions about one proposal, all at once."""

    def __init__(self, directory: Path) -> None:
        self.desk = Desk(directory)
        self.kept = self.desk.keep(0)
        self.started: list[Any] = []
        self.refused: list[str] = []
        work: list[Callable[[], Any]] = [
            lambda: self.desk.approve(self.kept, "bo"),
            lambda: self.desk.approve(self.kept, "cy"),
            lambda: self.desk.approvals.reject(self.kept.id, by="ann"),
            self.start,
            self.start,
            self.desk.approvals.expire,
        ]
        self.barrier = threading.Barrier(len(work))
        threads = [threading.Thread(target=self.at_once, args=(do,)) for do in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def at_once(self, do: Callable[[], Any]) -> None:
        self.barrier.wait()
        try:
            do()
        except ApprovalError as error:
            self.refused.append(str(error))

    def start(self) -> None:
        for _ in range(50):
            if (found := self.desk.approvals.next_approved()) is not None:
                self.started.append(found)


def test_one_of_many_decisions_at_once_counts(tmp_path: Path) -> None:
    for attempt in range(8):
        rush = Rush(tmp_path / str(attempt))
        desk, state = rush.desk, rush.desk.state(rush.kept)
        assert len(rush.started) == (state == "executing")
        assert state in ("executing", "rejected", "approved")
        assert rush.refused
        desk.restart()
        assert desk.state(rush.kept) == ("interrupted" if state == "executing" else state)


@pytest.mark.parametrize("names", [("bo", "cy"), ("bo", "bo")])
def test_of_approvals_at_the_same_moment_each_person_counts_once(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    desk = Desk(tmp_path, reviewers=2, keep=20)
    for number in range(4):
        kept = desk.keep(number, by="ann")
        barrier, refused = threading.Barrier(2), list[str]()

        def approve(
            by: str,
            kept: KeptProposal = kept,
            barrier: threading.Barrier = barrier,
            refused: list[str] = refused,
        ) -> None:
            barrier.wait()
            try:
                desk.approve(kept, by)
            except ApprovalError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=approve, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        people = sorted({*names})
        assert len(refused) == 2 - len(people)
        for _ in range(2):
            found = desk.approvals.store.get(kept.id)
            assert sorted(a.by for a in found.approvals) == people
            assert found.state == ("approved" if len(people) == 2 else "open")
            desk.restart()


class Histories(RuleBasedStateMachine):
    """Any order of decisions, restarts and time; states are compared with a plain model."""

    numbers = st.integers(0, 4)

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.desk = Desk(self.directory, expire_after=100, keep=3, reviewers=2)
        self.ids: dict[int, str] = {}
        self.approvers: dict[int, set[str]] = {}
        self.made: dict[int, float] = {}
        self.approved: set[int] = set()
        self.running: int | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def _waits(self, number: int) -> bool:
        return number in self.made and self.made[number] + 100 > self.desk.now

    def _forget(self, number: int) -> None:
        self.approvers.pop(number, None)
        self.made.pop(number, None)
        self.approved.discard(number)

    @rule(number=numbers)
    def keep(self, number: int) -> None:
        self.desk.approvals.expire()
        self.ids[number] = self.desk.keep(number, "ann").id
        # Its clock went on by one second.
        if number != self.running and not self._pending(number):
            self._forget(number)
            self.approvers[number], self.made[number] = set(), self.desk.now

    def _pending(self, number: int) -> bool:
        return number in self.made and self.made[number] + 100 > self.desk.now - 1

    @rule(number=numbers, by=st.sampled_from(NAMES), right=st.booleans())
    def approve(self, number: int, by: str, right: bool) -> None:
        digest = plan_of(number).document().content_digest
        may = (
            self._waits(number)
            and right
            and by != "ann"
            and number not in self.approved
            and by not in self.approvers[number]
        )
        try:
            identity = self.ids.get(number, "0")
            self.desk.approvals.approve(identity, digest if right else "0" * 64, by=by)
            assert may
        except ApprovalError:
            assert not may
            return
        self.approvers[number].add(by)
        if len(self.approvers[number]) == 2:
            self.approved.add(number)

    @rule(number=numbers)
    def reject(self, number: int) -> None:
        try:
            self.desk.approvals.reject(self.ids.get(number, "0"), by="cy")
            assert self._waits(number)
        except ApprovalError:
            assert not self._waits(number)
        self._forget(number)

    @precondition(lambda self: self.running is None)
    @rule()
    def start(self) -> None:
        found = self.desk.approvals.next_approved()
        waiting = {n for n in self.approved if self._waits(n)}
        assert (found is not None) == bool(waiting)
        if found is None:
            return
        assert found.plan.content_digest == found.proposal.digest
        assert {a.by for a in found.proposal.approvals} == {"bo", "cy"}
        (number,) = (
            n for n in waiting if plan_of(n).document().content_digest == found.proposal.digest
        )
        self.running = number
        self._forget(number)

    @precondition(lambda self: self.running is not None)
    @rule(state=st.sampled_from(["executed", "failed", "stale"]))
    def end(self, state: str) -> None:
        assert self.running is not None
        identity = self.ids[self.running]
        self.desk.approvals.ended(identity, state, {})
        assert self.desk.approvals.store.get(identity).state == state
        self.running = None

    @rule(seconds=st.sampled_from([1.0, 50.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.desk.now += seconds

    @rule()
    def restart(self) -> None:
        self.desk.restart()
        self.running = None

    @invariant()
    def nothing_approved_is_lost(self) -> None:
        states = {p.id: p.state for p in self.desk.approvals.store.all()}
        for number in range(5):
            if self._waits(number):
                expected = "approved" if number in self.approved else "open"
                assert states[self.ids[number]] == expected
            elif number == self.running:
                assert states[self.ids[number]] == "executing"


Histories.TestCase.settings = hypothesis_settings(
    max_examples=hypothesis_settings().max_examples * 2 // 5, stateful_step_count=25
)
TestHistories = Histories.TestCase
