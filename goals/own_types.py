"""Models whose fields take values of their own type only: goals and parameters."""

from __future__ import annotations

from typing import Any, get_args

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
    kinds = set(get_args(annotation)) or {annotation}
    if kinds & {int, float} and str not in kinds:
        if isinstance(value, str) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError("a number expected")
        if isinstance(value, int | float) and float not in kinds and abs(value) >= 2**31:
            raise ValueError("a whole number below 2**31 expected")
    elif bool in kinds and isinstance(value, str | int | float) and not isinstance(value, bool):
        raise ValueError("true or false expected")
    elif isinstance(value, bool) and not kinds & {bool, Any}:
        raise ValueError("another kind of value expected")
    return value
