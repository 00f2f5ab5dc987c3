"""Configuration of a member of a group of stateful consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from balancer.assignment.configs import AssignmentConfigs, Tags
from metrics_reporter.documents import Whole

# What Kafka allows in the name of a topic, with room for what is appended.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,150}$")]
Milliseconds = Annotated[Whole, Field(ge=1)]


class GroupConfigs(BaseModel):
    """Configuration of a member.

    Parameters
    ----------
    bootstrap_servers
        Addresses of brokers, separated by commas.
    application_id
        Name of the group; transactional ids and the changelog begin with it.
    input_topic
        The topic that is read; each of its partitions is a task.
    state_dir
        Directory of this member's state; no other member may use it at the same time.
    capacity
        Threads that the member counts as in the assignment.
    rack
        Rack of the member.
    tags
        Tags of the member, for the spreading of standbys.
    assignment
        Configuration of the assignor; that of the leader applies.
    probing_rebalance_interval_ms
        Replaces the interval of `assignment`, whose minimum is a minute as in Kafka; for tests
        and demonstrations. None leaves it.
    commit_interval_ms
        Time between two transactions of a task.
    session_timeout_ms
        Time without a heartbeat after which the group goes on without a member. The broker's
        ``group.min.session.timeout.ms`` is the minimum.
    heartbeat_interval_ms
        Time between heartbeats: by then a member has learnt of a rebalance.
    rebalance_timeout_ms
        Time that the group waits for a member to join a rebalance, and the longest that a member
        may be busy between two polls.
    task_timeout_ms
        Time within which a task must have started, and have had an answer to its transactions;
        otherwise the member leaves with an error. Kafka's ``task.timeout.ms``.
    offsets_timeout_ms
        Time that the leader waits for the end offsets of the changelog; without them tasks stay
        where they are.
    transaction_timeout_ms
        Time after which the broker aborts the transaction of a member that is gone and whose
        task nobody has taken over. A member waits no longer for the answer to a transaction, or
        to a question at the start of a task; that is asked again until `task_timeout_ms` is over.
    state_cleanup_delay_ms
        Age from which state on disk is deleted if the member has no copy of the task.
    batch_records
        Maximum number of records that are processed, or restored, between two polls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str
    application_id: Name
    input_topic: Name
    state_dir: Path
    capacity: Annotated[Whole, Field(ge=1)] = 1
    rack: str | None = None
    tags: Tags = {}
    assignment: AssignmentConfigs = AssignmentConfigs()
    probing_rebalance_interval_ms: Milliseconds | None = None
    commit_interval_ms: Milliseconds = 100
    session_timeout_ms: Milliseconds = 10_000
    heartbeat_interval_ms: Milliseconds = 500
    rebalance_timeout_ms: Milliseconds = 30_000
    task_timeout_ms: Milliseconds = 300_000
    offsets_timeout_ms: Milliseconds = 2_000
    transaction_timeout_ms: Milliseconds = 10_000
    state_cleanup_delay_ms: Milliseconds = 600_000
    batch_records: Annotated[Whole, Field(ge=1)] = 2_000

    @field_validator("heartbeat_interval_ms")
    @classmethod
    def _three_in_a_session(cls, interval: int, info: ValidationInfo) -> int:
        session = info.data.get("session_timeout_ms", interval * 3)
        if interval * 3 > session:
            raise ValueError(f"at most a third of session_timeout_ms ({session}) expected")
        return interval

    @property
    def changelog_topic(self) -> str:
        """The compacted topic that holds every change of the state."""
        return f"{self.application_id}-{self.input_topic}-changelog"

    @property
    def answer_seconds(self) -> float:
        """Longest time that a transaction, or a question as a task starts, waits for Kafka."""
        return min(self.task_timeout_ms, self.transaction_timeout_ms) / 1000

    def transactional_id(self, task: object) -> str:
        """The id by which Kafka lets only one member at a time write for a task."""
        return f"{self.application_id}-{task}"
