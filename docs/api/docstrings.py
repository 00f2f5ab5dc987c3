"""Lets mkdocstrings read this project's docstrings: fields of models, and names as in Sphinx."""

from __future__ import annotations

import re
from typing import Any

from griffe import (
    Attribute,
    Class,
    Expr,
    ExprCall,
    ExprKeyword,
    Extension,
    Function,
    Module,
    Object,
    Parameter,
    ParameterKind,
    Parameters,
)

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([^`]+)`")
# Their fields are the arguments of their constructor.
_MODELS = {"pydantic.BaseModel", "typing.NamedTuple"}


class Docstrings(Extension):
    """Turns roles into code, and gives models the constructor that is made of their fields."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Go through a package once all of it is read."""
        _read(pkg)


def _read(found: Object) -> None:
    if found.docstring is not None:
        found.docstring.value = _ROLE.sub(_code, found.docstring.value)
    if isinstance(found, Class) and "__init__" not in found.members and _is_model(found):
        found.set_member("__init__", _constructor(found))
    for member in list(found.members.values()):
        if isinstance(member, Object):
            _read(member)


def _code(role: re.Match[str]) -> str:
    return f"`{role[2].rpartition('.')[2] if role[1] else role[2]}`"


def _is_model(found: Class) -> bool:
    bases = {getattr(base, "canonical_path", base) for base in found.bases}
    return bool(bases & _MODELS) or any(_is_model(b) for b in found.mro() if b is not found)


def _constructor(model: Class) -> Function:
    fields = {
        field.name: Parameter(
            field.name,
            annotation=field.annotation,
            kind=ParameterKind.keyword_only,
            default=_default(field.value),
        )
        for owner in [*reversed(model.mro()), model]
        for field in owner.members.values()
        if isinstance(field, Attribute)
        and field.annotation is not None
        and "ClassVar" not in str(field.annotation)
        and not field.name.startswith("_")
    }
    own = Parameter("self", kind=ParameterKind.positional_or_keyword)
    return Function("__init__", parent=model, parameters=Parameters(own, *fields.values()))


def _default(value: str | Expr | None) -> str | Expr | None:
    """The default of a field, without the limits that ``Field(...)`` states beside it."""
    if not isinstance(value, ExprCall) or value.canonical_path != "pydantic.Field":
        return value
    given = {a.name: a.value for a in value.arguments if isinstance(a, ExprKeyword)}
    if "default_factory" in given:
        return f"{given['default_factory']}()"
    first = next((a for a in value.arguments if not isinstance(a, ExprKeyword)), None)
    return given.get("default", first)
