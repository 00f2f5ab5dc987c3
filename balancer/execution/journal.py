"""The crash-safe journal of an execution: a file with one JSON record per line.

Every action is recorded on disk before it is done. So a reader of the journal knows
everything that may have been asked of Kafka. It holds partitions, brokers, directories and
byte counts, never how to connect.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from balancer.execution.errors import ExecutionError
from balancer.execution.outcome import ClosedState
from balancer.execution.targets import Target
from balancer.execution.tasks import Task, TaskState
from balancer.execution.throttle import ThrottleConfig
from metrics_reporter.documents import Whole, parse_json

VERSION = 1
_WHAT = ("target", "task", "state", "throttle", "throttles", "left")
_KINDS = frozenset(
    ("begin", *_WHAT, "omitted", "stop", "back", "adopted", "reopened", "resumed", "end")
)


@dataclass
class RecordedExecution:
    """An execution as recorded in its journal.

    Parameters
    ----------
    cluster
        Id of the Kafka cluster.
    targets
        Partitions with their original and their target state.
    tasks, states, notes
        Tasks by id, their states, and the reasons.
    throttles
        Configs that this execution has to restore.
    stop
        ``stop`` or ``rollback`` once requested.
    going_back, back
        Whether the rollback tasks are planned, and their ids.
    omitted
        Why steps of the plan did not become tasks, one sentence per partition.
    left
        Moves that the execution (or one before it) has given up but Kafka continues, since
        it refused to cancel them.
    adopted
        Whether it only waits for moves in progress, which another process started.
    given_up
        Whether nothing more is to be started, since another process has taken over or the
        execution is too old.
    reopened
        Ids of its moves that were left in Kafka when it ended and are waited for; None if it
        has not ended before.
    ended
        How it ended; None if it has not.
    epoch
        The vote's epoch under which it last ran; None without a vote.
    """

    cluster: str
    targets: list[Target] = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    states: dict[int, TaskState] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    throttles: list[ThrottleConfig] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    left: list[Task] = field(default_factory=list)
    stop: str | None = None
    going_back: bool = False
    back: set[int] = field(default_factory=set)
    adopted: bool = False
    given_up: bool = False
    reopened: set[int] | None = None
    ended: ClosedState | None = None
    epoch: int | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.ended is not None and not self.throttles and not self.left


class Journal:
    """An execution's journal, open for writing.

    Parameters
    ----------
    path
        Its file; readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._file: int | None = None
        self._lock: int | None = None
        self._locked = False

    @property
    def lost(self) -> bool:
        """Whether the lock was taken and has been lost."""
        return self._locked and self._lock is None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other executions away from this journal; ends with the process.

        Raises
        ------
        ExecutionError
            If another process holds it, or its directory cannot be written.
        """
        self._take_lock()
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            self.close()
            self._unlock()

    def begin(
        self, cluster: str, records: Iterable[dict[str, Any]], *, epoch: int | None = None
    ) -> None:
        """Start a new journal, replacing the file in one step."""
        self.close()
        self._keep_lock()
        head = {"record": "begin", "version": VERSION, "cluster": cluster}
        if epoch is not None:
            head["epoch"] = epoch
        text = "".join(_line(r) for r in (head, *records))
        folder = self.path.parent
        # One name is enough, since the lock is held; a leftover of a killed process is replaced.
        new = folder / f".{self.path.name}.new"
        try:
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as f:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
            os.replace(new, self.path)
            parent = os.open(folder, os.O_RDONLY)
            os.fsync(parent)
            os.close(parent)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise self._unwritable(error) from None
        self._open()

    def resume(self) -> None:
        """Continue the existing journal, after removing a torn last line."""
        self._keep_lock()
        whole = self.path.read_bytes()
        keep = whole.rfind(b"\n") + 1
        if keep != len(whole):
            os.truncate(self.path, keep)
        self._open()

    def append(self, *records: dict[str, Any]) -> None:
        """Append records; returns once they are on disk.

        Raises
        ------
        ExecutionError
            If the disk is full or fails: nothing may be done that is not recorded.
        """
        if not records:
            return
        assert self._file is not None
        self._keep_lock()
        text = "".join(_line(r) for r in records).encode()
        try:
            while text:
                text = text[os.write(self._file, text) :]
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from None

    def set_aside(self) -> Path:
        """Rename the file to make way for a new one; returns its new path."""
        self._keep_lock()
        aside = (self.path.with_name(f"{self.path.name}.damaged-{n}") for n in itertools.count(1))
        path = next(path for path in aside if not path.exists())
        try:
            os.rename(self.path, path)
        except OSError as error:
            raise self._unwritable(error) from None
        return path

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep_lock(self) -> None:
        """Ensure that the lock that was taken still locks others out."""
        if self._locked:
            self._take_lock()

    def _take_lock(self) -> None:
        """Lock the file at the lock's path, unless it is already the locked one.

        A deleted lock file locks nobody out. It is then created and locked again, which fails
        if another process was faster.
        """
        try:
            while self._lock is None or not _is_at(self._lock, self._lock_path):
                self._unlock()
                self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
                _lock(self._lock)
        except BlockingIOError:
            self._unlock()
            raise ExecutionError(
                f"journal {self.path}: another execution is using it; wait until it ends, or name "
                "another journal"
            ) from None
        except OSError as error:
            self._unlock()
            raise self._unwritable(error) from None

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _unwritable(self, error: OSError) -> ExecutionError:
        return ExecutionError(f"journal {self.path} cannot be written: {error.strerror or error}")

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)


def read_journal(path: Path) -> RecordedExecution | None:
    """Read a journal; None if there is none. A torn last line is left out.

    Raises
    ------
    ExecutionError
        If it cannot be read or is no journal, naming the line.
    """
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ExecutionError(f"journal {path}: {error.strerror or error}") from None
    lines = whole[: whole.rfind(b"\n") + 1].splitlines()
    recorded: RecordedExecution | None = None
    for number, line in enumerate(lines, 1):
        try:
            recorded = _fold(recorded, parse_json(line))
        except (ValueError, KeyError, TypeError, ValidationError):
            raise ExecutionError(
                f"journal {path}, line {number}: a record of an execution (version {VERSION}) "
                "expected; if it is another file, name another journal"
            ) from None
    if recorded is None:
        raise ExecutionError(
            f"journal {path}: no record of an execution found; if it is another file, name "
            "another journal"
        )
    return recorded


def planned(requested: Iterable[Target], tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Records of the planned targets and tasks."""
    return [
        *({"record": "target", **w.model_dump(mode="json")} for w in requested),
        *({"record": "task", **t.model_dump(mode="json")} for t in tasks),
    ]


def changed(task: int, state: TaskState, note: str = "", *, left: bool = False) -> dict[str, Any]:
    """Record of a task's new state, and whether Kafka continues it anyway."""
    record: dict[str, Any] = {"record": "state", "task": task, "state": state}
    return record | ({"note": note} if note else {}) | ({"left": True} if left else {})


def throttling(settings: Iterable[ThrottleConfig]) -> list[dict[str, Any]]:
    """Records of configs that are about to be set."""
    return [{"record": "throttle", **s.model_dump(mode="json")} for s in settings]


def throttles_left(settings: Iterable[ThrottleConfig]) -> dict[str, Any]:
    """Record of the configs that this execution still has to restore."""
    return {"record": "throttles", "left": [s.model_dump(mode="json") for s in settings]}


def moves_left(tasks: Iterable[Task]) -> dict[str, Any]:
    """Record of the moves that were given up but that Kafka continues."""
    return {"record": "left", "tasks": [t.model_dump(mode="json") for t in tasks]}


def reopened(recorded: RecordedExecution) -> dict[str, Any]:
    """Record that reopens an ended execution with moves left; updates `recorded` too.

    The moves are in progress again: they are waited for, or cancelled if the execution was
    stopped. Tasks that could not start because of them may start. All else stays as it ended.
    """
    start = max(recorded.tasks, default=-1) + 1
    # Moves of an earlier execution have their own ids.
    tasks = [
        t
        if recorded.tasks.get(t.id) == t
        else t.model_copy(update={"id": start + n, "after": None})
        for n, t in enumerate(recorded.left)
    ]
    _reopen(recorded, tasks)
    return {"record": "reopened", "tasks": [t.model_dump(mode="json") for t in tasks]}


def _reopen(recorded: RecordedExecution, tasks: list[Task]) -> None:
    state: TaskState = "in progress" if recorded.stop is None else "cancelling"
    own = {t.id for t in tasks if t.id in recorded.tasks}
    for task in recorded.tasks.values():
        waited = task.after in own and recorded.states[task.id] == "cancelled"
        if waited and recorded.stop is None:
            recorded.states[task.id] = "pending"
    for task in tasks:
        recorded.tasks[task.id], recorded.states[task.id] = task, state
    recorded.left, recorded.adopted, recorded.ended = [], True, None
    recorded.reopened = own | (recorded.reopened or set())


def given_up(recorded: RecordedExecution) -> list[dict[str, Any]]:
    """Records that nothing more of an execution is to be started; updates `recorded` too."""
    pending = [i for i, state in recorded.states.items() if state == "pending"]
    recorded.adopted = recorded.given_up = True
    recorded.states.update(dict.fromkeys(pending, "cancelled"))
    return [
        {"record": "adopted", "given_up": True},
        throttles_left(recorded.throttles),
        *(changed(i, "cancelled") for i in pending),
    ]


class _JournalRecord(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Begin(_JournalRecord):
    version: Whole
    cluster: str
    epoch: Whole | None = None


class _Change(_JournalRecord):
    task: Whole
    state: TaskState
    note: str = ""
    left: StrictBool = False


class _Adopted(_JournalRecord):
    given_up: StrictBool = False


class _Omitted(_JournalRecord):
    problems: list[str]


class _Reopened(_JournalRecord):
    tasks: list[Task] = []


class _Left(_JournalRecord):
    left: list[ThrottleConfig]


class _Moves(_JournalRecord):
    tasks: list[Task]


class _Resumed(_JournalRecord):
    epoch: Whole


class _Stop(_JournalRecord):
    rollback: StrictBool


class _End(_JournalRecord):
    state: ClosedState


def _fold(so_far: RecordedExecution | None, record: dict[str, Any]) -> RecordedExecution:
    if not isinstance(record, dict):
        raise ValueError("a mapping expected")
    kind = record.pop("record")
    if (kind == "begin") != (so_far is None):
        raise ValueError("one begin, before everything else, expected")
    if so_far is None:
        head = _Begin.model_validate(record)
        if head.version != VERSION:
            raise ValueError("version")
        return RecordedExecution(cluster=head.cluster, epoch=head.epoch)
    if kind == "target":
        so_far.targets.append(Target.model_validate(record))
    elif kind == "task":
        task = Task.model_validate(record)
        if task.id in so_far.tasks:
            raise ValueError("a task with this id exists already")
        if task.after is not None and task.after not in so_far.tasks:
            raise ValueError("no task with the id in after")
        so_far.tasks[task.id] = task
        so_far.states[task.id] = "pending"
    elif kind == "state":
        change = _Change.model_validate(record)
        if change.task not in so_far.tasks:
            raise ValueError("no task with this id")
        so_far.states[change.task] = change.state
        so_far.notes[change.task] = change.note
        if change.left:
            so_far.left.append(so_far.tasks[change.task])
    elif kind == "throttle":
        setting = ThrottleConfig.model_validate(record)
        same = (setting.resource, setting.key)
        so_far.throttles = [s for s in so_far.throttles if (s.resource, s.key) != same]
        so_far.throttles.append(setting)
    elif kind == "throttles":
        so_far.throttles = _Left.model_validate(record).left
    elif kind == "left":
        so_far.left = _Moves.model_validate(record).tasks
    elif kind == "reopened":
        _reopen(so_far, _Reopened.model_validate(record).tasks)
    elif kind == "stop":
        asked = _Stop.model_validate(record)
        so_far.stop = "rollback" if asked.rollback else so_far.stop or "stop"
    elif kind == "adopted":
        so_far.adopted = True
        so_far.given_up = so_far.given_up or _Adopted.model_validate(record).given_up
    elif kind == "omitted":
        so_far.omitted = _Omitted.model_validate(record).problems
    elif kind == "back":
        so_far.going_back = True
        so_far.back = {i for i, state in so_far.states.items() if state == "pending"}
    elif kind == "resumed":
        so_far.epoch = _Resumed.model_validate(record).epoch
    elif kind == "end":
        so_far.ended = _End.model_validate(record).state
    else:
        raise ValueError(kind)
    return so_far


def is_damaged(path: Path) -> bool:
    """Whether an unreadable file is a journal that lost a part of its content.

    That is the case if some of its lines still are records, or if it holds only zeros, as
    after a power loss. Any other file, and a journal of another version, is not damaged.
    """
    lines = path.read_bytes().splitlines()
    if not any(line.strip(b"\0") for line in lines):
        return True
    found = [record for line in lines if (record := _record(line)) is not None]
    versions = {r.get("version") for r in found if r["record"] == "begin"}
    return bool(found) and versions <= {VERSION}


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.strip(b"\0"))
    except (ValueError, RecursionError):
        return None
    known = isinstance(record, dict) and str(record.get("record")) in _KINDS
    return record if known else None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # platforms without such locks cannot keep two processes apart
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"
