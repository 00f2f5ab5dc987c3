"""The help of a command in a narrow terminal: options above their text, so that no name is cut."""

from __future__ import annotations

import os
from collections.abc import Iterable
from copy import copy
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

# Below this width typer's table of options cuts names of options, variables and values.
WIDE = 100
# The same for groups of commands, which have few options of their own.
WIDE_OF_GROUPS = 60
_MARGIN, _INDENT = 2, 6


def fixed_width() -> int | None:
    """The width of what is printed to a pipe: 120, unless ``COLUMNS`` says another."""
    given = Console().is_terminal or os.environ.get("COLUMNS", "").isdecimal()
    return None if given else 120


def print_help(command: Any, usual: Any, wide: int, ctx: Any, formatter: Any) -> None:
    """Print the help of a command or group as typer does, or narrow.

    Parameters
    ----------
    command
        The command or group.
    usual
        The class of typer whose help suits wide terminals.
    wide
        Characters of a line from which it does.
    ctx, formatter
        As given to ``format_help``.
    """
    console = Console(highlight=False, width=fixed_width())
    if command.rich_markup_mode is None or console.width >= wide:
        usual.format_help(command, ctx, formatter)
        return
    without_options: Any = copy(command)
    without_options.get_params = lambda _: []
    without_options.get_usage = command.get_usage
    usual.format_help(without_options, ctx, formatter)
    _print_options(console, ctx, command.get_params(ctx))


def _print_options(console: Console, ctx: Any, params: Iterable[Any]) -> None:
    """Print arguments and options by their panels, as typer does in a wide terminal."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in params:
        record = param.get_help_record(ctx)
        if record is not None:
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            panels.setdefault(param.rich_help_panel or usual, []).append(record)
    for title, records in panels.items():
        if not records:
            continue
        console.print(Text(title, "bold"))
        for names, text in records:
            console.print(Padding(Text(names, "cyan"), (0, 0, 0, _MARGIN)))
            console.print(Padding(Text(text), (0, 0, 0, _INDENT)))
        console.print()
