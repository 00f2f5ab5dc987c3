"""Type aliases for the arrays in annotations, and arrays that others may only read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def read_only(values: npt.ArrayLike) -> Any:
    """A view of an array through which its elements cannot be changed."""
    view = np.asarray(values).view()
    view.setflags(write=False)
    return view
