"""Errors that a user can fix: each is a single clear sentence."""

from __future__ import annotations


class InputError(ValueError):
    """Unusable input; the message gives what, where, the value and what was expected."""


class SnapshotError(InputError):
    """A snapshot that contradicts itself or cannot be read."""
