"""Queues by hand, conservation of events, and the policies on the published trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from balancer_cases import long
from hypothesis import given
from hypothesis import strategies as st

from balancer.autoscaling.baselines import Keda, LatencyAware, Linear
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.policies import POLICIES as named
from balancer.autoscaling.policy import Decision, Policy, become, stay
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.simulation import Setting, coming, simulate
from benchmarks import sla, workloads
from benchmarks.harness.arrivals import events
from cluster_model.snapshot import Ints


@dataclass(frozen=True)
class Script:
    """Makes given assignments at given times."""

    steps: dict[float, list[int]]

    def decide(self, group: Group, now: float) -> Decision:
        """The step of a time, if there is one."""
        if now in self.steps:
            return become(group, np.array(self.steps[now]), "as written")
        return stay(group, "as written")


def test_one_queue_by_hand() -> None:
    # 0.1 s each: the second event waits for the first, the third does not
    found = simulate(
        np.array([0.5, 0.55, 1.5]),
        np.zeros(3, np.int64),
        1,
        Script({0.0: [0]}),
        Setting(capacities=(10.0,), heartbeat=0.0, rebalance_seconds=0.0),
    )
    assert found.latency == pytest.approx([0.1, 0.15, 0.1])
    assert found.replica_minutes == pytest.approx(2 / 60)
    assert (found.ups, found.downs, found.rebalances) == (0, 0, 0)


def test_events_wait_for_a_rebalance() -> None:
    # at 1 s partition 1 moves to a new consumer; both are blocked from 1.0 to 1.3
    arrival, partition = np.array([1.1, 1.2, 1.9]), np.array([0, 1, 1])
    script = Script({0.0: [0, 0], 1.0: [0, 1]})
    setting = Setting(capacities=(10.0,), heartbeat=0.0, rebalance_seconds=0.3)
    found = simulate(arrival, partition, 2, script, setting)
    assert found.latency == pytest.approx([0.3, 0.2, 0.1])
    assert found.reader.tolist() == [0, 1, 1]
    assert found.ups == 1
    # where only what moves is blocked, partition 0 does not wait
    setting = Setting(capacities=(10.0,), heartbeat=0.0, rebalance_seconds=0.3, blocking=False)
    assert simulate(arrival, partition, 2, script, setting).latency == pytest.approx(
        [0.1, 0.2, 0.1]
    )


@pytest.mark.parametrize("eager", [False, True])
def test_in_an_eager_group_a_consumer_stops_at_its_own_heartbeat(eager: bool) -> None:
    """At 1 s partitions change places; 0.3 s after the last heartbeat they are read again."""
    beats = 1.0 + np.random.default_rng(1).uniform(0, 1, 2)
    first, last = int(np.argmin(beats)), float(beats.max())
    # one event of the consumer that hears of it first, just after it has
    arrival = np.array([float(beats.min()) + 0.01])
    found = simulate(
        arrival,
        np.array([first]),
        2,
        Script({0.0: [0, 1], 1.0: [1, 0]}),
        Setting(capacities=(100.0,), heartbeat=1.0, rebalance_seconds=0.3, seed=1, eager=eager),
    )
    waits = last + 0.3 - float(arrival[0]) if eager else 0.0
    assert last > arrival[0]
    assert found.latency.tolist() == pytest.approx([waits + 0.01])
    assert found.reader.tolist() == [1 - first if eager else first]


def test_partitions_of_a_consumer_that_leaves_wait_for_a_heartbeat() -> None:
    arrival, partition = np.array([1.01, 2.9, 9.0]), np.array([1, 0, 1])
    script = Script({0.0: [0, 1], 1.0: [0, 0]})
    setting = Setting(capacities=(10.0,), heartbeat=3.0, rebalance_seconds=0.0, seed=3)
    found = simulate(arrival, partition, 2, script, setting)
    heartbeat = np.random.default_rng(3).uniform(0, 3)
    # the first change is heard of when consumers start; at 1 s the next heartbeat of consumer 0
    assert found.reader.tolist() == [0, 0, 0]
    told = heartbeat if heartbeat >= 1.0 else heartbeat + 3.0
    assert found.latency[0] == pytest.approx(told - 1.01 + 0.1)
    assert found.downs == 1


def test_consumers_may_differ() -> None:
    found = simulate(
        np.array([0.5, 0.5]),
        np.array([0, 1]),
        2,
        Script({0.0: [0, 1]}),
        Setting(capacities=(10.0, 5.0), heartbeat=0.0, rebalance_seconds=0.0),
    )
    assert found.latency == pytest.approx([0.1, 0.2])


POLICIES = {
    "ours": RepairPolicy,
    "algorithm 2": LatencyAware,
    "linear": Linear,
    "keda": Keda,
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_event_is_processed_once_and_in_order(name: str) -> None:
    @given(
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=60),
        st.sampled_from([0.0, 0.5, 3.0]),
        st.booleans(),
    )
    def holds(drawn: list[tuple[int, int]], heartbeat: float, blocking: bool) -> None:
        drawn.sort()
        arrival = np.array([a / 40 for a, _ in drawn])
        partition = np.array([p for _, p in drawn], np.int64)
        policy: Policy = POLICIES[name]()
        setting = Setting(capacities=(5.0, 3.0), heartbeat=heartbeat, blocking=blocking)
        found = simulate(arrival, partition, 4, policy, setting)
        assert np.isfinite(found.latency).all()
        assert (found.reader >= 0).all()
        done = arrival + found.latency
        service = np.array([1 / 5, 1 / 3])[found.reader % 2]
        assert (found.latency >= service - 1e-9).all()
        for reader in set(found.reader.tolist()):
            mine = found.reader == reader
            began = np.sort((done - service)[mine])
            assert (began[1:] >= np.sort(done[mine])[:-1] - 1e-9).all()
        for p in range(4):
            of = partition == p
            assert (np.diff((done - service)[of]) >= -1e-9).all()

    holds()


def test_events_of_each_interval() -> None:
    found = coming(np.array([0.0, 0.5, 1.0, 2.5]), np.array([0, 1, 0, 1]), 2, 1.0)
    # events that arrive just at the beginning already wait
    assert found.tolist() == [[0, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize("kind", ["eager", *long("cooperative")])
@pytest.mark.parametrize("size", ["ramp", *long("steps", "bursts", "day", "skewed", "hot")])
def test_no_policy_is_better_in_both_figures(size: str, kind: str) -> None:
    drawn = workloads.WORKLOADS[size]()
    found = [workloads.run(drawn, name, 10.0, kind) for name in named]
    assert next(iter(named)) == workloads.OURS
    ours, *others = ((o.within(5.0), o.replica_minutes) for o in found)
    assert not [o for o in others if o[0] > ours[0] + 5e-5 and o[1] < ours[1]]
    assert ours[1] <= 1.1 * min((cost for within, cost in others if within >= ours[0]), default=1e9)


@pytest.mark.parametrize("size", ["10min, heartbeat 3 s", *long("10min, skewed, heartbeat 0.5 s")])
def test_ours_keeps_the_sla_more_often_at_no_more_cost(size: str) -> None:
    case = sla.case_named(size)
    drawn = events(case.trace, skewed=case.skewed, batches=case.batches, seed=0)
    ours, theirs = (sla.run(drawn, case, name) for name in (sla.OURS, sla.ALGORITHM_2))
    assert ours.within(0.5) > theirs.within(0.5)
    assert ours.replica_minutes <= theirs.replica_minutes


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("capacities", (-1.0,), "simulation, capacities: .* found, numbers above 0 expected"),
        ("interval", 0.0, "simulation, interval: 0.0 found, a number above 0 expected"),
        ("heartbeat", -3.0, "simulation, heartbeat: -3.0 found, 0 or more expected"),
        ("eager", True, "simulation: eager found, blocking expected with it"),
    ],
)
def test_a_setting_without_sense_is_one_sentence(field: str, value: object, sentence: str) -> None:
    with pytest.raises(AutoscalingError, match=sentence):
        Setting(**{"blocking": False, field: value})  # type: ignore[arg-type]


def test_partitions_are_shared_out_in_the_simulation() -> None:
    reader: Ints = simulate(
        np.arange(0, 30, 0.05), np.arange(600) % 4, 4, RepairPolicy(), Setting(capacities=(8.0,))
    ).reader
    assert len(set(reader.tolist())) > 1


def test_a_run_makes_at_most_so_many_decisions() -> None:
    def run(most: int) -> None:
        simulate(
            np.array([3.5]), np.zeros(1, np.int64), 1, Script({0.0: [0]}),
            Setting(most_decisions=most),
        )  # fmt: skip

    run(4)
    with pytest.raises(AutoscalingError, match="at most 3 decisions expected"):
        run(3)
    with pytest.raises(AutoscalingError, match="most_decisions: 0 found, at least 1 expected"):
        Setting(most_decisions=0)
