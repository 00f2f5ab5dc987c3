"""Readers in zones (KIP-392): what followers send makes nobody a liar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.harness import world as world_module
from benchmarks.harness.world import HOUR, Weather, World
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import Floats
from metrics_reporter import BYTES_OUT, CPU, RecordBatch

NETWORK_OUT, LIAR = 2, 4


def from_leaders(s: Snapshot) -> Floats:
    return s.replica_is_leader.astype(np.float64)


def two_thirds_from_followers(s: Snapshot) -> Floats:
    """Of each partition's first follower."""
    follows = np.flatnonzero(~s.replica_is_leader)
    first = follows[np.unique(s.replica_partition[follows], return_index=True)[1]]
    share = from_leaders(s) / 3
    share[first] = 2 / 3
    return share


def from_one_zone(s: Snapshot) -> Floats:
    """All readers are in the first rack, where each partition has a replica."""
    share: Floats = (s.broker_rack[s.replica_broker] == 0).astype(np.float64)
    return share


def from_all_zones_but_one(s: Snapshot) -> Floats:
    """The first broker is alone in its zone, where nobody reads: its followers are read."""
    follows, share = np.flatnonzero(~s.replica_is_leader), from_leaders(s)
    share[s.replica_is_leader & (s.replica_broker == 0)] = 0.0
    instead = follows[np.unique(s.replica_partition[follows], return_index=True)[1]]
    share[instead] = s.replica_broker[s.replica_offset[:-1] + s.leader] == 0
    return share


class Zones(World):
    """A world whose readers choose replicas; followers report what they send, or do not."""

    share: Callable[[Snapshot], Floats] = staticmethod(from_leaders)
    reported: bool = True
    lie: float = 1.0

    def report(self) -> RecordBatch:
        batch, s = super().report(), self.snapshot
        n, b = s.n_replicas, s.n_brokers
        column = batch.metrics.index(BYTES_OUT)
        sends, own = batch.metric == column, batch.row >= s.n_replicas
        read = np.bincount(batch.row[sends], batch.value[sends], n + b)[:n]
        of = np.bincount(s.replica_partition, read)[s.replica_partition]
        sent = of * self.share(s)
        total = np.bincount(s.replica_broker, sent, b)
        value = np.where(sends, np.append(sent, total)[batch.row], batch.value)
        # Cpu as attributed to the bytes that a broker sends.
        used = own & (batch.metric == batch.metrics.index(CPU))
        led = np.bincount(s.replica_broker, read, b)
        price = self.model.metadata.broker_load()[:, 0].sum() / value[sends & own].sum()
        value[used] += 0.25 * price * (total - led)
        value[sends & ~own & (batch.broker[batch.row] == LIAR)] *= self.lie
        follows = np.flatnonzero(~s.replica_is_leader & self.reported)
        return replace(
            batch,
            row=np.append(batch.row, follows),
            metric=np.append(batch.metric, np.full(len(follows), column)),
            value=np.append(value, sent[follows]),
        )


@pytest.fixture(autouse=True)
def report_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "INTERVAL", 100.0)


def cluster() -> Snapshot:
    found = synthetic_snapshot(
        brokers=9, partitions=180, racks=3, topics=4, skew=1.0, utilization=0.2
    )
    load = found.leader_load.copy()
    load[:, NETWORK_OUT] = 5 * load[:, 1]  # two copies, and read three times
    return replace(found, leader_load=load)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize(
    "share", [two_thirds_from_followers, from_one_zone, from_all_zones_but_one]
)
def test_reads_from_followers_make_nobody_a_liar(
    share: Callable[[Snapshot], Floats], reported: bool
) -> None:
    """Neither from the start, nor where readers begin to choose replicas, and end it."""
    started = Zones(cluster(), Weather(noise=0.1), seed=1)
    started.share, started.reported = share, reported
    later = Zones(cluster(), Weather(noise=0.1), seed=1)
    later.reported = reported
    later.advance(HOUR)
    later.model.observe()
    for world, chosen in ((started, share), (later, share), (later, from_leaders)):
        world.share = chosen
        for _ in range(9):
            world.advance(300.0)
            assert not world.model.observe().distrust.doubts


def test_what_followers_send_is_load_of_theirs() -> None:
    world = Zones(cluster(), Weather())
    world.share = two_thirds_from_followers
    world.advance(1200.0)
    seen, s = world.model.observe(), world.snapshot
    read = s.leader_load[:, NETWORK_OUT] - 2 * s.leader_load[:, 1]
    sent = (read[s.replica_partition] * world.share(s)) + np.where(
        s.replica_is_leader, 2 * s.leader_load[s.replica_partition, 1], 0.0
    )
    np.testing.assert_allclose(
        seen.snapshot.broker_load()[:, NETWORK_OUT],
        np.bincount(s.replica_broker, sent),
        rtol=0.05,
    )


@pytest.mark.parametrize(("lie", "check"), [(20.0, "totals"), (0.0, "history")])
def test_leaders_that_contradict_their_past_or_total_are_found_where_followers_are_read(
    lie: float, check: str
) -> None:
    world = Zones(cluster(), Weather(noise=0.1), seed=1)
    world.share, world.reported = two_thirds_from_followers, False
    world.advance(HOUR)
    world.model.observe()
    world.lie = lie
    for _ in range(6):
        world.advance(300.0)
        found = [(d.broker, d.check) for d in world.model.observe().distrust.doubts]
    assert found == [(LIAR, check)]
