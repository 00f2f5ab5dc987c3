"""Advice from a history: which goals and thresholds, when resources run out, how many brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balancer.backtest.configuration import RECORDED, Configuration
from balancer.backtest.errors import BacktestError
from balancer.backtest.growth import ResourceGrowth, capacity_of, daily_peaks, growth_of
from balancer.backtest.parameters import AdviceParameters
from balancer.backtest.progress import Progress
from balancer.backtest.result import BacktestResult
from balancer.backtest.spark import LoadHistory, backtest
from balancer.backtest.verdict import spread
from balancer.engine import Balancer
from balancer.planning.document import Sizing
from balancer.problem.budget import Budget
from balancer.problem.operation import Operation
from cluster_model.attribution import with_estimates
from cluster_model.snapshot import BrokerState, Snapshot
from goals import Goal, applicable, load_goals
from goals.distribution import Band
from goals.registry import Config
from metrics_reporter.quantities import amount, percent, plural, rounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TB = 1e12
# Shares of capacities that are computed from different brokers differ in their last digits.
_ROUNDING = 1e-9


class Tried(NamedTuple):
    """What a configuration would have achieved; means of its seeds.

    Parameters
    ----------
    configuration
        Its name; ``history`` for what happened.
    overloaded_hours
        Broker-hours above the limit.
    avoided
        How many fewer than what happened.
    bytes_moved
        Bytes copied.
    avoided_per_tb
        Broker-hours avoided for each TB copied; None if nothing was copied.
    """

    configuration: str
    overloaded_hours: float
    avoided: float
    bytes_moved: float
    avoided_per_tb: float | None


class Size(NamedTuple):
    """How many brokers are needed later.

    Parameters
    ----------
    loads
        ``expected`` or ``high``: the end of the interval of growth.
    headroom
        Share of each hard limit that is kept free: at least that of the largest rack of the brokers
        that are needed.
    brokers_now, brokers
        Living brokers, and how many are needed; None if no number was found.
    text
        As :attr:`balancer.Plan.sizing` says it.
    """

    loads: str
    headroom: float
    brokers_now: int
    brokers: int | None
    text: str


@dataclass(frozen=True)
class Advice:
    """All advice.

    Parameters
    ----------
    backtest
        The backtest of the configurations.
    tried
        In the order of overloaded hours, then of bytes.
    recommended
        Name of the configuration; ``history`` if none avoided anything.
    end_ms
        The time that days count from.
    growth
        In each resource; empty if there are too few days.
    sizes
        For expected and for high loads.
    notes
        What could not be computed, and why.
    """

    backtest: BacktestResult
    tried: tuple[Tried, ...]
    recommended: str
    end_ms: int
    growth: tuple[ResourceGrowth, ...]
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Everything as JSON-compatible data; dates are those of :attr:`end_ms` and the days."""
        return {
            "recommended": self.recommended,
            "configurations": [t._asdict() for t in self.tried],
            "growth": [
                {
                    **asdict(g),
                    **{
                        name.replace("days", "date"): date_of(self.end_ms, getattr(g, name))
                        for name in ("days", "days_low", "days_high")
                    },
                }
                for g in self.growth
            ],
            "sizes": [s._asdict() for s in self.sizes],
            "notes": list(self.notes),
            "backtest": self.backtest.document(),
        }


def candidates(
    profiles: Sequence[Config], thresholds: Sequence[float], cluster: Snapshot
) -> tuple[Configuration, ...]:
    """Goal lists as they are, and with other thresholds of their distribution goals.

    Parameters
    ----------
    profiles
        What :func:`goals.load_goals` takes.
    thresholds
        Largest load of a broker as a multiple of its fair share, above 1.
    cluster
        Goals of a list that do not apply to it are left out.
    """
    for value in thresholds:
        if not 1 < value < float("inf"):
            raise BacktestError(f"advice: threshold {value} found, a number above 1 expected")
    found = []
    for profile in profiles:
        goals = applicable(load_goals(profile), cluster, strict=False)
        found.append(Configuration(str(profile), Balancer(goals)))
        for value in thresholds:
            name = f"{profile}, threshold {value:g}"
            wider = [_with_threshold(goal, value) for goal in goals]
            found.append(Configuration(name, Balancer(wider)))
    return tuple(found)


def advise(
    history: LoadHistory,
    configurations: Sequence[Configuration],
    *,
    first_ms: int,
    end_ms: int,
    goals: Config | Sequence[Goal] = "default",
    limit: float = 0.8,
    seeds: int = 1,
    parameters: AdviceParameters | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Give all advice from a range of a history.

    Parameters
    ----------
    history, configurations, first_ms, end_ms, goals, limit, seeds, progress
        As for :func:`balancer.backtest.backtest`; `goals` also decide how many brokers are enough,
        and `limit` when a resource has run out.
    parameters
        How.

    Raises
    ------
    InputError
        As for :func:`balancer.backtest.backtest`.
    """
    p = parameters or AdviceParameters()
    found = backtest(
        history,
        configurations,
        first_ms=first_ms,
        end_ms=end_ms,
        goals=goals,
        limit=limit,
        seeds=seeds,
        progress=progress,
    )
    tried, recommended = ranked(found, p.relief)
    notes = []
    base = history.metadata.at(end_ms - 1)
    loads = history.loads(first_ms, end_ms)
    now = mean_loads(loads, base)
    growth: tuple[ResourceGrowth, ...] = ()
    try:
        days, peaks = daily_peaks(
            loads, history.metadata, len(base.resources), history.window_ms, p
        )
        growth = growth_of(
            days,
            peaks,
            base.resources,
            capacity_of(base),
            limit=limit,
            parameters=p,
        )
        if untold := sorted({*base.resources} - {of.resource for of in growth}):
            notes.append(f"growth of {', '.join(untold)}: too few days on which it is known")
    except BacktestError as error:
        notes.append(f"{error}; the number of brokers is for the mean loads of now")
    sizes = [sized(now, growth, goals, parameters=p)]
    if growth:
        sizes.append(sized(now, growth, goals, high=True, parameters=p))
    if len(base.racks) < 2:
        notes.append("one rack found: the number of brokers does not include its loss")
    return Advice(found, tried, recommended, end_ms, growth, tuple(sizes), tuple(notes))


def ranked(result: BacktestResult, relief: float) -> tuple[tuple[Tried, ...], str]:
    """The configurations in order, and the one that is recommended.

    Of those that avoid at least the share `relief` of the overloaded hours that the best one
    avoids, the one that copies least.
    """
    was = spread(result, RECORDED, "overloaded_hours").mean
    tried = []
    for name in (RECORDED, *result.runs):
        hours, copied = (
            spread(result, name, figure).mean for figure in ("overloaded_hours", "bytes_moved")
        )
        per_tb = (was - hours) / (copied / _TB) if copied > 0 else None
        tried.append(Tried(name, hours, was - hours, copied, per_tb))
    most = max(t.avoided for t in tried)
    enough = [t for t in tried if t.avoided >= relief * most]
    best = min(enough, key=lambda t: (t.bytes_moved, t.overloaded_hours))
    order = sorted(tried, key=lambda t: (t.overloaded_hours, t.bytes_moved))
    return tuple(order), best.configuration


def mean_loads(loads: DataFrame, cluster: Snapshot) -> Snapshot:
    """The cluster with the mean loads of its partitions."""
    from cluster_model.history.alignment import aligned_loads, matrix
    from cluster_model.history.statistics import one_number

    table = one_number(loads, len(cluster.resources), "mean").toArrow()
    means = (matrix(table, role, len(cluster.resources)) for role in ("leader", "follower"))
    leader, follower = aligned_loads(
        cluster, table["topic"].to_pylist(), table["partition"].to_numpy(), *means
    )
    return replace(
        cluster,
        leader_load=with_estimates(cluster, leader),
        follower_load=with_estimates(cluster, follower),
    )


def sized(
    now: Snapshot,
    growth: Sequence[ResourceGrowth],
    goals: Config | Sequence[Goal] = "default",
    *,
    high: bool = False,
    parameters: AdviceParameters | None = None,
) -> Size:
    """How many brokers meet all hard goals later, also if any rack is lost.

    The busiest hour is divided among the partitions as their mean loads are. Of each hard limit at
    least as much is kept free as the largest rack has of the brokers that are counted: the others
    can then take what it held.

    Parameters
    ----------
    now
        The cluster with mean loads.
    growth
        By resource; none for the loads of now.
    goals
        What decides.
    high
        For the upper end of the interval of growth.
    parameters
        How.
    """
    p = parameters or AdviceParameters()
    total = now.broker_load().sum(axis=0)
    factor = np.ones(len(now.resources))
    for of in growth:
        i = now.resource(of.resource)
        later = of.load_ahead_high if high else of.load_ahead
        factor[i] = later / total[i] if total[i] > 0 else 1.0
    later_loads = replace(
        now, leader_load=now.leader_load * factor, follower_load=now.follower_load * factor
    )
    headroom, sizing = _surviving(later_loads, Balancer(goals, budget=Budget(seconds=p.seconds)))
    return Size(
        loads="high" if high else "expected",
        headroom=headroom,
        brokers_now=sizing.brokers_before,
        brokers=sizing.brokers if sizing.met else None,
        text=sizing.text,
    )


def sentences(advice: Advice) -> list[str]:
    """The advice in words."""
    limit = percent(advice.backtest.limit)
    by_name = {t.configuration: t for t in advice.tried}
    best, was = by_name[advice.recommended], by_name[RECORDED]
    if advice.recommended == RECORDED:
        said = [
            "no configuration would have avoided overload: what happened had "
            f"{rounded(was.overloaded_hours)} broker-hours above {limit}"
        ]
    else:
        said = [
            f"{best.configuration} is recommended: {rounded(best.overloaded_hours)} broker-hours "
            f"above {limit} instead of {rounded(was.overloaded_hours)}, for "
            f"{amount(best.bytes_moved)} copied"
        ]
    for of in advice.growth:
        if of.days is None:
            said.append(f"{of.resource}: does not run out at today's growth")
            continue
        if of.days == 0:
            said.append(f"{of.resource}: above {limit} of the capacity already")
            continue
        first = date_of(advice.end_ms, of.days_low)
        last = date_of(advice.end_ms, of.days_high)
        said.append(
            f"{of.resource}: above {limit} of the capacity, spread evenly, on "
            f"{date_of(advice.end_ms, of.days)} at today's growth "
            f"(between {first or 'never'} and {last or 'never'})"
        )
    for size in advice.sizes:
        what = "expected loads" if size.loads == "expected" else "the upper end of the loads"
        lost = (
            f", with {percent(size.headroom)} free for the loss of a rack" if size.headroom else ""
        )
        number = "no number" if size.brokers is None else plural(size.brokers, "broker")
        said.append(f"{number} for {what}{lost} (now {size.brokers_now}): {size.text}")
    return [*said, *advice.notes]


def date_of(end_ms: int, days: float | None) -> str | None:
    """The day so many days after a time, as 2026-01-31; None for None."""
    if days is None:
        return None
    return (datetime.fromtimestamp(end_ms / 1000, UTC) + timedelta(days=days)).date().isoformat()


def _with_threshold(goal: Goal, value: float) -> Goal:
    if not isinstance(goal, Band):
        return goal
    return type(goal).model_validate(goal.model_dump() | {"threshold": value})


def _surviving(s: Snapshot, balancer: Balancer) -> tuple[float, Sizing]:
    """The share of hard limits that is kept free for the loss of a rack, and how many are needed.

    Fewer brokers may be spread over racks less evenly than all. So each number that is enough with
    the share of all brokers is tried again with what its own largest rack has.
    """

    def tried(headroom: float, **limits: int) -> tuple[float, Sizing]:
        options = {"headroom": headroom, **limits}
        asked = Operation.model_validate({"kind": "right_size", "options": options})
        plan = balancer.propose(s, asked)
        if plan.sizing is None:
            raise BacktestError("advice: a plan without a number of brokers found, one expected")
        return _largest_rack(plan.snapshot, plan.sizing.emptied), plan.sizing

    least, number = _largest_rack(s), 1
    while True:
        needed, found = tried(least, min_brokers=number)
        # with one rack now, its loss does not count
        if not found.met or not least or needed <= least + _ROUNDING:
            return least, _explained(found, number > 1)
        number = found.brokers
        if needed < 1:
            own, found = tried(needed, min_brokers=number, max_brokers=number)
            if found.met and own <= needed + _ROUNDING:
                return needed, _explained(found, True)
        number += 1


def _explained(sizing: Sizing, stepwise: bool) -> Sizing:
    """A number with the reason for it, which the last of several searches does not know."""
    if not (stepwise and sizing.met):
        return sizing
    number = sizing.text.partition("; ")[0]
    text = f"{number}; no plan with fewer was found that survives the loss of a rack"
    return sizing.model_copy(update={"text": text})


def _largest_rack(s: Snapshot, without: Sequence[int | str] = ()) -> float:
    """The largest share of the capacity, in any resource, that one rack has; 0 with one rack.

    Of the living brokers, some of which may be left out.
    """
    if len(s.racks) < 2:
        return 0.0
    kept = (s.broker_state != BrokerState.DEAD) & ~np.isin(s.broker_ids, list(without))
    capacity = np.zeros((len(s.racks), len(s.resources)))
    np.add.at(capacity, s.broker_rack[kept], s.capacity[kept])
    total = capacity.sum(axis=0)
    shares = capacity[:, total > 0] / total[total > 0]
    return float(shares.max(initial=0.0))
