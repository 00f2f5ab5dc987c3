"""A clock for leases: it goes on while the machine sleeps."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Seconds since the machine started, including sleep."""
    # The clocks of others run on while this machine sleeps, so the lease's clock must too.
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
