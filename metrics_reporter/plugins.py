"""A registry of extensible kinds: built-in classes, then installed entry points."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from metrics_reporter.documents import clipped, shown
from metrics_reporter.suggestions import hint, listed

Class = TypeVar("Class")
Model = TypeVar("Model", bound=BaseModel)


@contextmanager
def fault_of(
    what: str,
    error: type[Exception],
    passes: type[Exception] | tuple[type[Exception], ...] | None = None,
    *,
    hide: bool = False,
) -> Iterator[None]:
    """Name the code of another package in an error that it raises, in one sentence.

    Parameters
    ----------
    what
        Beginning of the sentence, for example ``goal Mine: prepare failed``.
    error
        The error to raise.
    passes
        Errors that pass unchanged because they are sentences already; None for `error`.
    hide
        Whether to leave out what the error says, because it may hold a secret.

    Examples
    --------
    >>> with fault_of("goal Mine: prepare failed", ValueError):
    ...     {}["zone"]
    Traceback (most recent call last):
        ...
    ValueError: goal Mine: prepare failed (KeyError: 'zone')
    """
    sentences = passes or error
    try:
        yield
    except sentences:
        raise
    except Exception as found:  # a plug-in may raise anything
        said = "" if hide else f": {clipped(' '.join(str(found).split()))}"
        raise error(f"{what} ({type(found).__name__}{said})") from (None if hide else found)


def validated(
    kind: type[Model],
    options: Mapping[str, Any],
    what: str,
    error: type[Exception],
    *,
    hide: bool = False,
) -> Model:
    """An object of a model class with these fields; reports the first problem in one sentence.

    Parameters
    ----------
    kind
        The class.
    options
        Its fields, as given by a user.
    what
        Beginning of the message.
    error
        Error to raise.
    hide
        Whether to leave out of messages what was given, because it may be a secret.
    """
    unknown = _ignored(kind, options)
    if unknown is not None:
        raise error(f"{what}{_unknown_option(kind, unknown, hide)}")
    try:
        return kind.model_validate(dict(options))
    except ValidationError as wrong:
        first = wrong.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            text = _unknown_option(kind, field, hide)
        elif first["type"] == "missing":
            text = f", option {field}: none found, a value expected"
        else:
            reason = first["msg"].removeprefix("Value error, ")
            # A problem of several options together has no field.
            found = "" if hide or not field else f"{shown(first['input'])} found; "
            option = f", option {field}" if field else ""
            text = f"{option}: {found}{reason[:1].lower()}{reason[1:]}"
        raise error(f"{what}{text}") from None


@dataclass(frozen=True)
class Plugins(Generic[Class]):
    """Classes by the names that users give in files and on the command line.

    Parameters
    ----------
    group
        Entry-point group in which other packages register theirs.
    noun
        Name of the kind in messages: "goal", "strategy".
    built_in
        Name to class, or to ``"module:Class"``, whose module is loaded on first use.
    accepts
        Whether an object is a class of that kind.
    expected
        Description of what `accepts` requires, for messages.
    error
        Error to raise, with one sentence.
    """

    group: str
    noun: str
    built_in: dict[str, Class | str]
    accepts: Callable[[Any], bool]
    expected: str
    error: type[Exception]

    def names(self) -> list[str]:
        """All names, sorted: built in and installed."""
        return sorted({*self.built_in, *entry_points(group=self.group).names})

    def get(self, name: str, where: str = "") -> Class:
        """The class of that name.

        Loads only the package in question, so that a fault in another one cannot make this
        fail.

        Parameters
        ----------
        name
            As given by a user.
        where
            Beginning of the message if the name is unknown.
        """
        if name in self.built_in:
            return self._own(name)
        for point in entry_points(group=self.group):
            if point.name == name:
                return self._loaded(point)
        names = self.names()
        raise self.error(
            f"{where}{self.noun} {shown(name)} found, one of {', '.join(names)} expected"
            f"{hint(name, names)}"
        )

    def all(self) -> dict[str, Class]:
        """Every class by name: built in, then installed, each sorted."""
        installed = sorted(entry_points(group=self.group), key=lambda point: point.name)
        return {name: self._own(name) for name in self.built_in} | {
            point.name: self._loaded(point) for point in installed
        }

    def loadable(self) -> tuple[dict[str, Class], dict[str, str]]:
        """Every class that can be loaded, by name, and what is wrong with each of the others."""
        found = {name: self._own(name) for name in self.built_in}
        wrong: dict[str, str] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            try:
                found[point.name] = self._loaded(point)
            except self.error as error:
                wrong[point.name] = str(error)
        return found, wrong

    def make(self, name: str, options: Mapping[str, Any], *, hide: bool = False) -> Any:
        """An object of the class of that name.

        Parameters
        ----------
        name
            As given by a user.
        options
            Fields of the class, where it is a pydantic model; others take none.
        hide
            Whether to leave out of messages what was given, because it may be a secret.
        """
        kind: Any = self.get(name)
        if options and not issubclass(kind, BaseModel):
            given = "some" if hide else shown(options)
            raise self.error(f"{self.noun} {name}: takes no options, {given} found")
        with fault_of(f"{self.noun} {name} cannot be created", self.error, hide=hide):
            if not issubclass(kind, BaseModel):
                return kind()
            return validated(kind, options, f"{self.noun} {name}", self.error, hide=hide)

    def _own(self, name: str) -> Class:
        found = self.built_in[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            loaded: Class = getattr(importlib.import_module(module), attribute)
            return loaded
        return found

    def _loaded(self, point: EntryPoint) -> Class:
        package = point.dist.name if point.dist else "an unknown package"
        if point.name in self.built_in:
            raise self.error(
                f"package {package}: {self.noun} {point.name!r} found, a name that is not built in "
                "expected"
            )
        what = f"package {package}: {self.noun} {point.name} cannot be loaded from {point.value}"
        with fault_of(what, self.error):
            found = point.load()
        if not self.accepts(found):
            raise self.error(
                f"package {package}: {self.noun} {point.name}: {point.value} is {found!r}, "
                f"{self.expected} expected"
            )
        accepted: Class = found
        return accepted


def _ignored(kind: type[BaseModel], options: Mapping[str, Any]) -> str | None:
    """The first option that a model would silently ignore; None if there is none."""
    if kind.model_config.get("extra", "ignore") != "ignore":
        return None
    fields = kind.model_fields.items()
    if any(info.validation_alias is not None for _, info in fields):
        return None
    known = {name for name, _ in fields}
    return next((str(option) for option in options if option not in known), None)


def _unknown_option(kind: type[BaseModel], found: str, hide: bool) -> str:
    given = "an unknown option" if hide else f"option {shown(found)}"
    known = listed(list(kind.model_fields))
    near = "" if hide else hint(found, kind.model_fields)
    return f": {given} found, {f'one of {known}' if known else 'no options'} expected{near}"
