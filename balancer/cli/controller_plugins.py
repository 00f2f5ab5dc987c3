"""``counterpoise notifiers test`` and ``detectors try``: try settings out without a cluster."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated

import typer

from balancer.cli.commands import DONE, UNMET
from balancer.cli.daemon import logged, redacted
from balancer.cli.plugins import SnapshotOption, options_of, snapshot_options
from balancer.cli.snapshot import GoalsOption
from balancer.cli.terminal import LONGEST, AsJson, CommandError, out, print_json, working
from balancer.controller.plugins import NOTIFIERS
from metrics_reporter.documents import json_text

_EVENT = {"event": "test", "text": "a test of counterpoise: this notifier works"}
# Seconds between two looks at whether an event has been delivered.
_LOOK_SECONDS = 0.02


def send_test(
    name: Annotated[
        str | None, typer.Argument(help="A name that `list` shows.", show_default=False)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="An option of the notifier; repeatable."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Test every notifier and webhook of this file instead."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=LONGEST, help="Maximum seconds to wait for the delivery.")
    ] = 30.0,
    json: AsJson = False,
) -> None:
    """Send a test event, and print whether it was delivered. Exits with 1 if it was not.

    Example: `counterpoise notifiers test log`
    """
    from balancer.composition.notifiers import Notifiers
    from balancer.controller import Settings, load_settings
    from balancer.controller.settings import as_settings

    if (name is None) == (settings is None):
        given = "neither" if name is None else "both"
        raise CommandError(f"a name or --settings FILE expected, {given} of them given")
    if settings is not None:
        if option:
            raise CommandError("--option goes with a name, but --settings is given")
        chosen = load_settings(settings)
    else:
        assert name is not None
        entry = {"name": name, "options": options_of("--option", option, NOTIFIERS, name)}
        chosen = as_settings({"notifiers": [entry]}, "options")
    opened = Notifiers({})
    with redacted(opened.hide), logged(logging.getLogger("counterpoise"), lambda t: opened.hide(t)):
        receivers = opened.take(Settings(webhooks=chosen.webhooks, notifiers=chosen.notifiers))
        if not receivers:
            raise CommandError(f"settings file {settings}: no notifiers found, at least 1 expected")
        for receiver in receivers:
            receiver(_EVENT)
        deadline = time.monotonic() + timeout
        with working("delivering"):
            while time.monotonic() < deadline and not all(
                r.delivered + r.failed for r in receivers
            ):
                time.sleep(_LOOK_SECONDS)
    said: dict[str, str] = {}
    for receiver in receivers:
        late = f"no answer within {timeout:g} s"
        failed = "not delivered" if receiver.failed else late
        said[receiver.name] = "delivered" if receiver.delivered else failed
    if json:
        print_json(said)
    else:
        for name_, outcome in said.items():
            out().print(f"{name_}: {outcome}", markup=False)
    raise typer.Exit(DONE if all(r.delivered for r in receivers) else UNMET)


def try_out(
    snapshot: Annotated[Path, typer.Argument(help="Snapshot of the cluster.")],
    snapshot_option: SnapshotOption = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings, as for `counterpoise run --settings`."),
    ] = None,
    goals: GoalsOption = "default",
    json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Run one round of the controller on a snapshot; print its findings and its decision.

    Nothing is executed. Grace periods begin with the round, so a finding that has one waits.
    Exits with 0 if nothing was found and every detector answered, else with 1.

    Example: `counterpoise detectors try cluster.json --settings settings.yaml`
    """
    from balancer import Balancer
    from balancer.composition.notifiers import Notifiers
    from balancer.controller import Controller, PlainCluster, Settings, load_settings
    from cluster_model import load_snapshot

    chosen = Settings() if settings is None else load_settings(settings)
    opened = Notifiers({})
    quiet = chosen.model_copy(update={"webhooks": (), "notifiers": (), "execute": None})
    opened.take(quiet)
    with redacted(opened.hide):
        options = snapshot_options(snapshot, snapshot_option)
        cluster = load_snapshot(snapshot, options)
        controller = Controller(
            PlainCluster(lambda: cluster),
            Balancer(goals),
            settings=quiet,
            redactor=opened.redactor,
        )
        with working("looking"):
            decision = controller.step()
        failing = [opened.hide(text) for text in controller.state()["detectors_failing"]]
    if json:
        record = {**decision.record(), "detectors_failing": failing}
        typer.echo(json_text(record))
    else:
        console = out()
        for finding in decision.findings:
            found = f"{finding.kind}: {opened.hide(finding.sentence)}"
            console.print(found, markup=False, soft_wrap=True)
        for text in failing:
            console.print(text, markup=False, soft_wrap=True)
        console.print(f"{decision.kind}: {decision.reason}", markup=False, soft_wrap=True)
    raise typer.Exit(UNMET if decision.findings or failing else DONE)
