"""How figures of columns (resources and counts) read for people: titles, units, numbers."""

from __future__ import annotations

from metrics_reporter.quantities import amount, rounded

_TITLES = {
    "cpu": "CPU",
    "network_in": "Network in",
    "network_out": "Network out",
    "disk": "Disk",
    "replica_count": "Replicas",
    "leader_count": "Leaders",
}
_UNITS = {"cpu": "%", "network_in": "B/s", "network_out": "B/s", "disk": "B"}
COUNTS = ("replica_count", "leader_count")


def column_title(name: str) -> str:
    """The heading of a column; names of other resources are their own."""
    return _TITLES.get(name, name)


def column_unit(name: str) -> str:
    """``%``, ``B``, ``B/s``, ``#`` for counts, or nothing if the unit is the source's own."""
    return "#" if name in COUNTS else _UNITS.get(name, "")


def quantity(column: str, value: float) -> str:
    """A value of a resource or a count, with its unit.

    Examples
    --------
    >>> quantity("cpu", 250.0), quantity("disk", 3e9), quantity("leader_count", 7.0)
    ('250 %', '3 GB', '7')
    >>> quantity("replica_count", 12345.0), quantity("gpu", 0.25), quantity("cpu", 12_800.0)
    ('12,345', '0.25', '12,800 %')
    """
    unit = column_unit(column)
    if unit.startswith("B"):
        return amount(value, unit)
    if unit == "#":
        return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{rounded(value)} {unit}".rstrip()
