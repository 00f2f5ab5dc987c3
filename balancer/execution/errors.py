"""What goes wrong with an execution that a person or a controller must know."""

from __future__ import annotations

from cluster_model.errors import InputError
from cluster_model.kafka import KafkaSourceError


class ExecutionError(InputError):
    """An execution that cannot be begun or recovered, with what to do about it."""


class VoteLostError(ExecutionError):
    """An execution that may write no more, since another may hold the vote by now."""


class LateError(KafkaSourceError):
    """A write that was held back until its proof of the vote had run out; it was not sent."""
