"""Counts the rebalances until stateful tasks are balanced, as Kafka Streams' own tests do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from balancer.assignment import RUNNING, ApplicationState, AssignmentConfigs, TaskAssignment
from balancer.assignment.simulation import Assignor
from benchmarks.harness.least_load import proven_least
from benchmarks.harness.task_assignors import GOALS, JVM, KAFKA, chosen_subjects, task_assignors
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model.snapshot import Bools, Floats, Ints

_END, _ACCEPTABLE = 150_000, 100
# The fullest instance may have this many times what is proven to be the least.
_EVEN, _ROUNDING = 1.05, 1e-9
_SUBJECTS = (JVM, KAFKA, GOALS)
# Seeds by scenario, and for goals, whose search takes longer.
_SEEDS = {"static": 20, "add": 20, "drop": 20, "random": 20_000}
_SEEDS_OF_GOALS = {**_SEEDS, "random": 100}


@dataclass(frozen=True)
class _Event:
    """Instances that go, instances that come (back), and the most rounds until balance."""

    dropped: tuple[int, ...]
    added: tuple[int, ...]
    bound: int


@dataclass(frozen=True, eq=False)
class _Case:
    """An application and what happens to it; T tasks, of which the first are stateless."""

    subtopology: Ints
    partition: Ints
    stateful: Bools
    load: Floats
    configs: AssignmentConfigs
    instances: int
    events: tuple[_Event, ...]


@dataclass
class _Tally:
    """What the rebalances after events did."""

    seeds: int
    rounds: list[int] = field(default_factory=list)
    unconverged: int = 0
    beyond: int = 0
    copies: int = 0
    restored: int = 0
    invalid: int = 0
    uneven: int = 0
    excess: list[float] = field(default_factory=list)
    # Beyond what is proven to be possible; only if asked for, as proofs take time.
    proves: bool = False
    beyond_least: list[float] = field(default_factory=list)
    rebalances: int = 0
    seconds: float = 0.0


@benchmark("tasks-convergence", sizes=tuple(_SEEDS))
def tasks_convergence(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Rebalances until stateful tasks are balanced, after instances have come and gone.

    The scenarios are those of Kafka Streams' own test: nothing, one instance more, one less, and
    random events. Between two rebalances every copy catches up. For goals, a mixed-integer program
    proves how full the fullest instance is at least. A run of the benchmark fails if a subject does
    not converge, or leaves a task without its copies.
    """
    names = chosen_subjects(_SUBJECTS, options.subjects)
    failures: list[str] = []
    with task_assignors(names, options.log) as makers:
        for size in sizes:
            for name, make in makers.items():
                usual = (_SEEDS_OF_GOALS if name == GOALS else _SEEDS)[size]
                seeds = options.rounds or usual
                options.log(f"tasks-convergence {size}: {name}, {seeds} seeds")
                tally = _Tally(seeds, proves=name == GOALS)
                for seed in range(options.seed, options.seed + seeds):
                    case = _case(size, seed)
                    _run(case, make(case.configs), tally)
                for metric, value, unit in _rows(tally, own_time=name != JVM):
                    yield Row("tasks-convergence", size, name, metric, value, unit)
                if tally.unconverged or tally.invalid:
                    failures.append(
                        f"{size}: {name}: {tally.unconverged} events unconverged, "
                        f"{tally.invalid} with missing copies"
                    )
    if failures:
        raise BenchmarkError("; ".join(failures))


def _case(size: str, seed: int) -> _Case:
    """The scenario of a seed."""
    rng = np.random.default_rng(seed)
    if size == "static":
        return _application(rng, 1, 1, 2, 0, 1, 10, ())
    if size == "add":
        return _application(rng, 7, 11, 2, 0, 1, 10, (_Event((), (1,), 11 // 2 + 1),))
    if size == "drop":
        gone = int(rng.integers(7))
        return _application(rng, 11, 13, 2, 0, 7, 10, (_Event((gone,), (), 13 // 2 + 2),))
    instances, stateless, stateful = (int(n) for n in rng.integers(1, 11, 3))
    warmups = int(rng.integers(1, stateful + 1))
    standbys = int(rng.integers(0, instances + 1))
    partitions = int(rng.integers(1, 11))
    present, away, events = list(range(instances)), list[int](), list[_Event]()
    known = instances
    bound = 2 * (stateful + stateful * standbys)
    for _ in range(int(rng.integers(1, 11))):
        many, dropped, added = int(rng.integers(instances)), list[int](), list[int]()
        if rng.integers(2):
            for _ in range(many):
                # Someone who was there before comes back, or someone new comes.
                if away and rng.integers(2):
                    added.append(away.pop(int(rng.integers(len(away)))))
                else:
                    added.append(known)
                    known += 1
            present += added
        else:
            for _ in range(min(many, len(present))):
                dropped.append(present.pop(int(rng.integers(len(present)))))
            away += dropped
        events.append(_Event(tuple(dropped), tuple(added), bound))
    return _application(
        rng, stateless, stateful, warmups, standbys, instances, partitions, tuple(events)
    )


def _application(
    rng: np.random.Generator,
    stateless: int,
    stateful: int,
    warmups: int,
    standbys: int,
    instances: int,
    partitions: int,
    events: tuple[_Event, ...],
) -> _Case:
    n = stateless + stateful
    every = np.arange(n)
    return _Case(
        subtopology=every // partitions,
        partition=every % partitions,
        stateful=every >= stateless,
        load=rng.lognormal(0.0, 0.7, (n, 1)),
        configs=AssignmentConfigs(
            acceptable_recovery_lag=_ACCEPTABLE,
            max_warmup_replicas=warmups,
            num_standby_replicas=standbys,
        ),
        instances=instances,
        events=events,
    )


def _run(case: _Case, assignor: Assignor, tally: _Tally) -> None:
    """Play a case: each event, then rebalances until none is needed."""
    n = len(case.stateful)
    size = 1 + max([case.instances - 1, *(i for e in case.events for i in e.added)])
    # 2 for an active copy, 1 for another.
    held = np.zeros((n, size), np.int64)
    present = list(range(case.instances))
    first = _converge(case, assignor, held, present, 1)
    _judge(case, held, present, first, tally)
    for event in case.events:
        present = sorted({*present, *event.added} - {*event.dropped})
        if not present:
            continue
        # Who comes back reports the tasks that it had, though others own them now.
        back = held[:, list(event.added)] > 0
        held[:, list(event.added)] = back
        converged = _converge(case, assignor, held, present, event.bound)
        tally.rounds.append(converged.rounds)
        tally.copies += converged.copies
        tally.restored += converged.restored
        _judge(case, held, present, converged, tally)


@dataclass(frozen=True)
class _Converged:
    """How often an assignor was asked, what it moved, whether it asks for another rebalance."""

    rounds: int
    copies: int
    restored: int
    pending: bool
    bound: int
    seconds: float


def _converge(
    case: _Case, assignor: Assignor, held: Ints, present: Sequence[int], bound: int
) -> _Converged:
    """Rebalance until no further one is asked for, or ten times as often as allowed."""
    at = np.array(present)
    copies = restored = rounds = 0
    seconds = 0.0
    pending = True
    while pending and rounds < 10 * bound:
        state = _state(case, held[:, at], present)
        began = time.process_time()
        assignment = assignor.assign(state)
        seconds += time.process_time() - began
        before = held[:, at] > 0
        placed = _placed(assignment)
        new = (placed > 0) & ~before & case.stateful[:, None]
        copies += int(new.sum())
        restored += _END * int(new.sum())
        held[:, at] = placed
        rounds += 1
        pending = assignment.probing_rebalance
    return _Converged(rounds, copies, restored, pending, bound, seconds)


def _placed(assignment: TaskAssignment) -> Ints:
    state = assignment.state
    placed = np.zeros((state.n_tasks, state.n_instances), np.int64)
    np.add.at(placed, (assignment.standby_task, assignment.standby_instance), 1)
    np.add.at(placed, (np.arange(state.n_tasks), assignment.active), 2)
    return placed


def _state(case: _Case, held: Ints, present: Sequence[int]) -> ApplicationState:
    """What members report: they have caught up with all that they hold."""
    task, instance = ((held > 0) & case.stateful[:, None]).nonzero()
    previous_task, previous = (held > 0).nonzero()
    return ApplicationState(
        instances=tuple(f"i{i:03}" for i in present),
        capacity=np.ones(len(present), np.int64),
        subtopology=case.subtopology,
        partition=case.partition,
        stateful=case.stateful,
        end_offset=np.where(case.stateful, _END, 0),
        lag_offset=np.searchsorted(task, np.arange(len(case.stateful) + 1)),
        lag_instance=instance,
        lag=np.where(held[task, instance] == 2, RUNNING, 0),
        previous_task=previous_task,
        previous_instance=previous,
        previous_active=held[previous_task, previous] == 2,
        resources=("records",),
        load=case.load,
        instance_capacity=np.full((len(present), 1), float(case.load.sum())),
    )


def _judge(
    case: _Case, held: Ints, present: Sequence[int], converged: _Converged, tally: _Tally
) -> None:
    """Judge the assignment that an event, or the start, has led to."""
    tally.seconds += converged.seconds
    tally.rebalances += converged.rounds
    tally.unconverged += converged.pending
    tally.beyond += converged.rounds > converged.bound
    here = held[:, list(present)]
    wanted = np.where(case.stateful, min(len(present), 1 + case.configs.num_standby_replicas), 1)
    valid = ((here > 0).sum(axis=1) == wanted).all() and ((here == 2).sum(axis=1) == 1).all()
    tally.invalid += not valid
    active = here == 2
    tally.uneven += int(np.ptp(active.sum(axis=0)) > 1)
    load = (active * case.load).sum(axis=0)
    least = max(float(load.mean()), float(case.load.max()))
    tally.excess.append(float(load.max()) / least - 1)
    if tally.proves:
        enough = float(load.max()) / _EVEN
        proven = proven_least(case.load[:, 0], len(present), enough)
        tally.beyond_least.append(float(load.max()) / proven - 1)


def _rows(tally: _Tally, *, own_time: bool) -> Iterator[tuple[str, float, str]]:
    events = len(tally.rounds)
    yield "seeds", tally.seeds, "seeds"
    yield "events", events, "events"
    yield "unconverged", tally.unconverged, "events"
    yield "beyond the bound of rounds", tally.beyond, "events"
    yield "with missing copies", tally.invalid, "events"
    yield "with task counts more than 1 apart", tally.uneven, "events"
    if events:
        yield "rounds per event", float(np.mean(tally.rounds)), "ratio"
        yield "rounds, worst", max(tally.rounds), "rounds"
        yield "copies moved per event", tally.copies / events, "ratio"
        yield "records restored per event", tally.restored / events, "records"
    yield "fullest instance beyond what tasks allow", 100 * float(np.mean(tally.excess)), "percent"
    yield "the same, worst", 100 * max(tally.excess), "percent"
    if tally.proves:
        many = sum(each > _EVEN - 1 + _ROUNDING for each in tally.beyond_least)
        yield "more than 5 % beyond what is proven possible", many, "events"
        yield "beyond what is proven possible, worst", 100 * max(tally.beyond_least), "percent"
    if own_time:
        yield "processor time per rebalance", tally.seconds / tally.rebalances, "seconds"
