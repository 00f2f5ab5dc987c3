"""The assignments of Kafka's own HighAvailabilityTaskAssignor, row by row.

The rows were produced by running the unmodified classes of Kafka (trunk, October 2024); their
names are those of the scenarios in its unit tests, where they have one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from assignment_cases import ENDLESS, application, assigned, configs, grid, shown

from balancer.assignment import RUNNING, UNKNOWN, ApplicationState
from balancer.assignment.draft import Draft
from balancer.assignment.lags import Lags
from balancer.assignment.movements import move_actives
from balancer.assignment.warmups import Warmups

NINE, SIX, FOUR = grid(3, 3), grid(2, 3), "00 01 02 03"

ROWS = {
    "H1": (
        application(NINE, {"P1": {"lags": 0}, "P2": {"lags": 10}, "P3": {}}),
        (11, 2, 1),
        "P1 A{00,02,10,20,22} S{01,11,12,21}; P2 A{01,11,12,21} S{00,02,10,20,22}; P3 S{01,02}",
        True,
    ),
    "H3": (
        application(NINE, {p: {"lags": 10} for p in ("P1", "P2", "P3")}),
        (0, 1, 0),
        "P1 A{00,10,20}; P2 A{01,11,21}; P3 A{02,12,22}",
        False,
    ),
    "H3, three threads": (
        application(NINE, {p: {"lags": 10, "capacity": 3} for p in ("P1", "P2", "P3")}),
        (0, 1, 0),
        "P1 A{00,10,20}; P2 A{01,11,21}; P3 A{02,12,22}",
        False,
    ),
    "H3, nine threads": (
        application(NINE, {p: {"lags": 10, "capacity": 9} for p in ("P1", "P2", "P3")}),
        (0, 1, 0),
        "P1 A{00,10,20}; P2 A{01,11,21}; P3 A{02,12,22}",
        False,
    ),
    "H5": (
        application(SIX, {f"P{c}": {"lags": 10, "capacity": c} for c in (1, 2, 3)}),
        (0, 1, 0),
        "P1 A{10}; P2 A{01,11}; P3 A{00,02,12}",
        False,
    ),
    "H7": (
        application(
            "00 01 10 11",
            {"P1": {"capacity": 5, "lags": 0}, "P2": {"capacity": 5}, "P3": {"capacity": 5}},
        ),
        (0, 2, 0),
        "P1 A{00,01,10,11}; P2 S{01}; P3 S{10}",
        True,
    ),
    "H9": (
        application(NINE, {"P1": {"capacity": 6, "lags": 10}, "P2": {"capacity": 3, "lags": 10}}),
        (0, 1, 0),
        "P1 A{00,01,02,11,20,22}; P2 A{10,12,21}",
        False,
    ),
    "H11": (
        application("00", {"P1": {"lags": 0}, "P2": {"lags": 0}}),
        (100, 2, 1),
        "P1 A{00}; P2 S{00}",
        False,
    ),
    "H13": (
        application("00", {"P1": {}, "P2": {"lags": 1000}, "P3": {"lags": 500}}),
        (100, 2, 1),
        "P1 S{00}; P2 S{00}; P3 A{00}",
        True,
    ),
    "H15": (
        application("", {"P1": {}, "P2": {}}, stateless="00 01"),
        (100, 2, 1),
        "P1 A{00}; P2 A{01}",
        False,
    ),
    "H17": (
        application(FOUR, {"P1": {"lags": 0}, "P2": {}}),
        (100, 1, 0),
        "P1 A{00,01,02,03}; P2 S{01}",
        True,
    ),
    "H17, two warm-ups": (
        application(FOUR, {"P1": {"lags": 0}, "P2": {}}),
        (100, 2, 0),
        "P1 A{00,01,02,03}; P2 S{01,03}",
        True,
    ),
    "H19": (application("00 01", {"P1": {"lags": 0}}), (100, 2, 1), "P1 A{00,01}", False),
    "H21": (
        application(FOUR, {"P1": {"lags": 0}, "P2": {}, "P3": {}}),
        (100, 2, 1),
        "P1 A{00,01,02,03}; P2 S{00,01,02,03}; P3 S{01,02}",
        True,
    ),
    "H23": (
        application(
            "00 01 02 03 10 11 12 13 20",
            {f"P{i}": {"lags": 0, "capacity": c} for i, c in ((1, 100), (2, 50), (3, 1))},
        ),
        (100, 2, 0),
        "P1 A{00,01,02,03,11,12}; P2 A{10,13}; P3 A{20}",
        False,
    ),
    "H25": (
        application("", {p: {"capacity": 7} for p in ("P1", "P2", "P3")}, "00 01 02 03 10 11 12"),
        (0, 1, 0),
        "P1 A{00,03,12}; P2 A{01,10}; P3 A{02,11}",
        False,
    ),
    "H25, all on one before": (
        application(
            "",
            {
                "P1": {"capacity": 3, "active": ["0_0", "0_1", "0_2", "0_3", "1_0", "1_1", "1_2"]},
                "P2": {"capacity": 3},
                "P3": {"capacity": 3},
            },
            "00 01 02 03 10 11 12",
        ),
        (0, 1, 0),
        "P1 A{00,03,12}; P2 A{01,10}; P3 A{02,11}",
        False,
    ),
    "X1, just below": (
        application("00", {"P1": {"lags": 99}, "P2": {"lags": 0}}),
        (100, 2, 0),
        "P1 A{00}",
        False,
    ),
    "X1, at the limit": (
        application("00", {"P1": {"lags": 100}, "P2": {"lags": 0}}),
        (100, 2, 0),
        "P1 A{00}",
        False,
    ),
    "X1, above": (
        application("00", {"P1": {"lags": 101}, "P2": {"lags": 0}}),
        (100, 2, 0),
        "P1 S{00}; P2 A{00}",
        True,
    ),
    "X2": (
        application("00", {"P1": {"lags": 5}, "P2": {"lags": RUNNING}}),
        (0, 2, 0),
        "P1 S{00}; P2 A{00}",
        True,
    ),
    "X4": (
        application("00", {"P1": {"lags": 0}, "P2": {}, "P3": {"lags": 10, "standby": ["0_0"]}}),
        (100, 1, 1),
        "P1 A{00}; P2 S{00}; P3 S{00}",
        True,
    ),
}


@pytest.mark.parametrize(("state", "numbers", "expected", "probing"), ROWS.values(), ids=ROWS)
def test_a_row_of_kafkas_assignor(
    state: ApplicationState, numbers: tuple[int, int, int], expected: str, probing: bool
) -> None:
    assert assigned(state, *numbers) == (expected, probing)


UNKNOWN_OR_NONE = application("00", {"P1": {"lags": UNKNOWN}, "P2": {"lags": 0}})


def test_an_unknown_lag_keeps_the_task_if_kafkas_order_is_asked_for() -> None:
    # X3: it ranks before all others, so the instance that has caught up is not even looked at.
    found = assigned(UNKNOWN_OR_NONE, 100, 2, 0, unknown_lag_is_caught_up=True)
    assert found == ("P1 A{00}", False)


def test_an_unknown_lag_does_not_keep_the_task_by_default() -> None:
    assert assigned(UNKNOWN_OR_NONE, 100, 2, 0) == ("P1 S{00}; P2 A{00}", True)


def moved(
    lags: Mapping[str, Mapping[str, int]],
    active: Mapping[str, str],
    standby: Mapping[str, str] | None = None,
    budget: int = ENDLESS,
) -> tuple[str, int]:
    """The assignment after moving the active tasks alone, and the number of movements."""
    state = application(" ".join(active), {p: {"lags": of} for p, of in lags.items()})
    draft = Draft(state, configs(100, 1, 0))
    index = {i: n for n, i in enumerate(state.instances)}
    tasks = list(active)
    draft.place(np.arange(len(tasks)), np.array([index[p] for p in active.values()]))
    for task, on in (standby or {}).items():
        draft.standbys[tasks.index(task)].append(index[on])
        draft.count[index[on]] += 1
    behind = Lags(state, draft.configs)
    count = move_actives(draft, behind, Warmups(state, behind, budget))
    return shown(draft.finished(draft.active, count, probing=count > 0)), count


EACH_ITS_OWN = {"00": "P1", "01": "P2", "02": "P3"}
# 01 has caught up on P3, 02 on P2.
CROSSED = {"P1": {"00": 0}, "P2": {"02": 0}, "P3": {"01": 0}}


def test_m1_a_task_runs_where_it_has_caught_up_and_warms_up_at_its_target() -> None:
    assert moved(CROSSED, EACH_ITS_OWN) == ("P1 A{00}; P2 A{02} S{01}; P3 A{01} S{02}", 2)


def test_m2_with_a_budget_of_one_only_the_first_warms_up() -> None:
    assert moved(CROSSED, EACH_ITS_OWN, budget=1) == ("P1 A{00}; P2 A{02} S{01}; P3 A{01}", 2)


def test_m3_if_none_has_caught_up_the_closest_runs_it() -> None:
    lags = {
        "P1": {"00": 10_000, "01": 20_000, "02": 30_000},
        "P2": {"00": 20_000, "01": 30_000, "02": 10_000},
        "P3": {"00": 30_000, "01": 10_000, "02": 20_000},
    }
    expected = ("P1 A{00}; P2 A{02} S{01}; P3 A{01} S{02}", 2)
    assert moved(lags, EACH_ITS_OWN, standby={"01": "P3"}) == expected


def test_m4_a_swap_with_a_standby_needs_no_budget() -> None:
    found = moved({"P1": {"00": 0}, "P2": {}}, {"00": "P2"}, standby={"00": "P1"}, budget=0)
    assert found == ("P1 A{00}; P2 S{00}", 1)


def test_m5_nothing_moves_if_all_are_equally_close() -> None:
    expected = ("P1 A{00}; P2 A{01}; P3 A{02}", 0)
    caught_up = dict.fromkeys(("P1", "P2", "P3"), dict.fromkeys(EACH_ITS_OWN, 0))
    behind = dict.fromkeys(("P1", "P2", "P3"), dict.fromkeys(EACH_ITS_OWN, 10_000))
    assert moved(caught_up, EACH_ITS_OWN) == expected
    assert moved(behind, EACH_ITS_OWN) == expected
