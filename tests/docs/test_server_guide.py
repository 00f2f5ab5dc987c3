"""The page about the server lists every setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from balancer.approval import ApprovalPolicy, MaintenanceWindow
from balancer.server.settings import Proxy, Rates, ServerSettings, TlsWithRoles, Token, User

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


def names(header: str) -> list[str]:
    """Names in the first column of the page's table with this header."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index(f"| {header} |") :].partition("\n\n")[0]
    return [n for row in table.splitlines()[2:] for n in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("header", "records"),
    [
        ("server setting", [ServerSettings]),
        ("setting of a user, a token or a proxy", [User, Token, Proxy]),
        ("setting of `tls`", [TlsWithRoles]),
        ("setting of `rates`", [Rates]),
        ("field of `approval`", [ApprovalPolicy]),
        ("field of a window", [MaintenanceWindow]),
    ],
)
def test_a_table_lists_the_settings(header: str, records: list[type[BaseModel]]) -> None:
    expected = {name for record in records for name in record.model_fields}
    assert sorted(names(header)) == sorted(expected)
