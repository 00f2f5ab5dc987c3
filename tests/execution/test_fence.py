"""If the vote is lost before a write, nothing more is written, and the successor finishes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from execution_cases import FakeCluster, Killed, alive, executor, lead, move, plan_of

from balancer.execution import Executor, Limits, VoteLostError, cluster, fence
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.journal import read_journal
from balancer.execution.stop import Stop
from balancer.execution.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS, marked
from cluster_model.kafka import KafkaSourceError

START = {Key("a", 0): (0, 1), Key("a", 1): (0, 1), Key("a", 2): (1, 2), Key("b", 0): (2, 0)}
PLAN = plan_of(
    move("a", 0, 0, 3), move("a", 1, 1, 4), move("a", 2, 2, 2 + 3, "/b"), lead("b", 0, 2, 0)
)
TOPIC = ConfigResource("topic", "a")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "_PAUSE", 0.0)


class Ballot:
    """A vote that is held for so many proofs, then by another for good."""

    def __init__(self, epoch: int = 5, proofs: int = 10**9, *, reported: bool = True) -> None:
        self.held, self.proofs, self.reported = epoch, proofs, reported
        self.previous: int | None = None
        self.acting = True

    @property
    def epoch(self) -> int | None:
        return self.held if self.proofs > 0 or not self.reported else None

    def prove(self, within: float) -> int | None:
        self.proofs -= 1
        return self.held if self.proofs > 0 else None


class Watched(FakeCluster):
    """A cluster that counts what is written to it."""

    @property
    def written(self) -> int:
        return getattr(self, "_written", 0)

    def _write(self, anything: object) -> None:
        if anything:
            self._written = self.written + 1

    def reassign(self, targets: Any) -> Any:
        self._write(targets)
        return super().reassign(targets)

    def move_log_dirs(self, targets: Any) -> Any:
        self._write(targets)
        return super().move_log_dirs(targets)

    def elect(self, partitions: Any) -> Any:
        self._write(partitions)
        return super().elect(partitions)

    def set_configs(self, values: Any) -> Any:
        self._write(values)
        return super().set_configs(values)


def voting(
    kafka: FakeCluster, path: Path, vote: Ballot | None, name: str = "first", **limits: Any
) -> Executor:
    (path / name).mkdir(exist_ok=True)
    given = {"throttle": 51200.0, "outage_timeout": 0.05, "concurrent_moves": 1, **limits}
    return executor(kafka, path / name, owner="group", vote=vote, **given)


def _writes() -> int:
    """How many writes the plan takes, from its first throttle to its last."""
    with TemporaryDirectory() as path:
        kafka = Watched(dict(START))
        assert voting(kafka, Path(path), Ballot()).execute(PLAN).state == "done"
        return kafka.written


@pytest.mark.parametrize("reported", [True, False], ids=["known", "not proven"])
@pytest.mark.parametrize("n", range(1, _writes() + 1))
def test_without_the_vote_nothing_is_written_and_another_ends_it(
    tmp_path: Path, n: int, reported: bool
) -> None:
    kafka = Watched(dict(START))
    outcome = voting(kafka, tmp_path, Ballot(proofs=n + 1, reported=reported)).execute(PLAN)
    # The first proof is the beginning's; each of the others lets one write pass.
    assert kafka.written == n - 1
    assert outcome.state == "vote lost"
    assert "the vote was lost" in outcome.problems[-1]
    recorded = read_journal(tmp_path / "first" / "journal")
    assert recorded is not None
    assert (recorded.ended, recorded.closed, recorded.epoch) == (None, False, 5)
    voting(kafka, tmp_path, Ballot(6), "second").recover()
    assert kafka.throttles() == {}
    assert not kafka.ongoing
    # The same machine has the vote again: what is left of its journal comes to its end.
    voting(kafka, tmp_path, Ballot(7)).recover()
    recorded = read_journal(tmp_path / "first" / "journal")
    assert recorded is not None
    assert recorded.closed
    assert kafka.throttles() == {}
    assert not kafka.ongoing


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("rollback", [False, True])
def test_nor_while_it_stops_or_moves_back(tmp_path: Path, n: int, rollback: bool) -> None:
    kafka, vote = Watched(dict(START), looks=50), Ballot()
    found = voting(kafka, tmp_path, vote, concurrent_moves=3)

    def stop(cluster: FakeCluster) -> None:
        if cluster.ongoing and vote.proofs > 1000:
            found.stop(rollback=rollback)
            vote.proofs = n
            cluster.looks = 1

    kafka.on_view = stop
    before: list[int] = []
    vote_of = vote.prove

    def prove(within: float) -> int | None:
        answer = vote_of(within)
        if answer is None:
            before.append(kafka.written)
        return answer

    vote.prove = prove  # type: ignore[method-assign]
    outcome = found.execute(PLAN)
    if before:
        assert outcome.state == "vote lost"
        assert kafka.written == before[0]
    else:
        assert outcome.state in ("stopped", "rolled back")


def test_an_error_cleans_nothing_up_without_the_vote(tmp_path: Path) -> None:
    kafka, vote = Watched(dict(START), looks=50), Ballot()

    def fail(cluster: FakeCluster) -> None:
        if cluster.ongoing:
            vote.proofs = 0
            raise OSError("the disk is full")

    kafka.on_view = fail
    vote.reported = False
    with pytest.raises(OSError, match="the disk is full"):
        voting(kafka, tmp_path, vote).execute(PLAN)
    assert kafka.ongoing
    assert kafka.throttles()


def test_one_that_only_waits_notices_that_another_has_taken_over(tmp_path: Path) -> None:
    kafka, vote = Watched(dict(START), looks=10**6), Ballot()

    def lose(cluster: FakeCluster) -> None:
        if cluster.ongoing:
            vote.proofs = 0

    kafka.on_view = lose
    assert voting(kafka, tmp_path, vote).execute(PLAN).state == "vote lost"


def test_nothing_is_begun_without_the_vote(tmp_path: Path) -> None:
    kafka = Watched(dict(START))
    found = voting(kafka, tmp_path, Ballot(proofs=0))
    with pytest.raises(VoteLostError, match="the vote is not held"):
        found.execute(PLAN)
    with pytest.raises(VoteLostError, match="the vote is not held"):
        found.recover()
    assert kafka.written == 0
    assert not (tmp_path / "first" / "journal").exists()
    assert found.preview(PLAN).tasks


def test_a_proof_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    class Hiccup(Ballot):
        def prove(self, within: float) -> int | None:
            self.proofs -= 1
            return None if self.proofs % 3 else self.held

    kafka = Watched(dict(START))
    vote = Hiccup()
    assert voting(kafka, tmp_path, vote, outage_timeout=30.0).execute(PLAN).state == "done"
    assert kafka.throttles() == {}


def test_who_gets_the_vote_back_after_another_does_not_go_on(tmp_path: Path) -> None:
    class Again(Ballot):
        def prove(self, within: float) -> int | None:
            self.proofs -= 1
            # Held again, but another had it in between.
            return self.held + 2 if self.proofs < 1000 else self.held

    kafka, vote = Watched(dict(START)), Again(proofs=1004)
    assert voting(kafka, tmp_path, vote, outage_timeout=1e-9).execute(PLAN).state == "vote lost"
    assert kafka.written == 4 - 1


def test_marks_carry_the_epoch_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    kafka = Watched(dict(START))
    voting(kafka, tmp_path, Ballot(5, proofs=6)).execute(PLAN)
    for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS):
        found = marked(kafka.values[TOPIC][key], "group")
        assert found is not None
        assert (found.epoch, found.rate) == (5, 51200)
    before = {r: dict(v) for r, v in kafka.throttles().items()}
    written = kafka.written
    with pytest.raises(VoteLostError, match="in epoch 5, newer than 4"):
        voting(kafka, tmp_path, Ballot(4), "older").recover()
    assert kafka.throttles() == before
    assert kafka.written == written
    assert voting(kafka, tmp_path, Ballot(6), "newer").recover() is not None
    assert kafka.throttles() == {}


def test_a_mark_of_a_version_without_epochs_is_understood(tmp_path: Path) -> None:
    kafka = Watched(dict(START), looks=10**6)
    old = voting(kafka, tmp_path, None)

    def die(cluster: FakeCluster) -> None:
        if cluster.ongoing:
            cluster.dies_after = cluster.calls

    kafka.on_view = die
    with pytest.raises(Killed):
        old.execute(PLAN)
    kafka = alive(kafka)
    kafka.on_view, kafka.looks = (lambda c: None), 1
    kafka.ongoing = {k: (t, 1) for k, (t, _) in kafka.ongoing.items()}
    found = marked(kafka.values[TOPIC][FOLLOWER_REPLICAS], "group")
    assert found is not None
    assert found.epoch is None
    assert voting(kafka, tmp_path, Ballot(6), "second").recover() is not None
    assert kafka.throttles() == {}


def test_a_recovery_with_nobody_in_between_goes_on_though_its_throttles_are_not_there(
    tmp_path: Path,
) -> None:
    """It may have died after it wrote down what to throttle, and before it did."""
    for previous, done in ((5, True), (6, False)):
        path = tmp_path / str(previous)
        path.mkdir()
        kafka = Watched(dict(START))
        voting(kafka, path, Ballot(5, proofs=2)).execute(PLAN)
        assert kafka.throttles() == {}
        successor = Ballot(7)
        successor.previous = previous
        outcome = voting(kafka, path, successor).recover()
        assert outcome is not None
        assert (outcome.state == "done") == done


class Answers:
    """An admin client that does not answer at first."""

    def __init__(self, silent: int) -> None:
        self.silent, self.calls = silent, 0

    def alter_partition_reassignments(self, request: Mapping[Any, Any]) -> dict[Any, Any]:
        self.calls += 1
        if self.calls <= self.silent:
            raise KafkaSourceError("silence")
        return {}


def test_a_request_that_is_sent_again_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    admin, vote = Answers(silent=5), Ballot(proofs=4)

    @contextmanager
    def connect(*args: object, **options: object) -> Iterator[Callable[..., Any]]:
        yield lambda call: call(admin)

    monkeypatch.setattr(cluster, "admin_client", connect)
    monkeypatch.setattr(cluster, "_PAUSE", 0.0)
    guard = fence.Fence(vote, 0.0, Stop(7.0))
    guard.begin()
    kafka = Kafka("x:1", fence=guard)
    with pytest.raises(VoteLostError):
        kafka.reassign({Key("a", 0): (1, 2)})
    assert admin.calls == 2


class Sends:
    """Admin clients, each of which asks before it sends, as the real one is made to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent: int = 0) -> None:
        self.admin = Answers(silent)
        self.before_send: list[Callable[[], None]] = []
        monkeypatch.setattr(cluster, "admin_client", self._connect)
        monkeypatch.setattr(cluster, "_PAUSE", 0.0)

    @contextmanager
    def _connect(
        self, *args: object, before_send: Callable[[], None], **options: object
    ) -> Iterator[Callable[..., Any]]:
        self.before_send.append(before_send)

        def ask(call: Callable[[Any], Any]) -> Any:
            before_send()
            return call(self.admin)

        yield ask


class Lapses(Ballot):
    """A vote whose proofs run out before the write is sent, so many times."""

    def __init__(self, lapses: int, proofs: int = 10**9) -> None:
        self.lapses = lapses
        super().__init__(proofs=proofs)

    def prove(self, within: float) -> int | None:
        epoch = super().prove(within)
        self.acting = self.lapses <= 0
        self.lapses -= 1
        return epoch


def _begun(vote: Ballot, outage_timeout: float = 0.0) -> fence.Fence:
    guard = fence.Fence(vote, outage_timeout, Stop(7.0))
    guard.begin()
    return guard


MOVE = {Key("a", 0): (1, 2)}


def test_a_write_that_leaves_late_needs_another_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    sends, vote = Sends(monkeypatch), Lapses(lapses=4)
    kafka = Kafka("x:1", fence=_begun(vote))
    assert kafka.reassign(MOVE) == {}
    assert sends.admin.calls == 1
    # One that held a write back is not used again; its beginning lapsed too.
    assert len(sends.before_send) == 4


def test_a_write_that_leaves_late_is_not_sent_once_another_has_the_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sends, vote = Sends(monkeypatch), Lapses(lapses=10, proofs=4)
    kafka = Kafka("x:1", fence=_begun(vote))
    with pytest.raises(VoteLostError, match="another has taken over"):
        kafka.reassign(MOVE)
    assert sends.admin.calls == 0


def test_a_write_that_always_leaves_late_fails_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sends, vote = Sends(monkeypatch), Lapses(lapses=10**9)
    kafka = Kafka("x:1", fence=_begun(vote), outage_timeout=0.05)
    with pytest.raises(KafkaSourceError, match="its proof of the vote had run out"):
        kafka.reassign(MOVE)
    assert sends.admin.calls == 0


def test_what_is_only_read_needs_no_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    sends, vote = Sends(monkeypatch), Ballot()
    kafka = Kafka("x:1", fence=_begun(vote))
    assert kafka.reassign(MOVE) == {}
    vote.acting = False
    sends.before_send[0]()


def test_what_was_given_up_does_not_leave_later(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = Sends(monkeypatch, silent=1)
    kafka = Kafka("x:1", fence=_begun(Ballot()))
    assert kafka.reassign(MOVE) == {}
    given_up, used = sends.before_send
    used()
    with pytest.raises(KafkaSourceError, match="was not sent"):
        given_up()


def test_a_stop_does_not_wait_for_the_vote(tmp_path: Path) -> None:
    found = Executor(
        "x:1",
        journal=tmp_path / "journal",
        limits=Limits(outage_timeout=3600),
        vote=Ballot(proofs=0),
        connect=lambda: FakeCluster(dict(START)),
    )
    asked = threading.Timer(0.2, found.stop)
    asked.start()
    with pytest.raises(VoteLostError):
        found.execute(PLAN)
