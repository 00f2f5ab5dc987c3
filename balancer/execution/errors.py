"""What goes wrong with an execution before it starts."""

from __future__ import annotations

from cluster_model.errors import InputError


class ExecutionError(InputError):
    """An execution that cannot be begun or recovered, with what to do about it."""
