"""Solves one placement problem with Meta's Rebalancer; run by an interpreter that has it installed.

Stands alone: numpy, the standard library and ``rebalancer`` only, none of ours.

    python rebalancer_solve.py PROBLEM.npz ANSWER.npz SECONDS [MOVES HOT]

PROBLEM.npz holds ``capacity`` (B, R), ``broker_rack`` (B,), ``replica_broker`` (N,),
``replica_partition`` (N,), ``replica_load`` (N, R), ``replica_leads`` (N,) and
``only_usage``: whether even usage is the only goal, without racks, capacities and counts.
ANSWER.npz gets ``replica_broker`` (N,), ``setup_seconds``, ``seconds`` and
``finished``. SECONDS caps the search, MOVES its moves; HOT is the number of replicas of the
hottest broker that it compares before a move (1 by default). Every replica keeps its role, as
users of Rebalancer state it: a leader is an object with a leader's load.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rebalancer import ProblemSolver  # type: ignore[import-not-found]  # not in our environment

Arrays = Mapping[str, Any]

# Goals are met at this many times the mean.
BOUND = 1.1
# The binding of release 1.0 takes Thrift enums by number, unlike its stubs state.
ABSOLUTE_LIMIT = 1
SQUARES = 2
HIT_TIME_LIMIT = 2


def state(problem: Arrays, seconds: float, moves: int | None = None, hot: int = 1) -> Any:
    """The problem in Rebalancer's terms: replicas are objects, brokers are containers."""
    capacity, rack = problem["capacity"], problem["broker_rack"]
    holder, partition = problem["replica_broker"], problem["replica_partition"]
    load, leads = problem["replica_load"], problem["replica_leads"]
    brokers = [f"b{b}" for b in range(len(capacity))]
    replicas = [f"r{r}" for r in range(len(holder))]

    solver = ProblemSolver(service_name="benchmark", service_scope="balance")
    solver.set_object_name("replica").set_container_name("broker")
    solver.set_log_level("ERROR").disable_solution_summary()
    solver.set_assignment(gather(replicas, holder, brokers))
    racks = {b: f"k{k}" for b, k in zip(brokers, rack.tolist(), strict=True)}
    solver.add_scope("rack", racks)
    groups = [f"p{p}" for p in range(int(partition.max()) + 1)]
    solver.add_partition("partition", gather(replicas, partition, groups))

    only_usage = bool(problem["only_usage"])
    for scope in () if only_usage else ("broker", "rack"):
        spread = {
            "name": f"one replica a {scope}",
            "scope": scope,
            "partitionName": "partition",
            "limit": {"type": ABSOLUTE_LIMIT, "globalLimit": 1},
        }
        solver.add_constraint({"groupCountSpec": spread})

    dimensions = {f"resource{r}": load[:, r] for r in range(load.shape[1])}
    for r, (name, values) in enumerate(dimensions.items()):
        solver.add_object_dimension(name, dict(zip(replicas, values.tolist(), strict=True)))
        limits = dict(zip(brokers, capacity[:, r].tolist(), strict=True))
        solver.add_container_dimension(name, limits)
        if not only_usage:
            room = {"name": f"{name} capacity", "scope": "broker", "dimension": name}
            solver.add_constraint({"capacitySpec": room})
    solver.add_object_dimension("replicas", {}, default_value=1.0)
    led = [r for r, leader in zip(replicas, leads.tolist(), strict=True) if leader]
    solver.add_object_dimension("leaders", dict.fromkeys(led, 1.0), default_value=0.0)
    # Goals weigh usage as a share of the container's capacity; twice the mean puts counts on the
    # scale of resources that are half used.
    for name, total in (("replicas", len(replicas)), ("leaders", len(led))):
        share = max(2.0 * total / len(brokers), 1.0)
        solver.add_container_dimension(name, {}, default_value=share)
    for name in (*dimensions, *(() if only_usage else ("replicas", "leaders"))):
        even = {
            "name": f"{name} balance",
            "scope": "broker",
            "dimension": name,
            "upperBound": BOUND,
            "formula": SQUARES,
        }
        solver.add_goal({"balanceSpec": even})

    # The fastest of its move types, which alone meets the goals at every size tried.
    single = {"singleFastMoveTypeSpec": {"minHotObjects": hot}}
    search = {"solveTime": max(1, int(seconds)), "moveTypeList": [single]}
    if moves is not None:
        search["stopAfterMoves"] = moves
    solver.add_solver({"localSearchSolverSpec": search})
    return solver


def gather(names: Sequence[str], where: Any, holders: Sequence[str]) -> dict[str, list[str]]:
    """Names grouped by holder; every holder is a key."""
    held: dict[str, list[str]] = {holder: [] for holder in holders}
    for name, at in zip(names, where.tolist(), strict=True):
        held[holders[at]].append(name)
    return held


def main(problem_path: str, answer_path: str, seconds: str, *limits: str) -> None:
    """Answer the problem in one file in another."""
    problem = np.load(problem_path)
    began = time.perf_counter()
    solver = state(problem, float(seconds), *map(int, limits))
    stated = time.perf_counter()
    solution = solver.solve()
    solved = time.perf_counter()
    final = problem["replica_broker"].copy()
    for name, broker in solution["assignment"].items():
        final[int(name[1:])] = int(broker[1:])
    np.savez(
        answer_path,
        replica_broker=final,
        setup_seconds=stated - began,
        seconds=solved - stated,
        finished=solution["solverSummaries"][0]["endReason"] != HIT_TIME_LIMIT,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
