"""The simulator: scenarios computed by hand, and what holds in every scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_cases import Placement, Written, always, round_robin

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    TaskAssignmentError,
    TaskAssignor,
)
from balancer.assignment.scenario import (
    Change,
    ChangeKind,
    Scenario,
    ScenarioDocument,
    build_scenario,
)
from balancer.assignment.simulation import Role, Simulation, Status, simulate


def scenario(**document: Any) -> Scenario:
    return build_scenario(ScenarioDocument.model_validate(document))


class _Dealt:
    """Deals the tasks again at every rebalance."""

    def assign(self, state: ApplicationState) -> Any:
        return round_robin(state)


def two(changes: list[dict[str, Any]], **more: Any) -> Scenario:
    """Instances a and b, one task of 100,000 records that writes 10 records/s."""
    return scenario(
        instances=[{"id": "a"}, {"id": "b"}],
        tasks=[{"id": "0_0", "end_offset": 100_000, "write_rate": 10.0}],
        changes=changes,
        **{"restore_rate": 1_000.0, **more},
    )


def seconds(found: Simulation, status: Status) -> float:
    return float(found.seconds[:, status].sum())


def test_an_application_starts_with_complete_state() -> None:
    found = simulate(two([]), always({"0_0": ["a", "b"]}))
    assert found.settled
    assert found.time.tolist() == [0.0]
    assert found.restored.sum() == 0
    assert [r.at for r in found.rebalances] == [0.0]


def test_a_task_without_a_standby_is_restored_when_its_instance_leaves() -> None:
    found = simulate(two([{"at": 100.0, "leave": "a"}]), always({"0_0": ["a", "b"]}))
    # The standby has followed 1,000 records, and has nothing to restore.
    assert seconds(found, Status.PROCESSING) == pytest.approx(100.0)
    assert found.followed.sum() == pytest.approx(1_000.0)
    alone = simulate(
        two([{"at": 100.0, "leave": "a"}]),
        Written(lambda s: ({"0_0": [s.instances[0]]}, False)),
    )
    # 100,000 records at 1,000 records/s, of which 10,000 are within the acceptable lag.
    assert seconds(alone, Status.RESTORING) == pytest.approx(90.0)
    assert seconds(alone, Status.CATCHING_UP) == pytest.approx(10.0)
    assert alone.restored.sum() == pytest.approx(100_000.0)
    assert alone.time[-1] == pytest.approx(200.0)
    assert alone.avoidable.sum() == 0
    assert alone.without_active.sum() == pytest.approx(90.0)
    assert alone.availability[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("at", "rate"), [(1_764_000_000, 50_000), (86_400, 1e9), (86_400, 1e12), ("100d", 1e7)]
)
def test_a_time_too_late_for_exact_lags_is_no_endless_loop(at: object, rate: float) -> None:
    late = scenario(
        instances=[{"id": "A"}, {"id": "B"}],
        tasks=[
            {"id": "0_0", "end_offset": 1_234_567, "write_rate": 123},
            {"id": "0_1", "end_offset": 1_111_113, "write_rate": 77},
        ],
        changes=[{"at": at, "join": "B"}],
        restore_rate=rate,
    )
    found = simulate(late, TaskAssignor(late.configs))
    assert found.settled
    assert found.rounds == 2
    assert found.lag[-1].tolist() == [0.0, 0.0]
    assert found.availability.tolist() == [1.0, 1.0]


def test_rebalances_between_which_no_time_passes_are_one_sentence() -> None:
    configs = AssignmentConfigs(probing_rebalance_interval_ms=60_000)
    probes = Written(lambda s: ({"0_0": ["a"]}, "b" in s.instances), configs)
    with pytest.raises(
        TaskAssignmentError, match=r"events found at 1e\+18 s, a later one expected"
    ):
        simulate(replace(two([]), changes=(Change(1e18, ChangeKind.JOIN, 1),)), probes)


def test_rebalances_that_are_too_many_are_one_sentence() -> None:
    seen: list[tuple[int, int]] = []
    probes = Written(lambda s: ({"0_0": ["a"]}, True), AssignmentConfigs())
    with pytest.raises(TaskAssignmentError, match=r"50 rebalances found within .* s, no more than"):
        simulate(
            two([{"at": 1e10, "join": "b"}], most_rebalances=50),
            probes,
            lambda *found: seen.append(found),
        )
    assert seen == [(0, n + 2) for n in range(49)]


def test_a_crash_is_noticed_when_the_session_times_out() -> None:
    found = simulate(
        two([{"at": 100.0, "crash": "a"}], session_timeout="30s"), always({"0_0": ["a", "b"]})
    )
    assert seconds(found, Status.UNNOTICED) == pytest.approx(30.0)
    assert [r.at for r in found.rebalances] == [0.0, 130.0]
    assert found.owner[-1].tolist() == [1]
    assert found.restored.sum() == 0


def test_who_comes_back_restores_only_what_it_missed() -> None:
    changes = [{"at": 100.0, "leave": "a"}, {"at": 300.0, "join": "a"}]
    found = simulate(two(changes), always({"0_0": ["b", "a"]}))
    # 200 s at 10 records/s are missing, and 10 more are written in each second of restoring.
    assert found.restored.sum() == pytest.approx(2_000 / (1_000 - 10) * 1_000)
    wiped = simulate(two([changes[0], {**changes[1], "wiped": True}]), always({"0_0": ["b", "a"]}))
    assert wiped.restored.sum() == pytest.approx(100_000 / (1_000 - 10) * 1_000)


def test_state_that_was_given_up_is_deleted_after_a_delay() -> None:
    def place(state: ApplicationState) -> tuple[Placement, bool]:
        return {"0_0": ["b", "a"] if "c" in state.instances else ["b"]}, False

    def run(delay: float) -> Simulation:
        return simulate(
            scenario(
                instances=[
                    {"id": "a", "standby": ["0_0"], "lags": {"0_0": 0}},
                    {"id": "b", "active": ["0_0"]},
                    {"id": "c"},
                ],
                tasks=[{"id": "0_0", "end_offset": 100_000}],
                changes=[{"at": 400.0, "join": "c"}],
                restore_rate=1_000.0,
                state_cleanup_delay=delay,
            ),
            Written(place),
        )

    assert run(500.0).restored.sum() == 0
    assert run(300.0).restored.sum() == 100_000


def test_copies_share_an_instance_and_the_brokers() -> None:
    tasks = [{"id": f"0_{p}", "end_offset": 3_000} for p in range(3)]
    changes = [{"at": 10.0, "join": ["b", "c"]}]
    placement = {"0_0": ["a", "b"], "0_1": ["a", "b"], "0_2": ["a", "c"]}
    instances = [{"id": i} for i in "abc"]

    def took(**more: float) -> list[float]:
        found = simulate(
            scenario(instances=instances, tasks=tasks, changes=changes, restore_rate=100.0, **more),
            always(placement),
        )
        return [round(float(t), 6) for t in found.time]

    # b reads twice as much as c.
    assert took() == [0.0, 10.0, 40.0, 70.0]
    # Three copies get 30 records/s each: all are restored at the same time.
    assert took(broker_restore_rate=90.0) == [0.0, 10.0, 110.0]
    # b's copies get 50 each, c's the 20 that are left over: as much as it may without b.
    assert took(broker_restore_rate=200.0) == [0.0, 10.0, 40.0, 70.0]


def test_active_tasks_are_restored_before_standbys() -> None:
    found = simulate(
        scenario(
            instances=[{"id": "a"}, {"id": "b"}],
            tasks=[{"id": "0_0", "end_offset": 1_000}, {"id": "0_1", "end_offset": 1_000}],
            changes=[{"at": 10.0, "join": "b"}],
            configs={"acceptable_recovery_lag": 0},
            restore_rate=100.0,
        ),
        Written(lambda s: ({"0_0": [s.instances[-1]], "0_1": ["a", *s.instances[1:]]}, False)),
    )
    assert [round(float(t), 6) for t in found.time] == [0.0, 10.0, 20.0, 30.0]
    # a has the task's state all the while, as nothing has been deleted yet.
    assert seconds(found, Status.RESTORING) == pytest.approx(10.0)
    assert found.avoidable.tolist() == pytest.approx([10.0, 0.0])


def test_a_revoked_task_waits_for_the_handover() -> None:
    found = simulate(
        two([{"at": 50.0, "join": "b"}, {"at": 60.0, "leave": "b"}], handover=0.5),
        Written(lambda s: ({"0_0": [s.instances[-1]]}, False)),
    )
    assert seconds(found, Status.HANDOVER) == pytest.approx(0.5)


def test_probing_rebalances_follow_until_none_is_needed() -> None:
    left = [3]

    def place(state: ApplicationState) -> tuple[Placement, bool]:
        left[0] -= 1
        return {"0_0": ["a"]}, left[0] > 0

    found = simulate(two([]), Written(place))
    assert [r.at for r in found.rebalances] == [0.0, 600.0, 1200.0]
    assert [r.probing for r in found.rebalances] == [False, True, True]
    assert found.rounds == 3
    assert found.settled
    endless = simulate(two([], horizon="1h"), Written(lambda _: ({"0_0": ["a"]}, True)))
    assert not endless.settled
    assert endless.time[-1] == 3600.0


def test_a_rebalance_waits_for_who_has_crashed_unnoticed() -> None:
    found = simulate(
        two([{"at": 10.0, "crash": "b"}, {"at": 20.0, "leave": "a"}, {"at": 30.0, "join": "a"}]),
        _Dealt(),
    )
    assert [r.at for r in found.rebalances] == [0.0, 55.0]
    # From 20 to 30 s there is nobody, from 30 s on the rebalance waits.
    assert seconds(found, Status.UNASSIGNED) == pytest.approx(10.0)
    assert seconds(found, Status.UNNOTICED) == pytest.approx(25.0)


def test_imbalance_counts_tasks_or_load_by_capacity() -> None:
    found = simulate(
        scenario(
            instances=[{"id": "a", "capacity": 2}, {"id": "b"}],
            tasks=[
                {"id": "0_0", "end_offset": 1, "load": {"cpu": 0.9}},
                {"id": "0_1", "end_offset": 1, "load": {"cpu": 0.3}},
                {"id": "0_2", "end_offset": 1, "load": {"cpu": 0.3}},
            ],
        ),
        always({"0_0": ["a"], "0_1": ["a"], "0_2": ["b"]}),
    )
    assert found.imbalance().tolist() == [1.0]
    assert found.imbalance("cpu").tolist() == pytest.approx([0.6 / 0.5])


# --- the assignor in the simulator


def application(standbys: int, changes: list[dict[str, Any]]) -> Scenario:
    return scenario(
        instances=[{"id": "a"}, {"id": "b"}, {"id": "c"}],
        tasks=[
            {"id": f"0_{p}", "end_offset": 300_000, "write_rate": 50.0, "load": {"cpu": 0.1}}
            for p in range(4)
        ],
        configs={"num_standby_replicas": standbys},
        changes=changes,
        restore_rate=10_000.0,
    )


@pytest.mark.parametrize("target", ["kafka", "stateful-tasks"])
def test_no_task_stands_still_while_a_member_has_its_state(target: str) -> None:
    joined = application(0, [{"at": 600.0, "join": "c"}])
    found = simulate(joined, TaskAssignor(joined.configs, target=target))
    assert found.settled
    assert found.availability.min() == 1.0
    assert found.owner[0].max() == 1
    assert set(found.owner[-1].tolist()) == {0, 1, 2}
    # At most two copies at a time only to move tasks.
    assert found.copies[:, :, Role.WARMUP].sum(axis=1).max() <= 2
    crashed = application(1, [{"at": 600.0, "crash": "c"}])
    found = simulate(crashed, TaskAssignor(crashed.configs, target=target))
    assert found.settled
    assert found.without_active.sum() == pytest.approx(seconds(found, Status.UNNOTICED))
    assert seconds(found, Status.UNNOTICED) > 0
    assert found.avoidable.sum() == 0


# --- laws


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    names = [f"i{k}" for k in range(draw(st.integers(1, 4)))]
    member = dict.fromkeys(names, True)
    for name in names[1:]:
        member[name] = draw(st.booleans())
    first = dict(member)
    changes: list[dict[str, Any]] = []
    now = 0.0
    for _ in range(draw(st.integers(0, 6))):
        now += draw(st.sampled_from([0.0, 1.0, 30.0, 45.0, 700.0]))
        name = draw(st.sampled_from(names))
        kind = draw(st.sampled_from(["leave", "crash"])) if member[name] else "join"
        member[name] = kind == "join"
        wiped = kind == "join" and draw(st.booleans())
        changes.append({"at": now, kind: name, "wiped": wiped})
    changed = {c.get("join") for c in changes}
    present = [n for n in names if first[n] or n in changed]
    return scenario(
        instances=[{"id": n} for n in present],
        tasks=[
            {
                "id": f"0_{p}",
                "stateful": kind > 0,
                "end_offset": size if kind > 0 else 0,
                "write_rate": rate if kind > 0 and size else 0.0,
            }
            for p, (kind, size, rate) in enumerate(
                draw(
                    st.lists(
                        st.tuples(
                            st.integers(0, 2),
                            st.integers(0, 50_000),
                            st.sampled_from([0.0, 10.0, 90.0, 200.0]),
                        ),
                        min_size=1,
                        max_size=6,
                    )
                )
            )
        ],
        changes=changes,
        restore_rate=draw(st.sampled_from([100.0, 500.0])),
        broker_restore_rate=draw(st.sampled_from([None, 150.0])),
        handover=draw(st.sampled_from([0.0, 2.0])),
        state_cleanup_delay=draw(st.sampled_from([10.0, 600.0])),
        horizon=5_000.0,
    )


@given(scenarios())
def test_nothing_is_lost_or_made_up(given: Scenario) -> None:
    found = simulate(given, _Dealt())
    end = float(found.time[-1])
    assert (np.diff(found.time) >= 0).all()
    # Every second of every task has one status.
    assert found.seconds.sum(axis=1) == pytest.approx(np.full(given.state.n_tasks, end))
    steps = np.diff(found.time)
    for status in Status:
        shown = ((found.status[:-1] == status) * steps[:, None]).sum(axis=0)
        assert found.seconds[:, status] == pytest.approx(shown)
    # Only what is processed is written, and nothing is read faster than the rates allow.
    processed = found.seconds[:, Status.PROCESSING]
    assert found.written == pytest.approx(given.write_rate * processed)
    read = float((found.restored + found.followed).sum())
    up = (found.member[:-1] * steps[:, None]).sum(axis=0)
    assert read <= float((given.restore_rate * up).sum()) * (1 + 1e-9) + 1e-6
    assert read <= min(given.broker_restore_rate, 1e9) * end * (1 + 1e-9) + 1e-6
    # Instances that are not there have no copies once the others know.
    for moment in (r.at for r in found.rebalances[1:]):
        n = int(np.searchsorted(found.time, moment, side="right")) - 1
        assert not found.copies[n][~found.member[n]].any()
    assert (found.avoidable <= found.without_active + 1e-9).all()
    again = simulate(given, _Dealt())
    assert np.array_equal(again.time, found.time)
    assert np.array_equal(again.restored, found.restored)


@given(scenarios())
def test_each_task_is_processed_once_or_not_at_all(given: Scenario) -> None:
    found = simulate(given, _Dealt())
    for owner, status, member, copies in zip(
        found.owner, found.status, found.member, found.copies, strict=True
    ):
        runs = status == Status.PROCESSING
        assert member[owner[runs]].all()
        assert copies[:, Role.ACTIVE].sum() == (owner >= 0).sum()
