"""Regular expressions that choose topics."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from cluster_model.snapshot import Bools


def valid_pattern(pattern: str) -> str:
    """The pattern itself; raises ValueError for one that is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"a regular expression expected ({error})") from None
    return pattern


def matching(pattern: str, names: Sequence[str]) -> Bools:
    """(len(names),) whether the pattern matches the whole name; an empty one matches none.

    Examples
    --------
    >>> matching("orders|pay.*", ["orders", "orders-2", "payments"])
    array([ True, False,  True])
    """
    compiled = re.compile(pattern)
    return np.array([bool(pattern and compiled.fullmatch(name)) for name in names], np.bool_)
