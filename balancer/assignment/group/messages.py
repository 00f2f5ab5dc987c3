"""What members and the leader of a group send each other as user data: JSON, checked on arrival."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from balancer.assignment.configs import Tags
from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.group.errors import GroupError
from balancer.assignment.state import TaskId
from metrics_reporter.documents import Whole, first_problem

# Larger user data is refused unread; a task takes about 20 bytes.
LARGEST_BYTES = 1 << 22


def _task(name: str) -> str:
    """A task's only name: others that mean the same would make two tasks of one."""
    try:
        task = TaskId.parse(name)
    except TaskAssignmentError as error:
        raise ValueError(error.sentence) from None
    if str(task) != name:
        raise ValueError(str(task))
    return name


TaskName = Annotated[str, AfterValidator(_task)]


class _Message(BaseModel):
    # Unknown fields are those of a newer member.
    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1] = 1

    def encode(self) -> bytes:
        """The message as user data."""
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Read user data.

        Raises
        ------
        GroupError
            If it is not such a message, in one sentence.
        """
        if data is None or len(data) > LARGEST_BYTES:
            found = "none" if data is None else f"{len(data)} bytes"
            raise GroupError(f"user data: {found} found, at most {LARGEST_BYTES} bytes expected")
        try:
            return cls.model_validate_json(bytes(data))
        except ValidationError as error:
            raise GroupError(f"user data: {first_problem(error)}") from None


class MemberReport(_Message):
    """What a member says of itself when it joins (KIP-441, ``SubscriptionInfo``).

    ``offsets`` is how far in the changelog the state on disk is, for every task of which there is
    any, and ``state_bytes`` its size; the leader compares the offset with the changelog's end.
    ``active`` and ``standby`` are the copies that the member has, and ``running`` those active ones
    that process records.
    """

    process: Annotated[str, Field(min_length=1, max_length=200)]
    capacity: Annotated[Whole, Field(ge=1, le=100_000)] = 1
    rack: str | None = None
    tags: Tags = {}
    offsets: dict[TaskName, Whole] = {}
    state_bytes: dict[TaskName, Whole] = {}
    active: tuple[TaskName, ...] = ()
    running: tuple[TaskName, ...] = ()
    standby: tuple[TaskName, ...] = ()


class MemberTasks(_Message):
    """What the leader says to a member besides the partitions it processes (``AssignmentInfo``).

    ``probe_after_ms`` is when this member has to ask for the next rebalance, if it has to.
    """

    standby: tuple[TaskName, ...] = ()
    warmup: tuple[TaskName, ...] = ()
    probe_after_ms: Whole | None = None
