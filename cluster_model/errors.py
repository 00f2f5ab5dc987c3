"""The one family of errors a person can mend: each is a single clear sentence."""

from __future__ import annotations


class InputError(ValueError):
    """Input that cannot be used: says what, where, the value found and what was expected."""


class SnapshotError(InputError):
    """A snapshot that contradicts itself or cannot be read."""
