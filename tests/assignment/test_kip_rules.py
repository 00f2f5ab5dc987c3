"""KIP-441's rules hold for every assignment, by a checker of their own; and its three scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from assignment_cases import configs
from hypothesis import given
from hypothesis import strategies as st
from kip_rules import Given, broken_rules, spread

from balancer.assignment import (
    AssignmentConfigs,
    StateDocument,
    TaskAssignment,
    TaskAssignor,
    build_state,
)

Roles = Mapping[str, Mapping[str, list[str]]]


def assigned(case: Given, **others: object) -> TaskAssignment:
    state = build_state(
        StateDocument.model_validate({"instances": case.instances, "tasks": case.tasks})
    )
    numbers = configs(case.acceptable, case.warmups, case.standbys, **others)
    return TaskAssignor(numbers).assign(state)


def roles(found: TaskAssignment) -> Roles:
    return {
        id_: {role: [str(t) for t in tasks] for role, tasks in of.items()}
        for id_, of in found.tasks_by_instance().items()
    }


def later(case: Given, found: Roles) -> Given:
    """The application after all copies have caught up; what is not assigned is cleaned up."""
    stateful = {t["id"] for t in case.tasks if t.get("stateful", True)}
    instances = []
    for instance in case.instances:
        of = found[instance["id"]]
        lags: dict[str, object] = dict.fromkeys(of["standby"] + of["warmup"], 0)
        lags |= {t: "running" for t in of["active"] if t in stateful}
        instances.append(
            {
                **instance,
                "lags": lags,
                "active": of["active"],
                "standby": of["standby"] + of["warmup"],
            }
        )
    return case._replace(instances=instances)


@st.composite
def cases(draw: st.DrawFn, capacities: tuple[int, ...] = (1, 2, 5)) -> Given:
    ends = st.sampled_from((0, 50, 101, 1000, 10**12))
    tasks: list[dict[str, Any]] = []
    for subtopology in range(draw(st.integers(0, 3))):
        stateful = draw(st.integers(0, 3)) > 0
        for partition in range(draw(st.integers(1, 7))):
            task: dict[str, Any] = {"id": f"{subtopology}_{partition}", "stateful": stateful}
            tasks.append(task | ({"end_offset": draw(ends)} if stateful else {}))
    lag = st.sampled_from((0, 5, 100, 101, 700, "unknown"))
    instances: list[dict[str, Any]] = [
        {"id": f"I{i}", "capacity": draw(st.sampled_from(capacities)), "lags": {}}
        for i in range(draw(st.integers(1, 6)))
    ]
    for task in tasks:
        if not task["stateful"]:
            continue
        for instance in draw(st.lists(st.sampled_from(instances), unique_by=id)):
            instance["lags"][task["id"]] = draw(lag)
        if draw(st.booleans()):
            draw(st.sampled_from(instances))["lags"][task["id"]] = "running"
    return Given(
        instances, tasks, draw(st.sampled_from((0, 100))), draw(st.integers(0, 3)),
        draw(st.integers(1, 4)),
    )  # fmt: skip


@given(cases())
def test_each_assignment_keeps_the_rules(case: Given) -> None:
    assert broken_rules(case, roles(assigned(case))) == []


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(case: Given, random: Random) -> None:
    shuffled = case._replace(
        instances=random.sample(case.instances, len(case.instances)),
        tasks=random.sample(case.tasks, len(case.tasks)),
    )
    assert roles(assigned(shuffled)) == roles(assigned(case))


@given(cases(capacities=(2,)))
def test_it_converges_to_balance_and_stays_there(case: Given) -> None:
    for _ in range(2 + len(case.tasks) * (1 + case.standbys)):
        found = assigned(case)
        now = roles(found)
        assert broken_rules(case, now) == []
        case = later(case, now)
        if not found.probing_rebalance:
            break
    else:
        pytest.fail("it does not converge")
    stateful = [t["id"] for t in case.tasks if t["stateful"]]
    assert spread(case, now, stateful) <= 1
    assert spread(case, now, [t["id"] for t in case.tasks]) <= 1
    for subtopology in {t["id"].partition("_")[0] for t in case.tasks}:
        of = [t["id"] for t in case.tasks if t["id"].startswith(f"{subtopology}_")]
        assert spread(case, now, of) <= 1
    # Nothing is altered once it is balanced, and nothing is left of how it came about.
    again = assigned(case)
    assert not again.warmup.any()
    assert not again.probing_rebalance
    assert roles(again) == now or any(of["warmup"] for of in now.values())
    assert roles(assigned(later(case, roles(again)))) == roles(again)


ONE_STANDBY = AssignmentConfigs(num_standby_replicas=1)
END = 1_000_000


def scenario(instances: Mapping[str, tuple[str, str]], behind: int = 0) -> Given:
    """Instances with their active and standby tasks, in the tables' notation; T1 is 0_1."""
    records = []
    for id_, (active, standby) in instances.items():
        runs, stands_by = (
            [f"0_{name[1:]}" for name in names.split()] for names in (active, standby)
        )
        lags: dict[str, object] = dict.fromkeys(stands_by, behind)
        lags |= dict.fromkeys(runs, "running")
        records.append({"id": id_, "active": runs, "standby": stands_by, "lags": lags})
    numbers = sorted({t for r in records for t in r["lags"]})
    tasks = [{"id": t, "end_offset": END} for t in numbers]
    return Given(records, tasks, 10_000, 1, 2)


def table(found: Roles) -> dict[str, tuple[str, str]]:
    return {
        id_: (
            " ".join(f"T{t[2:]}" for t in of["active"]),
            " ".join(sorted(f"T{t[2:]}" for t in of["standby"] + of["warmup"])),
        )
        for id_, of in found.items()
    }


def test_scaling_out() -> None:
    before = {"I1": ("T1 T3", "T2"), "I2": ("T2", "T1 T3"), "I3": ("", "")}
    joined = scenario(before)
    first = roles(assigned(joined))
    # Those who run tasks go on. The KIP warms up T1 and T3 on I3; Kafka's procedure T2 and T3.
    assert table(first) == {**before, "I3": ("", "T2 T3")}
    assert first["I3"]["warmup"] == ["0_2", "0_3"]
    caught_up = later(joined, first)
    second = assigned(caught_up)
    assert {i: of["active"] for i, of in roles(second).items()} == {
        "I1": ["0_1"],
        "I2": ["0_2"],
        "I3": ["0_3"],
    }
    assert [len(of["standby"]) for of in roles(second).values()] == [1, 1, 1]
    assert not second.probing_rebalance
    assert not second.warmup.any()


def test_scaling_in_with_standbys_that_have_caught_up() -> None:
    # I1, which ran T1 and T4, has gone.
    left = scenario({"I2": ("T2", "T1 T4"), "I3": ("T3", "T2")})
    first = assigned(left)
    expected = {"I2": ("T1 T4", "T2 T3"), "I3": ("T2 T3", "T1 T4")}
    assert table(roles(first)) == expected


def test_scaling_in_with_standbys_that_are_behind() -> None:
    left = scenario({"I2": ("T2", "T1 T4"), "I3": ("T3", "T2")}, behind=20_000)
    first = assigned(left)
    assert table(roles(first)) == {"I2": ("T1 T2 T4", "T3"), "I3": ("T3", "T1 T2 T4")}
    assert first.probing_rebalance
    second = assigned(later(left, roles(first)))
    assert [len(of["active"]) for of in roles(second).values()] == [2, 2]
    assert not second.probing_rebalance
