"""What can be wrong with what is asked of collocation."""

from cluster_model.errors import InputError


class CollocationError(InputError):
    """An allocation that cannot be, or options that do not fit."""
