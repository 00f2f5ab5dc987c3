"""Writes metrics of our own in Prometheus' text format."""

from __future__ import annotations

import math
from collections.abc import Mapping

Number = float | int | bool


class ExpositionText:
    """A page of metrics, each named ``counterpoise_`` and its name.

    Examples
    --------
    >>> page = ExpositionText()
    >>> page.one("rounds_total", "counter", "Rounds made.", 3)
    >>> page.by("lag", "gauge", "Events that wait.", "partition", {"orders-0": 7.5})
    >>> print(page.text(), end="")
    # HELP counterpoise_rounds_total Rounds made.
    # TYPE counterpoise_rounds_total counter
    counterpoise_rounds_total 3
    # HELP counterpoise_lag Events that wait.
    # TYPE counterpoise_lag gauge
    counterpoise_lag{partition="orders-0"} 7.5
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, about: str, values: Mapping[str, Number]) -> None:
        """Add a metric; `values` are by their labels, with braces, as :func:`labels` makes them."""
        full = f"counterpoise_{name}"
        self._lines.append(f"# HELP {full} {about}")
        self._lines.append(f"# TYPE {full} {kind}")
        self._lines.extend(f"{full}{label} {_number(v)}" for label, v in values.items())

    def one(self, name: str, kind: str, about: str, value: Number) -> None:
        """Add a metric without labels."""
        self.add(name, kind, about, {"": value})

    def by(
        self, name: str, kind: str, about: str, label: str, values: Mapping[str, Number]
    ) -> None:
        """Add a metric with one label, in its order."""
        self.add(name, kind, about, {labels(**{label: k}): values[k] for k in sorted(values)})

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"


def labels(**given: str) -> str:
    r"""Labels in braces, escaped.

    Examples
    --------
    >>> labels(notifier='a "b"', outcome="sent")
    '{notifier="a \\"b\\"",outcome="sent"}'
    """
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in given.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Number) -> str:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(float(value))
    return str(int(value))
