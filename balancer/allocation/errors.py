"""What can be wrong with an allocation."""

from cluster_model.errors import InputError


class AllocationError(InputError):
    """An allocation that cannot be, or options that do not fit."""
