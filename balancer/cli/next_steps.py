"""The commands to run after a plan is made, as they are to be typed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from balancer.cli.files import STDIO

if TYPE_CHECKING:
    from balancer import Plan

_SERVER = "HOST:PORT"


def next_steps(
    plan: Plan,
    *,
    snapshot: Path | None = None,
    bootstrap: str | None = None,
    output: Path | None = None,
    reassignment: Path | None = None,
    election: Path | None = None,
) -> dict[str, str]:
    """Purpose -> command, in order; empty if there is nothing to carry out.

    Parameters
    ----------
    plan
        The plan.
    snapshot, bootstrap
        What it was made from: a file, or the servers of a cluster.
    output, reassignment, election
        The files that it was written to.
    """
    if not len(plan) or (plan.sizing is not None and plan.sizing.added):
        return {}
    server = ["--bootstrap-server", bootstrap or _SERVER]
    steps: dict[str, list[str]] = {}
    if output is not None and output != STDIO:
        file = str(output)
        if snapshot is not None and snapshot != STDIO:
            steps["Check"] = ["counterpoise", "verify", str(snapshot), file]
        steps["Why"] = ["counterpoise", "explain", file]
        steps["Preview"] = ["counterpoise", "execute", file, *server]
        steps["Carry out"] = [*steps["Preview"], "--yes"]
    if reassignment is not None and reassignment != STDIO:
        steps["With Kafka's tools"] = [
            "kafka-reassign-partitions", *server,
            "--reassignment-json-file", str(reassignment), "--execute",
        ]  # fmt: skip
    if election is not None and election != STDIO:
        steps["Then leaders"] = [
            "kafka-leader-election", *server,
            "--election-type", "preferred", "--path-to-json-file", str(election),
        ]  # fmt: skip
    return {purpose: shlex.join(words) for purpose, words in steps.items()}
