"""What a plan states of the relief that its first actions bring."""

from __future__ import annotations

import numpy as np
import pytest
from balancer_cases import QUICK

from balancer import Balancer, Budget, Operation
from balancer.cli.tables import overview
from balancer.planning.document import RELIEF_SHARES
from balancer.planning.plan import Plan
from balancer.report import html_report
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from metrics_reporter.quantities import percent


def uneven() -> Snapshot:
    return synthetic_snapshot(brokers=10, partitions=200, racks=5, seed=3)


@pytest.fixture(name="plan", scope="module")
def _plan() -> Plan:
    return Balancer("default", strategy=QUICK).propose(uneven())


def test_a_point_states_how_even_its_first_actions_leave_the_cluster(plan: Plan) -> None:
    assert [point.share for point in plan.relief] == list(RELIEF_SHARES)
    s, point = plan.snapshot, plan.relief[-1]
    held, lead = s.replica_broker.copy(), s.leader.copy()
    first = s.replica_offset
    for i in range(point.actions):
        p = int(plan.rows.partition[i])
        own = held[first[p] : first[p + 1]]
        if plan.rows.kind[i] == "leadership":
            lead[p] = int(np.flatnonzero(own == plan.rows.target[i])[0])
        else:
            own[own == plan.rows.source[i]] = plan.rows.target[i]
    of = s.replica_partition
    leads = np.arange(len(of)) - first[of] == lead[of]
    load = np.where(leads[:, None], s.leader_load[of], s.follower_load[of])
    ratios = [
        np.bincount(held, load[:, r], s.n_brokers)
        / s.capacity[:, r]
        / load[:, r].sum()
        * s.capacity[:, r].sum()
        for r in range(len(s.resources))
    ]
    counts = [np.bincount(held, minlength=s.n_brokers), np.bincount(held[leads])]
    ratios += [count / count.mean() for count in counts]
    assert point.worst_ratio == pytest.approx(max(float(ratio.max()) for ratio in ratios))
    assert point.cost == pytest.approx(plan.rows.cost[: point.actions].sum())
    assert point.cost <= 0.5 * plan.summary.cost


def test_relief_is_the_share_of_what_the_plan_adds_to_its_goals(plan: Plan) -> None:
    assert all(point.relief < 1 for point in plan.relief)
    assert plan.relief[0].relief < plan.relief[-1].relief


def test_the_command_line_prints_the_relief(plan: Plan) -> None:
    first = plan.relief[-1]
    assert f"{percent(first.relief)} after {percent(first.share)}" in overview(plan).plain


def test_a_plan_that_adds_replicas_states_none() -> None:
    operation = Operation(kind="change_replication_factor", replication_factor={".*": 4})
    plan = Balancer("default", strategy=QUICK).propose(uneven(), operation)
    assert plan.summary.replicas_added > 0
    assert plan.relief == ()
    assert check_plan(plan.snapshot, plan.document()).ok


def test_a_plan_that_copies_nothing_states_none() -> None:
    assert (
        Balancer("default", budget=Budget(moves=0), strategy=QUICK).propose(uneven()).relief == ()
    )


def test_a_plan_from_before_keeps_its_digest(plan: Plan) -> None:
    before = plan.document().model_copy(update={"relief": (), "digest": None})
    assert "relief" not in before.model_dump(exclude=before.unstated)
    report = check_plan(plan.snapshot, before)
    assert "relief" in [unchecked.field for unchecked in report.unchecked]


def test_the_report_draws_the_curve(plan: Plan) -> None:
    page = html_report(plan)
    assert '<svg class="relief"' in page
    assert f"{percent(plan.relief[-1].relief)} after 50 % of the bytes" in page
