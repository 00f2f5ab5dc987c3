"""Lists strategies, operations and all other extensions, and shows what each does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from rich.markup import escape

from balancer.cli.layout import Rows
from balancer.cli.terminal import AsJson, CommandError, out, print_json
from balancer.controller.plugins import DETECTORS, NOTIFIERS
from cluster_model.snapshot_readers import READERS, reader_of
from metrics_reporter.documents import DocumentError, parse_yaml, shown
from metrics_reporter.plugins import Plugins
from metrics_reporter.source_plugins import SOURCES

SnapshotOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE",
        help="An option of an installed reader of snapshots; repeatable. See `counterpoise "
        "readers list`.",
    ),
]
_USE = {
    "snapshot reader": "counterpoise propose FILE.{name} --snapshot-option FIELD=VALUE",
    "strategy": "counterpoise propose --strategy {name} --strategy-option FIELD=VALUE",
    "operation": "counterpoise propose --operation {name} --option FIELD=VALUE",
    "source": "counterpoise report-metrics --source {name} --source-option FIELD=VALUE",
    "notifier": "in the file of counterpoise run --settings,\n"
    "notifiers: [{{name: {name}, options: {{FIELD: VALUE}}}}]",
    "detector": "in the file of counterpoise run --settings,\n"
    "detectors: {{{name}: {{act: false, grace: 10m, options: {{FIELD: VALUE}}}}}}",
}


def fields_table(kind: type[Any]) -> Rows:
    """The options of a class: name, type and default."""
    table = Rows("field", "type~", "default~")
    for of in fields(kind):
        default = "required" if of["required"] else repr(of["default"])
        table.add(of["field"], escape(of["type"]), escape(default))
    return table


def fields(kind: type[Any]) -> list[dict[str, Any]]:
    """The options of a class: name, type, whether it is required, and the default."""
    found = []
    for name, info in (kind.model_fields if issubclass(kind, BaseModel) else {}).items():
        required = info.is_required()
        default = (
            None if required else info.get_default(call_default_factory=True, validated_data={})
        )
        found.append(
            {
                "field": name,
                "type": _type_name(info.annotation),
                "required": required,
                "default": default,
            }
        )
    return found


def _type_name(annotation: Any) -> str:
    """A type as a user would write it, without what validates it."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(inside[0])
    if origin is Literal:
        return " | ".join(map(repr, inside))
    if origin in (Union, UnionType):
        return " | ".join(map(_type_name, inside))
    if annotation is NoneType:
        return "None"
    if origin is not None:
        names = ["..." if of is ... else _type_name(of) for of in inside]
        return f"{origin.__name__}[{', '.join(names)}]"
    return str(getattr(annotation, "__name__", annotation))


def options_of(
    option: str, pairs: Iterable[str] | None, plugins: Plugins[type[Any]], name: str
) -> dict[str, Any]:
    """The options of a plug-in from ``FIELD=VALUE``.

    Parameters
    ----------
    option
        The option of the command line, for messages.
    pairs
        As given.
    plugins, name
        The kind of plug-in, and the one that takes the options. If there is none of that name,
        values are read as YAML: whatever creates it will report the name.
    """
    given = list(pairs or ())
    kind = plugins.get(name) if given and name in plugins.names() else None
    return fields_of(option, given, kind)


def fields_of(option: str, pairs: Iterable[str], kind: type[Any] | None) -> dict[str, Any]:
    """Fields of a class from ``FIELD=VALUE``.

    A value is read as YAML, unless only its text fits the type of the field: ``12`` is text for a
    field of type ``str``, and a number for one of type ``int | str``.

    Parameters
    ----------
    option
        The option of the command line, for messages.
    pairs
        As given.
    kind
        The class; its fields are typed if it is a pydantic model.

    Raises
    ------
    CommandError
        If a pair has no field, or a field is given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise CommandError(f"{option}: {shown(pair)} found, FIELD=VALUE expected")
        if name in found:
            raise CommandError(f"{option}: {shown(name)} is given twice")
        try:
            value = parse_yaml(text)
        except DocumentError:
            if not _fits(kind, name, text):
                raise CommandError(
                    f"{option} {name}: {shown(text)} found, a value expected"
                ) from None
            value = text
        only_text = not _fits(kind, name, value) and _fits(kind, name, text)
        found[name] = text if only_text else value
    return found


def _fits(kind: type[Any] | None, name: str, value: Any) -> bool:
    """Whether a value has the type of a field; not if there is no such field."""
    fields = getattr(kind, "model_fields", {})
    info = fields.get(name) or next((f for f in fields.values() if f.alias == name), None)
    if info is None:
        return False
    try:
        TypeAdapter(info.annotation).validate_python(value)
    except (ValidationError, PydanticUserError):
        return False
    return True


def snapshot_options(path: str | Path, pairs: Iterable[str] | None) -> dict[str, Any]:
    """The options of the reader of a snapshot."""
    return options_of("--snapshot-option", pairs, READERS, reader_of(path)[0])


def strategy_config(name: str, pairs: Iterable[str] | None) -> dict[str, Any]:
    """A strategy and its options, as configured on the command line."""
    from balancer.strategies import STRATEGIES

    options = options_of("--strategy-option", pairs, STRATEGIES, name)
    if "strategy" in options:
        raise CommandError(
            "--strategy-option strategy: an option of the strategy expected; --strategy names it"
        )
    return {"strategy": name, **options}


def _commands(
    name: str,
    noun: str,
    example: str,
    registry: Callable[[], Plugins[type[Any]]],
    section: Callable[[str], type[BaseModel] | None] = lambda name: None,
) -> tuple[Callable[..., None], Callable[..., None]]:
    """``list`` and ``show`` of a kind.

    Parameters
    ----------
    name
        The group of both commands.
    noun, example
        What one is called, and the name of a built-in one.
    registry
        Gives the kind; called by the commands alone, as some have to be imported for it.
    section
        The settings that a built-in one has instead of options.
    """

    def list_all(json: AsJson = False) -> None:
        plugins = registry()
        table = Rows(noun, "what it does~")
        found, wrong = plugins.loadable()
        if json:
            listed = [{"name": each, "about": plain(_summary(of))} for each, of in found.items()]
            print_json({name: listed, "not_loadable": wrong})
            return
        for each, kind in found.items():
            table.add(escape(each), escape(plain(_summary(kind))))
        for each, problem in wrong.items():
            table.add(escape(each), f"[red]{escape(problem)}[/]")
        console = out()
        console.print(table)
        console.print(f"\nOptions of one of them: counterpoise {name} show NAME")

    def show(
        name: Annotated[str, typer.Argument(help="A name that `list` shows.")],
        json: AsJson = False,
    ) -> None:
        plugins = registry()
        # names of operations are words of the command line elsewhere
        if name not in plugins.names() and name.replace("-", "_") in plugins.names():
            name = name.replace("-", "_")
        kind = plugins.get(name)
        settings = section(name)
        if json:
            about = plain(_documentation(kind))
            print_json({"name": name, "about": about, "fields": fields(settings or kind)})
            return
        console = out()
        console.print(f"{name}\n\n{plain(_documentation(kind))}\n", markup=False)
        if settings is not None:
            console.print(f"{plain(inspect.getdoc(settings) or '')}\n", markup=False)
        table = fields_table(settings or kind)
        if len(table):
            console.print(table)
            use = _USE[noun].format(name=name)
            if settings is not None:
                use = f"in the file of counterpoise run --settings,\n{name}: {{FIELD: VALUE}}"
            console.print(f"\nUse: {use}", markup=False)
        else:
            console.print("It has no options.")

    list_all.__doc__ = (
        f"List every {noun}, built in and installed.\n\nExample: `counterpoise {name} list`"
    )
    show.__doc__ = (
        f"Show the purpose and the options of one {noun}.\n\n"
        f"Example: `counterpoise {name} show {example}`"
    )
    return list_all, show


def plain(text: str) -> str:
    """A docstring without the markup of its documentation: roles and double backticks.

    Examples
    --------
    >>> plain(":class:`~balancer.strategies.milp.Milp` reads ``disk``")
    'Milp reads disk'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text)
    return text.replace("``", "")


def _documentation(kind: type[Any]) -> str:
    """The docstring of a class, completed with the parameters of the models it inherits from."""
    text, head = inspect.getdoc(kind) or "", "Parameters\n----------\n"
    for base in kind.__mro__[1:]:
        if issubclass(base, BaseModel) and base is not BaseModel and base.__doc__:
            inherited = inspect.cleandoc(base.__doc__).partition(head)[2].partition("\n\n")[0]
            if inherited:
                text += f"\n{inherited}" if head in text else f"\n\n{head}{inherited}"
    return text


def _summary(kind: type[Any]) -> str:
    summary = getattr(kind, "summary", "")
    return summary if isinstance(summary, str) and summary else _first_line(kind)


def _first_line(kind: type[Any]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _section(detector: str) -> type[BaseModel] | None:
    """The settings of a built-in detector."""
    from balancer.controller.settings import Settings

    if detector not in DETECTORS.built_in or detector not in Settings.model_fields:
        return None
    section = Settings.model_fields[detector].annotation
    return section if isinstance(section, type) else None


def _strategies() -> Plugins[type[Any]]:
    from balancer.strategies import STRATEGIES

    return STRATEGIES


def _operations() -> Plugins[type[Any]]:
    from balancer.problem.operations import OPERATIONS

    return OPERATIONS


list_strategies, show_strategy = _commands("strategies", "strategy", "goals", _strategies)
list_operations, show_operation = _commands("operations", "operation", "rebalance", _operations)
list_notifiers, show_notifier = _commands("notifiers", "notifier", "log", lambda: NOTIFIERS)
list_detectors, show_detector = _commands(
    "detectors", "detector", "dead_brokers", lambda: DETECTORS, _section
)
list_sources, show_source = _commands("sources", "source", "prometheus", lambda: SOURCES)
list_readers, show_reader = _commands("readers", "snapshot reader", "json", lambda: READERS)
