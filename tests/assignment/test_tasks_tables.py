"""The tables of the guide list every field of a state file, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from balancer.assignment import AssignmentConfigs
from balancer.assignment.document import InstanceRecord, TaskRecord
from balancer.assignment.group import GroupConfigs

PAGE = Path(__file__).parents[2] / "docs" / "stateful-tasks.md"


def rows(header: str) -> list[list[str]]:
    """The rows of the table whose first column has this header."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index(f"| {header} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("header", "record"),
    [
        ("field of an instance", InstanceRecord),
        ("field of a task", TaskRecord),
        ("field of `configs`", AssignmentConfigs),
        ("field of `GroupConfigs`", GroupConfigs),
    ],
)
def test_a_table_lists_the_fields(header: str, record: type[BaseModel]) -> None:
    named = [name for row in rows(header) for name in re.findall(r"`(\w+)`", row[0])]
    assert named == list(record.model_fields)


def test_the_defaults_are_those_of_the_table() -> None:
    for name, default, _ in rows("field of `configs`"):
        found = AssignmentConfigs.model_fields[name.strip("`")].default
        expected = {"None": "–", "()": "[]", "False": "false"}.get(str(found), str(found))
        assert default == expected
