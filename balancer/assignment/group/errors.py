"""The error of a member that cannot go on."""

from __future__ import annotations

from cluster_model.errors import InputError


class GroupError(InputError):
    """A member cannot start or cannot go on; says why in one sentence."""
