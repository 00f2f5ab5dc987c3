"""Checks a plan's verdict: whether its operation is fulfilled at the end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from balancer.verification.replay import Replay
from balancer.verification.report import Fault


def verdict_faults(replay: Replay) -> Iterator[Fault]:
    """Errors in the verdict of a known operation: whether and how much is left to do."""
    stated, request = replay.plan.verdict, replay.request
    if not request.kind.known:
        return
    left = _remaining(replay)
    if left is None:
        if stated is not None:
            yield Fault("verdict", "verdict: stated for a rebalance, none expected")
        return
    if stated is None:
        yield Fault("verdict", f"verdict: none stated, {left:,} found to be left to do")
        return
    if stated.remaining != left:
        yield Fault("verdict", f"verdict: remaining {stated.remaining:,} stated, {left:,} found")
    if stated.fulfilled != (left == 0):
        what = "fulfilled" if stated.fulfilled else "not fulfilled"
        yield Fault("verdict", f"verdict: {what} stated, {left:,} found to be left to do")


def _remaining(replay: Replay) -> int | None:
    """How much of the operation is left to do; None if there is nothing to fulfil."""
    left, lacking = _of_operation(replay), _lacking(replay)
    return (left or 0) + lacking if lacking or left is not None else None


def _lacking(replay: Replay) -> int:
    """Partitions without replicas that the operation should add."""
    request = replay.request
    if request.kind.moves in ("none", "changed"):
        return 0
    lacking = replay.now.factor < request.factor
    return int((lacking & ~(replay.lost | request.untouched)).sum())


def _of_operation(replay: Replay) -> int | None:
    """How much of what the operation itself is about is left to do."""
    s, request, kind = replay.snapshot, replay.request, replay.request.kind
    table = replay.now
    if kind.empties:
        if kind.may_name and not request.named.any():
            return None
        return int(request.named[table.broker].sum())
    if kind.demotes:
        led = table.leads & ~s.leaderless[table.partition]
        return int((led & request.named[table.broker]).sum())
    if kind.receivers == "named":
        held = np.bincount(table.broker, minlength=s.n_brokers)
        return int((request.named & (held == 0)).sum())
    if kind.moves == "offline":
        alive = np.append(s.disk_alive, True)[table.disk]
        return int((request.dead[table.broker] | ~alive).sum())
    if kind.moves == "changed":
        return int((table.factor != request.factor).sum())
    return None
