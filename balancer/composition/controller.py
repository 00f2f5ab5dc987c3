"""Builds a controller from its settings, runs it, and follows the settings file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from balancer.approval import Approvals, ProposalStore
from balancer.composition.notifiers import Notifiers
from balancer.composition.source import KafkaSource
from balancer.controller import (
    Controller,
    ControllerError,
    Decision,
    Election,
    MeasuredCluster,
    PlainCluster,
    Settings,
    SettingsFile,
)
from balancer.controller.finding import living
from balancer.controller.protocols import LiveCluster
from balancer.controller.settings import ModelSettings as ModelSettings
from balancer.controller.settings_file import differences
from balancer.engine import Balancer
from balancer.execution import Executor, Limits, LocalTimes
from cluster_model import InputError, Snapshot
from cluster_model.live import ClusterModel
from cluster_model.trust import TrustParameters
from goals import inapplicable

_LOOK_SECONDS = 0.2
# How often, in seconds, a single round checks a model that is still reading its records.
_ASK_AGAIN_SECONDS = 0.5
# Settings of the model that apply as soon as they are read.
_AT_ONCE = ("model.believed", "model.set_aside_after")

log = logging.getLogger("counterpoise")


@dataclass(frozen=True)
class ActingOptions:
    """How a controller executes plans.

    Parameters
    ----------
    journal
        Where executions are recorded.
    group, session, name
        See :class:`balancer.controller.Election`; the session in seconds.
    """

    journal: Path
    group: str
    session: float
    name: str


@dataclass(frozen=True)
class WatchedCluster:
    """The cluster that a controller watches, with its metrics.

    Parameters
    ----------
    model
        The cluster.
    slow
        Detects slow brokers.
    counters
        Counters of the model's data source.
    live
        The live model, if metrics are read.
    """

    model: LiveCluster
    slow: LocalTimes | None = None
    counters: Callable[[], dict[str, float]] = dict
    live: ClusterModel | None = None


@dataclass(frozen=True)
class ComposedController:
    """A controller that is ready to run, with its accessories.

    Parameters
    ----------
    controller
        The controller; nothing runs yet.
    follower
        Applies changes of its settings file.
    metrics
        The text of its metrics for Prometheus.
    executor
        Executes its plans; None if they are only proposed.
    """

    controller: Controller
    follower: SettingsFollower
    metrics: Callable[[], str]
    executor: Executor | None = None


@contextmanager
def compose_controller(
    source: KafkaSource,
    file: SettingsFile,
    balancer: Balancer,
    opened: Notifiers,
    acting: ActingOptions | None = None,
    witness: Callable[[Decision], None] | None = None,
    proposals: Path | None = None,
) -> Iterator[ComposedController]:
    """Build a controller of a running Kafka, for as long as the context is open.

    Parameters
    ----------
    source
        The Kafka to watch.
    file
        Its settings.
    balancer
        Makes its plans.
    opened
        Opened according to the settings; the caller closes them.
    acting
        How to execute plans; None only proposes them.
    witness
        Receives every decision.
    proposals
        Directory that keeps proposals; None keeps in memory those that wait for approval.

    Raises
    ------
    InputError, ReporterError
        If something cannot be reached, or settings cannot be applied.
    """
    settings = file.settings
    limits = execution_limits(settings, settings)
    with watch_cluster(source, settings, limits, balancer) as watched:
        executor: Executor | None = None
        vote: Election | None = None
        if acting is not None:
            vote = Election(
                source.bootstrap,
                group=acting.group,
                session=acting.session,
                client=source.properties,
                name=acting.name,
            )
            executor = Executor(
                source.bootstrap,
                journal=acting.journal,
                limits=limits,
                client=source.properties,
                slow=watched.slow,
                # Only one of a group acts: what another one left belongs to no other process.
                owner=acting.group,
                vote=vote,
            )
        controller = Controller(
            watched.model,
            balancer,
            executor,
            settings,
            notifiers=opened.take(settings),
            vote=vote,
            redactor=opened.redactor,
            witness=witness,
            approvals=None
            if proposals is None
            else Approvals(ProposalStore(proposals), lambda: controller.settings.approval),
        )
        composed = ComposedController(
            controller,
            SettingsFollower(
                file, controller, opened, executor, watched.slow, watched.live, source
            ),
            lambda: controller.metrics.text(watched.counters()),
            executor,
        )
        if vote is None:
            yield composed
        else:
            # Only now: a paused controller has resigned by this point.
            with vote:
                yield composed


def execution_limits(settings: Settings, started: Settings) -> Limits:
    """Limits of executions; a window of the current model is counted only once."""
    return Limits.of(**{"slow_interval": started.model.window, **settings.execution})


@contextmanager
def watch_cluster(
    source: KafkaSource, settings: Settings, limits: Limits, balancer: Balancer
) -> Iterator[WatchedCluster]:
    """Set up what a controller watches; reports immediately what cannot be reached or applied."""
    if source.topic is None:
        warn_of_goals(balancer, source.sized(), source.notice)
        yield WatchedCluster(PlainCluster(source.sized, source.placement))
        return
    from cluster_model.follow import Follower
    from metrics_reporter import RecordReader, read_records

    kept, topic = settings.model, source.topic

    def records(since_ms: int) -> RecordReader:
        return read_records(
            source.bootstrap,
            topic,
            follow=True,
            since_ms=since_ms,
            timeout=source.timeout,
            client=source.properties,
        )

    follower = Follower(
        source.read,
        records,
        measured=source.stated.follower_shares,
        refresh=kept.refresh,
        window_ms=int(kept.window * 1000),
        windows=kept.windows,
        min_samples=kept.min_samples,
        trust=_trust(kept),
    )
    with follower:
        warn_of_goals(balancer, follower.model.metadata, source.notice)
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
            found = slow.brokers
            over = {} if found is None else {"brokers_over_local_time_limits": float(found)}
            return {**{f"records_{k}": float(v) for k, v in records}, **over}

        yield WatchedCluster(model, slow, counters, follower.model)


def warn_of_goals(balancer: Balancer, snapshot: Snapshot, notice: Callable[[str], None]) -> None:
    """Report which goals of a file do not apply to the cluster, and the consequence."""
    if balancer.strict:
        for sentence in inapplicable(balancer.goals, snapshot).values():
            notice(
                f"{sentence}; nothing is rebalanced until this is fixed, dead brokers and disks "
                "are healed without this goal"
            )


def _trust(model: ModelSettings) -> TrustParameters:
    return TrustParameters(set_aside_after=model.set_aside_after, believed=model.believed)


@dataclass
class SettingsFollower:
    """Applies the settings to all parts whenever their file changes, and what the source states."""

    file: SettingsFile
    controller: Controller
    opened: Notifiers
    executor: Executor | None
    slow: LocalTimes | None
    live: ClusterModel | None = None
    source: KafkaSource | None = None

    def __post_init__(self) -> None:
        self._started = self.file.settings

    def look(self) -> None:
        """Apply what has changed of the files; if one is invalid, what it said before stays."""
        self._look_at_settings()
        if (source := self.source) is None:
            return
        view = self.controller.view
        brokers = [] if view is None else view.snapshot.broker_ids[living(view.snapshot)].tolist()
        looks: dict[str, Callable[[], bool]] = {
            "capacities": lambda: source.capacities_changed(brokers),
            "attributes": source.attributes_changed,
        }
        for what, changed in looks.items():
            try:
                if changed():
                    log.info("%s: read again; they apply from the next look at the cluster", what)
            except Exception as error:
                said = str(error) if isinstance(error, InputError) else type(error).__name__
                log.error("%s; the previous %s stay in force", said, what)

    def _look_at_settings(self) -> None:
        before = self.file.settings, self.file.note
        try:
            if not self.file.changed():
                return
            now = self.file.settings
            limits = execution_limits(now, self._started)
            notifiers = self.opened.take(now)
        # Whatever reading the file raises, the controller continues.
        except Exception as error:
            self.file.settings, self.file.note = before
            said = str(error) if isinstance(error, InputError) else type(error).__name__
            log.error("settings: %s; the previous settings stay in force", said)
            return
        old = before[0]
        if self.executor is not None:
            self.executor.configure(limits)
        if self.slow is not None:
            self.slow.limits = limits
        if self.live is not None:
            self.live.trust = _trust(now.model)
        self.controller.notify(notifiers, self.opened.redactor)
        self.controller.configure(now)
        changed = differences(old, now)
        log.info("settings: read again; changed: %s", ", ".join(changed) or "nothing")
        if self.file.note is not None:
            log.warning("%s", self.file.note)
        changed = differences(self._started.model, now.model, "model.")
        if names := ", ".join(name for name in changed if name not in _AT_ONCE):
            log.warning("settings: %s: needs a restart; until then the old value holds", names)


def run_once(controller: Controller, timeout: float, asked: threading.Event) -> Decision:
    """Run one round to its end, as soon as the model has data.

    Parameters
    ----------
    controller
        The controller.
    timeout
        Seconds a broker may take to answer; a model may take three times as long.
    asked
        Set to end it early.
    """
    over = threading.Event()

    def watch() -> None:
        # a step plans for a while, and does not look
        while not over.is_set():
            if asked.wait(_LOOK_SECONDS):
                controller.stop()
                return

    threading.Thread(target=watch, name="stopping", daemon=True).start()
    try:
        return _steps(controller, time.monotonic() + 3 * timeout, asked)
    finally:
        over.set()


def _steps(controller: Controller, deadline: float, asked: threading.Event) -> Decision:
    """Rounds until one has decided, or the model has no data by the deadline."""
    while True:
        decision = controller.step()
        early = decision.cause is None and decision.kind in ("waiting", "standby")
        if decision.kind in ("started", "executing", "stopping"):
            # Recovery of an execution that died comes first.
            _await(controller, asked)
            latest = controller.decisions[-1]
            # A recovery that failed would fail again.
            if decision.kind == "started" or latest.kind == "error":
                return latest
        elif not early or time.monotonic() > deadline:
            return decision
        if asked.wait(_ASK_AGAIN_SECONDS):
            return controller.decisions[-1]


def _await(controller: Controller, asked: threading.Event) -> None:
    """Wait for the current execution; on a request to end, stop it and wait a limited time.

    An execution that reports no progress is stopped; if it then does not end, that is an error.
    """
    while not controller.wait(_LOOK_SECONDS):
        controller.supervise()
        if asked.is_set():
            controller.finish()
            return


def is_left_to_do(decision: Decision) -> bool:
    """Whether a round leaves something to do, or may leave something.

    An execution does, unless it completed its plan and no limit cut the plan.
    """
    if decision.kind != "executed":
        return decision.kind not in ("balanced", "trivial")
    plan, outcome = decision.plan or {}, decision.outcome or {}
    whole = outcome.get("state") == "done" and not outcome.get("differences")
    return not whole or plan.get("exhausted") is not None


def run_until(
    controller: Controller,
    follower: SettingsFollower,
    asked: threading.Event,
    failing: Callable[[], None],
) -> bool:
    """Run until asked to end, following the settings; returns whether it ended cleanly.

    Parameters
    ----------
    controller
        The controller.
    follower
        Applies changes of the settings.
    asked
        Set to end it.
    failing
        Called if the controller ends with an error unasked; sets `asked`.
    """
    failed: list[ControllerError] = []

    def rounds() -> None:
        try:
            controller.run()
        except ControllerError as error:
            failed.append(error)
            failing()

    thread = threading.Thread(target=rounds, name="controller", daemon=True)
    thread.start()
    while thread.is_alive() and not asked.is_set():
        thread.join(_LOOK_SECONDS)
        follower.look()
    if asked.is_set():
        # The current round may take as long as ordering a plan does; it is not acted on.
        controller.finish()
        thread.join(_LOOK_SECONDS)
    return asked.is_set() and not failed and controller.work is None
