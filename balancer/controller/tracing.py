"""Spans of OpenTelemetry around what a controller does, where its API is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_NAME = "counterpoise"


@cache
def _api() -> Any:
    """The tracing part of OpenTelemetry's API, or None where it is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


@contextmanager
def traced(name: str, **attributes: str | float) -> Iterator[Callable[..., None]]:
    """A span around a block; does nothing without OpenTelemetry's API or a tracer provider.

    Of an error that ends the block only the class is recorded: its text may hold a secret.

    Parameters
    ----------
    name
        Its name, after ``counterpoise.``.
    attributes
        What is known at its start.

    Yields
    ------
    Callable
        Adds attributes that are known later, given as keywords.

    Examples
    --------
    >>> with traced("plan", operation="rebalance") as known:
    ...     known(actions=3)
    """
    api = _api()
    if api is None:
        yield lambda **_: None
        return
    tracer = api.get_tracer(_NAME)
    with tracer.start_as_current_span(
        f"{_NAME}.{name}",
        attributes=_named(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield lambda **later: current.set_attributes(_named(later))
        except BaseException as error:
            current.set_status(api.StatusCode.ERROR, type(error).__name__)
            raise


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    return {f"{_NAME}.{name}": value for name, value in attributes.items()}
