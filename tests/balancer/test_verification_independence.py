"""The checker of plans shares no code with what makes them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import balancer.verification

FOLDER = Path(balancer.verification.__file__).parent
# Of the balancer itself the checker reads the records of a plan, and nothing else.
ALLOWED = ("balancer.verification", "balancer.planning.document")
OTHERS = {*sys.stdlib_module_names, "numpy", "cluster_model", "goals", "metrics_reporter"}


def imported(source: str) -> Iterator[str]:
    """Every module or name that a source imports, in functions too, by its full path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = ("", "balancer.verification", "balancer")[node.level]
            module = ".".join(x for x in (parent, node.module) if x)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def shared(source: str) -> list[str]:
    """What a source imports other than what it may."""
    return [
        name
        for name in imported(source)
        if name.split(".")[0] not in OTHERS and not name.startswith(ALLOWED)
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_checker_imports_nothing_that_makes_plans(path: Path) -> None:
    assert shared(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import balancer.search.scorer",
        "from balancer.search import scorer",
        "from balancer.planning import ordering",
        "from balancer.planning.bounds import least",
        "from balancer import planning",
        "from balancer import Balancer",
        "from balancer.problem.rules import Rules",
        "from balancer.engine import Balancer",
        "from balancer.strategies import local_search",
        "def late():\n    import balancer.allocation.milp",
        "import importlib, balancer",
        "from ..engine import Balancer",
        "import highspy",
    ],
)
def test_an_import_of_what_makes_plans_is_noticed(line: str) -> None:
    assert shared(line)


def test_the_records_of_a_plan_and_other_packages_may_be_imported() -> None:
    allowed = (
        "from balancer.planning.document import Action",
        "from balancer.verification import goals",
        "from . import goals",
        "import numpy",
        "from goals import Goal",
    )
    assert not [name for line in allowed for name in shared(line)]
