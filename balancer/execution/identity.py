"""Checks that a plan is unchanged and for the cluster it is executed on, and how old it is."""

from __future__ import annotations

from balancer.execution.errors import ExecutionError
from balancer.planning.document import PlanDocument


def check_identity(plan: PlanDocument, stated: str | None, found: str) -> None:
    """Refuse a plan for another cluster, for no cluster, and one that was changed.

    Parameters
    ----------
    plan
        The plan, as loaded from its file or made by hand.
    stated
        Id of the cluster that the caller means to act on; required if the plan names none.
    found
        Id of the cluster that the brokers belong to.

    Raises
    ------
    ExecutionError
        One sentence with the ids.
    """
    if plan.digest is not None and plan.digest != plan.content_digest:
        raise ExecutionError(
            f"the plan was changed after it was made: digest {plan.digest[:12]} stated, "
            f"{plan.content_digest[:12]} found; propose again, or remove the digest from a plan "
            "that you changed on purpose"
        )
    if stated is not None:
        check_stated(stated, found)
    planned = plan.identity.cluster_id
    if planned is None and stated is None:
        raise ExecutionError(
            "the plan names no cluster, as its snapshot was not read from Kafka: state the "
            f"cluster that it is for (--cluster-id ID); the brokers belong to cluster {found}"
        )
    if planned is not None and planned != found:
        raise ExecutionError(
            f"the plan is for cluster {planned}, but the brokers belong to cluster {found}"
        )


def check_stated(stated: str, found: str) -> None:
    """Refuse a cluster other than the one that the caller means to act on.

    Raises
    ------
    ExecutionError
        One sentence with both ids.
    """
    if stated != found:
        raise ExecutionError(f"cluster {stated} stated, but the brokers belong to cluster {found}")


def age_warning(plan: PlanDocument, now: float, limit: float) -> str | None:
    """A warning if a plan's snapshot is older than `limit` seconds at `now`; else None.

    Examples
    --------
    >>> from balancer.planning.plan import Identity
    >>> plan = PlanDocument.model_construct(identity=Identity(taken_ms=0))
    >>> age_warning(plan, now=3 * 86400.0, limit=86400.0)
    'the snapshot of the plan is 3.0 days old: the cluster may have changed since then'
    """
    taken = plan.identity.taken_ms
    if taken is None or (age := now - taken / 1000) <= limit:
        return None
    return (
        f"the snapshot of the plan is {age / 86400:.1f} days old: the cluster may have changed "
        "since then"
    )
