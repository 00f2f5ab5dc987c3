"""Plans of dry runs, so that a client who then asks to execute gets the plan that it has seen."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable

from balancer.approval import changes_since
from balancer.planning.plan import Plan
from cluster_model.snapshot import Snapshot

# How many plans are kept.
_KEPT = 4


class DryRuns:
    """The last dry runs."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, tuple[float, Plan]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, request: Hashable, plan: Plan) -> None:
        """Keep the plan of a dry run.

        Parameters
        ----------
        request
            Who asked for what.
        plan
            Its plan.
        """
        with self._lock:
            self._plans.pop(request, None)
            self._plans[request] = (time.time(), plan)
            while len(self._plans) > _KEPT:
                self._plans.popitem(last=False)

    def take(
        self, request: Hashable, snapshot: Snapshot, longest: float
    ) -> tuple[Plan | None, list[str]]:
        """The plan of the same request if it still applies, and what has changed if not.

        Parameters
        ----------
        request
            Who asks for what.
        snapshot
            The cluster now.
        longest
            Seconds after which a plan has expired.
        """
        with self._lock:
            made, plan = self._plans.pop(request, (0.0, None))
        if plan is None:
            return None, []
        if time.time() - made > longest:
            return None, ["it has expired"]
        changes = changes_since(plan.document(), snapshot)
        return (None, changes) if changes else (plan, [])
