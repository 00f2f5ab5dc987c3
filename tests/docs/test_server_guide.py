"""The page about the server lists every setting, and its examples run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from balancer.approval import ApprovalPolicy, MaintenanceWindow
from balancer.server.settings import Proxy, Rates, ServerSettings, Tls, Token, User

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
        ("setting of `tls`", [Tls]),
        ("setting of `rates`", [Rates]),
        ("field of `approval`", [ApprovalPolicy]),
        ("field of a window", [MaintenanceWindow]),
    ],
)
def test_a_table_lists_the_settings(header: str, records: list[type[BaseModel]]) -> None:
    expected = {name for record in records for name in record.model_fields}
    assert sorted(names(header)) == sorted(expected)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "server"))
    sys.modules.pop("server_cases", None)
    from server_cases import served

    text = PAGE.read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"```sh\n(.*?)```", text, re.S) if "curl" in b)
    with served(tmp_path, run=False) as found:
        (kept,) = found.controller.approvals.store.all()
        stated = {
            "SERVER": found.server.url, "TOKEN": "", "PROPOSAL": kept.id, "DIGEST": kept.digest,
        }  # fmt: skip
        # Nobody is listed, so a request without credentials may do everything.
        script = block.replace('-H "Authorization: Bearer $TOKEN" ', "")
        assert "TOKEN" not in script
        ran = subprocess.run(
            ["bash", "-euc", script], env={**os.environ, **stated}, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert found.controller.approvals.store.get(kept.id).state == "approved"
        assert found.controller.held
