"""The properties of a configuration of Cruise Control, with checked values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from balancer.composition.cruise_control.errors import CruiseControlError
from balancer.composition.properties import PropertiesError, Property, read_properties
from goals.patterns import PatternError, matching
from metrics_reporter.documents import shown

FILE = "cruisecontrol.properties"
_SECRET = re.compile(r"password|secret|jaas|webhook|token|credential|api\.key|keystore\.key", re.I)
# A value that one of Cruise Control's configuration providers looks up elsewhere.
_REFERENCE = re.compile(r"\$\{\w+:[^}]*\}")
_HIDDEN = "***"


class Given:
    """Keys and values of a properties file; the last value of a key counts.

    Parameters
    ----------
    path
        The file, or a directory with ``cruisecontrol.properties`` in it or in its ``config``.

    Raises
    ------
    CruiseControlError
        If there is no such file, or it is none of properties.
    """

    def __init__(self, path: Path) -> None:
        self.path = _found(path)
        try:
            properties = read_properties(self.path)
        except (OSError, PropertiesError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CruiseControlError(f"{self.path}: {reason}") from None
        if not properties:
            raise CruiseControlError(f"{self.path}: no properties found, key=value expected")
        kinds = [p.value for p in properties if p.key == "kind"]
        if kinds and any(p.key == "apiVersion" for p in properties):
            raise CruiseControlError(
                f"{self.path}: a resource of Kubernetes (kind {shown(kinds[0])}) found, "
                f"{FILE} expected; Strimzi writes it in the pod of its Cruise Control"
            )
        self._last = {p.key: p for p in properties}
        self._lines: dict[str, list[int]] = {}
        for p in properties:
            self._lines.setdefault(p.key, []).append(p.line)

    def __contains__(self, key: str) -> bool:
        return key in self._last

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __getitem__(self, key: str) -> str:
        return self._last[key].value.strip()

    def lines(self, key: str) -> list[int]:
        """The lines on which a key is given."""
        return self._lines[key]

    def shown(self, key: str) -> str:
        """A value as others may see it."""
        return _HIDDEN if _SECRET.search(key) else self[key]

    def refers(self, key: str) -> bool:
        """Whether a value is looked up elsewhere when Cruise Control starts."""
        return _REFERENCE.search(self[key]) is not None

    def names(self, key: str) -> list[str]:
        """Entries of a list, without empty ones."""
        return [name.strip() for name in self[key].split(",") if name.strip()]

    def flag(self, key: str) -> bool:
        """True for ``true`` in any case, as in Java."""
        text = self[key].lower()
        if text not in ("true", "false"):
            raise self.wrong(key, "true or false")
        return text == "true"

    def number(self, key: str, least: float = 0.0, most: float = float("inf")) -> float:
        """A finite number within limits."""
        try:
            found = float(self[key])
        except ValueError:
            found = float("nan")
        if not isfinite(found) or not least <= found <= most:
            within = f" from {least:g} to {most:g}" if isfinite(most) else f" of at least {least:g}"
            raise self.wrong(key, f"a number{within}")
        return int(found) if found == int(found) else found

    def whole(self, key: str) -> int:
        """A whole number of at least 0."""
        found = self.number(key)
        if found != int(found):
            raise self.wrong(key, "a whole number")
        return int(found)

    def pattern(self, key: str) -> str:
        """A regular expression that matches the same topics in Python as in Java."""
        try:
            matching(self[key], ())
        except PatternError as error:
            raise CruiseControlError(
                f"{self.path}, line {self._last[key].line}: {key}: {error}; state it in Python's "
                "syntax"
            ) from None
        return self[key]

    def file(self, key: str) -> Path:
        """A file that a key names, which Cruise Control finds from its own directory."""
        named = Path(self[key])
        base = self.path.parent
        tried = (base / named, base.parent / named, base / named.name)
        for path in tried:
            if path.is_file():
                return path
        raise self.wrong(key, f"a file in {base} or {base.parent}")

    def wrong(self, key: str, expected: str) -> CruiseControlError:
        """The error of a key whose value is not as expected."""
        found: Property = self._last[key]
        value = "" if _SECRET.search(key) else f"{shown(found.value)} found, "
        return CruiseControlError(
            f"{self.path}, line {found.line}: {key}: {value}{expected} expected"
        )


def _found(path: Path) -> Path:
    if not path.is_dir():
        return path
    for place in (path / FILE, path / "config" / FILE):
        if place.is_file():
            return place
    raise CruiseControlError(f"{path}: no {FILE} found in it or in its config")
