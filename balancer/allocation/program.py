"""Runs mixed-integer linear programs with HiGHS: one thread pool, every status checked."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from balancer.allocation.errors import AllocationError
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Bools, Floats, Ints

# How a program may end: solved, or stopped by a limit.
_ENDS = (
    highspy.HighsModelStatus.kOptimal,
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kIterationLimit,
    highspy.HighsModelStatus.kSolutionLimit,
    highspy.HighsModelStatus.kInterrupt,
    highspy.HighsModelStatus.kMemoryLimit,
)


class QuietHighs(highspy.Highs):
    """HiGHS without its output, whose first line would be printed before an option is set."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """Minimise ``cost @ x`` with ``row_lower <= A x <= row_upper`` and bounds on x.

    Parameters
    ----------
    row, column, value : (K,)
        The entries of A.
    cost, lower, upper : (C,) float
        Cost and bounds of each column.
    whole : (C,) bool
        Which columns take whole numbers only.
    row_lower, row_upper : (M,) float
        Bounds of each row.
    """

    row: Ints
    column: Ints
    value: Floats
    cost: Floats
    lower: Floats
    upper: Floats
    whole: Bools
    row_lower: Floats
    row_upper: Floats


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended.

    Parameters
    ----------
    x : (C,) float or None
        The best solution found; None if there is none.
    bound
        No solution costs less.
    proven
        Whether `x` is optimal.
    ended
        None if the program was solved or a limit ended it, or else HiGHS's name of the status.
    """

    x: Floats | None
    bound: float
    proven: bool
    ended: str | None


def run_program(
    program: Program,
    *,
    start: Floats | None = None,
    nodes: int | None = None,
    deadline: Deadline = NEVER,
) -> ProgramResult:
    """Solve a program.

    Parameters
    ----------
    program
        The program.
    start : (C,) float
        A solution to begin with.
    nodes
        Maximum number of branch-and-bound nodes: the same number gives the same answer.
    deadline
        When to stop at the latest.

    Raises
    ------
    AllocationError
        If HiGHS refuses the program.
    """
    p = program
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(p.cost), len(p.row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = p.cost, p.lower, p.upper
    lp.row_lower_, lp.row_upper_ = p.row_lower, p.row_upper
    order = np.lexsort((p.row, p.column))
    first = np.searchsorted(p.column[order], np.arange(len(p.cost) + 1))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = first.astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = p.row[order].astype(np.int32), p.value[order]
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[w] for w in p.whole.tolist()]

    solver = QuietHighs()  # type: ignore[no-untyped-call]
    # No number of threads: a process has one scheduler, and HiGHS refuses to run with another
    # number than the one that first used it.
    options = dict[str, int | float]()
    if deadline.by_clock and np.isfinite(deadline.at):
        options["time_limit"] = max(deadline.left, 0.01)
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    for option, value in options.items():
        _checked(solver.setOptionValue(option, value), f"option {option}")
    _checked(solver.passModel(lp), "model")
    if start is not None:
        given = highspy.HighsSolution()
        given.col_value = start.tolist()
        _checked(solver.setSolution(given), "start")
    if deadline.stop is not None or not deadline.by_clock:
        # also lets Python handle the signal that sets the event
        for during in (solver.cbMipInterrupt, solver.cbSimplexInterrupt):
            during.subscribe(lambda event: event.interrupt() if deadline.passed else None)
    _checked(solver.run(), "run")
    status, info = solver.getModelStatus(), solver.getInfo()
    found = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        found = np.array(solver.getSolution().col_value)
    return ProgramResult(
        found,
        float(info.mip_dual_bound),
        status == highspy.HighsModelStatus.kOptimal,
        None if status in _ENDS else str(solver.modelStatusToString(status)),
    )


def _checked(status: highspy.HighsStatus, what: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise AllocationError(f"HiGHS, {what}: refused with an error, success expected")
