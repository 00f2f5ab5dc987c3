"""The imports of the packages go one way: no cycle, and no room imports one above it.

All imports in the source count: in modules, in functions (which load a client or Spark only when it
is needed) and those for type checkers only. That Python runs a package's ``__init__`` before its
modules does not count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("metrics_reporter", "cluster_model", "goals", "balancer")

# From the bottom to the top; rooms on one level do not know each other.
ROOMS = (
    ("problem",),
    ("inspection",),
    ("search", "allocation"),
    ("strategies",),
    ("planning",),
    ("engine",),
    ("autoscaling",),
    ("collocation", "assignment"),
    # `balancer/__init__.py`: what an application embeds.
    ("",),
    ("execution", "approval"),
    ("controller",),
    ("backtest", "report"),
    ("composition",),
    ("server",),
    ("cli",),
)
# The checker shares no code with search or planning: it knows plans by their documents alone.
INDEPENDENT = {"verification": {"balancer.planning.document"}}


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Names that a file imports: modules, and what it takes from them."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def nearest(name: str, known: dict[str, Path]) -> str | None:
    """The module that a name is, or that it is taken from."""
    return next((m for m in (name, name.rpartition(".")[0]) if m in known), None)


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Module to the modules of ours that it imports."""
    known = modules()
    return {
        module: {
            found
            for name in imported(path)
            if (found := nearest(name, known)) is not None and found != module
        }
        for module, path in known.items()
    }


def room(module: str) -> str:
    """The room of a module of `balancer`."""
    return [*module.split("."), ""][1]


def test_no_import_is_part_of_a_circle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


def test_packages_read_only_those_below_them(graph: dict[str, set[str]]) -> None:
    level = {package: i for i, package in enumerate(PACKAGES)}
    upwards = {
        (module, other)
        for module, others in graph.items()
        for other in others
        if level[other.split(".")[0]] > level[module.split(".")[0]]
    }
    assert not upwards


def test_rooms_of_the_balancer_read_only_those_below_them(graph: dict[str, set[str]]) -> None:
    level = {name: i for i, names in enumerate(ROOMS) for name in names}
    wrong = set()
    for module, others in graph.items():
        if module.split(".")[0] != "balancer":
            continue
        of = room(module)
        for other in (o for o in others if o.split(".")[0] == "balancer" and room(o) != of):
            if of in INDEPENDENT:
                allowed = other in INDEPENDENT[of]
            elif room(other) in INDEPENDENT:
                allowed = of in ("server", "cli")
            else:
                allowed = level[room(other)] < level[of]
            if not allowed:
                wrong.add((module, other))
    assert not wrong


def test_the_terminal_is_the_business_of_the_command_line_alone() -> None:
    for module, path in modules().items():
        if not module.startswith("balancer.cli"):
            used = {name.split(".")[0] for name in imported(path)}
            assert not used & {"typer", "rich"}, module


def test_templates_are_the_business_of_the_report_alone() -> None:
    for module, path in modules().items():
        if not module.startswith("balancer.report"):
            used = {name.split(".")[0] for name in imported(path)}
            assert not used & {"jinja2", "markupsafe"}, module
    loaded = "import sys, balancer.cli.app; print('jinja2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_no_command_loads_what_computes_before_it_runs() -> None:
    """What the help of a command needs are its options, not the engine."""
    load = """
import sys
from balancer.cli.app import COMMANDS, app

for words in COMMANDS:
    command = app
    for word in words.split():
        command = command.commands[word]
    command.load()
heavy = ("numpy", "goals", "balancer.engine", "balancer.planning", "balancer.execution.executor")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
