"""The help of a command in a narrow terminal: options above their text, so that no name is cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

# Below this width typer's table of options cuts names of options, variables and values.
WIDE = 100
# The same for groups of commands, which have few options of their own.
WIDE_OF_GROUPS = 60
_MARGIN, _INDENT = 2, 6


def print_options(console: Console, ctx: Any, params: Iterable[Any]) -> None:
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
