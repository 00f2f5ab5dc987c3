"""Gives a package names of its modules that are imported when they are first used.

What imports one light module of such a package does not wait for all the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package.

    Type checkers read the same names from imports under ``TYPE_CHECKING``.

    Parameters
    ----------
    package
        Its name.
    modules
        Module -> the names that the package takes from it.
    """
    origins = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(origins[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origins})

    return get, names
