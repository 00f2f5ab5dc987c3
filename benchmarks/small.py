"""Compares plans of small clusters with the best that any placement, and any safe order, allows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track

import goals as library
from balancer import Balancer, Operation, Plan
from balancer.planning.infeasibility import NO_ORDER
from balancer.problem.capacity_guards import capacity_guards
from balancer.verification.checker import check_plan
from benchmarks.enumeration import Enumeration, TooManyError
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Floats
from goals import Goal
from goals.capacity import Ceiling

_CLUSTERS = {"S": 40, "M": 1_000}
_MOST_PLACEMENTS = 60_000
_RESOURCES = ("disk", "network_in", "network_out", "cpu")
# two sums of the same scores differ by about this much
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What all placements of a cluster say about a plan for it.

    Parameters
    ----------
    unmet
        Whether a hard goal is unmet.
    missed
        Hard goals that the plan leaves unmet, although a safe order of steps leads to a placement
        that meets them and all those that the plan meets, makes no goal of a tier above worse, and
        no hard limit harder to keep.
    unreached
        Hard goals that the plan leaves unmet where no safe order leads to such a placement, though
        there is one, with no cell of a hard goal less content than at the start.
    silent
        Those of them of which the plan does not say so.
    wrong
        Goals of which it says so, though a safe order leads to such a placement, or none exists.
    again
        Actions of a plan for its result.
    copied
        What it copies.
    least
        The least that must be copied, in a safe order, to a placement that meets every goal that
        the plan meets and is as content with each other one.
    faults
        Findings of the independent checker.
    """

    unmet: bool
    missed: tuple[str, ...]
    unreached: tuple[str, ...]
    silent: tuple[str, ...]
    wrong: tuple[str, ...]
    again: int
    copied: float
    least: float
    faults: tuple[str, ...]

    @property
    def wasteful(self) -> bool:
        """Whether the plan copies more than the least."""
        return self.copied > self.least * (1 + _ROUNDING)


@benchmark("small", sizes=tuple(_CLUSTERS))
def small(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Clusters of 3 to 5 brokers whose placements are all enumerated: goals missed, bytes too many.

    A plan is missing a hard goal if a safe order of steps leads to a placement that meets it and
    all hard goals that the plan meets. That, or a finding of the independent checker, is a failure
    of the benchmark. ``--seed`` is the seed of the first cluster, ``--rounds`` how many there are.
    """
    for size in sizes:
        began, found = time.perf_counter(), Counter[str]()
        copied = least = 0.0
        console = Console(stderr=True)
        seeds = range(options.seed, options.seed + (options.rounds or _CLUSTERS[size]))
        for seed in track(seeds, f"small {size}", console=console, disable=not console.is_terminal):
            one = judged(seed)
            found["unmet"] += one.unmet
            found["unreached"] += bool(one.unreached)
            found["silent"] += bool(one.silent)
            for name, wrong in (
                ("missed", ", ".join(one.missed)),
                ("wrong", ", ".join(one.wrong)),
                ("again", str(one.again or "")),
                ("more", f"{one.copied:g} copied, {one.least:g}" if one.wasteful else ""),
                ("faults", "; ".join(one.faults)),
            ):
                if wrong:
                    found[name] += 1
                    options.log(f"small, seed {seed}: {name}: {wrong}")
            copied, least = copied + one.copied, least + one.least
        for metric, value, unit in (
            ("clusters", len(seeds), "clusters"),
            ("hard goals unmet", found["unmet"], "clusters"),
            ("hard goals missed", found["missed"], "clusters"),
            ("hard goals without a safe order", found["unreached"], "clusters"),
            ("of these, not told apart", found["silent"], "clusters"),
            ("wrongly said to have no safe order", found["wrong"], "clusters"),
            ("plans with more on their result", found["again"], "clusters"),
            ("plans that copy more than needed", found["more"], "clusters"),
            ("bytes beyond the least", 100 * (copied / least - 1) if least else 0.0, "percent"),
            ("findings of the checker", found["faults"], "clusters"),
            ("seconds", time.perf_counter() - began, "seconds"),
        ):
            yield Row("small", size, "counterpoise", metric, float(value), unit)
        if found["missed"] or found["faults"]:
            raise BenchmarkError(f"small {size}: {found['missed'] + found['faults']} wrong plans")


def judged(seed: int) -> Judgement:
    """The plan for a random small cluster, compared with all of its placements."""
    snapshot, stated, every = small_case(seed)
    balancer = Balancer(stated)
    return judge(balancer, balancer.propose(snapshot), every)


def judge(balancer: Balancer, plan: Plan, every: Enumeration) -> Judgement:
    """Compare a plan of a balancer with all placements.

    Raises
    ------
    ValueError
        If the plan ends in a placement that is not among them.
    """
    end = every.place(plan.placement)
    if end is None:
        raise ValueError("the plan ends in a placement that was not enumerated")
    used, asked = list[Goal](), list[Goal]()
    for stated, result in zip(plan.goals, plan.goal_results, strict=True):
        own = {k: v for k, v in stated.items() if k not in ("goal", "name")}
        asked.append(getattr(library, str(stated["goal"]))(**own).prepared(every.cluster))
        if result.relaxed is not None:
            own[result.relaxed.parameter] = result.relaxed.used
        used.append(getattr(library, str(stated["goal"]))(**own).prepared(every.cluster))
    met = {g.name: every.met(g) for g in asked}
    guards = [g.prepared(every.cluster) for g in capacity_guards(plan.snapshot, asked)]
    reached = every.safely_reached([*(g for g in used if g.hard), *guards])
    hard = [g.name for g in asked if g.hard]
    kept = np.logical_and.reduce([met[n] for n in hard if met[n][end]] or [np.ones_like(reached)])
    sound = kept.copy()
    begin = every.place(Placement(plan.snapshot))
    assert begin is not None
    for goal in [*(g for g in used if g.hard), *guards]:
        sound &= every.no_less_content(goal, begin)
    for goal, obeyed in zip(asked, used, strict=True):
        sound &= _room_is_left(every, goal, obeyed, begin)
    unmet = [name for name in hard if not met[name][end]]
    tier = {r.goal: r.tier for r in plan.goal_results}
    better = {}
    for name in unmet:
        above = [g for g in asked if tier[g.name] < tier[name]]
        better[name] = met[name] & sound & _as_content(every, above, met, end)
    again = balancer.propose(plan.final_snapshot())
    report = check_plan(plan.snapshot, plan.document())
    alike = kept & reached & _as_content(every, [*asked, *guards], met, end)
    copied = plan.summary.cost
    unreached = [n for n in unmet if better[n].any() and not (better[n] & reached).any()]
    said = {u.goal for u in plan.unmet if NO_ORDER in u.reason}
    return Judgement(
        unmet=bool(unmet),
        missed=tuple(n for n in unmet if (better[n] & reached).any()),
        unreached=tuple(unreached),
        silent=tuple(n for n in unreached if n not in said),
        wrong=tuple(
            n for n in said if not met[n].any() or (n in better and (better[n] & reached).any())
        ),
        again=len(again),
        copied=copied,
        least=float(every.copied[alike].min(initial=copied)),
        faults=tuple(fault.text for fault in (*report.violations, *report.mismatches)),
    )


def _room_is_left(every: Enumeration, goal: Goal, used: Goal, begin: int) -> Bools:
    """(M,) placements that make a hard limit on brokers no harder to keep (docs/plan.md).

    From brokers that are emptied, the others take what the limit allows in total. If they hold more
    than that already, they take all if the limit used allows it, as one does that yields to
    healing, and nothing otherwise.
    """
    every_one = np.ones(every.count, np.bool_)
    emptied = every.cluster.draining
    if not (goal.hard and isinstance(goal, Ceiling) and goal.scope.name == "broker"):
        return every_one
    assert isinstance(used, Ceiling)
    load = every.sums(str(goal.column))
    held, rest = load[begin, emptied].sum(), load[begin, ~emptied].sum()
    lead, follow = every.cluster.placement.contribution(goal.column)
    limit, obeyed = (g.limits(every.cluster)[~emptied].sum() for g in (goal, used))
    if (obeyed > limit and held + rest <= obeyed) or (follow > lead).any():
        return every_one
    least = held - max(limit - rest, 0.0)
    enough: Bools = load[:, emptied].sum(1) >= least * (1 - _ROUNDING)
    return enough


def _as_content(
    every: Enumeration, goals: Sequence[Goal], met: dict[str, Bools], end: int
) -> Bools:
    """(M,) placements with which no goal is less content than with the end of a plan."""
    found = np.ones(every.count, np.bool_)
    for goal in goals:
        lack = every.lack(goal)
        found &= lack <= lack[end] + _ROUNDING
        if goal.name in met:
            found &= met[goal.name] | ~met[goal.name][end]
    return found


def small_case(seed: int) -> tuple[Snapshot, str | list[Goal], Enumeration]:
    """A random small cluster, a profile or goals for it, and all of its placements."""
    rng = np.random.default_rng([seed, 12])
    while True:
        snapshot = small_cluster(rng)
        try:
            every = Enumeration(snapshot, Operation(), _MOST_PLACEMENTS)
        except TooManyError:
            continue
        return snapshot, "default" if rng.random() < 0.6 else _some_goals(rng), every


def small_cluster(rng: np.random.Generator) -> Snapshot:
    """3 to 5 brokers in 2 or 3 racks with 4 to 7 partitions; often tight, some with a dead one."""
    n, p = int(rng.integers(3, 6)), int(rng.integers(4, 8))
    racks = int(rng.integers(2, 4))
    most = racks if rng.random() < 0.9 else 3
    factor = np.full(p, int(rng.integers(1, most + 1)))
    if rng.random() < 0.3:
        factor = rng.integers(1, most + 1, p)
    held = [rng.permutation(n)[:f] for f in factor]
    lead: Floats = rng.lognormal(0, float(rng.uniform(0.2, 1.2)), (p, len(_RESOURCES)))
    follow = lead * [1.0, 1.0, float(rng.choice([0.0, 0.2])), float(rng.choice([0.5, 1.0]))]
    dead = np.zeros(n, np.bool_)
    if rng.random() < 0.35:
        dead[rng.integers(n)] = True
    # mean use as a share of the capacity of the living brokers
    use = rng.uniform(0.2, float(rng.uniform(0.4, 0.7)), len(_RESOURCES))
    total = lead.sum(0) + (follow * (factor - 1)[:, None]).sum(0)
    size = np.exp(rng.normal(0, float(rng.choice([0.0, 0.0, 0.4])), n))
    capacity = size[:, None] / size[~dead].sum() * (total / use)
    return Snapshot(
        resources=_RESOURCES,
        broker_ids=np.arange(n) + 1,
        racks=tuple(f"r{i}" for i in range(racks)),
        broker_rack=rng.permutation(np.arange(n) % racks),
        hosts=tuple(f"h{i}" for i in range(n)),
        broker_host=np.arange(n),
        broker_state=np.where(dead, BrokerState.DEAD, BrokerState.ALIVE),
        capacity=capacity,
        topics=("t0", "t1"),
        partition_topic=np.sort(rng.integers(0, 2, p)),
        partition_number=np.arange(p),
        leader_load=lead,
        follower_load=follow,
        replica_offset=np.concatenate([[0], np.cumsum(factor)]),
        replica_broker=np.concatenate(held),
        leader=np.zeros(p, np.int64),
    )


def _some_goals(rng: np.random.Generator) -> list[Goal]:
    """Hard and soft goals in random tiers, some of them tight."""
    resource, other = (str(r) for r in rng.permutation(_RESOURCES)[:2])
    every: list[Goal] = [
        library.RackAwareness(),
        library.ReplicaCapacity(limit=int(rng.integers(3, 7))),
        library.ResourceCapacity(resource=resource),
        library.ResourceCapacity(resource=other, hard=bool(rng.random() < 0.5)),
        library.MinTopicLeaders(topics="t0", minimum=1),
        library.UsageDistribution(resource=resource, threshold=float(rng.uniform(1.05, 1.5))),
        library.UsageDistribution(resource=other, hard=bool(rng.random() < 0.3)),
        library.ReplicaDistribution(hard=bool(rng.random() < 0.3)),
        library.LeaderReplicaDistribution(),
        library.TopicReplicaDistribution(min_gap=0),
        library.PotentialNetworkOut(hard=bool(rng.random() < 0.3)),
        library.LeaderBytesInDistribution(),
    ]
    chosen = [goal for goal in every if rng.random() < 0.5] or every[:1]
    return [goal.model_copy(update={"tier": int(rng.integers(0, 3))}) for goal in chosen]
