"""Makes plans for random clusters, judged by the checker, the smallest also by enumeration."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from balancer import Balancer, Budget, Operation, OperationError, Plan
from balancer.verification.checker import check_plan
from balancer.verification.report import CheckReport
from benchmarks.enumeration import (
    TooManyError,
    false_statements,
    tiny_cluster,
    tiny_goals,
    tiny_operation,
)
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState

_CLUSTERS = {"S": 200, "M": 1_000, "L": 10_000}
# clusters so small that every placement is enumerated
_TINY = {"S": 200, "M": 1_000, "L": 10_000}
_PROFILES = ("default", "default", "cruise-control", "autobalancer")
_KINDS = (
    "rebalance",
    "add_brokers",
    "remove_brokers",
    "demote_brokers",
    "fix_offline_replicas",
    "change_replication_factor",
    "right_size",
)
# one plan in this many is made twice, and both must be equal
_AGAIN = 10
# number of findings that are printed one by one
_REPORTED = 20


@dataclass
class Counts:
    """Counts so far."""

    plans: int = 0
    refused: int = 0
    content: int = 0
    valid: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    mismatches: int = 0
    enumerated: int = 0
    certified: int = 0
    false: int = 0


@benchmark("random-clusters", sizes=tuple(_CLUSTERS))
def random_clusters(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Random clusters of 3 to 30 brokers, the operations in turn: faults found by the checker.

    Two rows say in what share of the plans every goal left unmet, and every hard one, is
    proven out of reach; operations that may move little leave much unmet without a proof.
    For tiny clusters every placement is enumerated, and each bound, certificate and goal that a
    plan calls met or unmet is compared with the truth. Any fault is reported with the arguments
    that reproduce it, and counts as a failure of the benchmark.
    """
    failures = []
    for size in sizes:
        started, tally = time.monotonic(), Counts()
        console = Console(stderr=True)
        seeds = range(options.seed, options.seed + _CLUSTERS[size])
        for seed in track(
            seeds, f"random-clusters {size}", console=console, disable=not console.is_terminal
        ):
            _try(random_case(seed), tally, options)
        tiny = range(options.seed, options.seed + _TINY[size])
        for seed in track(tiny, f"tiny {size}", console=console, disable=not console.is_terminal):
            _enumerate(seed, tally, options)
        measured: list[tuple[str, float, str]] = [
            ("clusters", len(seeds), "clusters"),
            ("plans", tally.plans, "plans"),
            ("refused operations", tally.refused, "operations"),
            ("violations", tally.violations, "findings"),
            ("mismatches", tally.mismatches, "findings"),
            ("unmet goals all proven", tally.content / max(tally.plans, 1), "ratio"),
            ("unmet hard goals all proven", tally.valid / max(tally.plans, 1), "ratio"),
            ("tiny clusters", len(tiny), "clusters"),
            ("plans compared with all placements", tally.enumerated, "plans"),
            ("plans with a certificate", tally.certified, "plans"),
            ("false statements", tally.false, "findings"),
            ("seconds", time.monotonic() - started, "seconds"),
        ]
        for metric, value, unit in measured:
            yield Row("random-clusters", size, "counterpoise", metric, value, unit)
        if tally.kinds:
            listed = ", ".join(f"{n} {kind}" for kind, n in tally.kinds.most_common())
            failures.append(f"random-clusters {size}: found {listed}")
    if failures:
        raise BenchmarkError("; ".join(failures))


@dataclass(frozen=True)
class RandomCase:
    """One plan to make; its seeds and names reproduce it."""

    seed: int
    snapshot: Snapshot
    profile: str
    operation: Operation
    budget: Budget

    def propose(self) -> Plan:
        """The plan."""
        return Balancer(self.profile, budget=self.budget).propose(self.snapshot, self.operation)


def random_case(seed: int) -> RandomCase:
    """The random cluster of a seed and an operation on it, the kinds taking turns."""
    rng = np.random.default_rng(seed)
    snapshot = random_cluster(rng)
    operation = random_operation(rng, snapshot, _KINDS[seed % len(_KINDS)])
    budget = Budget(moves=int(rng.integers(0, 40))) if rng.random() < 0.1 else Budget()
    return RandomCase(seed, snapshot, str(rng.choice(_PROFILES)), operation, budget)


def random_cluster(rng: np.random.Generator) -> Snapshot:
    """A small cluster, often unusual: full, uneven, broken, with few racks or shared hosts."""
    brokers = int(rng.integers(3, 31))
    odd = rng.random(8) < 0.3
    new = int(rng.integers(0, max(1, brokers // 4))) if odd[0] else 0
    dead = int(rng.integers(0, max(1, (brokers - new) // 4) + 1)) if odd[1] else 0
    factor = int(rng.integers(1, min(4, brokers - new) + 1))
    partitions = int(rng.integers(5, 8 * brokers))
    arguments: dict[str, Any] = {
        "brokers": brokers,
        "partitions": partitions,
        "replication_factor": factor,
        "racks": int(rng.integers(1, brokers + 1)) if odd[2] else min(brokers, factor + 1),
        "topics": int(rng.integers(1, min(partitions, 12) + 1)),
        "skew": float(rng.uniform(1, 4)),
        "load_sigma": float(rng.uniform(0, 2)),
        "largest_partition": float(rng.choice([0.05, 0.2, 0.5])),
        "utilization": float(rng.uniform(0.55, 0.95) if odd[3] else rng.uniform(0.1, 0.55)),
        "rack_violations": float(rng.choice([0.0, 0.05, 0.5])),
        "heterogeneity": float(rng.uniform(0, 1.5)) if odd[4] else 0.0,
        "disks_per_broker": int(rng.integers(1, 5)) if odd[5] else 0,
        "dead_brokers": dead,
        "new_brokers": new,
        "seed": int(rng.integers(0, 2**31)),
    }
    s = synthetic_snapshot(**arguments)
    changes: dict[str, Any] = {}
    if odd[6]:
        changes["broker_host"] = np.arange(brokers) // 2
    if odd[7]:
        state = s.broker_state.copy()
        some = rng.random(brokers) < 0.15
        state[some & (state == BrokerState.ALIVE)] = BrokerState.DEMOTED
        changes["broker_state"] = state
        if s.n_disks:
            changes["disk_alive"] = rng.random(s.n_disks) > 0.1
    return replace(s, **changes)


def random_operation(rng: np.random.Generator, s: Snapshot, kind: str) -> Operation:
    """An operation of a kind, sometimes with topics and brokers excluded."""
    living = s.broker_ids[s.broker_state != BrokerState.DEAD]

    def some(most: int) -> tuple[int, ...]:
        count = int(rng.integers(1, max(most, 1) + 1))
        return tuple(sorted(rng.choice(living, min(count, len(living)), replace=False).tolist()))

    arguments: dict[str, Any] = {"kind": kind}
    if kind in ("add_brokers", "remove_brokers", "demote_brokers"):
        fresh = s.broker_ids[s.broker_state == BrokerState.NEW].tolist()
        own = kind == "add_brokers" and fresh
        arguments["brokers"] = tuple(fresh) if own else some(len(living) // 4)
    if kind == "change_replication_factor":
        pattern = str(rng.choice([".*", *s.topics]))
        arguments["replication_factor"] = {pattern: int(rng.integers(1, 5))}
    if kind == "right_size":
        arguments["options"] = {
            "min_brokers": int(rng.integers(1, len(living) + 1)) if rng.random() < 0.2 else 1,
            "max_brokers": int(rng.integers(len(living), 40)) if rng.random() < 0.2 else None,
            "headroom": float(rng.choice([0.0, 0.0, 0.1, 0.3])),
        }
    if rng.random() < 0.15:
        arguments["excluded_topics"] = (str(rng.choice(list(s.topics))),)
    if rng.random() < 0.1:
        arguments["excluded_brokers_for_replicas"] = some(2)
    if rng.random() < 0.1:
        arguments["excluded_brokers_for_leadership"] = some(2)
    if rng.random() < 0.05 and kind != "add_brokers":
        arguments["destinations"] = some(len(living))
    return Operation(**arguments)


def _try(case: RandomCase, tally: Counts, options: Options) -> None:
    try:
        plan = case.propose()
    except OperationError:
        tally.refused += 1
        return
    except Exception as error:  # whatever it is, the next plan must be tried too
        tally.plans += 1
        _report(case, tally, options, f"{type(error).__name__}: {error}")
        tally.violations += 1
        tally.kinds[type(error).__name__] += 1
        return
    tally.plans += 1
    if case.seed % _AGAIN == 0 and case.propose().to_json() != plan.to_json():
        _report(case, tally, options, "another plan the second time")
        tally.violations += 1
        tally.kinds["another plan"] += 1
    # the brokers to add are in the snapshot of the plan
    sized = case.operation.kind == "right_size"
    snapshot = plan.snapshot if sized else case.snapshot
    report: CheckReport = check_plan(snapshot, plan.document())
    tally.content += all(u.proven for u in plan.unmet)
    tally.valid += all(u.proven for u in plan.unmet if u.hard)
    tally.violations += len(report.violations)
    # figures of impossible steps have no meaning
    mismatches = () if report.violations else report.mismatches
    tally.mismatches += len(mismatches)
    for finding in (*report.violations, *mismatches):
        if not tally.kinds[finding.kind]:
            _report(case, tally, options, f"{finding.kind}: {finding}")
        tally.kinds[finding.kind] += 1


def _enumerate(seed: int, tally: Counts, options: Options) -> None:
    """Compare the statements of a tiny cluster's plan with all of its placements."""
    rng = np.random.default_rng(seed)
    snapshot = tiny_cluster(rng)
    operation, goals = tiny_operation(rng, snapshot), tiny_goals(rng, snapshot)
    try:
        plan = Balancer(goals).propose(snapshot, operation)
        found = list(false_statements(plan, operation))
    except (OperationError, TooManyError):
        return
    except Exception as error:  # whatever it is, the next plan must be tried too
        found = [f"{type(error).__name__}: {error}"]
    else:
        tally.enumerated += 1
        tally.certified += any(u.proven for u in plan.unmet)
    tally.false += len(found)
    for what in found:
        if len(tally.kinds) < _REPORTED:
            options.log(f"tiny cluster, seed {seed}, {operation!r}: {what}")
        tally.kinds[what.partition(" ")[0]] += 1


def _report(case: RandomCase, tally: Counts, options: Options, what: str) -> None:
    if len(tally.kinds) < _REPORTED:
        options.log(
            f"seed {case.seed}, {case.profile}, {case.operation!r}, {case.budget!r}: {what}"
        )
