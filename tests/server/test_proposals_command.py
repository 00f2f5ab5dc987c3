"""``counterpoise proposals`` against a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import invoke
from server_cases import Served, served
from test_security import ACCESS
from typer.testing import Result
from waiting import LIMIT


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, access=ACCESS, run=False) as found:
        found.controller.step()
        yield found


def run(found: Served, *arguments: str, token: str | None = "operator", text: str = "") -> Result:
    environment = {"COUNTERPOISE_SERVER": found.server.url, "COUNTERPOISE_TOKEN": token or ""}
    return invoke(["proposals", *arguments], env=environment, input=text)


def test_look_then_approve(running: Served) -> None:
    listed = json.loads(run(running, "list", "--json").stdout)
    identity, digest = listed[0]["id"], listed[0]["digest"]
    assert identity in run(running, "list").stdout
    shown = run(running, "show", identity).stdout
    assert digest in shown
    assert listed[0]["reason"] in shown
    assert json.loads(run(running, "show", identity, "--json").stdout)["changes"] == []
    asked = run(running, "approve", identity, text="n\n")
    assert asked.exit_code != 0
    assert asked.output.index(digest) < asked.output.index("Approve exactly this plan?")
    assert running.controller.approvals.store.get(identity).state == "open"
    wrong = run(running, "approve", identity, "--digest", "0" * 64)
    assert wrong.exit_code == 2
    assert "not this plan" in wrong.output
    done = run(running, "approve", identity, "--why", "agreed", text="y\n")
    assert done.exit_code == 0, done.output
    assert "approved" in done.output
    running.controller.step()
    running.controller.wait(LIMIT)
    assert [p.content_digest for p in running.executor.executed] == [digest]


def test_reject_and_yes(running: Served) -> None:
    (kept,) = running.controller.approvals.store.all()
    assert "rejected" in run(running, "reject", kept.id, "--why", "no").stdout
    again = run(running, "approve", kept.id, "--yes")
    assert again.exit_code == 2
    assert "is rejected, open expected" in again.output
    assert "rejected by a operator: no" in run(running, "show", kept.id).stdout


def test_what_is_refused(running: Served, tmp_path: Path) -> None:
    def refused(*arguments: str, token: str | None = "operator") -> str:
        found = run(running, *arguments, token=token)
        assert found.exit_code == 2, found.output
        assert "Traceback" not in found.output
        return " ".join(found.output.split())

    assert "not found" in refused("show", "none")
    assert "Not Found" in refused("show", "../../state")
    assert "COUNTERPOISE_TOKEN" in refused("list", token=None)
    (kept,) = running.controller.approvals.store.all()
    assert "operator needed" in refused("approve", kept.id, "--yes", token="viewer")
    assert "unencrypted" in refused("list", "--server", "http://balance.example")
    assert "http://localhost:9464" in refused("list", "--server", "ftp://x")
    assert "a user in the address" in refused("list", "--server", "http://a:hunter2@localhost")
    assert "does not answer" in refused("list", "--server", "http://127.0.0.1:1")
    file = tmp_path / "credentials.yaml"
    assert "--credentials" in refused("list", "--credentials", str(file))
    file.write_text("tokn: hunter2\n")
    said = refused("list", "--credentials", str(file))
    assert "nothing else" in said
    assert "hunter2" not in said
    file.write_text("user: ann\npassword: correct horse\n")
    assert run(running, "list", "--credentials", str(file), token=None).exit_code == 0
