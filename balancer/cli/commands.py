"""Groups of commands whose modules are imported when a command is called."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

DONE, UNMET, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_MARKUP: Final = "markdown"
_LONGEST = 2000
# Errors that typer itself raises about options, independent of the library it is built on.
_UsageError: Any = typer.BadParameter.__mro__[1]


# The extra that brings a package which a command may lack.
EXTRAS = {
    "confluent_kafka": "kafka",
    "delta": "spark",
    "fastapi": "server",
    "grpc": "autoscaling",
    "highspy": "collocation",
    "kafka": "kafka",
    "kubernetes": "autoscaling",
    "matplotlib": "spark",
    "networkx": "collocation",
    "numba": "fast",
    "pandas": "spark",
    "prometheus_client": "server",
    "pyarrow": "spark",
    "pymetis": "collocation",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
}


class LazyCommand(TyperCommand):
    """Stands for a command in the help of its group, until it is called.

    Parameters
    ----------
    name
        The last word that calls it.
    target
        ``module:function`` in this package.
    summary
        The first line of the function's docstring.
    """

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=_MARKUP)
        self._target = target
        self._loaded: Any = None

    def load(self) -> Any:
        """The command itself, whose module is imported for it."""
        if self._loaded is None:
            from balancer.cli.terminal import Command

            module, _, function = self._target.partition(":")
            callback = getattr(import_module(f"{__package__}.{module}"), function)
            holder = typer.Typer(add_completion=False, rich_markup_mode=_MARKUP)
            holder.command(self.name, cls=Command)(callback)
            self._loaded = get_command(holder)
        return self._loaded

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Commands(TyperGroup):
    """Commands that report any error in one sentence on stderr, and exit with 2.

    ``--debug`` shows where an error came from.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command's name."""
        with _one_sentence(ctx):
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; in a narrow terminal with options above their text."""
        from balancer.cli import narrow_help

        narrow_help.print_help(self, TyperGroup, narrow_help.WIDE_OF_GROUPS, ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command."""
        with _one_sentence(ctx):
            return super().invoke(ctx)

    def add(
        self, targets: Mapping[str, tuple[str, str]], summaries_of_groups: Mapping[str, str]
    ) -> None:
        """Add commands that are imported when they are called.

        Parameters
        ----------
        targets
            One or two words -> ``module:function`` and the first line of its docstring.
        summaries_of_groups
            First word of commands of two words -> what they have in common.
        """
        for words, (target, summary) in targets.items():
            first, _, second = words.partition(" ")
            group: TyperGroup = self
            if second:
                if first not in self.commands:
                    self.commands[first] = TyperGroup(
                        name=first,
                        help=summaries_of_groups[first],
                        no_args_is_help=True,
                        rich_markup_mode=_MARKUP,
                    )
                group = self.commands[first]  # type: ignore[assignment]
            name = second or first
            group.commands[name] = LazyCommand(name, target, summary)


@contextmanager
def _one_sentence(ctx: Any) -> Iterator[None]:
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        typer.echo("counterpoise: interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of the output has gone; the interpreter must not raise that error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNMET) from None
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        if ctx.params.get("debug"):
            traceback.print_exc()
        typer.echo(f"counterpoise: {_sentence(error, ctx)}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def _sentence(error: Exception, ctx: Any) -> str:
    from cluster_model.errors import InputError
    from metrics_reporter.documents import printable
    from metrics_reporter.errors import ReporterError

    if isinstance(error, InputError | ReporterError):
        said = str(error)
    elif isinstance(error, _UsageError):
        said = str(error.format_message())
    elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        said = f"{error.name} is not installed: pip install 'counterpoise[{EXTRAS[error.name]}]'"
    else:
        name = ctx.invoked_subcommand or "this command"
        what = {
            MemoryError: "this needs more memory than this machine has",
            RecursionError: "something is nested too deeply",
        }.get(type(error), f"{type(error).__name__}: {error}")
        said = f"{name} failed unexpectedly ({what}); counterpoise --debug {name} ... shows where"
    said = printable(" ".join(said.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
