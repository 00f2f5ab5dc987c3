"""Errors of autoscaling."""

from cluster_model.errors import InputError


class AutoscalingError(InputError):
    """An impossible consumer group, or options that contradict each other."""


class NotYetError(AutoscalingError):
    """Nothing is wrong, but there is nothing to decide on yet."""


class RebalancingError(NotYetError):
    """The group rebalances, which is soon over."""


def check_above_zero(settings: object, *names: str) -> None:
    """Check that some fields of settings are numbers above 0, and finite.

    Those whose default is a whole number must be whole.

    Raises
    ------
    AutoscalingError
        Naming the field, what it is, and what is expected.
    """
    for name in names:
        value = getattr(settings, name)
        whole = isinstance(getattr(type(settings), name), int)
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not (number and 0 < value < float("inf")):
            what = "seconds" if name.endswith("_seconds") else "a number"
            what = "a whole number" if whole else what
            raise AutoscalingError(f"{name}: {value} found, {what} above 0 expected")
