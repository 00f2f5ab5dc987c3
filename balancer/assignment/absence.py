"""Copies on instances that are away for a short while, and are waited for."""

from __future__ import annotations

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Ints


def awaited_copies(state: ApplicationState, configs: AssignmentConfigs) -> Ints:
    """(T,) copies of each task that are not made elsewhere, as an instance may be back soon."""
    waits = state.absent_ms < configs.standby_recovery_delay_ms
    found: Ints = np.bincount(state.absent_task[waits], minlength=state.n_tasks)
    return found


def wait_ms(state: ApplicationState, configs: AssignmentConfigs) -> int | None:
    """Milliseconds until the first of them is not waited for any longer; None without any."""
    left = configs.standby_recovery_delay_ms - state.absent_ms
    return int(left[left > 0].min()) if (left > 0).any() else None
