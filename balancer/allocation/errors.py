"""Errors of allocation problems."""

from cluster_model.errors import InputError


class AllocationError(InputError):
    """An impossible allocation, or invalid options."""
