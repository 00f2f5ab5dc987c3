"""The journal: what survives, what is torn, who may read it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from execution_cases import FakeCluster, Killed, alive, executor, move, plan_of

from balancer.execution import ExecutionError
from balancer.execution.cluster import Key
from balancer.execution.journal import Journal, changed, planned, read_journal
from balancer.execution.tasks import Task
from balancer.execution.wanted import Wanted

WANTED = Wanted(topic="a", partition=0, origin=(0, 1), target=(0, 2))
TASK = Task(id=0, phase="move", topic="a", partition=0, origin=(0, 1), target=(0, 2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with one task in progress."""
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.begin("id", planned([WANTED], [TASK]))
    journal.append(changed(0, "in progress"))
    journal.close()
    return path


def test_it_tells_what_was_written(path: Path) -> None:
    found = read_journal(path)
    assert found is not None
    assert (found.wanted, found.tasks, found.states) == ([WANTED], {0: TASK}, {0: "in progress"})
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
def test_another_file_is_told_in_a_sentence(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ExecutionError, match="journal"):
        read_journal(path)


def test_a_line_torn_in_the_middle_is_told_with_its_number(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:10], *lines[2:]]) + "\n")
    with pytest.raises(ExecutionError, match="line 2"):
        read_journal(path)


def test_one_execution_at_a_time(path: Path) -> None:
    first, second = Journal(path).locked(), Journal(path).locked()
    with first, pytest.raises(ExecutionError, match="under way"), second:
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
