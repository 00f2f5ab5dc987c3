"""Errors of an execution that a person or a controller must handle."""

from __future__ import annotations

from cluster_model.errors import InputError
from cluster_model.kafka import KafkaSourceError


class ExecutionError(InputError):
    """An execution that cannot be started or recovered; says what to do about it."""


class VoteLostError(ExecutionError):
    """An execution that may write no more, since another process may hold the vote."""


class LateError(KafkaSourceError):
    """A write that was held back until its proof of the vote expired; it was not sent."""
