"""Simulates a stream job: operators, the flows between them, load by placement.

Operators are divided into key groups, which are units on nodes. A tuple costs work where it is
processed, and shipping (serialisation at one end, deserialisation at the other) if its two ends are
not on the same node: so the load of a key group depends on where its neighbours are. Everything
follows from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.allocation.units import Units
from cluster_model.snapshot import Floats, Ints

# Seconds between two adaptations (SPL), and that an average key group pauses to migrate, as in
# Section 5.2.2 of seed 001.
PERIOD_SECONDS = 300.0
PAUSE_SECONDS = 2.5
# Share of the logarithm of a key group's popularity that carries over to the next period.
_REMAINS = 0.9
# How often a key group suddenly becomes popular, and for how many periods.
_BURSTS, _BURST_PERIODS = 0.004, 4


class Pattern(StrEnum):
    """Pattern of communication between operators (seed 001, Figure 1)."""

    ONE_TO_ONE = "one-to-one"
    PARTIAL_MERGE = "partial merge"
    PARTIAL_PARTITIONING = "partial partitioning"
    FULL_PARTITIONING = "full partitioning"


class Operator(NamedTuple):
    """A name, a number of key groups, and work per tuple and input relative to other operators."""

    name: str
    key_groups: int
    work: float = 1.0
    enters: float = 1.0


class Stream(NamedTuple):
    """Tuples from one operator to a later one.

    `rate` is the number of tuples that go out for one that came in, `degree` how many key groups
    one sends to in partial partitioning, `part` the key groups of both that take part, as shares of
    all.
    """

    source: int
    target: int
    pattern: Pattern
    rate: float = 1.0
    degree: int = 4
    part: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class SimulatedJob:
    """U key groups of O operators, and E pairs of them that communicate.

    Parameters
    ----------
    names : O names
    operator : (U,) int
    source, target, stream : (E,) int
        Key groups that send and receive; the stream they belong to, in order.
    rate : (E,) float
        Tuples out for one in, over the whole stream.
    enters : (U,) float
        Input from outside, relative to others; 0 for none.
    work : (U,) float
        Percentage points of a node for a tuple per second.
    shipping : float
        The same for a tuple that leaves a node, and for one that arrives.
    state : (U,) float
        Seconds of pause when the key group migrates: proportional to its state.
    """

    names: tuple[str, ...]
    operator: Ints
    source: Ints
    target: Ints
    stream: Ints
    rate: Floats
    enters: Floats
    work: Floats
    shipping: float
    state: Floats

    def sent(self, popularity: Floats, volume: float) -> tuple[Floats, Floats]:
        """(U,) tuples per second that come in, and (E,) that flow along each pair."""
        flow = np.zeros(len(self.source))
        came = self.enters * popularity
        came *= volume / came.sum()
        # A key group sends to its targets in proportion to their popularity.
        group = self.stream * len(self.operator) + self.source
        _, of = np.unique(group, return_inverse=True)
        share = popularity[self.target] / np.bincount(of, popularity[self.target])[of]
        for source in np.unique(self.operator[self.source]).tolist():
            pairs = self.operator[self.source] == source
            flow[pairs] = came[self.source[pairs]] * (self.rate * share)[pairs]
            came += np.bincount(self.target[pairs], flow[pairs], len(came))
        return came, flow

    def load(self, came: Floats, flow: Floats, node: Ints) -> Floats:
        """(U,) percentage points of each key group, given where its neighbours are."""
        away = flow * (node[self.source] != node[self.target])
        shipped = np.bincount(self.source, away, len(node))
        shipped += np.bincount(self.target, away, len(node))
        found: Floats = came * self.work + shipped * self.shipping
        return found


def make_job(
    operators: Sequence[Operator],
    streams: Sequence[Stream],
    *,
    nodes: int,
    load: float = 60.0,
    shipped: float = 0.5,
    seed: int = 0,
) -> SimulatedJob:
    """A job with a given mean load on a given number of nodes.

    Parameters
    ----------
    operators, streams
        The topology; streams go from an operator to a later one. An operator without an incoming
        stream has its input from outside.
    nodes, load
        Number of nodes, and their mean load in percent at a volume of 1, with no communication
        local.
    shipped
        The share of that load which is shipping.
    seed
        Seed of the communication and of state sizes.
    """
    rng = np.random.default_rng(seed)
    sizes = np.array([o.key_groups for o in operators])
    first = np.append(0, np.cumsum(sizes))
    pairs = [_pairs(s, sizes, first, rng) for s in streams]
    source = np.concatenate([s for s, _ in pairs])
    target = np.concatenate([t for _, t in pairs])
    stream = np.repeat(np.arange(len(streams)), [len(s) for s, _ in pairs])
    operator = np.repeat(np.arange(len(operators)), sizes)
    outside = ~np.isin(np.arange(len(operators)), [s.target for s in streams])
    enters = np.where(outside, [o.enters for o in operators], 0.0)[operator]
    state = rng.lognormal(0.0, 0.5, len(operator))
    job = SimulatedJob(
        names=tuple(o.name for o in operators),
        operator=operator,
        source=source,
        target=target,
        stream=stream,
        rate=np.array([s.rate for s in streams])[stream],
        enters=enters,
        work=np.array([o.work for o in operators])[operator],
        shipping=1.0,
        state=state / state.mean() * PAUSE_SECONDS,
    )
    came, flow = job.sent(np.ones(len(operator)), 1.0)
    total, working, moving = nodes * load, float(came @ job.work), 2.0 * float(flow.sum())
    return SimulatedJob(
        **{
            **vars(job),
            "work": job.work * (total * (1.0 - shipped) / working),
            "shipping": total * shipped / moving,
        }
    )


def _pairs(stream: Stream, sizes: Ints, first: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Sending and receiving key groups of one stream."""
    sends, takes = (
        np.arange(*np.rint(np.array(stream.part) * sizes[o]).astype(np.int64)) + first[o]
        for o in (stream.source, stream.target)
    )
    if stream.pattern is Pattern.FULL_PARTITIONING:
        return np.repeat(sends, len(takes)), np.tile(takes, len(sends))
    if stream.pattern is Pattern.PARTIAL_PARTITIONING:
        degree = min(stream.degree, len(takes))
        chosen = [rng.choice(takes, degree, replace=False) for _ in sends]
        return np.repeat(sends, degree), np.concatenate(chosen)
    return sends, takes[np.arange(len(sends)) * len(takes) // len(sends)]


@dataclass(frozen=True, eq=False)
class Conditions:
    """(T, U) popularity of every key group in every period, and (T,) volume of the input."""

    popularity: Floats
    volume: Floats


def fluctuating(
    job: SimulatedJob,
    periods: int,
    *,
    spread: float = 0.15,
    swing: float = 0.15,
    bursts: bool = True,
    even: int | None = None,
    seed: int = 0,
) -> Conditions:
    """Input rates of a day: a swing, keys that come and go, and sudden bursts.

    Parameters
    ----------
    job, periods
        The job, and the number of periods.
    spread
        Standard deviation of the logarithm of popularity.
    swing
        Share by which the volume rises and falls.
    bursts
        Whether single key groups become two to four times as popular for a while.
    even
        An operator, by its number, whose key groups are always equally popular.
    """
    rng = np.random.default_rng(seed)
    units = len(job.operator)
    noise = rng.normal(0.0, spread, (periods, units))
    log = np.empty((periods, units))
    log[0] = noise[0]
    for t in range(1, periods):
        log[t] = _REMAINS * log[t - 1] + np.sqrt(1.0 - _REMAINS**2) * noise[t]
    if bursts:
        for t, unit in np.argwhere(rng.random((periods, units)) < _BURSTS).tolist():
            log[t : t + _BURST_PERIODS, unit] += np.log(rng.uniform(2.0, 4.0))
    log[:, job.operator == even] = 0.0
    turns = np.arange(periods) / 48.0 * 2.0 * np.pi
    volume = 1.0 + swing * np.sin(turns) + rng.normal(0.0, swing / 10, periods)
    return Conditions(np.exp(log), volume)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Measurements of a period, in the form that planning needs.

    Parameters
    ----------
    job
        The job with the operators and pairs.
    nodes
        N, all equal.
    load : (U,) float
        gLoad, with shipping as measured.
    rate : (E,) float
        Data rate along each pair of the job.
    node : (U,) int
        Where each key group was.
    """

    job: SimulatedJob
    nodes: int
    load: Floats
    rate: Floats
    node: Ints

    def allocation(self, migrations: float) -> Allocation:
        """The allocation problem with a limit on migrations."""
        return Allocation(
            load=self.load,
            cost=np.ones(len(self.load)),
            node=self.node,
            weight=np.ones(self.nodes),
            removed=np.zeros(self.nodes, np.bool_),
            budget=migrations,
        )

    def units(self, migrations: float) -> Units:
        """The problem with the traffic between key groups."""
        return Units(
            problem=self.allocation(migrations),
            operator=self.job.operator,
            source=self.job.source,
            target=self.job.target,
            rate=self.rate,
        )


class PeriodMetrics(NamedTuple):
    """Metrics of a period, right after its migrations (seed 001, Section 5, Metrics).

    `distance`: load distance, in percentage points. `collocation`: percentage of the data rate that
    stays on its node. `load_index`: average load including the cost of migrating, in percent of the
    first. `migrations`: their number; `latency`: the sum of their pauses, in seconds.
    """

    distance: float
    collocation: float
    load_index: float
    migrations: int
    latency: float


def scattered(job: SimulatedJob, nodes: int) -> Ints:
    """(U,) int: equally many key groups on every node, and no one-to-one pair together."""
    number = np.arange(len(job.operator)) - np.searchsorted(job.operator, job.operator)
    found: Ints = (number + job.operator) % nodes
    return found


def run_periods(
    job: SimulatedJob,
    conditions: Conditions,
    nodes: int,
    allocate: Callable[[Statistics], Ints],
    *,
    start: Ints | None = None,
) -> Iterator[PeriodMetrics]:
    """Adapt once per period to its measurements; yield the resulting state of the job.

    Parameters
    ----------
    job, conditions, nodes
        The job, its input, and the number of nodes.
    allocate
        Makes the plan: takes statistics, returns the node of every key group.
    start : (U,) int
        The first allocation; :func:`scattered` by default.
    """
    node = scattered(job, nodes) if start is None else start
    first = None
    for popularity, volume in zip(conditions.popularity, conditions.volume, strict=True):
        came, flow = job.sent(popularity, float(volume))
        measured = Statistics(job, nodes, job.load(came, flow, node), flow, node)
        if first is None:
            first = measured.load.sum()
        after = allocate(measured)
        moved = after != node
        latency = float(job.state[moved].sum())
        then = Statistics(job, nodes, job.load(came, flow, after), flow, after)
        # A migrating key group keeps both of its nodes busy during its pause.
        busy = 2.0 * latency / PERIOD_SECONDS * 100.0
        yield PeriodMetrics(
            distance=then.allocation(0).distance(after),
            collocation=100.0 * then.units(0).local(after),
            load_index=100.0 * float(then.load.sum() + busy) / float(first),
            migrations=int(moved.sum()),
            latency=latency,
        )
        node = after
