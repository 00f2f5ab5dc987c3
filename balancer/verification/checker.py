"""Checks a plan without the code that made it: replays every step, recomputes every figure.

It reads only the snapshot and the plan's document.
:mod:`~balancer.verification.operations` and :mod:`~balancer.verification.stated_request` read
the request; :mod:`~balancer.verification.replay` carries out the steps;
:mod:`~balancer.verification.goals` defines every goal a second time, and
:mod:`~balancer.verification.bounds` derives bounds. A partition without a leader counts as led
by its first replica.
"""

from __future__ import annotations

from balancer.planning.document import PLAN_SCHEMA_VERSION, PlanDocument
from balancer.verification.effects import reason_faults, worsened_hard_goals
from balancer.verification.figures import allocation_faults, column_faults, summary_faults
from balancer.verification.goal_results import goal_faults, unmet_goal_faults
from balancer.verification.identity import demotion_faults, identity_faults, replica_faults
from balancer.verification.operations import wrong_operation
from balancer.verification.relief import relief_faults
from balancer.verification.replaced_limits import relaxation_faults
from balancer.verification.replay import Replay
from balancer.verification.report import CheckReport, Fault
from balancer.verification.sizing import sizing_faults
from balancer.verification.stated_goals import StatedGoals
from balancer.verification.stated_request import StatedRequest
from balancer.verification.unchecked import unchecked_parts
from balancer.verification.unreached import unreached_faults
from balancer.verification.verdict import verdict_faults
from cluster_model.snapshot import Snapshot


def check_plan(snapshot: Snapshot, plan: PlanDocument) -> CheckReport:
    """Replay a plan from its snapshot, and check every step, promise and figure.

    Parameters
    ----------
    snapshot
        The start of the plan.
    plan
        The plan as it states itself, see :meth:`balancer.Plan.document` and
        :func:`balancer.load_plan`.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    >>> check_plan(snapshot, Balancer("default").propose(snapshot).document()).ok
    True
    """
    wrong = tuple(wrong_operation(snapshot, plan.operation))
    if plan.schema_version != PLAN_SCHEMA_VERSION:
        wrong += (f"schema_version {plan.schema_version}, {PLAN_SCHEMA_VERSION} expected",)
    if wrong:
        # unknown which brokers may hold and lead: nothing can be replayed
        return CheckReport(tuple(Fault("operation", text) for text in wrong), ())
    request = StatedRequest(snapshot, plan.operation)
    replay = Replay(request, plan, StatedGoals.of(plan, request))
    replay.run()
    replay.promises()
    replay.groups()
    replay.violations += worsened_hard_goals(replay)
    mismatches = [
        *identity_faults(snapshot, plan),
        *replica_faults(snapshot, plan),
        *demotion_faults(replay.request, plan),
        *(Fault(kind, text) for kind, text in replay.stated.wrong),
        *summary_faults(replay),
        *column_faults(replay),
        *goal_faults(replay),
        *relief_faults(replay),
        *relaxation_faults(replay),
        *reason_faults(replay),
        *unreached_faults(replay),
        *unmet_goal_faults(replay),
        *allocation_faults(replay),
        *verdict_faults(replay),
        *sizing_faults(replay),
    ]
    unchecked = tuple(unchecked_parts(replay))
    return CheckReport(tuple(replay.violations), tuple(mismatches), unchecked)
