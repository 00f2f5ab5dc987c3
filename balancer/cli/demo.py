"""``counterpoise demo``: the complete pipeline without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape

from balancer.cli.commands import DONE, UNMET
from balancer.cli.next_steps import next_steps
from balancer.cli.terminal import ReportProgress, check_outputs, out, working, write, writing
from metrics_reporter.quantities import percent, plural

if TYPE_CHECKING:
    from balancer import Plan
    from cluster_model import Snapshot

T = TypeVar("T")
FILES = ("snapshot.json", "plan.json", "reassignment.json", "leader-election.json", "report.html")


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the files of the demo.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic cluster.")] = 0,
) -> None:
    """Balance a synthetic cluster from end to end: metrics topic, model, plan, report.

    Only the brokers are synthetic: their metrics go through a Kafka topic (on the test
    broker in librdkafka) and into a model, from which the cluster is balanced.
    Without the extra `kafka` the metrics go into the model directly.

    Example: `counterpoise demo --output /tmp/demo`
    """
    from balancer import Balancer
    from balancer.cli import tables

    # Only the metrics topic needs this import, which takes a while.
    from balancer.composition.demo import TOPIC, demo_cluster, measure

    check_outputs({}, {f"--output, {name}": output / name for name in FILES})
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    cluster = _stage("Cluster", lambda _: demo_cluster(seed), _size)
    measured = _stage(
        "Metrics",
        lambda show: measure(
            cluster,
            lambda n, of: show("brokers report", n, of),
            lambda n, of: show("records read back", n, of),
        ),
        lambda m: (
            f"{plural(m.records, 'record')}{f' over topic {TOPIC}' if m.over_topic else ''} into "
            f"the model, {percent(m.model.completeness().ratio)} of partitions known"
        ),
    )
    if not measured.over_topic:
        hint = "No topic in between: pip install 'counterpoise[kafka]' adds a broker for one"
        out().print(f"{'':<9} {hint}", markup=False, soft_wrap=True)
    snapshot = _stage(
        "Snapshot",
        lambda _: _saved(measured.model.snapshot(), output / FILES[0]),
        lambda _: f"the cluster with its measured loads, {output / FILES[0]}",
    )
    plan = _stage(
        "Plan",
        lambda show: Balancer().propose(
            snapshot,
            progress=lambda phase, met, of, n: show(
                f"{phase}, {plural(n, 'action')}", met, of, steady=phase == "order"
            ),
        ),
        lambda p: tables.overview(p).plain.splitlines()[0].removeprefix("rebalance: "),
    )
    _stage("Report", lambda _: _write(plan, output), lambda n: f"{plural(n, 'file')} in {output}")
    console = out()
    console.print()
    console.print(tables.columns(plan))
    console.print()
    console.print(tables.overview(plan))
    console.print(tables.unmet(plan))
    console.print(
        f"\nRead on: {output / FILES[-1]}, or counterpoise explain {output / FILES[1]}",
        markup=False,
        soft_wrap=True,
    )
    raise typer.Exit(DONE if plan.ok else UNMET)


def _stage(name: str, work: Callable[[ReportProgress], T], reported: Callable[[T], str]) -> T:
    with working(name) as show:
        result = work(show)
    out().print(f"[bold]{name:<9}[/] {escape(reported(result))}", soft_wrap=True)
    return result


def _size(cluster: Snapshot) -> str:
    return (
        f"{plural(cluster.n_brokers, 'invented broker')} on {plural(len(cluster.racks), 'rack')}, "
        f"{plural(len(cluster.topics), 'topic')}, {plural(cluster.n_replicas, 'replica')}"
    )


def _saved(snapshot: Snapshot, path: Path) -> Snapshot:
    from cluster_model import save_snapshot

    with writing(path):
        save_snapshot(snapshot, path)
    return snapshot


def _write(plan: Plan, directory: Path) -> int:
    from balancer.planning.exports import leader_election_json, reassignment_json
    from balancer.report import html_report

    snapshot, written, reassignment, election, _ = (directory / name for name in FILES)
    steps = next_steps(
        plan, snapshot=snapshot, output=written, reassignment=reassignment, election=election
    )
    contents = (
        plan.to_json(),
        reassignment_json(plan),
        leader_election_json(plan),
        html_report(plan, profile="default", commands=steps),
    )
    for name, text in zip(FILES[1:], contents, strict=True):
        write(directory / name, text)
    return len(FILES)
