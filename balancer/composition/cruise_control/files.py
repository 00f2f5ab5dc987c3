"""Reads Cruise Control's files of broker capacities and broker sets."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from balancer.composition.cruise_control.errors import CruiseControlError
from balancer.composition.cruise_control.gson import strict_json
from metrics_reporter.documents import LIMITS, parse_json, read_limited, shown

# Its units: DISK in MB, NW_IN and NW_OUT in KB/s, of 1024 each (its HolderUtils).
_KILO = 1024.0
_UNITS = {
    "DISK": ("disk", _KILO**2),
    "CPU": ("cpu", 1.0),
    "NW_IN": ("network_in", _KILO),
    "NW_OUT": ("network_out", _KILO),
}
# Percent of a processor's core.
_CORE = 100.0
_DEFAULT_BROKER = -1


def read_capacities(path: Path) -> dict[str, Any]:
    """The content of a capacity file, from ``capacity.json`` in any of its forms.

    ``DISK`` may be a number, or one for each log directory, which add up; ``CPU`` may be percent
    of the machine, or ``{"num.cores": 16}``.

    Raises
    ------
    CruiseControlError
        If it cannot be read, or naming the broker, the value found and what was expected.
    """
    where = f"capacity file {path}"
    entries = _content(path, where).get("brokerCapacities")
    if not isinstance(entries, list) or not entries:
        raise CruiseControlError(f"{where}: no brokerCapacities found, a list of brokers expected")
    default: dict[str, float] = {}
    brokers: dict[int, dict[str, float]] = {}
    for place, entry in enumerate(entries):
        broker, capacity = _entry(entry, f"{where}: entry {place}")
        if broker == _DEFAULT_BROKER:
            default = capacity
        elif broker in brokers:
            raise CruiseControlError(f"{where}: broker {broker} found twice")
        else:
            brokers[broker] = capacity
    # What equals the default needs no entry.
    own = {
        broker: {name: value for name, value in of.items() if default.get(name) != value}
        for broker, of in sorted(brokers.items())
    }
    return {"default": default} | ({"brokers": own} if own else {})


def read_broker_sets(path: Path) -> dict[str, list[int]]:
    """Broker set to the ids of its brokers, from ``brokerSets.json``.

    Raises
    ------
    CruiseControlError
        If it cannot be read, or for the first invalid entry.
    """
    where = f"broker sets {path}"
    entries = _content(path, where).get("brokerSets")
    if not isinstance(entries, list):
        raise CruiseControlError(f"{where}: no brokerSets found, a list of sets expected")
    found: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        name = entry.get("brokerSetId") if isinstance(entry, Mapping) else None
        ids = entry.get("brokerIds") if isinstance(entry, Mapping) else None
        if (
            not isinstance(name, str)
            or not isinstance(ids, list)
            or not all(type(broker) is int and broker >= 0 for broker in ids)
        ):
            raise CruiseControlError(
                f"{where}: entry {place}: {shown(entry)} found, a brokerSetId and a list of "
                "brokerIds expected"
            )
        found[name] = ids
    return found


def _content(path: Path, where: str) -> Mapping[str, Any]:
    try:
        found = parse_json(strict_json(read_limited(path, LIMITS.json_bytes).decode("utf-8-sig")))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CruiseControlError(f"{where}: {reason}") from None
    if not isinstance(found, Mapping):
        raise CruiseControlError(f"{where}: {type(found).__name__} found, a mapping expected")
    return found


def _entry(entry: Any, where: str) -> tuple[int, dict[str, float]]:
    given = entry.get("capacity") if isinstance(entry, Mapping) else None
    if not isinstance(given, Mapping):
        raise CruiseControlError(f"{where}: a mapping with brokerId and capacity expected")
    broker = _number(entry.get("brokerId"), f"{where}: brokerId")
    if broker != int(broker) or broker < _DEFAULT_BROKER:
        raise CruiseControlError(f"{where}: brokerId: {shown(broker)} found, an id or -1 expected")
    capacity = {}
    for name, value in given.items():
        if name not in _UNITS:
            raise CruiseControlError(
                f"{where}: {shown(name)} found, one of {', '.join(_UNITS)} expected"
            )
        ours, unit = _UNITS[name]
        amount = _amount(name, value, f"{where}: {name}")
        if amount < 0:
            raise CruiseControlError(f"{where}: {name}: {shown(value)} found, at least 0 expected")
        capacity[ours] = _plain(amount * unit)
    return int(broker), capacity


def _amount(name: str, value: Any, where: str) -> float:
    if name == "DISK" and isinstance(value, Mapping) and value:
        return sum(_number(size, f"{where}: {shown(path)}") for path, size in value.items())
    if name == "CPU" and isinstance(value, Mapping):
        return _CORE * _number(value.get("num.cores"), f"{where}: num.cores")
    return _number(value, where)


def _number(value: Any, where: str) -> float:
    """A number, which its files write as text."""
    try:
        found = float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        found = None
    if found is None or isinstance(value, bool) or not isfinite(found):
        raise CruiseControlError(f"{where}: {shown(value)} found, a number expected")
    return found


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value
