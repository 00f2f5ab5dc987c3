"""User tasks: requests that take long, found again by their id or by the same request."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from balancer.server.cruise_control.answers import Answer, table
from balancer.server.errors import RequestError
from balancer.server.jobs import Job
from metrics_reporter.documents import shown

# How many ended tasks are kept with their answers, as in Cruise Control.
_KEPT = 25
# Characters of their answers in total; the newest is kept in any case.
_KEPT_CHARACTERS = 100_000_000
# Seconds for which the same request fetches an answer that nobody has fetched.
_UNFETCHED = 60.0


@dataclass
class UserTask:
    """A request whose answer is made in the background.

    Parameters
    ----------
    endpoint
        Its name.
    url
        Method, path and query.
    parameters
        Names and values, those of a form, too.
    client
        Name and address of the client.
    as_json
        Whether the answer is JSON.
    body
        The answer, once it is made.
    proposal
        Id of the proposal that it waits for or executes.
    """

    endpoint: str
    url: str
    parameters: tuple[tuple[str, str], ...]
    client: str
    as_json: bool
    body: str | None = None
    proposal: str | None = None
    fetched: bool = False
    started: float = field(default_factory=time.time)
    job: Job | None = None

    @property
    def id(self) -> str:
        """Its id, that of its job."""
        assert self.job is not None
        return self.job.id

    def state(self, proposal_state: str | None) -> str:
        """Cruise Control's word for what it is doing.

        Parameters
        ----------
        proposal_state
            The state of its proposal; None without one.
        """
        assert self.job is not None
        if not self.job.over.is_set():
            return "Active"
        if self.job.state != "done":
            return "CompletedWithError"
        if proposal_state == "open":
            return "Active"
        if proposal_state in ("approved", "executing"):
            return "InExecution"
        done = proposal_state in (None, "executed")
        return "Completed" if done else "CompletedWithError"


class UserTasks:
    """The user tasks that are kept."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, UserTask] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, task: UserTask) -> None:
        """Keep a task that has a job."""
        with self._lock:
            self._tasks[task.id] = task
            ended = [t for t in self._tasks.values() if t.job and t.job.over.is_set()]
            size = 0
            for place, old in enumerate(reversed(ended)):
                size += len(old.body or "")
                if place and (place >= _KEPT or size > _KEPT_CHARACTERS):
                    del self._tasks[old.id]

    def get(
        self, identity: str, endpoint: str, parameters: tuple[tuple[str, str], ...]
    ) -> UserTask:
        """A task by its id.

        Raises
        ------
        RequestError
            If there is none, or it is of another request.
        """
        with self._lock:
            found = self._tasks.get(identity)
        if found is None:
            raise RequestError(f"User-Task-ID {shown(identity)}: not found, or no longer kept")
        if found.endpoint != endpoint:
            raise RequestError(f"User-Task-ID {shown(identity)}: is a task of {found.endpoint}")
        if found.parameters != parameters:
            raise RequestError(
                f"User-Task-ID {shown(identity)}: is a task of another request; its parameters, or "
                "no User-Task-ID, expected"
            )
        return found

    def same(self, task: UserTask) -> UserTask | None:
        """The task of the same request of a client who has not fetched its answer yet."""
        asked = (task.endpoint, task.parameters, task.client)
        now = time.time()
        with self._lock:
            for old in reversed(self._tasks.values()):
                ended = None if old.job is None else old.job.ended
                recent = ended is None or now - ended < _UNFETCHED
                request = (old.endpoint, old.parameters, old.client)
                if request == asked and not old.fetched and recent:
                    return old
        return None

    def all(self) -> tuple[UserTask, ...]:
        """The tasks, the newest first."""
        with self._lock:
            return tuple(reversed(self._tasks.values()))


def task_list(tasks: list[tuple[UserTask, str]], *, answers: bool) -> Answer:
    """Tasks with their states, and the answers of ended ones."""
    records: list[dict[str, Any]] = []
    for task, state in tasks:
        record = {
            "UserTaskId": task.id,
            "RequestURL": task.url,
            "ClientIdentity": task.client,
            "StartMs": str(round(task.started * 1000)),
            "Status": state,
        }
        if answers and state == "CompletedWithError":
            record["originalResponse"] = "CompletedWithError"
        elif answers and task.body is not None:
            record["originalResponse"] = task.body
        records.append(record)
    heads = ["USER TASK ID", "CLIENT ADDRESS", "START TIME (ms)", "STATUS", "REQUEST URL"]
    keys = ["UserTaskId", "ClientIdentity", "StartMs", "Status", "RequestURL"]
    text = table(heads, [[r[k] for k in keys] for r in records])
    for record in records:
        if "originalResponse" in record:
            text += (
                f"\nOriginal response for task {record['UserTaskId']}:\n"
                f"{record['originalResponse']}"
            )
    return Answer({"userTasks": records}, text)
