"""``counterpoise propose``: makes a plan from a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.cli.commands import DONE, UNMET
from balancer.cli.files import STDIO
from balancer.cli.next_steps import next_steps
from balancer.cli.options import broker_ids, budget, operation
from balancer.cli.plugins import SnapshotOption, strategy_config
from balancer.cli.snapshot import (
    AttributesFile,
    Bootstrap,
    CapacityFile,
    CommandConfig,
    GoalsOption,
    MetricsTopic,
    PartialView,
    Timeout,
    read_cluster,
    warn,
)
from balancer.cli.terminal import (
    CommandError,
    check_outputs,
    out,
    say,
    stopped_by_interrupt,
    working,
    write,
)
from metrics_reporter.quantities import plural

if TYPE_CHECKING:
    from balancer import Plan

_STOPPING = "counterpoise: the best plan so far follows; press Ctrl-C again to end without a plan"
WHAT, LIMITS, RESULT = "What to do", "Limits", "Results"


def propose(
    snapshot: Annotated[
        Path | None,
        typer.Argument(
            help="Snapshot file: .json, .npz, or a format of an installed reader; - for stdin.",
            show_default=False,
        ),
    ] = None,
    snapshot_option: SnapshotOption = None,
    bootstrap_server: Bootstrap = None,
    capacity: CapacityFile = None,
    attributes: AttributesFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    partial_view: PartialView = False,
    timeout: Timeout = 10.0,
    goals: GoalsOption = "default",
    kind: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="NAME",
            rich_help_panel=WHAT,
            help="Operation to plan, see `counterpoise operations list`; the options below select "
            "an operation directly. Default: rebalance.",
        ),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="IDS", rich_help_panel=WHAT, help="Brokers for --operation."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            rich_help_panel=WHAT,
            help="An option of an operation from another package; repeatable.",
        ),
    ] = None,
    add_brokers: Annotated[
        str | None,
        typer.Option(
            metavar="IDS", rich_help_panel=WHAT, help="Move replicas only to these brokers."
        ),
    ] = None,
    remove_brokers: Annotated[
        str | None,
        typer.Option(
            metavar="IDS",
            rich_help_panel=WHAT,
            help="Empty these brokers; besides, only what is on dead brokers and disks moves.",
        ),
    ] = None,
    demote_brokers: Annotated[
        str | None,
        typer.Option(
            metavar="IDS", rich_help_panel=WHAT, help="Move all leadership off these brokers."
        ),
    ] = None,
    fix_offline_replicas: Annotated[
        bool,
        typer.Option(
            "--fix-offline-replicas",
            rich_help_panel=WHAT,
            help="Re-create replicas of dead brokers and disks elsewhere.",
        ),
    ] = False,
    replication_factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=N",
            rich_help_panel=WHAT,
            help="Give each partition of the topics (a regular expression) N replicas; repeatable.",
        ),
    ] = None,
    right_size: Annotated[
        bool,
        typer.Option(
            "--right-size",
            rich_help_panel=WHAT,
            help="Empty as many brokers as the hard goals allow, or add as few as they need.",
        ),
    ] = False,
    min_brokers: Annotated[
        int | None,
        typer.Option(rich_help_panel=WHAT, help="With --right-size: fewest brokers to keep."),
    ] = None,
    max_brokers: Annotated[
        int | None,
        typer.Option(rich_help_panel=WHAT, help="With --right-size: most brokers to have."),
    ] = None,
    headroom: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=WHAT,
            help="With --right-size: share of each hard limit to keep free, such as 0.2.",
        ),
    ] = None,
    exclude_topics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX", rich_help_panel=LIMITS, help="Topics that stay in place; repeatable."
        ),
    ] = None,
    allow_unmatched: Annotated[
        bool,
        typer.Option(
            "--allow-unmatched",
            rich_help_panel=LIMITS,
            help="--exclude-topics may match nothing, for topics that do not exist yet.",
        ),
    ] = False,
    exclude_brokers_for_replicas: Annotated[
        str | None,
        typer.Option(
            metavar="IDS", rich_help_panel=LIMITS, help="These brokers receive no replicas."
        ),
    ] = None,
    exclude_brokers_for_leadership: Annotated[
        str | None,
        typer.Option(
            metavar="IDS", rich_help_panel=LIMITS, help="These brokers receive no leadership."
        ),
    ] = None,
    destinations: Annotated[
        str | None,
        typer.Option(
            metavar="IDS", rich_help_panel=LIMITS, help="Only these brokers receive replicas."
        ),
    ] = None,
    acceptable_lag: Annotated[
        float,
        typer.Option(
            metavar="RECORDS",
            rich_help_panel=LIMITS,
            help="How far behind a warming replica may be to become leader.",
        ),
    ] = 0.0,
    max_moves: Annotated[
        int | None, typer.Option(rich_help_panel=LIMITS, help="Maximum number of replicas to move.")
    ] = None,
    max_moves_per_broker: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=LIMITS,
            help="Maximum number of replicas that come to any one broker, or leave it.",
        ),
    ] = None,
    max_moves_per_rack: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=LIMITS,
            help="Maximum number of replicas that come to any one rack, or leave it.",
        ),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=LIMITS, help="Maximum bytes to copy, such as 500GB."
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=LIMITS,
            help="Maximum cost of the moves, in the snapshot's unit: bytes for Kafka.",
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(rich_help_panel=LIMITS, help="Maximum duration of the search.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHAT,
            help="Method that finds a better placement; see `counterpoise strategies list`.",
        ),
    ] = "goals",
    strategy_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            rich_help_panel=WHAT,
            help="An option of the strategy; repeatable. See `counterpoise strategies show NAME`.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, rich_help_panel=LIMITS, help="Seed of the search.")
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            rich_help_panel=RESULT,
            help="File for the plan, for `explain`, `verify` and `execute`; - for stdout.",
        ),
    ] = None,
    reassignment_file: Annotated[
        Path | None,
        typer.Option(
            "--reassignment-json",
            rich_help_panel=RESULT,
            help="File for kafka-reassign-partitions.",
        ),
    ] = None,
    election_file: Annotated[
        Path | None,
        typer.Option(
            "--leader-election-json", rich_help_panel=RESULT, help="File for kafka-leader-election."
        ),
    ] = None,
    assignments_file: Annotated[
        Path | None,
        typer.Option(
            "--assignments-json",
            rich_help_panel=RESULT,
            help="File with the node of each task of a stream job: {operator: {subtask: node}}.",
        ),
    ] = None,
    sized_snapshot: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=RESULT,
            help="With --right-size: file (.json or .npz) for the snapshot of the plan, with the "
            "brokers to add.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(rich_help_panel=RESULT, help="File for an HTML report.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=RESULT, help="Print the plan as JSON.")
    ] = False,
) -> None:
    """Plan how to balance a cluster, without changing it.

    The plan states what to move, what each goal gains, how far the result is from the best
    possible, and which goals cannot be met. Exits with 0 if all goals are met, else with 1.
    Ctrl-C ends the search with the best plan so far; a second one ends the command.

    Example: `counterpoise propose cluster.json -o plan.json`

    Example: `counterpoise propose --bootstrap-server localhost:9092 --remove-brokers 3
    --max-bytes 500GB --reassignment-json moves.json --leader-election-json leaders.json`
    """
    from balancer import Balancer
    from balancer.cli import tables
    from balancer.composition.proposal import concerns, restricted_to_known
    from balancer.planning.remedies import RemedyLimits
    from balancer.problem.operations import type_of
    from cluster_model import save_snapshot
    from cluster_model.files import check_suffix

    check_outputs(
        {
            "SNAPSHOT": snapshot,
            "--goals": Path(goals),
            "--capacity": capacity,
            "--attributes": attributes,
            "--command-config": command_config,
        },
        {
            "--output": output,
            "--reassignment-json": reassignment_file,
            "--leader-election-json": election_file,
            "--assignments-json": assignments_file,
            "--sized-snapshot": sized_snapshot,
            "--report": report,
        },
        stdout=True,
    )
    results = (output, reassignment_file, election_file, assignments_file, report)
    to_stdout = STDIO in results
    if json and to_stdout:
        raise CommandError("--json: the plan on stdout found, no other output to - expected")
    asked = operation(
        kind,
        {
            "add_brokers": add_brokers,
            "remove_brokers": remove_brokers,
            "demote_brokers": demote_brokers,
        },
        brokers,
        {
            "fix_offline_replicas": fix_offline_replicas,
            "change_replication_factor": bool(replication_factor),
            "right_size": right_size,
        },
        replication_factor or (),
        excluded_topics=tuple(exclude_topics or ()),
        allow_unmatched=allow_unmatched,
        excluded_brokers_for_replicas=broker_ids(
            "--exclude-brokers-for-replicas", exclude_brokers_for_replicas
        ),
        excluded_brokers_for_leadership=broker_ids(
            "--exclude-brokers-for-leadership", exclude_brokers_for_leadership
        ),
        destinations=None if destinations is None else broker_ids("--destinations", destinations),
        acceptable_lag=acceptable_lag,
        options=option,
        sizes={"min_brokers": min_brokers, "max_brokers": max_brokers, "headroom": headroom},
    )
    if sized_snapshot is not None:
        if asked.kind != "right_size":
            raise CommandError("--sized-snapshot: goes with --right-size")
        check_suffix(sized_snapshot)
    balancer = Balancer(
        goals,
        budget=budget(
            max_bytes,
            moves=max_moves,
            moves_per_broker=max_moves_per_broker,
            moves_per_rack=max_moves_per_rack,
            cost=max_cost,
            seconds=max_seconds,
        ),
        seed=seed,
        strategy=strategy_config(strategy, strategy_option),
        remedies=RemedyLimits(),
    )
    cluster, distrust = read_cluster(
        snapshot,
        bootstrap_server,
        capacity=capacity,
        attributes=attributes,
        command_config=command_config,
        metrics_topic=metrics_topic,
        partial_view=partial_view,
        timeout=timeout,
        snapshot_option=snapshot_option,
        goals=balancer.goals if type_of(asked).needs_loads else (),
    )
    for sentence in concerns(cluster):
        warn(sentence)
    asked = restricted_to_known(cluster, asked, distrust, warn)
    # until the plan is written: what would meet its unmet goals is tried when that is asked for
    with stopped_by_interrupt(_STOPPING) as stop:
        with working("balancing", max_seconds) as progress:
            plan = balancer.propose(
                cluster,
                asked,
                progress=lambda phase, met, of, actions: progress(
                    _progress(phase, met, of, actions), met, of, steady=phase == "order"
                ),
                stop=stop,
            )
        if plan.unmet:
            with working("trying what would meet the other goals"):
                _ = plan.remedy
        steps = next_steps(
            plan,
            snapshot=snapshot,
            bootstrap=bootstrap_server,
            output=output,
            reassignment=reassignment_file,
            election=election_file,
        )
        with working("writing"):
            _write(plan, output, reassignment_file, election_file, assignments_file)
            if report is not None:
                from balancer.report import html_report

                write(report, html_report(plan, profile=goals, commands=steps))
        if sized_snapshot is not None:
            save_snapshot(plan.snapshot, sized_snapshot)
        if json:
            typer.echo(plan.to_json(), nl=False)
        elif not to_stdout:
            out().print(tables.report(plan))
            if steps:
                say("")
            for purpose, command in steps.items():
                say(f"{purpose + ':':<19} {command}")
    raise typer.Exit(DONE if plan.ok else UNMET)


def _progress(phase: str, met: int, of: int, actions: int) -> str:
    """How far the order of the plan is, or the best plan so far, in words."""
    if phase == "order":
        return f"{met:,} of {plural(of, 'action')} ordered"
    best = f", best so far {met} of {plural(of, 'goal')} met" if of else ""
    return f"{phase}{best}, {plural(actions, 'action')}"


def _write(
    plan: Plan,
    output: Path | None,
    reassignment: Path | None,
    election: Path | None,
    assignments: Path | None,
) -> None:
    from balancer.planning.exports import assignments_json, leader_election_json, reassignment_json

    if output is not None:
        write(output, plan.to_json())
    if reassignment is not None:
        write(reassignment, reassignment_json(plan))
    if election is not None:
        write(election, leader_election_json(plan))
    if assignments is not None:
        write(assignments, assignments_json(plan))
