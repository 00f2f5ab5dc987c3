"""The journal: an execution on disk, one JSON record a line, that survives a kill.

What is about to be done is written before it is done, and reaches the disk first. So
whoever reads the journal knows everything that may have been asked of Kafka. It holds
partitions, brokers, directories and byte counts, never how to connect.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from balancer.execution.errors import ExecutionError
from balancer.execution.outcome import Ended
from balancer.execution.tasks import State, Task
from balancer.execution.throttle import Setting
from balancer.execution.wanted import Wanted

VERSION = 1


@dataclass
class Recorded:
    """An execution as its journal tells it.

    Parameters
    ----------
    cluster
        Id of the Kafka cluster.
    wanted
        Partitions with where they were and where they are to be.
    tasks, states, notes
        Tasks by id, how each of them stands, and why.
    throttles
        Configs that are ours to put back.
    stop
        ``stop`` or ``rollback`` once that was asked for.
    going_back
        Whether the tasks that lead back are planned.
    adopted
        Whether it is only waited for what is under way, as where another process began it.
    ended
        How it ended; None while it has not.
    """

    cluster: str
    wanted: list[Wanted] = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    throttles: list[Setting] = field(default_factory=list)
    stop: str | None = None
    going_back: bool = False
    adopted: bool = False
    ended: Ended | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing of it is left."""
        return self.ended is not None and not self.throttles


class Journal:
    """An execution's journal, open for writing.

    Parameters
    ----------
    path
        Its file; readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other execution away from this journal; ends with the process.

        Raises
        ------
        ExecutionError
            If another process has it, or its directory cannot be written.
        """
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ExecutionError(
                f"journal {self.path} cannot be written: {error.strerror or error}"
            ) from None
        try:
            try:
                _lock(handle)
            except BlockingIOError:
                raise ExecutionError(
                    f"journal {self.path}: another execution is under way with it; "
                    "wait for its end, or name another journal"
                ) from None
            yield
        finally:
            self.close()
            os.close(handle)

    def begin(self, cluster: str, records: Iterable[dict[str, Any]]) -> None:
        """Start over, with the file put in place in one step."""
        self.close()
        head = {"record": "begin", "version": VERSION, "cluster": cluster}
        text = "".join(_line(r) for r in (head, *records))
        folder = self.path.parent
        try:
            # mkstemp keeps a file to its owner, as this one is to be.
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self.path.name}.")
            with os.fdopen(handle, "w") as f:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
            os.replace(name, self.path)
            parent = os.open(folder, os.O_RDONLY)
            os.fsync(parent)
            os.close(parent)
        except OSError as error:
            raise ExecutionError(
                f"journal {self.path} cannot be written: {error.strerror or error}"
            ) from None
        self._open()

    def resume(self) -> None:
        """Go on with what is there, after a last line that was torn is taken away."""
        whole = self.path.read_bytes()
        keep = whole.rfind(b"\n") + 1
        if keep != len(whole):
            os.truncate(self.path, keep)
        self._open()

    def append(self, *records: dict[str, Any]) -> None:
        """Add records; returns once they are on disk.

        Raises
        ------
        ExecutionError
            If the disk takes no more: nothing may be done that is not written down.
        """
        if not records:
            return
        assert self._file is not None
        text = "".join(_line(r) for r in records).encode()
        try:
            while text:
                text = text[os.write(self._file, text) :]
            os.fsync(self._file)
        except OSError as error:
            raise ExecutionError(
                f"journal {self.path} cannot be written: {error.strerror or error}"
            ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)


def read_journal(path: Path) -> Recorded | None:
    """What a journal tells; None where there is none. A torn last line is left out.

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
    recorded: Recorded | None = None
    for number, line in enumerate(lines, 1):
        try:
            recorded = _fold(recorded, json.loads(line))
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


def planned(wanted: Iterable[Wanted], tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Records of what is to be done."""
    return [
        *({"record": "wanted", **w.model_dump(mode="json")} for w in wanted),
        *({"record": "task", **t.model_dump(mode="json")} for t in tasks),
    ]


def changed(task: int, state: State, note: str = "") -> dict[str, Any]:
    """Record of a task's new state."""
    return {"record": "state", "task": task, "state": state, **({"note": note} if note else {})}


def throttling(settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """Records of configs that are about to be set."""
    return [{"record": "throttle", **s.model_dump(mode="json")} for s in settings]


def throttles_left(settings: Iterable[Setting]) -> dict[str, Any]:
    """Record of the configs that are still ours to put back."""
    return {"record": "throttles", "left": [s.model_dump(mode="json") for s in settings]}


def given_up(recorded: Recorded) -> list[dict[str, Any]]:
    """Records of an execution of which nothing more is to be begun; changes `recorded` so."""
    pending = [i for i, state in recorded.states.items() if state == "pending"]
    recorded.adopted = True
    recorded.states.update(dict.fromkeys(pending, "cancelled"))
    return [
        {"record": "adopted"},
        throttles_left(recorded.throttles),
        *(changed(i, "cancelled") for i in pending),
    ]


def _fold(so_far: Recorded | None, record: dict[str, Any]) -> Recorded:
    kind = record.pop("record")
    if kind == "begin":
        if record["version"] != VERSION:
            raise ValueError("version")
        return Recorded(cluster=record["cluster"])
    if so_far is None:
        raise ValueError("begin expected")
    if kind == "wanted":
        so_far.wanted.append(Wanted.model_validate(record))
    elif kind == "task":
        task = Task.model_validate(record)
        so_far.tasks[task.id] = task
        so_far.states[task.id] = "pending"
    elif kind == "state":
        so_far.states[record["task"]] = record["state"]
        so_far.notes[record["task"]] = record.get("note", "")
    elif kind == "throttle":
        setting = Setting.model_validate(record)
        same = (setting.resource, setting.key)
        so_far.throttles = [s for s in so_far.throttles if (s.resource, s.key) != same]
        so_far.throttles.append(setting)
    elif kind == "throttles":
        so_far.throttles = [Setting.model_validate(s) for s in record["left"]]
    elif kind == "stop":
        so_far.stop = "rollback" if record["rollback"] else so_far.stop or "stop"
    elif kind == "adopted":
        so_far.adopted = True
    elif kind == "back":
        so_far.going_back = True
    elif kind == "end":
        so_far.ended = record["state"]
    else:
        raise ValueError(kind)
    return so_far


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # where there are no such locks, nothing keeps two processes apart
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"
