"""Every promise of docs/safety.md names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "safety.md"
_NAME = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def promises() -> list[str]:
    """Rows of the tables whose last column is headed "Test"."""
    text = PAGE.read_text(encoding="utf-8")
    found: list[str] = []
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        head, _, *lines = table.splitlines()
        if head.rstrip("| ").endswith("Test"):
            found += lines
    return found


@cache
def existing() -> set[tuple[str, str]]:
    """File and function names of every test."""
    found = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found.add((file.name, node.name))
    return found


def test_the_page_has_promises() -> None:
    assert len(promises()) >= 20


@pytest.mark.parametrize("promise", promises())
def test_a_promise_names_a_test_that_exists(promise: str) -> None:
    named = _NAME.findall(promise)
    assert named, "a test expected, as `test_file.py::test_name`"
    assert set(named) <= existing()
