"""The API's description is good enough to generate a client from, and that client works."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from server_cases import served


@pytest.mark.slow
def test_a_generated_client_proposes_and_approves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = invoke(["server", "openapi"])
    assert described.exit_code == 0, described.output
    description = tmp_path / "openapi.json"
    description.write_text(described.stdout)
    made = tmp_path / "made"
    command = [sys.executable, "-c", "from openapi_python_client.cli import app; app()", "generate"]
    command += ["--path", str(description), "--output-path", str(made), "--meta", "none"]
    settings = tmp_path / "client.yaml"
    settings.write_text("post_hooks: []\n")
    done = subprocess.run(
        [*command, "--config", str(settings), "--fail-on-warning"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))

    def api(part: str) -> Any:
        return importlib.import_module(f"made.api.{part}")

    models = importlib.import_module("made.models")
    with served(tmp_path) as found:
        client = importlib.import_module("made").Client(base_url=found.server.url)
        brokers = api("cluster.brokers_api_v1_cluster_brokers_get").sync(client=client)
        assert [b.broker for b in brokers] == [b.broker for b in found.service.load().brokers()]
        job = api("proposals.propose_api_v1_proposals_post").sync(
            client=client, body=models.PlanRequest(reason="a test"), wait=60.0
        )
        assert job.state == "done", job
        get = api("proposals.proposal_api_v1_proposals_identity_get")
        kept = get.sync(job.proposal, client=client)
        assert kept.state == "open"
        api("proposals.approve_api_v1_proposals_identity_approve_post").sync(
            kept.id, client=client, body=models.Decide(digest=kept.digest, why="it looks good")
        )
        deadline = time.monotonic() + 120
        while get.sync(kept.id, client=client).state != "executed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [p.digest for p in found.executor.executed] == [kept.digest]
