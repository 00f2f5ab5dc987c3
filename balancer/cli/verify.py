"""``counterpoise verify``: is a plan what it says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from balancer import load_plan
from balancer.cli.terminal import DONE, UNMET, out, plural, working
from cluster_model import load_snapshot


def verify(
    snapshot: Annotated[Path, typer.Argument(help="The snapshot that the plan starts from.")],
    plan: Annotated[Path, typer.Argument(help="A plan, from `counterpoise propose -o`.")],
) -> None:
    """Walk through a plan step by step, and check everything it claims.

    The check shares no code with the search. Exits with 0 where the plan is sound, with
    1 where it is not.

    Example: `counterpoise verify cluster.json plan.json`
    """
    from balancer.checker import check_plan

    cluster, found = load_snapshot(snapshot), load_plan(plan)
    with working("checking"):
        report = check_plan(cluster, found)
    console = out()
    for word, findings in (("violated", report.violations), ("untrue", report.mismatches)):
        for finding in findings:
            console.print(f"{word}  {finding}", markup=False)
    wrong = len(report.violations) + len(report.mismatches)
    steps = plural(len(found.actions), "action")
    verdict = f"{plural(wrong, 'fault')} in {steps}" if wrong else f"sound, {steps}"
    console.print(f"{plan}: {verdict}", markup=False)
    raise typer.Exit(DONE if report.ok else UNMET)
