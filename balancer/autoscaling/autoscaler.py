"""The loop that sizes a consumer group: look, decide, change, and say why."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from balancer.autoscaling.errors import AutoscalingError, NotYetError, RebalancingError
from balancer.autoscaling.measurement import MeasurementSettings
from balancer.autoscaling.observation import Observation, enough_in_ranges
from balancer.autoscaling.policy import Decision, Policy, stay
from balancer.autoscaling.replicas.scaler import Scaler
from cluster_model.errors import InputError
from metrics_reporter.documents import shown_name
from metrics_reporter.errors import ReporterError
from metrics_reporter.exposition_text import ExpositionText
from metrics_reporter.quantities import plural

Assignor = Literal["range", "packed", "assigned"]
_MEASURING = (
    "what a consumer can process is being measured, for which one must have lag for some rounds; "
    "no consumer ends before"
)
_MEASURING_ASSIGNED = (
    "what a consumer can process is being measured, for which it must process something for some "
    "time; no consumer ends before"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Round:
    """What one round saw, decided and did.

    Parameters
    ----------
    at
        Seconds since the epoch.
    kind
        ``changed``, ``dry run``, ``kept``, ``held``, ``decided`` (nothing to change it with),
        ``waiting`` (nothing to decide on yet) or ``failed``.
    reason
        One sentence.
    observation, decision
        What was seen and decided; None if the round failed or waits.
    consumers
        Consumers that the group needs; None if unknown.
    rebalancing
        Whether the group rebalances, so that the next round comes sooner.
    """

    at: float
    kind: str
    reason: str
    observation: Observation | None = None
    decision: Decision | None = None
    consumers: int | None = None
    rebalancing: bool = False

    def record(self) -> dict[str, Any]:
        """As JSON."""
        o, d = self.observation, self.decision
        seen: dict[str, Any] = {}
        if o is not None and d is not None:
            seen = {
                "group": o.name,
                "running": o.group.consumers,
                "consumers": self.consumers,
                "rate": float(o.group.rate.sum()),
                "lag": float(o.group.lag.sum()),
                "moves": d.moves,
                "capacity_measured": dict(o.measured),
                "rebalance_seconds": o.group.rebalance_seconds,
                "rebalance_measured": o.rebalance_measured,
                "warnings": [*d.warnings, *o.notes],
            }
        return {"at": self.at, "kind": self.kind, "reason": self.reason, **seen}


@dataclass
class _Counters:
    """Counters since the start."""

    rounds: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    last: Round | None = None
    # the last round that saw the group
    seen: Round | None = None


class Autoscaler:
    """Sizes one consumer group, round by round.

    A round that fails changes nothing, and the next one looks again.

    Parameters
    ----------
    observe
        Looks at the group.
    policy
        Decides.
    scaler
        Carries it out; without one, rounds only decide.
    publish
        Called with each decision: consumers needed, and consumers that run.
    assignor
        How consumers share partitions once their number is right: ``packed`` and ``assigned`` if
        they follow the decision, ``range`` if Kafka's range assignor divides them by their number.
    fill
        Share of a consumer's capacity that ranges may use.
    shrink, calm
        Share of it that ranges may use of fewer consumers than run, at the highest rates of so
        many seconds.
    minimum
        Fewest consumers that are needed, whatever has partitions.
    assign
        Passes a decision on to consumers that follow it; returns whether it could.
    clock
        Seconds that never go back.
    rebalance_look
        Seconds between two rounds while the group rebalances, if that is less than the interval.
    """

    def __init__(
        self,
        observe: Callable[[], Observation],
        policy: Policy,
        scaler: Scaler | None = None,
        publish: Callable[[int, int], None] | None = None,
        assignor: Assignor = "range",
        fill: float = 0.9,
        shrink: float = 0.8,
        calm: float = 15.0,
        minimum: int = 1,
        assign: Callable[[Observation, Decision], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        rebalance_look: float = MeasurementSettings.rebalance_look_seconds,
    ) -> None:
        self._observe, self._policy, self._scaler = observe, policy, scaler
        self._publish, self._assignor, self._fill = publish, assignor, fill
        self._shrink, self._calm, self._minimum = shrink, calm, minimum
        self._recent: deque[tuple[float, dict[str, float]]] = deque()
        self._assign = assign
        self._clock = clock
        self._rebalance_look = rebalance_look
        self._lock = threading.Lock()
        self._counters = _Counters()

    def round(self) -> Round:
        """Look, decide, and change what is to be changed."""
        at = time.time()
        try:
            if self._scaler is not None and self._scaler.stand_down():
                raise NotYetError("another controller acts and starts consumers, so these end")
            done = self._round(at)
        except NotYetError as error:
            rebalancing = isinstance(error, RebalancingError)
            done = Round(at=at, kind="waiting", reason=str(error), rebalancing=rebalancing)
        except (InputError, ReporterError, OSError) as error:
            done = Round(at=at, kind="failed", reason=str(error))
        with self._lock:
            c = self._counters
            c.rounds[done.kind] += 1
            c.changes += done.kind == "changed"
            c.last = done
            c.seen = done if done.observation is not None else c.seen
        return done

    def run(self, stop: threading.Event, interval: float, report: Callable[[Round], None]) -> None:
        """Make rounds until stopped, one per interval."""
        if not 0 < interval < np.inf:
            raise AutoscalingError(f"interval: {interval:g} found, seconds above 0 expected")
        while not stop.is_set():
            began = self._clock()
            done = self.round()
            report(done)
            pause = min(interval, self._rebalance_look) if done.rebalancing else interval
            stop.wait(max(0.0, began + pause - self._clock()))

    def _round(self, at: float) -> Round:
        seen = self._observe()
        if seen.measuring:
            return self._measuring(at, seen)
        now = self._clock()
        decision = self._policy.decide(seen.group, now)
        follows = self._assignor != "range"
        if follows:
            decision = seen.filled(decision)
        needed, why = max(seen.needed(decision), self._minimum), decision.reason
        asked, leaving = needed, seen.leaving(decision)
        if follows:
            # who has something to give up ends later, and one that is kept for later stays
            asked = max(seen.in_use(decision), seen.after(decision), needed)
            busy = set(seen.group.consumer.tolist())
            leaving = tuple(n for n in leaving if seen.consumers.index(n) not in busy)
        else:
            enough = self._enough_in_ranges(seen, needed, now)
            if enough > needed:
                why = (
                    f"{why}; ranges of equal size need {plural(enough, 'consumer')}, "
                    f"a packing {needed}"
                )
                asked = needed = enough
        running = seen.group.consumers
        if seen.unknown and asked < running:
            why = f"{why}; no fewer while {plural(seen.unknown, 'partition')} cannot be measured"
            asked, needed = running, max(needed, running)
        if self._assign is not None and not self._assign(seen, decision):
            why = f"{why}; another controller assigns"
        kind, reason = "decided", f"{plural(needed, 'consumer')} needed: {why}"
        if self._scaler is not None:
            outcome = self._scaler.apply(asked, leaving)
            kind, reason = outcome.kind, f"{outcome.reason}: {why}"
            if kind == "kept" and outcome.ready > running:
                reason = f"{reason}; only {running} of {outcome.ready} that run are in the group"
        if self._publish is not None:
            self._publish(asked, seen.group.consumers)
        return Round(
            at=at,
            kind=kind,
            reason=reason,
            observation=seen,
            decision=decision,
            consumers=needed,
        )

    def _measuring(self, at: float, seen: Observation) -> Round:
        """Keep what runs, and what is read, until it is known what a consumer can process."""
        running = seen.group.consumers
        why, kind = _MEASURING, "waiting"
        if self._assignor == "assigned":
            why = _MEASURING_ASSIGNED
            # what nobody reads is read by somebody: otherwise nothing would ever be measured
            if self._assign is not None and not self._assign(seen, stay(seen.group, why)):
                why = f"{why}; another controller assigns"
        if self._scaler is not None and self._scaler.requested < self._minimum:
            outcome = self._scaler.apply(self._minimum)
            kind, why = outcome.kind, f"{outcome.reason}: {why}"
        if self._publish is not None:
            self._publish(max(running, self._minimum), running)
        return Round(at=at, kind=kind, reason=why)

    def _enough_in_ranges(self, seen: Observation, needed: int, now: float) -> int:
        """Consumers that ranges need; fewer than run only if these would not soon be too few."""
        group = seen.group
        rates = dict(zip(seen.partitions, group.rate.tolist(), strict=True))
        self._recent.append((now, rates))
        while self._recent[0][0] < now - self._calm:
            self._recent.popleft()
        enough = enough_in_ranges(seen, needed, self._fill)
        if enough >= group.consumers:
            return enough
        highest = [max(past.get(p, 0.0) for _, past in self._recent) for p in seen.partitions]
        calm = replace(seen, group=replace(group, rate=np.array(highest)))
        return min(group.consumers, enough_in_ranges(calm, needed, self._shrink))

    def metrics(self) -> str:
        """Prometheus' text exposition format."""
        with self._lock:
            c = self._counters
            rounds, changes, last, seen = Counter(c.rounds), c.changes, c.last, c.seen
        page = ExpositionText()
        page.by("autoscale_rounds_total", "counter", "Rounds by outcome.", "kind", rounds)
        page.one("autoscale_changes_total", "counter", "Changes asked for.", changes)
        at = 0.0 if last is None else last.at
        page.one("autoscale_last_round_timestamp_seconds", "gauge", "Its time.", at)
        failing = last is not None and last.kind == "failed"
        page.one("autoscale_failing", "gauge", "1 if the last round failed.", failing)
        if seen is not None and seen.observation is not None and seen.consumers is not None:
            o = seen.observation
            group, running = o.group, o.group.consumers
            page.one("autoscale_consumers", "gauge", "Consumers that run.", running)
            page.one("autoscale_consumers_needed", "gauge", "As decided.", seen.consumers)
            per = zip(o.partitions, group.lag.tolist(), group.rate.tolist(), strict=True)
            rows = {name: (lag, rate) for name, lag, rate in per}
            lags = {name: lag for name, (lag, _) in rows.items()}
            rates = {name: rate for name, (_, rate) in rows.items()}
            page.by("autoscale_lag", "gauge", "Events that wait.", "partition", lags)
            page.by("autoscale_rate", "gauge", "Events/s that arrive.", "partition", rates)
            load = group.load(group.consumer, group.rate) / group.capacity
            used = dict(zip(o.consumers, load.tolist(), strict=True))
            page.by("autoscale_load", "gauge", "Share of its capacity.", "consumer", used)
            measured = "Events/s that it can process, as measured."
            page.by("autoscale_capacity_measured", "gauge", measured, "consumer", o.measured)
            took = "How long a rebalance takes: as given, measured, or assumed until one was seen."
            page.one("autoscale_rebalance_seconds", "gauge", took, group.rebalance_seconds)
        return page.text()

    def state(self) -> dict[str, Any]:
        """The last round, as JSON."""
        with self._lock:
            last = self._counters.last
        return {} if last is None else last.record()


def decide_once(observation: Observation, policy: Policy, now: float = 0.0) -> Decision:
    """Decide on one look; forecasts then have no past to learn from."""
    if not len(observation.partitions):
        raise AutoscalingError(f"group {observation.name}: no partitions found, 1 expected")
    return policy.decide(observation.group, now)


def summary(observation: Observation, decision: Decision, names: Sequence[str]) -> list[str]:
    """A decision in a few sentences; `names` as of :meth:`Observation.names_after`."""
    o = observation
    lines = [
        f"{o.group.consumers} -> {plural(o.after(decision), 'consumer')}, "
        f"{plural(decision.moves, 'partition')} of {len(o.partitions)} "
        f"{'moves' if decision.moves == 1 else 'move'}: {decision.reason}"
    ]
    if decision.start:
        lines.append(f"start {', '.join(map(shown_name, names[o.group.consumers :]))}")
    stopped = [o.consumers[i] for i in decision.stop]
    if stopped:
        lines.append(f"stop {', '.join(map(shown_name, stopped))}")
    idle = [name for name in o.leaving(decision) if name not in stopped]
    if idle:
        lines.append(f"without partitions {', '.join(map(shown_name, idle))}")
    return lines
