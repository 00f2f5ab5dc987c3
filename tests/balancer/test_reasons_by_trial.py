"""What a plan says of further actions, compared with a trial of every action on tiny clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, examples, small
from hypothesis import example, given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation, OperationError, Plan
from balancer.planning.parameters import PlanningParameters
from balancer.planning.why_not import WhyNot, end_of, why_not
from balancer.problem.capacity_guards import capacity_guards
from balancer.problem.movement_cost import cost_unit, movement_cost
from balancer.problem.problem import Problem
from balancer.problem.resolution import ResolvedOperation, resolve
from balancer.problem.room_guards import room_guards
from balancer.problem.tiers import with_availability
from balancer.strategies import Proposal
from balancer.verification.checker import check_plan
from benchmarks.enumeration import tiny_cluster, tiny_goals, tiny_operation
from cluster_model import Snapshot
from cluster_model.errors import InputError
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Floats, Ints
from goals import Cluster, Goal
from metrics_reporter.quantities import cost_amount, plural

EPSILON = 1e-12


class Idle:
    """A strategy that leaves everything to be done."""

    name = "idle"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: Any = None
    ) -> Proposal:
        return Proposal(placement=problem.cluster.placement)


@dataclass
class Trial:
    """One action, tried at the end of a plan."""

    phrase: str
    legal: bool
    possible: bool
    gain: list[float] = field(default_factory=list)
    worse: list[bool] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)


class End:
    """The end of a plan, where every action is tried from scratch."""

    def __init__(self, plan: Plan, resolved: ResolvedOperation, goals: list[Goal], budget: Budget):
        s = plan.snapshot
        self.plan, self.resolved, self.budget = plan, resolved, budget.in_unit(cost_unit(s))
        chosen = [*resolved.goals(), *with_availability(goals)]
        every = [*chosen, *capacity_guards(s, chosen)]
        # in place of a limit that no placement keeps, the nearest feasible one counts
        used = {
            r.goal: {r.relaxed.parameter: r.relaxed.used} for r in plan.goal_results if r.relaxed
        }
        asked = [g.prepared(resolved.cluster) for g in chosen]
        every = [g.model_copy(update=used.get(g.name, {})) for g in every]
        self.goals = [g.prepared(resolved.cluster) for g in every]
        kept = self.goals[: len(chosen)]
        self.goals = [*self.goals, *room_guards(asked, kept, resolved.cluster)]
        self.now = self.scores(plan.placement)
        self.trials = list(self._trials())

    def scores(self, placement: Placement) -> list[Floats]:
        """All cells of all goals, with sums added up again."""
        c, fresh = self.resolved.cluster, placement.stated().copy()
        fresh.invalidate_sums()
        cluster = Cluster(fresh, c.eligible, c.leader_eligible, self.resolved.rules.draining)
        return [
            np.asarray(
                g.score(
                    cluster.partition_state() if g.scope.of_partitions else cluster.state(g.scope)
                )
            )
            for g in self.goals
        ]

    def _trials(self) -> Iterator[Trial]:
        placement, s, rules = self.plan.placement, self.plan.snapshot, self.resolved.rules
        for p in range(s.n_partitions):
            for slot in np.flatnonzero(placement.brokers[p] >= 0).tolist():
                own = int(placement.brokers[p, slot])
                if slot != placement.leader[p]:
                    yield self._tried(p, slot, LEAD, own, -1, ~rules.draining[own])
                for target in range(s.n_brokers):
                    disks = np.flatnonzero(s.disk_broker == target).tolist()
                    for disk in disks or [-1]:
                        takes = not rules.draining[target] and (disk < 0 or s.disk_open[disk])
                        if target not in placement.brokers[p]:
                            yield self._tried(p, slot, MOVE, target, disk, takes)
                        elif target == own and disks and disk != self._disk(p, slot):
                            yield self._tried(p, slot, MOVE_DISK, target, disk, takes)

    def _disk(self, p: int, slot: int) -> int:
        placement = self.plan.placement
        return int(placement.replica_disk[p * placement.slots + slot])

    def _tried(self, p: int, slot: int, kind: int, target: int, disk: int, takes: bool) -> Trial:
        placement, s, rules = self.plan.placement, self.plan.snapshot, self.resolved.rules
        one = np.array([p])
        batch = Batch.of(kind, one, one * 0 + slot, one * 0 + target, one * 0 + disk)
        source = int(placement.brokers[p, placement.leader[p] if kind == LEAD else slot])
        name, id_ = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}", s.broker_ids
        paths = ["", ""]
        if kind != LEAD and s.n_disks:
            paths = [s.disk_path[d] if d >= 0 else "" for d in (self._disk(p, slot), disk)]
        on = [f" ({path})" if path else "" for path in paths]
        phrase = f"moving {name} from broker {id_[source]}{on[0]} to broker {id_[target]}{on[1]}"
        if kind == LEAD:
            ends = f"from broker {id_[source]} to broker {id_[target]}"
            phrase = f"transferring the leadership of {name} {ends}"
        elif kind == MOVE_DISK:
            left = paths[0] or "an unknown disk"
            phrase = f"moving {name} on broker {id_[source]} from {left} to {paths[1]}"
        trial = Trial(
            phrase,
            bool(rules.legal(placement, batch)[0]),
            bool(takes and not rules.lost[p]),
        )
        after = placement.stated().copy()
        after.invalidate_sums()
        if kind == LEAD:
            after.leader[p] = slot
        else:
            after.brokers[p, slot] = target
            if s.n_disks:
                after.replica_disk[p * after.slots + slot] = disk
        for goal, old, new in zip(self.goals, self.now, self.scores(after), strict=True):
            cells = self._touched(goal, batch)
            old, new = old[cells], new[cells]
            if not len(cells):
                old = new = np.ones(1)
            trial.gain.append(float(new.min() - old.min()))
            trial.worse.append(bool((new < old * (1 - EPSILON)).any()))
            if not goal.hard:
                lacks = float(((1 - new) ** 2).sum() - ((1 - old) ** 2).sum()) > EPSILON
                lost = bool(((old >= 1) & (new < 1)).any())
                trial.worse[-1] = trial.gain[-1] < -EPSILON or lacks or lost
        used = self.plan.summary
        moves = used.replica_moves + used.disk_moves + used.replicas_added
        unit, most = cost_unit(s), self.budget.cost
        if kind != LEAD and self.budget.moves is not None and moves >= self.budget.moves:
            trial.limits.append(f"the limit of {plural(self.budget.moves, 'move')}")
        if most is not None and used.cost + movement_cost(placement, batch)[0] > most:
            trial.limits.append(f"the limit of {cost_amount(most, unit)}")
        return trial

    def _touched(self, goal: Goal, batch: Batch) -> Ints:
        placement = self.plan.placement
        if goal.scope.of_partitions:
            return batch.partition
        ends = (
            (placement.source(batch), placement.source_disk(batch)),
            (batch.target, placement.target_disk(batch)),
        )
        keys = [placement.keys(goal.scope, batch.partition, b, d) for b, d in ends]
        found = np.unique(np.concatenate(keys))
        return found[found >= 0]

    def stoppers(self, i: int, trial: Trial) -> dict[str, str]:
        """What stops an action that helps a goal: its name -> how, in the order of tiers."""
        found, goal = {}, self.goals[i]
        peers = [k for k, g in enumerate(self.goals) if g.tier == goal.tier]
        total = sum(self.goals[k].weight for k in peers)
        gain = sum(self.goals[k].weight / total * trial.gain[k] for k in peers)
        for k, other in sorted(enumerate(self.goals), key=lambda item: item[1].tier or 0):
            if other.hard or (other.tier or 0) < (goal.tier or 0):
                if trial.worse[k]:
                    guard = shown(other.name) != other.name
                    how = "guard" if guard else "hard" if other.hard else f"tier {other.tier}"
                    found[shown(other.name)] = how
            elif k in peers and gain <= EPSILON and trial.gain[k] < -EPSILON:
                found[other.name] = "same tier"
        return found | dict.fromkeys(trial.limits, "limit")


def clause(stops: dict[str, str]) -> str:
    """A pattern of why an action is stopped."""
    worse = [f"{n} ({how})" for n, how in stops.items() if how[:4] in ("hard", "tier")]
    parts = [f"it would make {listed(worse)} worse"] if worse else []
    over = [n for n, how in stops.items() if how == "guard"]
    parts += [f"it would exceed {listed(over)}"] if over else []
    peers = [f"{n} (same tier)" for n, how in stops.items() if how == "same tier"]
    parts += [f"it takes at least as much from {listed(peers)}"] if peers else []
    parts = [re.escape(part) for part in parts]
    for name in (n for n, how in stops.items() if how == "limit"):
        spent = "move" in name.split(" of ")[1]
        parts.append(f"{name} is spent" if spent else f"it costs .+?, .+? left of {name}")
    return listed(parts)


def listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shown(name: str) -> str:
    if name == "WholeDisk":
        return "the capacity of the disks"
    name = re.sub(r"TotalRoom\[(.*)\]", r"the total room within \1", name)
    return re.sub(r"WholeBroker\[(.*)\]", r"the capacity of \1", name)


def check_reason(end: End, i: int, reason: str) -> bool:
    """Compare a reason with the trials; returns whether it speaks of actions."""
    helpful = [t for t in end.trials if t.gain[i] > EPSILON]
    allowed = [t for t in helpful if t.legal]
    stops = [end.stoppers(i, t) for t in allowed]
    if (
        said := re.search(r"(no|\d+) allowed single actions? (?:would help|helps)", reason)
    ) is None:
        return False
    assert (0 if said[1] == "no" else int(said[1])) == len(allowed), reason
    free = [t for t, by in zip(allowed, stops, strict=True) if not by]
    said = re.search(r"nothing stops (?:(\d+) of them|it|them), such as (.*?); the search", reason)
    assert bool(free) == bool(said), reason
    if said:
        assert int(said[1] or len(allowed)) == len(free)
        best = max(t.gain[i] for t in free)
        (example,) = [t for t in free if t.phrase == said[2]]
        assert example.gain[i] == pytest.approx(best)
    listed = re.search(r"(?:stopped|the rest): (.*?)(?:; the best|; \d+ actions? had|$)", reason)
    counted = re.findall(
        r"(\d+) by ([^()]*?)(?: \(([^()]*)\))?(?:, (?=\d|others)|$)", listed[1] if listed else ""
    )
    assert bool(counted) == any(stops), reason
    impossible = {u.goal for u in end.plan.unmet if u.proven}
    for number, name, remarks in counted:
        own = [by for by in stops if name in by]
        assert int(number) == len(own) > 0, (name, reason)
        remarks = f", {remarks},"
        assert own[0][name] in ("guard", "limit") or f", {own[0][name]}," in remarks
        assert (", no placement meets it," in remarks) == (name in impossible)
        alone = sum(len(by) == 1 for by in own)
        told = re.search(r"(all|\d+) of them alone", remarks)
        if len({n for by in stops for n in by}) > 1:
            assert (told is None) == (alone == 0)
            assert told is None or alone == (len(own) if told[1] == "all" else int(told[1]))
    if allowed and not free:
        said = re.search(r"; the best, (.*?), because ", reason)
        assert said, reason
        best = max(t.gain[i] for t in allowed)
        (row,) = [k for k, t in enumerate(allowed) if t.phrase == said[1]]
        assert allowed[row].gain[i] == pytest.approx(best)
        assert re.match(rf"{clause(stops[row])}(; |$)", reason[said.end() :]), reason
    said = re.search(r"; (\d+) others? would help, and only rules forbid (?:it|them)", reason)
    barred = [t for t in helpful if not t.legal and t.possible and not end.stoppers(i, t)]
    if not free:
        assert (int(said[1]) if said else 0) == len(barred), reason
    return True


def proposed(
    rng: np.random.Generator, planning: PlanningParameters | None = None
) -> tuple[Plan, End] | None:
    snapshot: Snapshot = tiny_cluster(rng)
    operation: Operation = tiny_operation(rng, snapshot)
    goals = tiny_goals(rng, snapshot)
    tiers = int(rng.integers(1, 5))
    if rng.random() < 0.5:
        goals = [
            g.model_copy(
                update={
                    "tier": k * tiers // len(goals),
                    "hard": bool(g.hard and rng.random() < 0.5),
                }
            )
            for k, g in enumerate(goals)
        ]
    limit = rng.random()
    budget = Budget(moves=int(rng.integers(0, 3))) if limit < 0.3 else Budget()
    if limit > 0.8:
        budget = Budget(cost=float(rng.integers(0, 12)))
    strategy: Any = Idle() if rng.random() < 0.4 else QUICK
    try:
        plan = Balancer(goals, budget=budget, strategy=strategy, planning=planning).propose(
            snapshot, operation
        )
        return plan, End(plan, resolve(snapshot, operation), goals, budget)
    except OperationError:
        return None


@examples(5)
@given(st.integers(0, 2**31))
@example(1157)
@example(2498018)
def test_what_a_plan_says_of_further_actions_is_what_their_trial_shows(seed: int) -> None:
    made = proposed(np.random.default_rng(seed))
    if made is None:
        return
    plan, end = made
    assert check_plan(plan.snapshot, plan.document()).ok, check_plan(
        plan.snapshot, plan.document()
    ).mismatches
    names = [g.name for g in end.goals]
    for one in plan.unmet:
        if not one.proven:
            check_reason(end, names.index(one.goal), one.reason)


@examples(5)
@given(st.integers(0, 2**31), st.integers(1, 8))
@example(12, 1)
def test_what_a_sample_shows_is_true_of_its_actions(seed: int, most: int) -> None:
    sampled = PlanningParameters(examined_actions=1, sampled_actions=most, sampled_cells=2)
    made = proposed(np.random.default_rng(seed), sampled)
    if made is None:
        return
    plan, end = made
    assert check_plan(plan.snapshot, plan.document()).ok
    names, trials = [g.name for g in end.goals], {t.phrase: t for t in end.trials}
    for one in plan.unmet:
        i, reason = names.index(one.goal), one.reason
        helpful = [t for t in end.trials if t.gain[i] > EPSILON and t.legal]
        if one.proven:
            continue
        if "no allowed single action helps" in reason:
            assert not helpful, reason
        counted = r"(\d+) (?:of (\d+) )?allowed single actions?(?: examined)? would help"
        if said := re.search(counted, reason):
            assert int(said[1]) <= min(len(helpful), int(said[2] or said[1])), reason
        if said := re.search(r"such as (.*?); the search", reason):
            assert trials[said[1]] in helpful
            assert not end.stoppers(i, trials[said[1]])
        elif said := re.search(r"stopped: .*?; the best, (.*?), because ", reason):
            assert trials[said[1]] in helpful
            stops = end.stoppers(i, trials[said[1]])
            assert re.match(rf"{clause(stops)}(; |$)", reason[said.end() :]), reason
        if said := re.search(r"rules forbid (?:it|them): .*?; the best, (.*?), because ", reason):
            barred = trials[said[1]]
            assert barred.gain[i] > EPSILON
            assert not barred.legal
            assert not end.stoppers(i, barred)


@examples(5)
@given(st.integers(0, 2**31))
def test_why_not_states_what_a_trial_shows(seed: int) -> None:
    made = proposed(np.random.default_rng(seed))
    if made is None:
        return
    plan, end = made
    s, placement = plan.snapshot, plan.placement
    trials = {t.phrase: t for t in end.trials}
    read = end_of(s, plan.document())
    for p in range(s.n_partitions):
        name = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
        for b, id_ in enumerate(s.broker_ids.tolist()):
            answers = plan.why_not(name, id_)
            assert [a.verdict for a in why_not(read, name, id_)] == [a.verdict for a in answers]
            leads = placement.brokers[p, placement.leader[p]] == b
            assert bool(answers) != leads
            for answer in answers:
                if (trial := trials.get(answer.action)) is None:
                    # every disk of the broker is closed
                    assert answer.forbidden
                    continue
                check_answer(end, trial, answer)


def check_answer(end: End, trial: Trial, answer: WhyNot) -> None:
    assert trial.legal == (not answer.forbidden), answer
    names = [shown(g.name) for g in end.goals]
    assert [g.goal for g in answer.goals] == names
    for gain, found in zip(trial.gain, answer.goals, strict=True):
        assert found.after - found.before == pytest.approx(gain, abs=1e-9)
    helped = [i for i, gain in enumerate(trial.gain) if gain > EPSILON]
    assert {*answer.helps} <= {end.goals[i].name for i in helped}
    assert bool(answer.helps) == bool(helped)
    if helped:
        stops = [end.stoppers(i, trial) for i in helped]
        # it serves the first tier where nothing stops it, or the first that it helps
        first = next((by for by in stops if not by), stops[0])
        assert re.fullmatch(clause(first), answer.stopped) if first else not answer.stopped
        marked = {g.goal for g in answer.goals if g.effect == "stops"}
        assert marked == {name for name, how in first.items() if how != "limit"}


def test_why_not_names_the_budget_that_is_left() -> None:
    snapshot = small(utilization=0.5)
    plan = Balancer("default", budget=Budget(moves=3, cost=1e15)).propose(snapshot)
    answer = plan.why_not("topic-0-0", 5)[0]
    assert answer.moves_left == 3 - plan.summary.replica_moves
    assert answer.cost_left == 1e15 - plan.summary.cost
    assert answer.cost > 0
    assert answer.cost_unit == "bytes"


@pytest.mark.parametrize(
    ("partition", "broker", "sentence"),
    [
        ("topic-0-777", 1, "partition 'topic-0-777' found, one of the snapshot like orders-3"),
        ("orders", 1, "partition 'orders' found"),
        ("topic-0-0", 77, "77"),
    ],
)
def test_why_not_refuses_what_the_snapshot_does_not_have(
    partition: str, broker: int, sentence: str
) -> None:
    plan = Balancer("default", strategy=QUICK).propose(small())
    with pytest.raises(InputError, match=sentence):
        plan.why_not(partition, broker)
