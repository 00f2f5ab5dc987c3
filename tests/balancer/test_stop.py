"""A search that is asked to stop returns its best plan so far, as sound as any."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from balancer_cases import QUICK
from command_line import invoke
from test_strategies import requested, stream

from balancer import Albic, Balancer, Budget, Milp, Plan
from balancer.report import html_report
from balancer.strategies import Problem, Proposal
from balancer.verification.checker import check_plan
from cluster_model import InputError, Snapshot, save_snapshot, synthetic_snapshot

ROOT = Path(__file__).parents[2]


def uneven(seed: int = 0) -> Snapshot:
    return synthetic_snapshot(
        brokers=10, partitions=100, racks=5, topics=6, utilization=0.3, skew=1.5, seed=seed
    )


def stopped_after(rounds: int, snapshot: Snapshot | None = None, **options: Any) -> Plan:
    """A plan whose search is stopped after some rounds."""
    stop, seen = Event(), list[str]()

    def progress(phase: str, met: int, of: int, actions: int) -> None:
        seen.append(phase)
        if phase == "order":  # only the search is stopped, not the search for a safe order
            stop.clear()
        elif len(seen) >= rounds:
            stop.set()

    s = uneven() if snapshot is None else snapshot
    plan = Balancer("default", **options).propose(s, progress=progress, stop=stop)
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    return plan


def test_a_stopped_search_returns_the_best_plan_so_far() -> None:
    whole = Balancer("default").propose(uneven())
    plan = stopped_after(3)
    assert plan.summary.exhausted == "stopped"
    assert 0 < plan.summary.replica_moves < whole.summary.replica_moves
    assert plan.summary.balancedness_after > plan.summary.balancedness_before
    assert any("the search was stopped" in u.reason for u in plan.unmet if not u.proven)
    assert "with more time the plan might go further" in html_report(plan)
    assert stopped_after(3).to_json() == plan.to_json()


def test_a_stop_while_steps_are_ordered_says_nothing_of_safe_orders() -> None:
    """Detours and other orders are left untried then, so that none is known to be missing."""
    s = synthetic_snapshot(
        brokers=8, partitions=60, racks=4, utilization=0.78, skew=2.0, seed=16,
        replication_factor=2, rack_violations=0.2,
    )  # fmt: skip
    stop = Event()

    def progress(phase: str, met: int, of: int, actions: int) -> None:
        if phase == "order":
            stop.set()

    assert Balancer("default").propose(s).summary.left_out == 0
    plan = Balancer("default").propose(s, progress=progress, stop=stop)
    assert plan.summary.left_out > 0
    assert plan.summary.exhausted == "stopped"
    assert not plan.unreached
    assert not any("had no safe order" in u.reason for u in plan.unmet)
    assert any("left out before a safe order was found" in u.reason for u in plan.unmet)
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


@pytest.mark.parametrize("case", ["usual", "tiny", "impossible", "limited"])
def test_progress_states_what_the_plan_would_meet(case: str) -> None:
    s, budget = uneven(), Budget(moves=40 if case == "limited" else None)
    if case == "tiny":
        s = synthetic_snapshot(brokers=4, partitions=9, racks=3, utilization=0.6, seed=3)
    if case == "impossible":
        s = synthetic_snapshot(brokers=6, partitions=30, racks=3, utilization=1.2)
    told = list[tuple[str, int, int, int]]()
    options: dict[str, Any] = {"budget": budget, "strategy": QUICK}
    Balancer("default", **options).propose(s, progress=lambda *said: told.append(said))
    told = [said for said in told if said[0] != "order"]
    assert len(told) > 3
    for rounds in {1, 3, len(told) // 2, len(told) - 1}:
        plan = stopped_after(rounds, s, **options)
        met = sum(g.met_after for g in plan.goal_results)
        assert told[rounds - 1][2] == len(plan.goal_results)
        if case == "limited" and "without limits" in told[rounds - 1][0]:
            assert told[rounds - 1][1] == sum(g.met_before for g in plan.goal_results)
        else:
            assert told[rounds - 1][1] == met, rounds


@pytest.mark.parametrize("rounds", [2, 10])
def test_a_stopped_search_keeps_the_limits(rounds: int) -> None:
    plan = stopped_after(rounds, budget=Budget(moves=9))
    assert plan.summary.exhausted == "stopped"
    assert 0 < plan.summary.replica_moves <= 9


@pytest.mark.parametrize("strategy", ["goals", Milp(rounds=10**9), Albic(rounds=10**9)], ids=str)
def test_a_search_that_is_stopped_at_once_ends(strategy: Any) -> None:
    stop = Event()
    stop.set()
    s = stream(brokers=12, operators=4, keys=20)
    plan = Balancer(requested(), strategy=strategy).propose(s, stop=stop)
    assert plan.summary.exhausted == "stopped"
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


def test_an_event_that_is_not_set_changes_nothing() -> None:
    s = stream(keys=6)
    for strategy in (QUICK, Milp(rounds=5)):
        plain, watched = (
            Balancer(requested(), strategy=strategy).propose(s, stop=stop)
            for stop in (None, Event())
        )
        assert plain.to_json() == watched.to_json()


def test_a_strategy_may_ignore_the_request() -> None:
    class Idle:
        name = "idle"

        def propose(self, problem: Problem, *_: Any) -> Proposal:
            return Proposal(placement=problem.start.copy())

    stop = Event()
    stop.set()
    assert (
        Balancer("default", strategy=Idle()).propose(uneven(), stop=stop).summary.exhausted is None
    )


@pytest.mark.parametrize(("interrupts", "code"), [(1, 1), (2, 130)])
def test_the_first_interrupt_returns_a_plan_and_the_second_ends_the_command(
    interrupts: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose, rounds = Balancer.propose, list[str]()

    def interrupted(self: Balancer, *args: Any, progress: Any, **options: Any) -> Plan:
        def more(phase: str, met: int, of: int, actions: int) -> None:
            progress(phase, met, of, actions)
            rounds.append(phase)
            if len(rounds) <= interrupts:
                signal.raise_signal(signal.SIGINT)

        return propose(self, *args, progress=more, **options)

    monkeypatch.setattr(Balancer, "propose", interrupted)
    save_snapshot(uneven(), tmp_path / "cluster.json")
    # a process in the background may have been started with interrupts ignored
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = invoke(["propose", tmp_path / "cluster.json"])
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, ours)
    assert result.exit_code == code
    assert ("ended early: the search was stopped" in result.stdout) == (interrupts == 1)


def test_an_interrupt_while_the_command_line_is_loaded_ends_it_in_one_sentence() -> None:
    code = """
import signal, sys
class Interrupting:
    def find_spec(self, name, *rest):
        if name == "numpy":
            signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from balancer.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "propose", "cluster.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "counterpoise: interrupted\n")


def test_what_a_callback_raises_is_named_as_its_own() -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    s = synthetic_snapshot(brokers=4, partitions=20, racks=2, skew=3)
    with pytest.raises(InputError, match=r"^progress failed \(KeyError: 'x'\)$"):
        Balancer().propose(s, progress=broken)
