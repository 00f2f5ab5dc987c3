"""What brokers can carry, as their operator states it: in a mapping or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cluster_model.errors import InputError
from cluster_model.snapshot import DEFAULT_RESOURCES

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CapacityError(InputError):
    """Broker capacities that cannot be used: says where, the value found and what is expected."""


class Capacities(BaseModel):
    """What brokers can carry: by resource for all of them, and where single brokers differ.

    Parameters
    ----------
    default
        Resource name to capacity, in the unit of the load (``disk`` in bytes).
    brokers
        Broker id to the resources in which that broker differs from the default.

    Examples
    --------
    >>> capacities = Capacities(default={"cpu": 100.0}, brokers={1: {"cpu": 400.0}})
    >>> capacities.of(0), capacities.of(1)
    ({'cpu': 100.0}, {'cpu': 400.0})
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: dict[str, Amount] = {}
    brokers: dict[Annotated[int, Field(ge=0)], dict[str, Amount]] = {}

    def of(self, broker: int) -> dict[str, float]:
        """Resource to capacity of one broker."""
        return {**self.default, **self.brokers.get(broker, {})}

    @property
    def resources(self) -> tuple[str, ...]:
        """Those of the default resources that count: disk, which Kafka tells, and what is named."""
        named = {"disk", *self.default, *(r for own in self.brokers.values() for r in own)}
        return tuple(r for r in DEFAULT_RESOURCES if r in named)


def load_capacities(path: str | Path) -> Capacities:
    """Read a YAML or JSON file ``{"default": {...}, "brokers": {"1": {...}}}``.

    Raises
    ------
    CapacityError
        For a missing or unreadable file, or naming the first entry that is wrong.
    """
    where = f"capacity file {path}"
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CapacityError(f"{where}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise CapacityError(f"{where}: neither YAML nor JSON ({said})") from None
    if not isinstance(content, Mapping):
        raise CapacityError(
            f"{where}: {type(content).__name__} found, a mapping with default and brokers expected"
        )
    return _capacities(content, where)


def as_capacities(capacity: Capacities | Mapping[str, Any] | str | Path | None) -> Capacities:
    """Capacities in any of the forms a caller may state them.

    Parameters
    ----------
    capacity
        ``{resource: value}`` for every broker, the ``{"default": ..., "brokers": ...}`` of
        a capacity file, the path of one, or :class:`Capacities`; None states nothing.

    Raises
    ------
    CapacityError
        As in :func:`load_capacities`.
    """
    if isinstance(capacity, Capacities):
        return capacity
    if isinstance(capacity, (str, Path)):
        return load_capacities(capacity)
    content = dict(capacity or {})
    if not any(isinstance(value, Mapping) for value in content.values()):
        content = {"default": content}
    return _capacities(content, "capacity")


def _capacities(content: Mapping[str, Any], where: str) -> Capacities:
    try:
        return Capacities.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"] if step != "[key]")
        expected = {
            "extra_forbidden": "default or brokers",
            "dict_type": "a mapping",
            "finite_number": "a finite number of at least 0",
            "greater_than_equal": "a finite number of at least 0",
            "float_type": "a finite number of at least 0",
            "float_parsing": "a finite number of at least 0",
            "int_parsing": "a broker id",
        }.get(first["type"], first["msg"])
        raise CapacityError(
            f"{where}: {place}: {first['input']!r} found, {expected} expected"
        ) from None
