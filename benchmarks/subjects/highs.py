"""Machine reassignment as a mixed-integer program, solved by HiGHS."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import highspy
import numpy as np

from balancer.allocation.program import QuietHighs
from benchmarks.harness.machines import Reassignment
from benchmarks.registry import BenchmarkError
from cluster_model.snapshot import Floats, Ints


class Found(NamedTuple):
    """An assignment, processor seconds, the candidates (unknown), and a bound on any cost."""

    machine: Ints
    seconds: float
    candidates: int
    bound: float


class _Program:
    """Columns and rows of a program; columns are at least 0."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.most: list[float] = []
        self.whole: list[bool] = []
        self.start, self.index = [0], list[Ints]()
        self.value: list[Floats] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def columns(self, cost: Any, most: float, whole: bool) -> Ints:
        """Add columns of some costs; returns their numbers, in the shape of the costs."""
        flat, first = np.ravel(cost).tolist(), len(self.cost)
        self.cost += flat
        self.most += [most] * len(flat)
        self.whole += [whole] * len(flat)
        return np.arange(first, first + len(flat)).reshape(np.shape(cost))

    def row(self, lower: float, upper: float, *terms: tuple[Any, Any]) -> None:
        """Limit a sum of columns with factors; no column may be in two terms."""
        index = [np.ravel(columns) for columns, _ in terms]
        self.index += index
        self.value += [
            np.broadcast_to(np.ravel(factors).astype(float), at.shape)
            for at, (_, factors) in zip(index, terms, strict=True)
        ]
        self.start.append(self.start[-1] + sum(map(len, index)))
        self.lower.append(lower)
        self.upper.append(upper)

    def model(self) -> Any:
        """The program in HiGHS's terms."""
        lp, kinds = highspy.HighsLp(), highspy.HighsVarType
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.lower)
        lp.col_cost_, lp.col_lower_ = np.array(self.cost), np.zeros(len(self.cost))
        lp.col_upper_ = np.array(self.most)
        lp.row_lower_, lp.row_upper_ = np.array(self.lower), np.array(self.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start)
        lp.a_matrix_.index_ = np.concatenate(self.index)
        lp.a_matrix_.value_ = np.concatenate(self.value)
        lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.whole]
        return lp


def measure(problem: Reassignment, seconds: float) -> Found:
    """Solve the whole program within some seconds, from the assignment at the start."""
    program, on = _stated(problem)
    began, first = time.process_time(), problem.start
    solver = QuietHighs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("time_limit", seconds)
    solver.passModel(program.model())
    chosen = on[np.arange(len(first)), first].astype(np.int32)
    solver.setSolution(len(chosen), chosen, np.ones(len(chosen)))
    if solver.run() == highspy.HighsStatus.kError:
        raise BenchmarkError("subject highs: HiGHS refused to run, a solution expected")
    info, taken = solver.getInfo(), np.array(solver.getSolution().col_value)
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    machine = taken[on].argmax(1) if feasible else first
    return Found(machine, time.process_time() - began, 0, float(info.mip_dual_bound))


def _stated(problem: Reassignment) -> tuple[_Program, Ints]:
    """The program, and (P, M) its columns for each process on each machine."""
    program, start = _Program(), problem.start
    (n, resources), machines = problem.requirement.shape, np.arange(len(problem.capacity))
    away = start[:, None] != machines
    across = problem.machine_cost[problem.location[start]][:, problem.location]
    on = program.columns(np.where(away, problem.process_cost[:, None] + across, 0.0), 1.0, True)
    above = program.columns(
        np.broadcast_to(problem.load_weight, problem.capacity.shape), np.inf, False
    )
    lacking = program.columns(
        np.broadcast_to(problem.balance_weight, (len(machines), len(problem.balance))),
        np.inf,
        False,
    )
    for p in range(n):
        program.row(1, 1, (on[p], 1))
    for m in machines:
        for r in range(resources):
            need, room = problem.requirement[:, r], problem.capacity[m, r]
            comes = away[:, m] | ~problem.transient[r]
            program.row(-np.inf, room - need[~comes].sum(), (on[comes, m], need[comes]))
            program.row(-np.inf, problem.safety[m, r], (on[:, m], need), (above[m, r], -1))
        for k, (one, two, ratio) in enumerate(problem.balance.tolist()):
            i, j = int(one), int(two)
            least = ratio * problem.capacity[m, i] - problem.capacity[m, j]
            factor = ratio * problem.requirement[:, i] - problem.requirement[:, j]
            program.row(least, np.inf, (on[:, m], factor), (lacking[m, k], 1))
    _relations(program, problem, on, machines)
    return program, on


def _relations(program: _Program, problem: Reassignment, on: Ints, machines: Ints) -> None:
    """Conflicts, spread and dependencies of services."""
    n = len(problem.service)
    members = np.split(np.arange(n), np.flatnonzero(np.diff(problem.service)) + 1)
    for s, own in enumerate(members):
        if len(own) > 1:
            for m in machines:
                program.row(-np.inf, 1, (on[own, m], 1))
        if problem.spread[s] > 1:
            reached = program.columns(np.zeros(len(problem.machine_cost)), 1.0, True)
            for k, column in enumerate(reached):
                inside = on[np.ix_(own, problem.location == k)]
                program.row(0, np.inf, (inside, 1), (column, -1))
            program.row(problem.spread[s], np.inf, (reached, 1))
    for hood in range(int(problem.neighborhood.max()) + 1):
        inside = machines[problem.neighborhood == hood]
        for one, two in problem.needs.tolist():
            near = on[np.ix_(members[two], inside)]
            for p in members[one]:
                program.row(0, np.inf, (near, 1), (on[p, inside], -1))
