"""Gives options their values from the environment and from the configuration file.

An option with a variable ``COUNTERPOISE_NAME`` is also a key ``name`` of the file. An option on the
command line comes first, then the variable, then the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer
import typer.main

from balancer.composition.configuration import (
    IMPLICIT,
    implicit_configuration,
    load_configuration,
    option_values,
)

_PREFIX = "COUNTERPOISE_"
_VARIABLE = f"{_PREFIX}CONFIG"
_FILE = f"{__name__}.file"
# Options that say how to read a cluster: a snapshot on the command line replaces all of them.
_OF_A_CLUSTER = {"bootstrap_server", "capacity", "attributes", "command_config", "metrics_topic"}
_DROPPED = f"{__name__}.dropped"


def variable(option: str) -> str:
    """The environment variable of an option.

    Examples
    --------
    >>> variable("--metrics-topic")
    'COUNTERPOISE_METRICS_TOPIC'
    """
    return _PREFIX + option.removeprefix("--").replace("-", "_").upper()


def config_option(params: list[Any]) -> Any:
    """The option ``--config`` for a command, if any of its options has a variable."""
    keys = {key: param.name for param in params if (key := _key(param)) is not None}
    if not keys:
        return None

    def read(context: typer.Context, given: Path | None) -> None:
        if context.resilient_parsing:
            return
        file, refusal = given, None
        if file is None:
            file, refusal = implicit_configuration(Path.cwd())
        context.meta[_FILE] = file, refusal
        if file is not None:
            values = option_values(file)
            context.default_map = {keys[key]: v for key, v in values.items() if key in keys}

    # Typer makes the option: the classes behind it change from release to release.
    holder = typer.Typer(add_completion=False)

    stated = typer.Option(
        None,
        "--config",
        metavar="FILE",
        callback=read,
        expose_value=False,
        is_eager=True,
        envvar=_VARIABLE,
        show_envvar=True,
        help=f"Configuration file with values for options; {IMPLICIT} in the current directory is "
        "read without being named.",
    )

    @holder.command()
    def command(config: Path | None = stated) -> None:
        """Hold the option."""

    return next(p for p in typer.main.get_command(holder).params if p.name == "config")


def prefer_snapshot(context: Any, params: list[Any]) -> None:
    """Drop a configured cluster if a snapshot is given as an argument."""
    if context.params.get("snapshot") is None:
        return
    of_cluster = [p.name for p in params if p.name in _OF_A_CLUSTER]
    dropped = {name for name in of_cluster if not on_command_line(context, name)}
    context.params.update(dict.fromkeys(dropped))
    context.meta[_DROPPED] = {*dropped, "timeout"}


def on_command_line(context: Any, name: str) -> bool:
    """Whether the value of a parameter was given on the command line."""
    found = context.get_parameter_source(name)
    return found is not None and found.name == "COMMANDLINE"


def origins(context: Any, params: list[Any]) -> str | None:
    """Which values are not from the command line, and where they are from, in one sentence."""
    file, refusal = context.meta.get(_FILE, (None, None))
    dropped = context.meta.get(_DROPPED, ())
    used = [p for p in params if _key(p) is not None and p.name not in dropped]
    of_file = [str(_key(p)) for p in used if _source(context, p) == "DEFAULT_MAP"]
    variables = [str(p.envvar) for p in used if _source(context, p) == "ENVIRONMENT"]
    said = [refusal] if refusal is not None else []
    if of_file:
        named = f" (of {_VARIABLE})" if str(file) == os.environ.get(_VARIABLE) else ""
        said.append(f"from {file}{named}: {', '.join(_as_in_file(of_file, file))}")
    if variables:
        said.append(f"from the environment: {', '.join(variables)}")
    return "; ".join(said) if said else None


def _as_in_file(keys: list[str], file: Path) -> list[str]:
    inline = load_configuration(file).client is not None
    return ["client" if key == "command_config" and inline else key for key in keys]


def _key(param: Any) -> str | None:
    """The key of an option in the file."""
    found = param.envvar
    if not isinstance(found, str) or not found.startswith(_PREFIX) or found == _VARIABLE:
        return None
    return found.removeprefix(_PREFIX).lower()


def _source(context: Any, param: Any) -> str:
    found = context.get_parameter_source(param.name)
    return "" if found is None else str(found.name)
