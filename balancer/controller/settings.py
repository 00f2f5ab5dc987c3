"""What an operator sets: one small model a detector, read from YAML."""

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

from balancer.execution.errors import ExecutionError
from balancer.execution.limits import Limits
from cluster_model.errors import InputError
from goals.patterns import valid_pattern
from metrics_reporter import BROKER_METRICS
from metrics_reporter.documents import (
    Whole,
    first_problem,
    load_document,
    number_not_truth,
    shown,
    shown_name,
)
from metrics_reporter.quantities import WithBytes, WithDuration, WithRate


class SettingsError(InputError):
    """Settings that cannot be used: says which, the value found and what is expected."""


Seconds = Annotated[float, WithDuration, Field(ge=0, allow_inf_nan=False)]
# Ten years: more than anybody waits, and less than a timer can take.
Interval = Annotated[float, WithDuration, Field(gt=0, le=3.2e8, allow_inf_nan=False)]
Floor = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)


class Detector(_Part):
    """What every detector has.

    Parameters
    ----------
    enabled
        Whether it looks at all.
    act
        Whether what it finds is mended; otherwise it is only told.
    cooldown
        Seconds after an action of its own in which it starts no other.
    """

    enabled: bool = True
    act: bool = True
    cooldown: Seconds = 1800.0


class GoalViolations(Detector):
    """When goals that are not met move data.

    Parameters
    ----------
    margin
        A violation counts at once where the contentment of a broker (or disk, topic,
        partition) is more than this below 1. For a distribution goal 0.05 is about 5.5
        percent of the fair share outside the goal's band.
    trivial
        Violations up to this never count.
    rounds
        Those between the two count where they last this many rounds in a row.
    noise_factor
        Both limits are wider by this many standard errors of the measured loads (as
        told by how much windows differ), so that noise alone isn't taken for load.
    min_gain
        What a plan must gain at least: of the worst broker's load in shares, or of
        balancedness in hundredths of its 100. Mending a hard goal is always enough.
    min_gain_per_share
        The same, for each cluster's worth of bytes that the plan copies.
    """

    margin: Share = 0.05
    trivial: Share = 0.02
    rounds: int = Field(default=6, ge=1)
    noise_factor: float = Field(default=4.0, ge=0)
    min_gain: float = Field(default=0.02, ge=0)
    min_gain_per_share: float = Field(default=0.1, ge=0)


class DeadBrokers(Detector):
    """When brokers that do not serve are given up.

    Parameters
    ----------
    alert_after, heal_after
        Seconds of absence until it is reported, and until its replicas are re-created.
    max_failed, max_share
        More brokers, or a larger share of them, dead at once are not mended: then the
        network or the controller's own view is more likely broken than the brokers.
    """

    cooldown: Seconds = 300.0
    alert_after: Seconds = 900.0
    heal_after: Seconds = 1800.0
    max_failed: int = Field(default=10, ge=0)
    max_share: Share = 0.4


class DeadDisks(Detector):
    """When replicas on log directories that are offline are re-created.

    Parameters
    ----------
    heal_after
        Seconds a directory must have been offline.
    """

    cooldown: Seconds = 300.0
    heal_after: Seconds = 1800.0


class SlowBrokers(Detector):
    """When a broker counts as slow, and what is done.

    A broker is slow in a round if one of the signals is above its floor, and above
    `history_factor` times the percentile of its own history, and above `peer_factor`
    times the percentile of the other brokers. Its score goes up by 1 in such a round, and
    down by 1 in others; rounds in which nothing new was measured don't count.

    Parameters
    ----------
    signals
        Broker metric of the records -> floor in the metric's own unit.
    history_factor, history_percentile, peer_factor, peer_percentile
        See above.
    history, min_history
        Normal rounds that are remembered of each broker, and how many it takes to judge.
    min_bytes_in
        Bytes/s a broker must take in to be judged: an idle one has no latency worth the name.
    demote_score
        From this score on the broker leads nothing and is given nothing, until its score
        is back at 0.
    remove, remove_score
        Whether it is emptied, and from which score on.
    max_share
        Where more than this share of the brokers (and more than one) is slow, brokers
        aren't the reason: nothing is done, people are told.
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


class StaleMetrics(Detector):
    """When metrics are too old to act on.

    Parameters
    ----------
    max_age
        Seconds since a broker's newest record. Switched off, age is not looked at.
    """

    max_age: Interval = 900.0


class DistrustedReporters(Detector):
    """Whether brokers whose metrics contradict others' are reported.

    Nothing is planned on their loads either way. The tolerances are those of
    :class:`cluster_model.trust.TrustParameters`.
    """


class MissingReplicas(Detector):
    """When partitions have fewer replicas than their topic should.

    Parameters
    ----------
    rounds
        How many rounds in a row a partition must have been short: while replicas are
        reassigned, partitions have more than they will.
    topics
        Regular expression of topics -> replicas. Topics that none matches are meant to
        have what most of their partitions have.
    """

    cooldown: Seconds = 600.0
    rounds: int = Field(default=10, ge=1)
    topics: dict[str, Annotated[int, Strict(), Field(ge=1)]] = {}


class DrainedBrokers(Detector):
    """Brokers that are to carry nothing, by their operator's wish.

    Parameters
    ----------
    brokers
        Broker ids.
    """

    cooldown: Seconds = 300.0
    brokers: tuple[Whole, ...] = ()


class Webhook(_Part):
    """Where decisions are posted to, as JSON.

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
            # Without the address itself, which may hold a secret.
            raise ValueError("an address with a host, and a port of 1 to 65535 if any, expected")
        return url


class Model(_Part):
    """How the live model of a running cluster is kept.

    Parameters
    ----------
    window, windows, min_samples
        Seconds of a window, how many complete ones loads are the mean of, and how many
        samples each needs.
    refresh
        Seconds between two looks at the metadata; one that is ten times as old isn't
        acted on.
    set_aside_after
        Seconds after which a broker with a value that nobody else confirms, and nobody
        contradicts, takes part in balancing again, without that value.
    believed
        Ids of brokers whose metrics are believed whatever they are. This and `set_aside_after`
        hold as soon as they are read.
    """

    window: Interval = 300.0
    windows: int = Field(default=5, ge=1)
    min_samples: int = Field(default=3, ge=1)
    refresh: Interval = 30.0
    set_aside_after: Interval = 6 * 3600.0
    believed: tuple[Whole, ...] = ()


class Settings(_Part):
    """All that can be set; the defaults watch, and move nothing.

    Durations are seconds, or text like ``"30m"``, ``"2h"``, ``"1d"``; bytes and rates are
    numbers, or text like ``"2TB"`` and ``"50MB/s"``.

    Parameters
    ----------
    execute
        True carries plans out, where an executor was given (``counterpoise run --execute``).
        False pauses: plans are only proposed, and an execution under way is stopped. Not set,
        it leaves the choice to ``--execute``; in a program it means False.
    interval
        Seconds from the end of a round to the start of the next.
    moved_cooldown, longest_moved_cooldown
        Seconds in which a partition that was moved isn't moved again, but for healing and
        where a hard goal is broken. Each time it is moved again it rests four times as long
        as before, at most the second; after resting for that, it counts as never moved.
    settle
        Seconds that loads must have been measured since replicas or leaders last moved,
        besides that no window may reach back to before that.
    max_moves, max_bytes, max_seconds
        Limits of each plan, and of the search for it. Limits of the balancer's own budget
        hold as well; the lower one counts.
    max_share_per_cycle
        Largest share of the cluster's bytes that one plan may copy because of measured loads
        (a rebalance, or emptying a slow broker). What is left follows in the next cycle,
        without the detector's cooldown. Healing, draining and missing replicas are not
        limited. 1 switches it off.
    stop_timeout
        Seconds that an execution may take to end after it was asked to, and
    silence_timeout
        seconds that an execution or a recovery may go on without reporting progress before it
        is asked to. One that does not end then ends the controller with an error, so that
        another one, or its next start, recovers.
    recovery_timeout
        Seconds that a recovery may take while healing waits for it; then it is stopped.
    left_interval
        Longest time between two looks at moves that ended executions left under way in Kafka,
        as where a move's only replica is on a dead broker. The first look follows after
        `interval`, each further one after twice as long. A move that has ended loses its
        throttle then.
    stop_within
        Seconds that the controller waits for an execution when it is asked to end itself.
    progress_interval
        Seconds between two lines in the log on the progress of an execution.
    excluded_topics
        Regular expressions of topics that stay where they are, except for healing.
    decisions
        How many decisions are kept.
    webhooks
        Where decisions and findings are sent.
    model
        Of ``counterpoise run``, the live model; what of it needs a restart says so in the log.
    execution
        Of ``counterpoise run``, limits of executions (:class:`balancer.execution.Limits`);
        a change holds from the next execution on.

    Examples
    --------
    >>> Settings.model_validate({"dead_brokers": {"heal_after": "45m"}}).dead_brokers.heal_after
    2700.0
    """

    execute: bool | None = None
    interval: Interval = 60.0
    moved_cooldown: Seconds = 6 * 3600.0
    longest_moved_cooldown: Seconds = 7 * 86_400.0
    settle: Seconds = 60.0
    max_moves: int | None = Field(default=None, ge=1)
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
    goal_violations: GoalViolations = GoalViolations()
    dead_brokers: DeadBrokers = DeadBrokers()
    dead_disks: DeadDisks = DeadDisks()
    slow_brokers: SlowBrokers = SlowBrokers()
    stale_metrics: StaleMetrics = StaleMetrics()
    distrusted_reporters: DistrustedReporters = DistrustedReporters()
    missing_replicas: MissingReplicas = MissingReplicas()
    drained_brokers: DrainedBrokers = DrainedBrokers()
    webhooks: tuple[Webhook, ...] = ()
    model: Model = Model()
    execution: dict[str, Any] = {}


def load_settings(path: str | Path) -> Settings:
    """Read settings from a YAML (or JSON) file.

    Raises
    ------
    SettingsError
        For a file that cannot be read, or naming the first entry that is wrong.
    """
    where = f"settings file {path}"
    content = load_document(path, where, SettingsError, "a settings file")
    return as_settings({} if content is None else content, where)


def as_settings(content: Any, where: str = "settings") -> Settings:
    """Settings of a mapping.

    Raises
    ------
    SettingsError
        Naming the first entry that is wrong.
    """
    if not isinstance(content, Mapping):
        raise SettingsError(f"{where}: {type(content).__name__} found, a mapping expected")
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            # A key of a webhook that is none may be its address, with a secret in it.
            steps = first["loc"][:-1] if first["loc"][0] == "webhooks" else first["loc"]
            place = ".".join(str(step) for step in steps)
            if steps != first["loc"]:
                known = ", ".join(Webhook.model_fields)
                raise SettingsError(
                    f"{where}: {shown_name(place)}: an unknown key found, {known} expected"
                ) from None
            raise SettingsError(f"{where}: {shown_name(place)}: no such setting") from None
        raise SettingsError(f"{where}: {first_problem(error, hide=['webhooks'])}") from None
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
    for pattern in (*settings.excluded_topics, *settings.missing_replicas.topics):
        try:
            valid_pattern(pattern)
        except ValueError as error:
            raise SettingsError(f"{where}: topic pattern {shown(pattern)}: {error}") from None
    return settings
