"""The directory with a member's state: locked, and never cleaned up during a rebalance."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Collection
from pathlib import Path

from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.group.errors import GroupError
from balancer.assignment.state import TaskId


class StateDirectory:
    """One folder of state for each task, and the name of the process they belong to.

    Between a report of lags and the assignment that answers it nothing is deleted: otherwise a
    task might be sent to state that is gone (KIP-441, "Race between assignment and state
    cleanup").

    Parameters
    ----------
    path
        The directory; it is made if it is missing.

    Attributes
    ----------
    process : str
        Id of the process, the same after a restart.

    Raises
    ------
    GroupError
        If the directory cannot be used, or another process uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._reported = self._applied = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise GroupError(f"state directory {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise GroupError(f"state directory {path}: another process uses it") from None
        name = path / "process-id"
        if not name.exists():
            fresh = path / "process-id.new"
            fresh.write_text(str(uuid.uuid4()), encoding="utf-8")
            fresh.replace(name)
        self.process = name.read_text(encoding="utf-8").strip()

    def close(self) -> None:
        """Let others use the directory."""
        os.close(self._lock)

    def task_path(self, task: TaskId) -> Path:
        """The folder of a task."""
        return self.path / str(task)

    def tasks(self) -> list[TaskId]:
        """Tasks with a folder, sorted."""
        found = []
        for entry in self.path.iterdir():
            try:
                found.append(TaskId.parse(entry.name))
            except TaskAssignmentError:
                continue
        return sorted(found)

    def state_bytes(self, task: TaskId) -> int:
        """Bytes that the state of a task takes; 0 if there is none."""
        try:
            return sum(file.stat().st_size for file in self.task_path(task).iterdir())
        except FileNotFoundError:  # also a file of the database that has just gone
            return 0

    def report_begins(self, number: int) -> None:
        """Lags are about to be reported for this time: from now on nothing is deleted."""
        with self._mutex:
            self._reported = number

    def assignment_applied(self, number: int) -> None:
        """The copies that answer this report are open: what is in use is known again."""
        with self._mutex:
            self._applied = number

    def clean(self, in_use: Collection[TaskId], delay_ms: int) -> list[TaskId]:
        """Delete state that no copy uses and that is old; returns the tasks.

        Does nothing between a report and its assignment.
        """
        with self._mutex:
            if self._reported != self._applied:
                return []
            oldest = time.time() - delay_ms / 1000
            removed = [t for t in self.tasks() if t not in in_use and self._age(t) < oldest]
            for task in removed:
                shutil.rmtree(self.task_path(task))
            return removed

    def _age(self, task: TaskId) -> float:
        """When the state of a task was last written."""
        return max(
            f.stat().st_mtime for f in [self.task_path(task), *self.task_path(task).iterdir()]
        )
