"""``counterpoise word-count``: a stateful application to try the assignment of tasks on."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from balancer.cli.commands import DONE, UNMET
from balancer.cli.daemon import ended_by_signals, logged
from balancer.cli.layout import Rows
from balancer.cli.snapshot import KAFKA, BootstrapServer
from balancer.cli.terminal import LONGEST, AsJson, CommandError, out, print_json, say
from metrics_reporter.documents import first_problem

GROUP = "Group"

Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", rich_help_panel=KAFKA, help="Topic of the lines.")
]
Application = Annotated[
    str, typer.Option("--application", metavar="NAME", help="Name of the group, and its changelog.")
]
_SECONDS: dict[str, Any] = {"metavar": "SECONDS", "min": 0.05, "max": LONGEST}


def load(
    bootstrap_server: BootstrapServer,
    topic: Topic = "words",
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Partitions of the topic, if it is made.")
    ] = 6,
    rate: Annotated[float, typer.Option(min=0.1, max=1e6, help="Lines per second.")] = 200.0,
    seconds: Annotated[
        float, typer.Option("--seconds", **_SECONDS, help="How long; a signal ends it earlier.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(help="Which lines are written.")] = 0,
) -> None:
    """Write lines of words at a steady rate."""
    from balancer.assignment.group.word_count import write_lines

    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        with ended_by_signals(lambda _: stop.set()):
            written = write_lines(
                bootstrap_server, topic, partitions=partitions, rate=rate, stop=stop, seed=seed
            )
    finally:
        timer.cancel()
    say(f"{written} lines written to {topic}")


def run(
    bootstrap_server: BootstrapServer,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of this member's state.")
    ],
    topic: Topic = "words",
    application: Application = "word-count",
    capacity: Annotated[int, typer.Option(min=1, max=1000, help="Threads it counts as.")] = 1,
    standbys: Annotated[
        int, typer.Option(min=0, max=100, rich_help_panel=GROUP, help="Standbys of each task.")
    ] = 0,
    warmups: Annotated[
        int,
        typer.Option(min=1, max=1000, rich_help_panel=GROUP, help="Warm-ups at a time."),
    ] = 2,
    acceptable_lag: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=GROUP, help="Records that a copy may lack and be caught up."
        ),
    ] = 10_000,
    target: Annotated[
        str,
        typer.Option(
            metavar="kafka|PROFILE|FILE",
            rich_help_panel=GROUP,
            help="Where tasks are to be in the end; that of the leader applies.",
        ),
    ] = "kafka",
    probing_interval: Annotated[
        float,
        typer.Option(
            **_SECONDS, rich_help_panel=GROUP, help="Time after which warm-ups are looked at again."
        ),
    ] = 600.0,
    session_timeout: Annotated[
        float,
        typer.Option(
            **_SECONDS,
            rich_help_panel=GROUP,
            help="Time after which a silent member is replaced; the broker has a minimum.",
        ),
    ] = 10.0,
    heartbeat: Annotated[
        float,
        typer.Option(**_SECONDS, rich_help_panel=GROUP, help="Time between signs of life."),
    ] = 0.5,
) -> None:
    """Run one member until a signal ends it."""
    from balancer.assignment import AssignmentConfigs, TaskAssignor
    from balancer.assignment.group import GroupConfigs, Host
    from balancer.assignment.group.word_count import WordCount

    try:
        configs = GroupConfigs(
            bootstrap_servers=bootstrap_server,
            application_id=application,
            input_topic=topic,
            state_dir=state_dir,
            capacity=capacity,
            assignment=AssignmentConfigs(
                num_standby_replicas=standbys,
                max_warmup_replicas=warmups,
                acceptable_recovery_lag=acceptable_lag,
            ),
            probing_rebalance_interval_ms=round(probing_interval * 1000),
            session_timeout_ms=round(session_timeout * 1000),
            heartbeat_interval_ms=round(heartbeat * 1000),
        )
    except ValidationError as error:
        raise CommandError(first_problem(error)) from None
    assignor = TaskAssignor(configs.assignment, target)
    stop = threading.Event()

    def tell(sentence: str) -> None:
        say(f"{datetime.now():%H:%M:%S.%f}"[:-3] + f" {sentence}")

    log = logging.getLogger("balancer.assignment.group")
    with logged(log, lambda text: text), ended_by_signals(lambda _: stop.set()):
        Host(configs, WordCount(), assignor, tell).run(stop)
    tell("left the group")


def check_(
    bootstrap_server: BootstrapServer,
    topic: Topic = "words",
    application: Application = "word-count",
    wait: Annotated[
        float,
        typer.Option(**_SECONDS, help="Time to wait until all that was written is processed."),
    ] = 30.0,
    json: AsJson = False,
) -> None:
    """Recount the lines and compare; exits with 1 if a count differs."""
    from balancer.assignment.group import GroupConfigs
    from balancer.assignment.group.word_count import check, wait_until_processed

    configs = GroupConfigs(
        bootstrap_servers=bootstrap_server,
        application_id=application,
        input_topic=topic,
        state_dir=Path(),
    )
    wait_until_processed(configs, wait)
    checks = check(configs)
    rows = [
        {
            "partition": c.partition,
            "lines": c.records,
            "counted": c.processed,
            "words_that_differ": c.differences,
            "longest_gap_seconds": c.gap(),
            "members": len(c.processes),
        }
        for c in checks
    ]
    if json:
        print_json(rows)
    else:
        table = Rows(
            "partition", "lines>", "counted>", "words that differ>", "longest gap>", "members>"
        )
        for row in rows:
            gap = f"{row['longest_gap_seconds']:.2f} s"
            table.add(*(gap if key == "longest_gap_seconds" else str(row[key]) for key in row))
        out().print(table)
    correct = all(c.correct for c in checks)
    say("every line is counted once" if correct else "the counts differ from a recount")
    raise typer.Exit(DONE if correct else UNMET)
