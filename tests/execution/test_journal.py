"""The journal: what survives a crash, torn lines, and file permissions."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, Killed, alive, executor, move, plan_of

from balancer.execution import ExecutionError
from balancer.execution.cluster import Key
from balancer.execution.journal import Journal, changed, planned, read_journal
from balancer.execution.targets import Target
from balancer.execution.tasks import Task

REQUESTED = Target(topic="a", partition=0, origin=(0, 1), target=(0, 2))
TASK = Task(id=0, phase="move", topic="a", partition=0, origin=(0, 1), target=(0, 2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with one task in progress."""
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.begin("id", planned([REQUESTED], [TASK]))
    journal.append(changed(0, "in progress"))
    journal.close()
    return path


def test_it_tells_what_was_written(path: Path) -> None:
    found = read_journal(path)
    assert found is not None
    assert (found.targets, found.tasks, found.states) == (
        [REQUESTED],
        {0: TASK},
        {0: "in progress"},
    )
    assert not found.closed
    assert read_journal(path.with_name("none")) is None


def test_only_its_owner_reads_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {p.name for p in path.parent.iterdir()} == {"journal"}


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_torn_last_line_is_left_out_and_written_over(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    found = read_journal(path)
    assert found is not None
    assert found.states == {0: "pending"}
    journal = Journal(path)
    journal.resume()
    journal.append(changed(0, "completed"))
    journal.close()
    found = read_journal(path)
    assert found is not None
    assert found.states == {0: "completed"}


@pytest.mark.parametrize(
    "text", ["hello\n", '{"record":"state"}\n', "[]\n", '{"record":"begin","version":9}\n', ""]
)
def test_another_file_is_reported_in_a_sentence(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ExecutionError, match="journal"):
        read_journal(path)


def test_a_line_torn_in_the_middle_is_reported_with_its_number(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:10], *lines[2:]]) + "\n")
    with pytest.raises(ExecutionError, match="line 2"):
        read_journal(path)


def test_one_execution_at_a_time(path: Path) -> None:
    first, second = Journal(path).locked(), Journal(path).locked()
    with first, pytest.raises(ExecutionError, match="is using it"), second:
        pass


def test_an_execution_that_did_not_end_must_be_recovered_first(tmp_path: Path) -> None:
    cluster = FakeCluster({Key("a", 0): (0, 1)}, dies_after=8)
    with pytest.raises(Killed):
        executor(cluster, tmp_path).execute(plan_of(move("a", 0, 1, 2)))
    again = executor(alive(cluster), tmp_path)
    with pytest.raises(ExecutionError, match="--recover"):
        again.execute(plan_of(move("a", 0, 1, 2)))
    outcome = again.recover()
    assert outcome is not None
    assert outcome.state == "done"
    assert again.recover() is None


def test_the_journal_of_another_cluster_is_refused(tmp_path: Path) -> None:
    cluster = FakeCluster({Key("a", 0): (0, 1)}, dies_after=8)
    with pytest.raises(Killed):
        executor(cluster, tmp_path).execute(plan_of(move("a", 0, 1, 2)))
    other = alive(cluster)
    other.identity = lambda: "other"  # type: ignore[method-assign]
    with pytest.raises(ExecutionError, match="cluster fake"):
        executor(other, tmp_path).recover()


def damaged(text: bytes, how: str) -> bytes:
    lines = text.splitlines(keepends=True)
    if how == "zeros":
        return b"\0" * len(text)
    if how == "zeros in the middle":
        return text[:300] + b"\0" * 200 + text[500:]
    if how == "zeros at the end":
        return text[:-80] + b"\0" * 79 + b"\n"
    if how == "first line lost":
        return b"".join(lines[1:])
    assert how == "a line torn"
    return b"".join([*lines[:2], lines[2][:40], *lines[3:]])


@pytest.mark.parametrize(
    "how",
    ["zeros", "zeros in the middle", "zeros at the end", "first line lost", "a line torn"],
)
def test_a_damaged_journal_is_set_aside_and_the_marks_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)
    cluster = FakeCluster({Key("a", 0): (0, 1)}, looks=5)

    def kill(c: FakeCluster) -> None:
        if c.ongoing:
            raise Killed

    cluster.on_view = kill
    with pytest.raises(Killed):
        executor(cluster, tmp_path, owner="me", throttle=51200.0).execute(
            plan_of(move("a", 0, 1, 2))
        )
    cluster.on_view = lambda c: None
    path = tmp_path / "journal"
    lost = damaged(path.read_bytes(), how)
    path.write_bytes(lost)
    assert cluster.throttles()
    with pytest.raises(ExecutionError):
        executor(cluster, tmp_path, owner="me").execute(plan_of(move("a", 0, 1, 2)))
    outcome = executor(cluster, tmp_path, owner="me").recover()
    assert outcome is not None
    assert outcome.state == "failed"
    assert "journal.damaged-1" in outcome.problems[0]
    assert (tmp_path / "journal.damaged-1").read_bytes() == lost
    assert cluster.throttles() == {}
    assert not cluster.ongoing
    assert executor(cluster, tmp_path, owner="me").recover() is None


def test_without_an_owner_a_damaged_journal_stays_and_throttles_are_reported(path: Path) -> None:
    path.write_bytes(damaged(path.read_bytes(), "first line lost"))
    cluster = FakeCluster({Key("a", 0): (0, 1)})
    with pytest.raises(ExecutionError, match="throttles that its execution set"):
        executor(cluster, path.parent).recover()
    assert path.exists()


@pytest.mark.parametrize(
    "text", ['{"kind":"plan","actions":[]}\n', '{"record":"begin","version":9}\n', "hello\n"]
)
def test_a_file_that_is_no_damaged_journal_is_not_touched(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ExecutionError):
        executor(FakeCluster({}), path.parent, owner="me").recover()
    assert path.read_text() == text


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    journal = Journal(tmp_path / "journal")
    with pytest.raises(ExecutionError, match="No space left"):
        journal.begin("id", planned([REQUESTED], [TASK]))
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_vanishes_lets_nobody_else_in(path: Path) -> None:
    lock = path.with_name("journal.lock")
    first, second = Journal(path), Journal(path)
    with first.locked():
        first.resume()
        lock.unlink()
        # Nobody was there meanwhile: it locks again, and goes on.
        first.append(changed(0, "completed"))
        with pytest.raises(ExecutionError, match="is using it"), second.locked():
            pass
        lock.unlink()
        with second.locked():
            written = path.read_bytes()
            writes: list[Any] = [
                lambda: first.append(changed(0, "dead")),
                lambda: first.begin("id", []),
                first.resume,
                first.set_aside,
            ]
            for write in writes:
                with pytest.raises(ExecutionError, match="is using it"):
                    write()
            assert path.read_bytes() == written
            assert first.lost
