"""The operator's settings: one small model per detector, read from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from balancer.approval.policy import ApprovalPolicy
from balancer.controller.plugins import DETECTORS, NOTIFIERS, PluginError
from balancer.execution.errors import ExecutionError
from balancer.execution.limits import Limits
from balancer.problem.budget import Budget
from cluster_model.errors import InputError
from goals.patterns import valid_pattern
from metrics_reporter import BROKER_METRICS
from metrics_reporter.documents import (
    Whole,
    fields_at,
    first_problem,
    load_document,
    number_not_truth,
    shown,
    shown_name,
)
from metrics_reporter.quantities import WithBytes, WithDuration, WithRate
from metrics_reporter.suggestions import hint


class SettingsError(InputError):
    """Invalid settings; states the setting, the value found and what is expected."""


Seconds = Annotated[float, WithDuration, Field(ge=0, allow_inf_nan=False)]
# Ten years: longer than any real wait, and shorter than a timer's maximum.
Interval = Annotated[float, WithDuration, Field(gt=0, le=3.2e8, allow_inf_nan=False)]
Floor = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)


class DetectorSettings(_Part):
    """Settings common to all detectors.

    Parameters
    ----------
    enabled
        Whether it looks at all.
    act
        Whether its findings are acted on; otherwise they are only reported.
    cooldown
        Seconds after its own action in which it starts no other.
    """

    enabled: bool = True
    act: bool = True
    cooldown: Seconds = 1800.0


class GoalViolations(DetectorSettings):
    """When unmet goals move data.

    Parameters
    ----------
    margin
        A violation counts at once if the contentment of a broker (or disk, topic,
        partition) is more than this below 1. For a distribution goal 0.05 is about 5.5
        percent of the fair share outside the goal's band.
    trivial
        Violations up to this never count.
    rounds
        Violations between the two count if they last this many consecutive rounds.
    noise_factor
        Both limits are widened by this many standard errors of the measured loads (from
        the variation between windows), so that noise isn't taken for load.
    min_gain
        Minimum gain of a plan: in the worst broker's load as shares, or in balancedness
        in hundredths of its 100. Fixing a hard goal is always enough.
    min_gain_per_share
        The same, per cluster's worth of bytes that the plan copies.
    """

    margin: Share = 0.05
    trivial: Share = 0.02
    rounds: int = Field(default=6, ge=1)
    noise_factor: float = Field(default=4.0, ge=0)
    min_gain: float = Field(default=0.02, ge=0)
    min_gain_per_share: float = Field(default=0.1, ge=0)


class DeadBrokers(DetectorSettings):
    """When dead brokers are reported and healed.

    Parameters
    ----------
    alert_after, heal_after
        Seconds of absence until it is reported, and until its replicas are re-created.
    max_failed, max_share
        If more brokers, or a larger share of them, are dead at once, they are not healed:
        the network or the controller's own view is more likely broken than the brokers.
    """

    cooldown: Seconds = 300.0
    alert_after: Seconds = 900.0
    heal_after: Seconds = 1800.0
    max_failed: int = Field(default=10, ge=0)
    max_share: Share = 0.4


class DeadDisks(DetectorSettings):
    """When replicas on offline log directories are re-created.

    Parameters
    ----------
    heal_after
        Seconds a directory must have been offline.
    """

    cooldown: Seconds = 300.0
    heal_after: Seconds = 1800.0


class SlowBrokers(DetectorSettings):
    """When a broker counts as slow, and what is done about it.

    A broker is slow in a round if one of the signals is above its floor, and above
    `history_factor` times the percentile of its own history, and above `peer_factor`
    times the percentile of the other brokers. Its score rises by 1 in such a round, and
    falls by 1 in others; rounds without new measurements don't count.

    Parameters
    ----------
    signals
        Broker metric of the records -> floor in the metric's own unit.
    history_factor, history_percentile, peer_factor, peer_percentile
        See above.
    history, min_history
        Normal rounds remembered per broker, and how many are needed for a judgement.
    min_bytes_in
        Bytes/s that a broker must receive to be judged: an idle one has no meaningful latency.
    demote_score
        From this score on, the broker leads nothing and receives nothing until its score
        is back at 0.
    remove, remove_score
        Whether it is emptied, and from which score on.
    max_share
        If more than this share of the brokers (and more than one) is slow, the cause is not
        the brokers: nothing is done, and it is reported.
    """

    signals: dict[str, Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]] = {
        "log_flush_time_ms_p999": 1000.0
    }
    history_factor: float = Field(default=3.0, ge=1)
    history_percentile: float = Field(default=90.0, ge=0, le=100)
    peer_factor: float = Field(default=3.0, ge=1)
    peer_percentile: float = Field(default=50.0, ge=0, le=100)
    history: int = Field(default=100, ge=1)
    min_history: int = Field(default=10, ge=1)
    min_bytes_in: Annotated[float, WithRate, Field(ge=0)] = 1_000_000.0
    demote_score: int = Field(default=5, ge=1)
    remove: bool = False
    remove_score: int = Field(default=50, ge=1)
    max_share: Share = 0.1


class StaleMetrics(DetectorSettings):
    """When metrics are too old to act on.

    Parameters
    ----------
    max_age
        Seconds since a broker's newest record. If switched off, age is ignored.
    """

    max_age: Interval = 900.0


class DistrustedReporters(DetectorSettings):
    """Whether brokers whose metrics contradict others' are reported.

    Nothing is planned on their loads either way. The tolerances are those of
    :class:`cluster_model.trust.TrustParameters`.
    """


class MissingReplicas(DetectorSettings):
    """When partitions have fewer replicas than intended for their topic.

    Parameters
    ----------
    rounds
        How many consecutive rounds a partition must lack replicas: during reassignments,
        partitions temporarily have more than they will.
    topics
        Regular expression of topics -> replicas. For topics that match none, the number that
        most of their partitions have is intended.
    """

    cooldown: Seconds = 600.0
    rounds: int = Field(default=10, ge=1)
    topics: dict[str, Annotated[int, Strict(), Field(ge=1)]] = {}


class DrainedBrokers(DetectorSettings):
    """Brokers that are to be emptied and kept empty.

    Parameters
    ----------
    brokers
        Broker ids.
    """

    cooldown: Seconds = 300.0
    brokers: tuple[Whole, ...] = ()


class AddedDetector(DetectorSettings):
    """A detector of another package, and what it may do.

    Parameters
    ----------
    grace
        Seconds that a finding must have existed before it is acted on.
    timeout
        Seconds that one look may take. If it takes longer, the round continues without it, and
        it is not asked again before that look has ended.
    options
        Options of the detector (``counterpoise detectors show NAME``).
    """

    grace: Seconds = 600.0
    timeout: Interval = 10.0
    options: dict[str, Any] = Field(default_factory=dict, repr=False)


class AddedNotifier(_Part):
    """A notifier by name, built in or of another package.

    Parameters
    ----------
    name
        One that ``counterpoise notifiers list`` shows.
    options
        Its options (``counterpoise notifiers show NAME``).
    """

    name: str
    options: dict[str, Any] = Field(default_factory=dict, repr=False)


class Webhook(_Part):
    """Posts events as JSON to an address, and tries again if that may help.

    Parameters
    ----------
    url
        http or https; a user and password in it become an Authorization header.
    timeout, attempts, backoff
        Seconds for an answer, how often to try, and seconds before the second try
        (twice that before the third, and so on).
    """

    url: str = Field(pattern=r"^https?://[^/\s]+", repr=False)
    timeout: Interval = 5.0
    attempts: int = Field(default=4, ge=1)
    backoff: Seconds = 1.0

    @field_validator("url")
    @classmethod
    def _with_a_host(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            # Without the address itself, which may contain a secret.
            raise ValueError("an address with a host, and a port of 1 to 65535 if any, expected")
        return url


class ModelSettings(_Part):
    """How the live model of a running cluster is maintained.

    Parameters
    ----------
    window, windows, min_samples
        Seconds of a window, the number of complete windows that loads are averaged over, and
        the samples that each window needs.
    refresh
        Seconds between two reads of the metadata; metadata ten times as old is not acted on.
    set_aside_after
        Seconds after which a broker with a value that no other broker confirms or
        contradicts takes part in balancing again, without that value.
    believed
        Ids of brokers whose metrics are always believed. This and `set_aside_after` apply as
        soon as they are read.
    """

    window: Interval = 300.0
    windows: int = Field(default=5, ge=1)
    min_samples: int = Field(default=3, ge=1)
    refresh: Interval = 30.0
    set_aside_after: Interval = 6 * 3600.0
    believed: tuple[Whole, ...] = ()


class Settings(_Part):
    """All settings; with the defaults the controller watches and moves nothing.

    Durations are seconds, or text like ``"30m"``, ``"2h"``, ``"1d"``; bytes and rates are
    numbers, or text like ``"2TB"`` and ``"50MB/s"``.

    Parameters
    ----------
    execute
        True executes plans, if an executor was given (``counterpoise run --execute``).
        False pauses: plans are only proposed, and an execution in progress is stopped. Unset
        leaves the choice to ``--execute``; in a program it means False.
    interval
        Seconds from the end of a round to the start of the next.
    moved_cooldown, longest_moved_cooldown
        Seconds in which a partition that was moved isn't moved again, except for healing and
        broken hard goals. Each time it moves again it rests `moved_cooldown_growth` times as long
        as before, at most the second value; after a rest of that length, it counts as never moved.
    moved_cooldown_growth
        Factor by which a partition rests longer each time it moves again.
    settle
        Seconds that loads must have been measured since replicas or leaders last moved;
        in addition, no window may begin before that.
    changed_share
        Share of the partitions with other replicas or another leader above which `settle` begins
        again: the leaders of a few change all the time.
    max_moves, max_bytes, max_seconds
        Limits of each plan, and of the search for it. The balancer's own budget applies as
        well; the lower limit counts.
    max_moves_per_broker, max_moves_per_rack
        Replicas that a plan may bring to any one broker, or rack, and that may leave it.
    max_share_per_cycle
        Largest share of the cluster's bytes that one plan may copy because of measured loads
        (a rebalance, or emptying a slow broker). The next cycle continues, without the detector's
        cooldown, if goals are still short by more than `trivial`. Healing, draining and
        missing replicas are not limited. 1 switches it off.
    stop_timeout
        Seconds that an execution may take to end after being asked to.
    silence_timeout
        Seconds without progress after which an execution or a recovery is asked to end. If it does
        not end within `stop_timeout`, the controller ends with an error, so that another one, or
        its next start, recovers.
    recovery_timeout
        Seconds that a recovery may take while healing waits for it; then it is stopped.
    left_interval
        Longest time between two checks of moves that ended executions left in Kafka, for
        example because a move's only replica is on a dead broker. The first check follows
        after `interval`, each further one after twice as long. It removes the throttles of
        moves that have ended.
    stop_within
        Seconds that the controller waits for an execution when it is asked to end itself.
    progress_interval
        Seconds between two lines in the log on the progress of an execution.
    excluded_topics
        Regular expressions of topics that stay where they are, except for healing.
    decisions
        How many decisions are kept.
    detectors
        Detectors of other packages by name, each with its :class:`AddedDetector`.
    webhooks
        Where decisions and findings are sent.
    notifiers
        Further ways to send them: see :class:`AddedNotifier`.
    model
        The live model of ``counterpoise run``; the log says which changes need a restart.
    execution
        Limits of executions of ``counterpoise run`` (:class:`balancer.execution.Limits`);
        a change applies from the next execution on.

    Examples
    --------
    >>> Settings.model_validate({"dead_brokers": {"heal_after": "45m"}}).dead_brokers.heal_after
    2700.0
    """

    execute: bool | None = None
    interval: Interval = 60.0
    moved_cooldown: Seconds = 6 * 3600.0
    longest_moved_cooldown: Seconds = 7 * 86_400.0
    moved_cooldown_growth: Annotated[float, Field(ge=1, le=100)] = 4.0
    settle: Seconds = 60.0
    changed_share: Share = 0.005
    max_moves: int | None = Field(default=None, ge=1)
    max_moves_per_broker: int | None = Field(default=None, ge=1)
    max_moves_per_rack: int | None = Field(default=None, ge=1)
    max_bytes: Annotated[float, WithBytes, Field(gt=0, allow_inf_nan=False)] | None = None
    max_seconds: Interval | None = 120.0
    max_share_per_cycle: Annotated[float, Field(gt=0, le=1)] = 0.1
    stop_timeout: Interval = 300.0
    silence_timeout: Interval = 600.0
    recovery_timeout: Interval = 600.0
    left_interval: Interval = 600.0
    stop_within: Interval = 6.0
    progress_interval: Interval = 60.0
    excluded_topics: tuple[str, ...] = ()
    decisions: int = Field(default=200, ge=1)
    approval: ApprovalPolicy = ApprovalPolicy()
    goal_violations: GoalViolations = GoalViolations()
    dead_brokers: DeadBrokers = DeadBrokers()
    dead_disks: DeadDisks = DeadDisks()
    slow_brokers: SlowBrokers = SlowBrokers()
    stale_metrics: StaleMetrics = StaleMetrics()
    distrusted_reporters: DistrustedReporters = DistrustedReporters()
    missing_replicas: MissingReplicas = MissingReplicas()
    drained_brokers: DrainedBrokers = DrainedBrokers()
    detectors: dict[str, AddedDetector] = {}
    webhooks: tuple[Webhook, ...] = ()
    notifiers: tuple[AddedNotifier, ...] = ()
    model: ModelSettings = ModelSettings()
    execution: dict[str, Any] = {}

    @field_validator("detectors")
    @classmethod
    def _not_built_in(cls, given: dict[str, AddedDetector]) -> dict[str, AddedDetector]:
        for name in given:
            if name in DETECTORS.built_in:
                raise ValueError(
                    f"{name} found, which is built in (its settings are {name}: {{...}}), the name "
                    "of an installed detector expected"
                )
        return given

    @property
    def budget(self) -> Budget:
        """The limits of each plan."""
        return Budget(
            moves=self.max_moves,
            bytes=self.max_bytes,
            moves_per_broker=self.max_moves_per_broker,
            moves_per_rack=self.max_moves_per_rack,
            seconds=self.max_seconds,
        )


def load_settings(path: str | Path) -> Settings:
    """Read settings from a YAML (or JSON) file.

    Raises
    ------
    SettingsError
        If a file cannot be read, or naming the first invalid entry.
    """
    where = f"settings file {path}"
    content = load_document(path, where, SettingsError, "a settings file")
    return as_settings({} if content is None else content, where)


def as_settings(content: Any, where: str = "settings") -> Settings:
    """Validate a mapping as settings.

    Raises
    ------
    SettingsError
        Naming the first invalid entry.
    """
    if not isinstance(content, Mapping):
        raise SettingsError(f"{where}: {type(content).__name__} found, a mapping expected")
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            # An unknown key of a webhook may be its address, which contains a secret.
            parts: dict[Any, type[BaseModel]] = {"webhooks": Webhook, "notifiers": AddedNotifier}
            part = parts.get(first["loc"][0])
            steps = first["loc"] if part is None else first["loc"][:-1]
            place = ".".join(str(step) for step in steps)
            if part is not None:
                known = ", ".join(part.model_fields)
                raise SettingsError(
                    f"{where}: {shown_name(place)}: an unknown key found, {known} expected"
                ) from None
            near = hint(str(steps[-1]), fields_at(Settings, steps))
            raise SettingsError(f"{where}: {shown_name(place)}: no such setting{near}") from None
        hide = ["webhooks", "notifiers", "detectors"]
        raise SettingsError(f"{where}: {first_problem(error, hide=hide)}") from None
    for name in settings.slow_brokers.signals:
        if name not in BROKER_METRICS:
            known = ", ".join(BROKER_METRICS)
            raise SettingsError(
                f"{where}: slow_brokers.signals: {shown(name)} found, one of {known} expected"
            )
    try:
        Limits.of(**settings.execution)
    except ExecutionError as error:
        raise SettingsError(f"{where}: execution.{str(error).removeprefix('limit ')}") from None
    _check_added(settings, where)
    for pattern in (*settings.excluded_topics, *settings.missing_replicas.topics):
        try:
            valid_pattern(pattern)
        except ValueError as error:
            raise SettingsError(f"{where}: topic pattern {shown(pattern)}: {error}") from None
    return settings


def _check_added(settings: Settings, where: str) -> None:
    """Check the names and options of detectors and notifiers.

    Raises
    ------
    SettingsError
        Naming the first invalid one; options may be secrets and are not quoted.
    """
    for name, detector in settings.detectors.items():
        try:
            DETECTORS.make(name, detector.options, hide=True)
        except PluginError as error:
            raise SettingsError(f"{where}: detectors: {error}") from None
    for i, notifier in enumerate(settings.notifiers):
        try:
            NOTIFIERS.make(notifier.name, notifier.options, hide=True)
        except PluginError as error:
            raise SettingsError(f"{where}: notifiers.{i}: {error}") from None
