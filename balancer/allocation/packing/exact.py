"""The exact packing for small groups: a mixed-integer program for HiGHS, with a bound."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from balancer.allocation.errors import AllocationError
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from balancer.allocation.packing.repair import repair
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Ints


@dataclass(frozen=True)
class ExactPacking:
    """A packing, its price, and what no packing can be below.

    Prices are in units of the capacity of a bin in its first dimension, as
    :attr:`RepairParameters.bin_price`.
    """

    bin: Ints
    price: float
    bound: float


def price_of(problem: Packing, bin_: Ints, bin_price: float) -> float:
    """The price of a packing: its bins, and the weight of the items that move."""
    moves = (problem.owner >= 0) & (problem.owner != bin_)
    return bin_price * len(np.unique(bin_)) + float(
        problem.weight[moves].sum() / problem.capacity[0]
    )


def exact(
    problem: Packing, parameters: RepairParameters | None = None, *, deadline: Deadline = NEVER
) -> ExactPacking:
    """Pack at the least price of bins and moves, beginning with what :func:`repair` finds.

    For some tens of items. Where a deadline ends the search, the bound tells how much less a
    packing may cost.

    Parameters
    ----------
    problem
        The packing problem. An item larger than all kinds of bins has one to itself.
    parameters
        The price of a bin; and how the start is found.
    deadline
        When to stop at the latest.

    Raises
    ------
    AllocationError
        If HiGHS fails, or is not installed.
    """
    try:
        from balancer.allocation.program import Program, run_program
    except ModuleNotFoundError as error:
        raise AllocationError(
            f"exact packing: {error.name} is not installed: pip install 'counterpoise[autoscaling]'"
        ) from None
    parameters = parameters or RepairParameters()
    start = repair(problem, parameters)
    best = ExactPacking(start, price_of(problem, start, parameters.bin_price), 0.0)
    if not len(start):
        return best
    items = len(start)
    # more bins than these cost more than the start, or would be empty
    most = items
    if parameters.bin_price > 0:
        most = min(items, int(best.price / parameters.bin_price + 1e-9))
    used = set(start.tolist()) | set(problem.owner[problem.owner >= 0].tolist())
    unused = (b for b in count() if b not in used and b >= len(problem.capacities))
    differing = set(range(len(problem.capacities)))
    names = np.array(sorted(used | differing | set(islice(unused, most))), np.int64)
    bins = len(names)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(items), np.arange(bins), indexing="ij"))
    n = items * bins
    capacity = np.array([problem.capacity_of(b) for b in names.tolist()])
    share = problem.size[i] / capacity[j]
    # items that are larger than all bins fill one, so that nothing can join them
    share = np.where(problem.too_large[i][:, None], 1.0, share)
    # and items without a size need an open bin, too
    share = np.hstack([share, np.full((n, 1), 1.0 / items)])
    resources = share.shape[1]
    rows = [i] + [items + r * bins + j for r in range(resources)]
    columns = [np.arange(n)] * (1 + resources)
    values = [np.ones(n)] + [share[:, r] for r in range(resources)]
    for r in range(resources):
        rows.append(items + r * bins + np.arange(bins))
        columns.append(n + np.arange(bins))
        values.append(np.full(bins, -1.0))
    owned = problem.owner[i] >= 0
    moves = np.where(owned & (names[j] != problem.owner[i]), problem.weight[i], 0.0)
    found = run_program(
        Program(
            row=np.concatenate(rows),
            column=np.concatenate(columns),
            value=np.concatenate(values),
            cost=np.concatenate([moves / problem.capacity[0], np.full(bins, parameters.bin_price)]),
            lower=np.zeros(n + bins),
            upper=np.ones(n + bins),
            whole=np.ones(n + bins, np.bool_),
            row_lower=np.concatenate([np.ones(items), np.full(resources * bins, -np.inf)]),
            row_upper=np.concatenate([np.ones(items), np.zeros(resources * bins)]),
        ),
        start=np.concatenate([names[j] == start[i], np.isin(names, start)]).astype(np.float64),
        deadline=deadline,
    )
    if found.ended is not None:
        # By rounding, the program may have lost the start, which is a packing; its bound is no
        # statement then.
        return best
    bound = max(found.bound, 0.0)
    if found.x is None:
        return ExactPacking(best.bin, best.price, min(bound, best.price))
    taken = found.x[:n] > 0.5
    bin_ = start.copy()
    bin_[i[taken]] = names[j[taken]]
    price = price_of(problem, bin_, parameters.bin_price)
    if price > best.price:
        return ExactPacking(best.bin, best.price, min(bound, best.price))
    return ExactPacking(bin_, price, min(bound, price))
