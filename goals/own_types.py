"""Models whose fields take values of their own type only: goals and parameters."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ValidationInfo, field_validator


class OwnTypes(BaseModel):
    """A model that refuses ``"3"`` or ``true`` for a number, and ``1`` for a boolean."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_other_type(cls, value: Any, info: ValidationInfo) -> Any:
        return _of_the_type(cls.model_fields[info.field_name or ""].annotation, value)


def _of_the_type(annotation: Any, value: Any) -> Any:
    """Return a value whose type needs no conversion from text, a number or a boolean.

    Raises
    ------
    ValueError
        For any other value; the message gives the expected type.
    """
    if get_origin(annotation) is Literal:
        return value
    of = get_args(annotation)
    if get_origin(annotation) is tuple and of[1:] == (...,) and isinstance(value, list | tuple):
        return [_of_the_type(_bare(of[0]), element) for element in value]
    kinds = set(map(_bare, of)) or {annotation}
    boolean = isinstance(value, bool | np.bool_)
    if kinds & {int, float} and str not in kinds:
        if isinstance(value, str) or (boolean and bool not in kinds):
            raise ValueError("a number expected")
    elif bool in kinds and isinstance(value, str | int | float) and not boolean:
        raise ValueError("true or false expected")
    elif boolean and not kinds & {bool, Any}:
        raise ValueError("another kind of value expected")
    return value


def _bare(annotation: Any) -> Any:
    """A type without what is annotated to it."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
