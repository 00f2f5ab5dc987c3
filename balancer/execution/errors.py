"""Errors of an execution that a person or a controller must handle."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_model.errors import InputError
from cluster_model.kafka import KafkaSourceError


class ExecutionError(InputError):
    """An execution that cannot be started or recovered; says what to do about it."""


class VoteLostError(ExecutionError):
    """An execution that may write no more, since another process may hold the vote."""


class LateError(KafkaSourceError):
    """A write that was held back until its proof of the vote expired; it was not sent."""


class ChangedClusterError(ExecutionError):
    """A plan that may only be executed exactly, on a cluster that has changed since.

    Attributes
    ----------
    changes : tuple of str
        One sentence for each partition that is not as the plan expects.
    """

    def __init__(self, changes: Sequence[str]) -> None:
        self.changes = tuple(changes)
        more = f" (and {len(changes) - 1:,} more)" if len(changes) > 1 else ""
        super().__init__(
            f"the cluster has changed since the plan was made: {changes[0]}{more}; nothing was "
            "done: propose again"
        )
