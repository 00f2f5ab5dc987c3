"""``counterpoise run``: the controller, for as long as it is wanted."""

from __future__ import annotations

import json as json_format
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from balancer import Balancer
from balancer.cli.daemon import ended_by_signals, logged, redacted
from balancer.cli.options import addresses, client_properties
from balancer.cli.snapshot import (
    KAFKA,
    CapacityFile,
    CommandConfig,
    MetricsTopic,
    PartialView,
    Timeout,
    warn,
)
from balancer.cli.terminal import DONE, LONGEST, UNMET, check_outputs, out, say
from balancer.controller import (
    Controller,
    ControllerError,
    Decision,
    Election,
    Endpoint,
    MeasuredCluster,
    PlainCluster,
    Redactor,
    Settings,
    SettingsFile,
    WebhookNotifier,
)
from balancer.controller.endpoint import parse_address
from balancer.controller.protocols import Model
from balancer.controller.settings import Model as ModelSettings
from balancer.controller.settings import Webhook
from balancer.controller.settings_file import differences
from balancer.execution import Executor, Limits, LocalTimes
from cluster_model import InputError, Snapshot
from cluster_model.capacities import as_capacities
from cluster_model.live import ClusterModel
from cluster_model.trust import TrustParameters
from goals import inapplicable

ACTING = "Acting"
_LOOK_SECONDS = 0.2
# How often `--once` asks a model that still reads its records, in seconds.
_PATIENCE_STEP = 0.5
# After a signal: what closing clients may take besides the time an execution has to end.
_CLOSING_SECONDS = 3.5
# What webhooks may take of that to deliver their last events.
_WEBHOOK_SECONDS = 1.5
# Bytes that a disk holds of which nothing better is known: healing must not depend on it.
_PLENTY = 1e18
# Settings of the model that hold as soon as they are read.
_AT_ONCE = ("model.believed", "model.set_aside_after")

log = logging.getLogger("counterpoise")


def run(
    bootstrap_server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=addresses,
            rich_help_panel=KAFKA,
            help="Ask these brokers.",
        ),
    ],
    capacity: CapacityFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    partial_view: PartialView = False,
    timeout: Timeout = 10.0,
    goals: Annotated[
        str, typer.Option(metavar="PROFILE|FILE", help="See `counterpoise goals list`.")
    ] = "default",
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Detectors, graces, cool-downs, webhooks, as YAML; read again when it changes.",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            rich_help_panel=ACTING,
            help="Carry plans out, unless the settings file says `execute: false`; "
            "without it, they are only proposed.",
        ),
    ] = False,
    journal: Annotated[
        Path,
        typer.Option(
            metavar="FILE", rich_help_panel=ACTING, help="Where executions are written down."
        ),
    ] = Path("counterpoise-execution.journal"),
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=ACTING,
            help="Of several controllers with this name and --execute one acts.",
        ),
    ] = "counterpoise-controller",
    session: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=LONGEST,
            metavar="SECONDS",
            rich_help_panel=ACTING,
            help="After that, another takes over.",
        ),
    ] = 10.0,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics (for Prometheus) and /state; :PORT is for this "
            "machine alone, 0.0.0.0:PORT for all.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="One round: exits with 0 where nothing is left to do, else 1."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Decisions as JSON on stdout, one a line.")
    ] = False,
) -> None:
    """Watch a cluster and keep it balanced: look, find what is wrong, plan, carry out.

    Every decision is said with its reason, those to do nothing too. SIGTERM or Ctrl-C ends
    it, and stops an execution in good order.

    Example: `counterpoise run --bootstrap-server localhost:9092 --metrics-topic metrics
    --capacity capacity.yaml --listen :9464`
    """
    check_outputs(
        {
            "--settings": settings,
            "--goals": Path(goals),
            "--capacity": capacity,
            "--command-config": command_config,
        },
        {"--journal": journal},
    )
    file = SettingsFile(settings, execute)
    wanted = file.settings
    properties = client_properties(command_config)
    webhooks = Webhooks(properties)
    address = None if listen is None else parse_address(listen)
    balancer = Balancer(goals)
    source = Source(bootstrap_server, capacity, properties, metrics_topic, timeout, partial_view)
    with redacted(webhooks.hide), ExitStack() as stack:
        ending = Ending(lambda: file.settings.stop_within + _CLOSING_SECONDS)
        stack.callback(ending.over.set)
        stack.callback(webhooks.close)
        limits = _limits(wanted, wanted)
        watched = stack.enter_context(_cluster(source, wanted, limits, balancer))
        executor: Executor | None = None
        vote: Election | None = None
        if execute:
            vote = Election(
                bootstrap_server,
                group=group,
                session=session,
                client=properties,
                name="counterpoise run",
            )
            executor = Executor(
                bootstrap_server,
                journal=journal,
                limits=limits,
                client=properties,
                slow=watched.slow,
                # Of a group one acts: what another one left is nobody else's.
                owner=group,
                vote=vote,
            )
        controller = Controller(
            watched.model,
            balancer,
            executor,
            wanted,
            notifiers=webhooks.take(wanted.webhooks),
            vote=vote,
            redactor=webhooks.redactor,
            witness=_as_json if json and not once else None,
        )
        if vote is not None:
            # Only now: a controller that is paused has resigned by then.
            stack.enter_context(vote)
        if address is not None:
            endpoint = Endpoint(
                *address, lambda: controller.metrics.text(watched.counters()), controller.state
            )
            stack.callback(endpoint.close)
            say(f"serving http://{endpoint.address}/metrics and /state")
        if file.note is not None:
            say(file.note)
        stack.enter_context(ended_by_signals(ending.ask))
        if once:
            decision = _once(controller, timeout, ending)
            (_as_json if json else _as_sentence)(decision)
            raise typer.Exit(UNMET if is_left_to_do(decision) else DONE)
        with logged(log, webhooks.hide):
            source.notices.tell = log.warning
            follow = Following(file, controller, webhooks, executor, watched.slow, watched.live)
            if not _serve(controller, follow, ending):
                raise typer.Exit(UNMET)


class Webhooks:
    """The notifiers of decisions that the settings name, and all their secrets."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties
        self._urls: set[str] = set()
        self._open: dict[Webhook, WebhookNotifier] = {}
        self.redactor = Redactor(properties)

    def hide(self, text: str) -> str:
        """A text without secrets."""
        return self.redactor(text)

    def take(self, wanted: Sequence[Webhook]) -> list[WebhookNotifier]:
        """Those that are wanted, opened where they are new; others end by themselves."""
        # What was a secret stays one. What cannot be used leaves everything as it was.
        urls = self._urls | {w.url for w in wanted}
        redactor = Redactor(self._properties, urls)
        opened = {w: self._open.get(w) or WebhookNotifier(w) for w in wanted}
        for gone in self._open.keys() - opened.keys():
            self._open[gone].close(0)
        self._urls, self.redactor, self._open = urls, redactor, opened
        return list(opened.values())

    def close(self) -> None:
        """Send what waits, as far as that takes no longer than all of them may together."""
        deadline = time.monotonic() + _WEBHOOK_SECONDS
        for webhook in self._open.values():
            webhook.close(max(0.0, deadline - time.monotonic()))


class Ending:
    """The end on SIGTERM or Ctrl-C: asked for by the first, at once by the second.

    Parameters
    ----------
    seconds
        How long after the first signal the process ends, whatever hangs.

    Attributes
    ----------
    asked, over
        Set by the first signal, and to be set when everything has ended.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.asked = threading.Event()
        self.over = threading.Event()
        self._seconds = seconds

    def ask(self, number: int) -> None:
        """Take a signal."""
        if self.asked.is_set():
            # The journal holds what is left to do.
            raise SystemExit(128 + number)
        self.begin()

    def begin(self) -> None:
        """Let the time run in which the process is to end."""
        self.asked.set()
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    def _watch(self) -> None:
        seconds = self._seconds()
        if not self.over.wait(seconds):
            log.error(
                "ended %g s after it was asked to, with something still open; what an execution "
                "has left to do is in its journal",
                seconds,
            )
            logging.shutdown()
            os._exit(UNMET)


class Notices:
    """What is to be known of a cluster that is read again and again, each said once.

    Attributes
    ----------
    tell
        Who says it: the terminal, and later the log.
    """

    def __init__(self, tell: Callable[[str], None] = warn) -> None:
        self.tell = tell
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        """Say it, unless it was said before with no more than other bytes in it."""
        # Numbers of bytes drift from one reading to the next.
        about = re.sub(r"\d[\d.,]* [kMGTPE]?B\b", "", sentence)
        if about not in self._said:
            self._said.add(about)
            self.tell(sentence)


@dataclass(frozen=True)
class Source:
    """A running Kafka, and how to ask it."""

    bootstrap: str
    capacity: Path | None
    properties: dict[str, str]
    topic: str | None
    timeout: float
    partial_view: bool = False
    notices: Notices = field(default_factory=Notices)

    def placement(self) -> Snapshot:
        """Where replicas are, whatever capacities are stated and disks tell."""
        from cluster_model.kafka import read_cluster

        return read_cluster(
            self.bootstrap,
            capacity={"default": {"disk": _PLENTY}},
            resources=("disk",),
            client_properties=self.properties,
            timeout=self.timeout,
            partial_view=self.partial_view,
            placement_only=True,
            notice=self.notices,
        )

    def read(self) -> Snapshot:
        """The cluster as it is; what is to be known of its disks is said once."""
        from cluster_model.kafka import read_cluster

        stated = as_capacities(self.capacity)
        return read_cluster(
            self.bootstrap,
            capacity=stated,
            resources=stated.resources,
            client_properties=self.properties,
            timeout=self.timeout,
            partial_view=self.partial_view,
            notice=self.notices,
        )


def _limits(settings: Settings, started: Settings) -> Limits:
    """Limits of executions; what a window of the model in use tells counts once."""
    return Limits.of(**{"slow_interval": started.model.window, **settings.execution})


@contextmanager
def _cluster(
    source: Source, settings: Settings, limits: Limits, balancer: Balancer
) -> Iterator[Watched]:
    """What the controller looks at; reports at once what cannot be reached or applied."""
    if source.topic is None:
        warn_of_goals(balancer, source.read())
        yield Watched(PlainCluster(source.read, source.placement))
        return
    from cluster_model.follow import follow_kafka

    kept = settings.model
    follower = follow_kafka(
        source.bootstrap,
        source.topic,
        capacity=source.capacity,
        resources=as_capacities(source.capacity).resources,
        client=source.properties,
        timeout=source.timeout,
        partial_view=source.partial_view,
        notice=source.notices,
        refresh=kept.refresh,
        window_ms=int(kept.window * 1000),
        windows=kept.windows,
        min_samples=kept.min_samples,
        trust=_trust(kept),
    )
    with follower:
        warn_of_goals(balancer, follower.model.metadata)
        model = MeasuredCluster(
            follower.model,
            source.read,
            placement=source.placement,
            metadata_age=lambda: follower.metadata_age,
            max_age=10 * kept.refresh,
            problems=lambda: follower.problems,
        )

        slow = LocalTimes(follower.model, limits)

        def counters() -> dict[str, float]:
            records = follower.model.counters.items()
            over = {"brokers_over_local_time_limits": float(slow.brokers)}
            return {**{f"records_{k}": float(v) for k, v in records}, **over}

        yield Watched(model, slow, counters, follower.model)


@dataclass(frozen=True)
class Watched:
    """What the controller looks at.

    Parameters
    ----------
    model
        The cluster.
    slow
        Who tells whether brokers are slow.
    counters
        Of what feeds the model.
    live
        Its live model, where metrics are read.
    """

    model: Model
    slow: LocalTimes | None = None
    counters: Callable[[], dict[str, float]] = dict
    live: ClusterModel | None = None


def warn_of_goals(balancer: Balancer, snapshot: Snapshot) -> None:
    """Say which goals of a file do not apply to the cluster, and what that means."""
    if balancer.strict:
        for sentence in inapplicable(balancer.goals, snapshot).values():
            warn(
                f"{sentence}; nothing is rebalanced until that is mended, dead brokers and disks "
                "are healed without this goal"
            )


def _trust(model: ModelSettings) -> TrustParameters:
    return TrustParameters(set_aside_after=model.set_aside_after, believed=model.believed)


def _once(controller: Controller, timeout: float, ending: Ending) -> Decision:
    """One round, as soon as the model knows anything, to its end."""
    deadline = time.monotonic() + 3 * timeout
    while True:
        decision = controller.step()
        early = decision.cause is None and decision.kind in ("waiting", "standby")
        if decision.kind in ("started", "executing", "stopping"):
            # What an execution that died left behind comes first.
            _await(controller, ending)
            latest = controller.decisions[-1]
            # A recovery that failed would fail again.
            if decision.kind == "started" or latest.kind == "error":
                return latest
        elif not early or time.monotonic() > deadline:
            return decision
        if ending.asked.wait(_PATIENCE_STEP):
            return controller.decisions[-1]


def is_left_to_do(decision: Decision) -> bool:
    """Whether a round leaves something to do, or it is not known that it does not.

    Of an execution that is so unless it did all of its plan, and no limit ended the plan.
    """
    if decision.kind != "executed":
        return decision.kind not in ("balanced", "trivial")
    plan, outcome = decision.plan or {}, decision.outcome or {}
    whole = outcome.get("state") == "done" and not outcome.get("differences")
    return not whole or plan.get("exhausted") is not None


def _await(controller: Controller, ending: Ending) -> None:
    """Wait for the execution under way; where asked to end, stop it, and not wait for ever.

    One that reports no progress is stopped, and one that does not end then is an error.
    """
    while not controller.wait(_LOOK_SECONDS):
        controller.supervise()
        if ending.asked.is_set():
            controller.finish()
            return


@dataclass
class Following:
    """Takes settings over to whatever they are for, whenever their file changes."""

    file: SettingsFile
    controller: Controller
    webhooks: Webhooks
    executor: Executor | None
    slow: LocalTimes | None
    live: ClusterModel | None = None

    def __post_init__(self) -> None:
        self._started = self.file.settings

    def look(self) -> None:
        """Take them over where the file has changed; where it cannot be used, the old hold."""
        before = self.file.settings, self.file.note
        try:
            if not self.file.changed():
                return
            now = self.file.settings
            limits = _limits(now, self._started)
            notifiers = self.webhooks.take(now.webhooks)
        # Whatever a file does to its reader, the controller goes on.
        except Exception as error:
            self.file.settings, self.file.note = before
            said = str(error) if isinstance(error, InputError) else type(error).__name__
            log.error("settings: %s; the old ones hold", said)
            return
        old = before[0]
        if self.executor is not None:
            self.executor.configure(limits)
        if self.slow is not None:
            self.slow.limits = limits
        if self.live is not None:
            self.live.trust = _trust(now.model)
        self.controller.notify(notifiers, self.webhooks.redactor)
        self.controller.configure(now)
        changed = differences(old, now)
        log.info("settings: read again; changed: %s", ", ".join(changed) or "nothing")
        if self.file.note is not None:
            log.warning("%s", self.file.note)
        changed = differences(self._started.model, now.model, "model.")
        if names := ", ".join(name for name in changed if name not in _AT_ONCE):
            log.warning("settings: %s: needs a restart; until then the old value holds", names)


def _serve(controller: Controller, follow: Following, ending: Ending) -> bool:
    """Run until a signal, following the settings; returns whether it ended in good order."""
    failed: list[ControllerError] = []

    def rounds() -> None:
        try:
            controller.run()
        except ControllerError as error:
            failed.append(error)
            ending.begin()

    thread = threading.Thread(target=rounds, name="controller", daemon=True)
    thread.start()
    while thread.is_alive() and not ending.asked.is_set():
        thread.join(_LOOK_SECONDS)
        follow.look()
    if ending.asked.is_set():
        # The round in hand may take as long as a plan does; what it finds is not carried out.
        controller.finish()
        thread.join(_LOOK_SECONDS)
    return ending.asked.is_set() and not failed and controller.work is None


def _as_json(decision: Decision) -> None:
    typer.echo(json_format.dumps(decision.record(), default=str))


def _as_sentence(decision: Decision) -> None:
    out().print(f"{decision.kind}: {decision.reason}", markup=False, soft_wrap=True)
