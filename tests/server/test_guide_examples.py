"""The examples of the page about the server run against one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from server_cases import served

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


def test_the_examples_run(tmp_path: Path) -> None:
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
