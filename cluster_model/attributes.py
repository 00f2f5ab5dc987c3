"""Named properties of brokers or topics, such as a zone, a price or a tenant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_model.errors import SnapshotError
from metrics_reporter.arrays import Ints, read_only
from metrics_reporter.documents import shown

Values = npt.NDArray[Any]

# Letters, digits, `_`, `-` and dots: names of Kafka's topic configs are valid.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def valid_name(name: Any) -> str:
    """Return the name of an attribute; raises ValueError for an invalid one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a name of letters, digits, _, - and dots expected")
    return name


def valid_value(value: Any) -> str | float:
    """Return the value of an attribute; raises ValueError unless it is text or a number."""
    if isinstance(value, str) and value and not _UNSTORABLE.search(value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError("text or a finite number expected")


_LISTED = "names separated by commas expected"


class Attributes(Mapping[str, Values]):
    """Attributes of brokers or of topics: for each name, one value for each of them.

    An attribute is text (missing values are ``""``) or a number (missing values are nan).
    An attribute without any value does not exist.

    Parameters
    ----------
    of
        What has the attributes: ``broker`` or ``topic``.
    length
        The number of brokers or topics.
    values
        Values by name, None for a missing one.

    Examples
    --------
    >>> zones = Attributes("broker", 3, {"zone": ["a", None, "a"], "age": [1, 2, None]})
    >>> zones["age"], zones.groups("zone")
    (array([ 1.,  2., nan]), (array([ 0, -1,  0]), ('a',)))
    >>> zones.named("price")
    Traceback (most recent call last):
    ...
    cluster_model.errors.SnapshotError: the snapshot has no broker attribute 'price'; it has \
age, zone
    """

    def __init__(self, of: str, length: int, values: Mapping[str, Any]) -> None:
        self.of, self._values = of, dict[str, Values]()
        self._groups: dict[str, tuple[Ints, tuple[str, ...]]] = {}
        self._needs: dict[str, tuple[Ints, tuple[str, ...]]] = {}
        for name in sorted(values, key=str):
            where = f"{of} attribute {shown(name)}"
            try:
                valid_name(name)
            except ValueError as error:
                raise SnapshotError(f"{where}: {error}") from None
            column = _column(where, length, values[name])
            if column is not None:
                column.setflags(write=False)
                self._values[name] = column

    def __getitem__(self, name: str) -> Values:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attributes):
            return NotImplemented
        return list(self) == list(other) and all(
            one.dtype.kind == two.dtype.kind
            and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
            for one, two in zip(self.values(), other.values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equality by content, no hash

    def named(self, name: str) -> Values:
        """The values of an attribute; raises SnapshotError with the names there are."""
        if name not in self._values:
            has = f"it has {', '.join(self)}" if self._values else "it has none"
            raise SnapshotError(f"the snapshot has no {self.of} attribute {name!r}; {has}")
        return self._values[name]

    def groups(self, name: str) -> tuple[Ints, tuple[str, ...]]:
        """The group of equal values that each belongs to (-1: no value), and their names."""
        known = self._groups.get(name)
        if known is None:
            values = self.named(name)
            given = values != "" if values.dtype.kind == "U" else ~np.isnan(values)
            distinct, at = np.unique(values[given], return_inverse=True)
            group = np.full(len(values), -1, np.int64)
            group[given] = at
            labels = tuple(v if isinstance(v, str) else f"{v:.15g}" for v in distinct.tolist())
            known = self._groups[name] = read_only(group), labels
        return known

    def needs(self, name: str, owners: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
        """What an attribute says that others need: names, separated by commas.

        Parameters
        ----------
        name
            The attribute. An owner's own name does not count as needed by it.
        owners
            (N,) names of those that have the attributes.

        Returns
        -------
        (1 + J, N) the number of each owner among the needed names, and those of all that it needs,
        -1 for none; and the needed names in alphabetical order.

        Raises
        ------
        SnapshotError
            If nothing has the attribute, or it is a number.
        """
        known = self._needs.get(name)
        if known is None:
            values = self.named(name)
            if values.dtype.kind != "U":
                given = next(v for v in values.tolist() if v == v)
                raise SnapshotError(f"{self.of} attribute {name}: {given:g} found, {_LISTED}")
            lists = [{x.strip() for x in value.split(",")} - {""} for value in values.tolist()]
            names = tuple(sorted(set[str]().union(*lists)))
            if not names:
                raise SnapshotError(f"{self.of} attribute {name}: only commas found, {_LISTED}")
            lists = [some - {owner} for some, owner in zip(lists, owners, strict=True)]
            number = {x: i for i, x in enumerate(names)}
            table = np.full((1 + max(map(len, lists)), len(lists)), -1, np.int64)
            table[0] = [number.get(owner, -1) for owner in owners]
            for row, some in enumerate(lists):
                table[1 : 1 + len(some), row] = sorted(number[x] for x in some)
            known = self._needs[name] = read_only(table), names
        return known

    def of_row(self, row: int) -> dict[str, str | float]:
        """The attributes of one broker or topic."""
        found = {name: column[row].item() for name, column in self._values.items()}
        return {k: v for k, v in found.items() if v != "" and v == v}


def _column(where: str, length: int, given: Any) -> Values | None:
    """An attribute's values as an array; None if all are missing."""
    values = given.tolist() if isinstance(given, np.ndarray) else given
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise SnapshotError(f"{where}: {shown(values)} found, a list of values expected")
    if len(values) != length:
        raise SnapshotError(f"{where}: {len(values)} values found, {length} expected")
    missing = [v is None or v == "" or (isinstance(v, float) and v != v) for v in values]
    if all(missing):
        return None
    text: bool | None = None
    for row, (value, lacks) in enumerate(zip(values, missing, strict=True)):
        if lacks:
            continue
        try:
            is_text = isinstance(valid_value(value), str)
        except ValueError as error:
            raise SnapshotError(f"{where}, row {row}: {shown(value)} found, {error}") from None
        text = is_text if text is None else text
        if text != is_text:
            kind = "text" if text else "a number"
            raise SnapshotError(
                f"{where}, row {row}: {shown(value)} found, {kind} as in earlier rows expected"
            )
    if text:
        return np.array(["" if m else v for v, m in zip(values, missing, strict=True)], np.str_)
    return np.array([np.nan if m else v for v, m in zip(values, missing, strict=True)], np.float64)
