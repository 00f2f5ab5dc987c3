"""``counterpoise verify``: checks whether a plan is what it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from balancer.cli.commands import DONE, UNMET
from balancer.cli.files import STDIO, plan_from, snapshot_from
from balancer.cli.plugins import SnapshotOption
from balancer.cli.terminal import AsJson, CommandError, out, print_json, working
from metrics_reporter.quantities import plural


def verify(
    snapshot: Annotated[Path, typer.Argument(help="The snapshot that the plan was made from.")],
    plan: Annotated[Path, typer.Argument(help="A plan, from `counterpoise propose -o`.")],
    snapshot_option: SnapshotOption = None,
    json: AsJson = False,
) -> None:
    """Replay a plan step by step, check its claims, and list what is not checked.

    The check shares no code with the search. Exits with 0 if the plan is sound, with 1 if
    it is not, or if a hard goal could not be checked.

    Example: `counterpoise verify cluster.json plan.json`
    """
    from balancer.verification.checker import check_plan

    if snapshot == plan == STDIO:
        raise CommandError("SNAPSHOT and PLAN: both on stdin found, at most one of them expected")
    cluster, found = snapshot_from(snapshot, snapshot_option), plan_from(plan)
    with working("checking"):
        report = check_plan(cluster, found)
    if json:
        print_json(report.record())
        raise typer.Exit(DONE if report.ok else UNMET)
    console = out()
    for word, findings in (
        ("violated ", report.violations),
        ("untrue   ", report.mismatches),
        ("unchecked", report.unchecked),
    ):
        for finding in findings:
            console.print(f"{word}  {finding}", markup=False, soft_wrap=True)
    wrong = len(report.violations) + len(report.mismatches)
    hard = sum(u.hard for u in report.unchecked)
    steps = plural(len(found.actions), "action")
    verdict = f"sound, {steps}"
    if wrong:
        verdict = f"{plural(wrong, 'fault')} in {steps}"
    elif hard:
        verdict = f"no fault in {steps}, but {plural(hard, 'hard goal')} not checked"
    console.print(f"{plan}: {verdict}", markup=False)
    raise typer.Exit(DONE if report.ok else UNMET)
