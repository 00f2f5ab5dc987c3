"""The error of an unusable configuration of Cruise Control."""

from __future__ import annotations

from cluster_model import InputError


class CruiseControlError(InputError):
    """A configuration that cannot be imported; says what is wrong and where."""
