"""Reads the capacities of brokers that an operator states, in a mapping or in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator

from cluster_model.errors import InputError
from cluster_model.log_dirs import Sharing
from cluster_model.snapshot import DEFAULT_RESOURCES
from metrics_reporter.documents import (
    WholeKey,
    as_model,
    load_mapping,
    shown,
)
from metrics_reporter.metrics import METRIC_IDS
from metrics_reporter.quantities import byte_count, byte_rate
from metrics_reporter.suggestions import meant

# Parsers of text like 2TB by resource; other resources are plain numbers.
_UNITS = {"disk": byte_count, "network_in": byte_rate, "network_out": byte_rate}
Amount = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


def _measured(given: Any) -> Any:
    """Convert text like ``2TB`` or ``100MB/s`` to numbers; leave other text to validation."""
    if not isinstance(given, Mapping):
        return given
    found = dict(given)
    for name, value in given.items():
        unit = _UNITS.get(name)
        if isinstance(value, str) and unit is not None:
            with suppress(ValueError):
                found[name] = unit(value)
    return found


class CapacityError(InputError):
    """Unusable broker capacities; the message gives the place, the value and what is expected."""


class MeasuredResource(BaseModel):
    """How a further resource is measured: by the partition metric of its name.

    Parameters
    ----------
    follower_share
        Load of a follower, as a share of the leader's: 0 if only leaders work, 1 if followers do
        the same work.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    follower_share: Annotated[float, Strict(), Field(ge=0, le=1)] = 0.0


class Capacities(BaseModel):
    """Capacities of brokers: by resource for all of them, and overrides for single brokers.

    Parameters
    ----------
    default
        Resource name to capacity, in the unit of the load: ``disk`` in bytes or as text like
        ``2TB``, ``network_in`` and ``network_out`` in bytes/s or as text like ``100MB/s``.
    brokers
        Broker id to the resources in which that broker differs from the default.
    log_dirs
        Whether equally large log directories of a broker share a file system
        (``shared``) or have one each (``separate``): for all, or by broker id and
        ``default``. If not stated, it is detected, see
        :func:`cluster_model.log_dirs.file_systems`.
    measured
        Further resources that partitions' leaders report, by the name of the metric; each needs
        a capacity too.

    Examples
    --------
    >>> capacities = Capacities(default={"cpu": 100.0}, brokers={1: {"cpu": 400.0}})
    >>> capacities.of(0), capacities.of(1)
    ({'cpu': 100.0}, {'cpu': 400.0})
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: dict[str, Amount] = {}
    brokers: dict[WholeKey, dict[str, Amount]] = {}
    log_dirs: dict[Annotated[str, Field(pattern=r"^(default|\d+)$")], Sharing] = {}
    measured: dict[str, MeasuredResource] = {}

    @field_validator("default", mode="before")
    @classmethod
    def _in_units(cls, given: Any) -> Any:
        return _measured(given)

    @field_validator("brokers", mode="before")
    @classmethod
    def _of_brokers_in_units(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return {broker: _measured(own) for broker, own in given.items()}
        return given

    @field_validator("log_dirs", mode="before")
    @classmethod
    def _by_broker(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"default": given}
        if isinstance(given, Mapping):
            return {str(key): value for key, value in given.items()}
        return given

    def of(self, broker: int) -> dict[str, float]:
        """Resource to capacity of one broker."""
        return {**self.default, **self.brokers.get(broker, {})}

    def sharing_of(self, broker: int) -> Sharing | None:
        """Whether the log directories of one broker share file systems; None if not stated."""
        return self.log_dirs.get(str(broker), self.log_dirs.get("default"))

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources that count: disk, which Kafka reports, all stated defaults, all measured."""
        named = {"disk", *self.default, *(r for own in self.brokers.values() for r in own)}
        return (*(r for r in DEFAULT_RESOURCES if r in named), *sorted(self.measured))

    @property
    def follower_shares(self) -> dict[str, float]:
        """Load of a follower as a share of the leader's, by further resource."""
        return {name: self.measured[name].follower_share for name in sorted(self.measured)}


def load_capacities(path: str | Path, resources: Iterable[str] = DEFAULT_RESOURCES) -> Capacities:
    """Read a YAML or JSON file ``{"default": {...}, "brokers": {"1": {...}}}``.

    Parameters
    ----------
    path, resources
        The file, and names that are valid in addition to the default ones.

    Raises
    ------
    CapacityError
        For a missing or unreadable file, or for the first invalid entry, by name.
    """
    where = f"capacity file {path}"
    content = load_mapping(
        path,
        where,
        CapacityError,
        "a capacity file",
        expected="a mapping with default and brokers",
    )
    return _capacities(content, where, resources)


def as_capacities(
    capacity: Capacities | Mapping[str, Any] | str | Path | None,
    resources: Iterable[str] = DEFAULT_RESOURCES,
) -> Capacities:
    """Validate capacities in any of the forms that callers may use.

    Parameters
    ----------
    capacity
        ``{resource: value}`` for every broker, the ``{"default": ..., "brokers": ...}`` of
        a capacity file, the path of one, or :class:`Capacities`; None states nothing.
    resources
        Names that are valid in addition to the default ones, even if they resemble those.

    Raises
    ------
    CapacityError
        As in :func:`load_capacities`.
    """
    if isinstance(capacity, Capacities):
        return capacity
    if isinstance(capacity, (str, Path)):
        return load_capacities(capacity, resources)
    content = dict(capacity or {})
    if not any(isinstance(value, Mapping) for value in content.values()):
        content = {"default": content}
    return _capacities(content, "capacity", resources)


def _capacities(content: Mapping[str, Any], where: str, resources: Iterable[str]) -> Capacities:
    expected = {
        "extra_forbidden": "default, brokers, log_dirs or measured",
        "literal_error": "shared or separate",
        "string_pattern_mismatch": "a broker id or default",
        "dict_type": "a mapping",
        "finite_number": "a finite number of at least 0",
        "greater_than_equal": "a finite number of at least 0",
        "float_type": "a finite number of at least 0 (of disk also like 2TB, of network like "
        "100MB/s, with a capital B: Mb reads as bits)",
        "int_parsing": "a broker id",
        "less_than": "a broker id",
        "value_error": "a broker id",
    }
    found = as_model(Capacities, content, where, CapacityError, expected)
    brokers = content.get("brokers") or {}
    if len(found.brokers) < len(brokers):
        raise CapacityError(
            f"{where}: brokers: {shown(list(brokers))} found, each broker once expected"
        )
    known = tuple(dict.fromkeys((*DEFAULT_RESOURCES, *resources, *found.measured)))
    for name in found.measured:
        if name in METRIC_IDS or name in DEFAULT_RESOURCES or not name:
            raise CapacityError(
                f"{where}: measured: {shown(name)} found, the name of a metric of your own expected"
            )
    stated = {"default": found.default, **{f"brokers.{b}": own for b, own in found.brokers.items()}}
    for place, own in stated.items():
        for name in own:
            if name not in known and (wanted := meant(name, known)) is not None:
                raise CapacityError(
                    f"{where}: {place}: resource {shown(name)} found, {wanted} expected; known are "
                    f"{', '.join(known)}"
                )
    return found
