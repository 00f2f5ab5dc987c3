"""Algorithm 1: the order of its steps, and their effect on a job period by period."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from collocation_cases import ROUNDS, MemoryJob, allocation, streams

from balancer.allocation.drain import drain
from balancer.allocation.errors import AllocationError
from balancer.allocation.problem import Allocation
from balancer.allocation.solver import solve
from balancer.allocation.units import Units
from balancer.autoscaling.utilisation import Scale, Utilisation
from balancer.collocation.adaptation import Adaptation
from balancer.collocation.albic import albic
from cluster_model import Snapshot
from cluster_model.snapshot import Ints


def by_milp(units: Units) -> Ints:
    return solve(units.problem, rounds=ROUNDS).node


def by_albic(units: Units) -> Ints:
    return albic(units, rounds=ROUNDS).solution.node


def job(load: float = 2.0, brokers: int = 4, each: int = 5) -> Snapshot:
    ids = range(1, brokers + 1)
    count = brokers * each
    rng = np.random.default_rng(1)
    return streams(
        {"sum": (load * rng.uniform(0.8, 1.2, count)).tolist()},
        {"sum": [1 + i % brokers for i in range(count)]},
        ids=ids,
    )


def test_marked_brokers_are_retired_in_the_period_after_they_are_empty() -> None:
    run = MemoryJob(job())
    loop = Adaptation(run, by_milp, None, budget=4, removing=(2,))
    periods = [loop.period() for _ in range(4)]
    assert [p.retired for p in periods] == [(), (), (2,), ()]
    assert all(p.migrations <= 4 for p in periods)
    assert (loop.removing, run.now.broker_ids.tolist()) == ((), [1, 3, 4])


@pytest.mark.slow
def test_scale_in_ends_in_balance_and_sooner_if_it_is_integrated() -> None:
    def distances(integrated: bool) -> list[float]:
        hot = job(brokers=6)
        skewed = np.where(hot.replica_broker[:, None] == 0, 3.0, 1.0) * hot.leader_load
        run = MemoryJob(replace(hot, leader_load=skewed))
        loop = Adaptation(run, by_milp, None, budget=3, integrated=integrated, removing=(5, 6))
        periods = [loop.period() for _ in range(8)]
        assert run.now.broker_ids.tolist() == [1, 2, 3, 4]
        assert periods[-1].distance < 1
        # what is urgent is done first, or what was asked first
        before = periods[0].units.problem
        leaving = before.removed[before.node]
        moved = periods[0].node != before.node
        assert moved[~leaving].any() == integrated
        return [period.distance for period in periods[:5]]

    sooner, later = distances(True), distances(False)
    assert all(a <= b + 1e-9 for a, b in zip(sooner, later, strict=True))
    assert sum(sooner) < sum(later) / 2


def test_what_is_too_large_to_help_anyone_leaves_all_the_same() -> None:
    """Without it, the load distance is less if the last unit stays where it is."""
    run = MemoryJob(streams({"sum": [2, 2, 1]}, {"sum": [1, 2, 3]}, ids=(1, 2, 3)))
    loop = Adaptation(run, by_milp, None, removing=(3,))
    loop.period()
    assert loop.period().retired == (3,)


def test_a_plan_comes_before_the_decision_and_another_after_it() -> None:
    run = MemoryJob(job())
    calls: list[tuple[str, int, float]] = []

    def plan(units: Units) -> Ints:
        calls.append(("plan", len(units.problem.weight), int(units.problem.removed.sum())))
        return by_milp(units)

    def scaling(problem: Allocation, node: Ints) -> Scale:
        calls.append(("decide", len(problem.weight), round(problem.distance(node), 6)))
        return Scale(start=2)

    period = Adaptation(run, plan, scaling).period()
    assert [c[:2] for c in calls] == [("plan", 4), ("decide", 4), ("plan", 6)]
    assert period.units.problem.weight.shape == (6,)
    assert len(set(run.now.replica_broker.tolist())) == 6

    calls.clear()
    period = Adaptation(run, plan, lambda *_: Scale(remove=(1,)), budget=0).period()
    assert calls == [("plan", 6, 0), ("plan", 6, 1)]
    assert period.migrations == 0


def test_a_plan_goes_to_the_brokers_it_was_made_for() -> None:
    class Growing(MemoryJob):
        """A broker with a lower id joins after every look at the job."""

        looks = 0
        applied: Ints = np.empty(0, np.int64)

        def snapshot(self) -> Snapshot:
            seen = self.now
            self.looks += 1
            joined = streams(
                {"sum": seen.leader_load[:, 0].tolist()},
                {"sum": seen.broker_ids[seen.replica_broker].tolist()},
                ids=[100 - self.looks, *seen.broker_ids.tolist()],
            )
            self.now = joined
            return seen

        def apply(self, brokers: Ints) -> None:
            self.applied = brokers

    run = Growing(streams({"sum": [4.0] * 8}, {"sum": [101] * 8}, ids=(101, 102, 103, 104)))
    period = Adaptation(run, by_milp, None).period()
    assert run.applied.tolist() == np.array([101, 102, 103, 104])[period.node].tolist()
    assert sorted(set(run.applied.tolist())) == [101, 102, 103, 104]


def test_nothing_is_applied_where_nothing_migrates() -> None:
    class Untouched(MemoryJob):
        def apply(self, brokers: Ints) -> None:
            raise AssertionError(brokers)

    Adaptation(Untouched(job()), by_milp, None, budget=0).period()


def test_brokers_that_were_to_leave_are_kept_before_others_are_started() -> None:
    run = MemoryJob(job())
    loop = Adaptation(run, by_milp, lambda *_: Scale(start=2), budget=0, removing=(3,))
    loop.period()
    assert (loop.removing, run.started) == ((), 1)


@pytest.mark.soak
def test_load_that_grows_and_falls_takes_brokers_and_lets_go_of_them() -> None:
    run = MemoryJob(job(load=10.0))
    loop = Adaptation(run, by_albic)
    assert not loop.period().scale
    run.now = replace(run.now, leader_load=1.9 * run.now.leader_load)
    assert loop.period().scale.start == 3
    assert len(run.now.broker_ids) == 7
    assert not loop.period().scale
    run.now = replace(run.now, leader_load=0.4 * run.now.leader_load)
    sizes = []
    for _ in range(6):
        loop.period()
        sizes.append(len(run.now.broker_ids))
    assert sizes[-1] == 3
    assert loop.removing == ()


@pytest.mark.parametrize(
    ("loads", "node", "scale"),
    [
        # one node has too much, and all together do not: balance is what lacks
        ([90.0, 10.0, 10.0], [0, 1, 2], Scale()),
        ([90.0, 70.0, 80.0], [0, 1, 2], Scale(start=1)),
        ([100.0, 100.0, 100.0], [0, 1, 2], Scale(start=2)),
        ([50.0, 50.0, 50.0], [0, 1, 2], Scale()),
        ([20.0, 15.0, 25.0], [0, 1, 2], Scale(remove=(0, 1))),
        # the others could not carry it evenly enough
        ([75.0, 5.0, 5.0], [0, 1, 2], Scale()),
        ([0.0, 0.0, 0.0], [0, 1, 2], Scale(remove=(0, 1))),
    ],
)
def test_the_rule_of_utilisation(loads: list[float], node: list[int], scale: Scale) -> None:
    problem = allocation(loads, node, 3)
    assert Utilisation()(problem, problem.node) == scale


def test_nothing_more_is_removed_while_something_leaves() -> None:
    leaving = allocation([10.0, 10.0, 10.0], [0, 1, 2], 3, removed=(2,))
    assert Utilisation()(leaving, leaving.node) == Scale()
    assert Utilisation()(leaving, np.array([0, 1, 1])) == Scale(remove=(0,))


def test_marks_of_utilisation_ascend() -> None:
    with pytest.raises(AllocationError, match=r"low 50, target 40 and high 80 found"):
        Utilisation(low=50, target=40)


def test_draining_spreads_evenly_within_budget_and_room() -> None:
    p = allocation([4.0, 4.0, 3.0, 2.0, 1.0], [0, 0, 2, 2, 2], 3, removed=(2,), budget=2)
    assert drain(p, p.node).tolist() == [0, 0, 1, 1, 2]
    no_room = replace(p, further=np.ones((5, 1)), ceiling=np.array([[5.0], [1.0], [5.0]]))
    assert drain(no_room, p.node).tolist() == [0, 0, 1, 0, 2]
