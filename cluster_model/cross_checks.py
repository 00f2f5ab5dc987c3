"""Checks each broker's reports against others' measurements and against its own past."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cluster_model.attribution import LEADER_OUT_WEIGHT, replica_weights
from cluster_model.snapshot import (
    DEFAULT_RESOURCES,
    LARGEST_SUM,
    Bools,
    BrokerState,
    Floats,
    Ints,
    Snapshot,
)
from cluster_model.trust import Doubt, Reference, TrustParameters
from cluster_model.windows import Extrapolation, LoadWindows
from metrics_reporter import CPU
from metrics_reporter.quantities import plural, rounded

_RATES = ("bytes_in", "bytes_out")
_CPU, _BYTES_IN, _BYTES_OUT, _REPLICATION_IN = range(4)
# The metrics that may be set aside for a broker: bytes_in, bytes_out and, last, cpu.
_METRICS = len(_RATES) + 1


class Objection(NamedTuple):
    """A check's objection to a broker.

    Parameters
    ----------
    row
        Index of the broker.
    doubt
        The reason.
    metric
        For an unconfirmed value: 0 and 1 for bytes_in and bytes_out, 2 for cpu.
    """

    row: int
    doubt: Doubt
    metric: int | None = None


class Evidence(NamedTuple):
    """The data that the checks compare.

    Parameters
    ----------
    base
        The metadata: B brokers, P partitions, N replicas.
    rates
        Windows of bytes_in and bytes_out of partitions.
    brokers
        Windows of brokers' metrics, for the same times; without values in windows that began
        before replicas or leaders last moved to or from the broker: its earlier load does not
        match its current partitions.
    sizes : (N,) float
        Newest size of each replica; nan if not reported.
    reference
        The last trusted values.
    parameters
        Tolerances.
    leader : (P,) int
        Index of the leading broker; B if there is none.
    claimed : (B, W, 2) float
        Sums of the rates of the partitions that a broker leads.
    expected : (B, W, 2) float
        The same by the reference, for partitions known to both.
    compared : (B, W, 2) float
        The sums of the rates of those partitions.
    weight : (B, W) float
        Expected cpu cost of each broker's bytes, see :func:`broker_weight`.
    share_known : (B,) float
        Share of the partitions it leads whose rates are known in all windows since
        `moved_ms`; 1 if it leads none.
    moved_ms : (B,) int
        When replicas or leaders last moved to or from the broker; -1 for never.
    reads
        Windows of bytes_out of the N replicas, for the same times; without values of leaders.
    reported : (B, W) float
        Sums of them: what a broker's followers send to consumers, by their reports.
    followed : (B, W) float
        At least the same: what a broker sends beyond the partitions that it leads, if its total
        is larger. Few sources report what single followers send.
    whole : (B,) bool
        Whether the broker reports what each of its followers sends.
    """

    base: Snapshot
    rates: LoadWindows
    brokers: LoadWindows
    sizes: Floats
    reference: Reference
    parameters: TrustParameters
    leader: Ints
    claimed: Floats
    expected: Floats
    compared: Floats
    weight: Floats
    share_known: Floats
    moved_ms: Ints
    reads: LoadWindows
    reported: Floats
    followed: Floats
    whole: Bools

    def own(self, metric: int) -> Floats:
        """(B, W) a metric that brokers report of themselves; nan if they do not."""
        return _known(self.brokers, metric)

    def contradicted(self, row: int, check: str, sentence: str) -> Objection:
        """An objection that another measurement contradicts the broker."""
        return Objection(row, Doubt(int(self.base.broker_ids[row]), check, sentence))

    def unconfirmed(self, row: int, check: str, metric: int, sentence: str) -> Objection:
        """An objection to an unusual value of the broker that nothing else confirms."""
        doubt = Doubt(int(self.base.broker_ids[row]), check, sentence, proven=False)
        return Objection(row, doubt, metric)


@dataclass(frozen=True, eq=False)
class CheckResult:
    """The result of all checks.

    Parameters
    ----------
    doubts
        The first reason for each broker that is not trusted, in whole or in part.
    doubted : (B,) bool
        Brokers that are not trusted at all.
    unconfirmed : (B, 3) bool
        Whether bytes_in, bytes_out and cpu of a broker are unusual and unconfirmed.
    aside : (B,) bool
        Brokers that are trusted in all but those.
    wrong_sizes : (N,) bool
        Replicas whose sizes contradict all other witnesses.
    """

    doubts: tuple[Doubt, ...]
    doubted: Bools
    unconfirmed: Bools
    aside: Bools
    wrong_sizes: Bools

    @property
    def unbelieved(self) -> Bools:
        """(B, 3) bool: whether bytes_in, bytes_out and cpu of a broker are not trusted."""
        unbelieved: Bools = self.doubted[:, None] | (self.unconfirmed & self.aside[:, None])
        return unbelieved


def evidence(
    base: Snapshot,
    rates: LoadWindows,
    brokers: LoadWindows,
    sizes: Floats,
    reference: Reference,
    moved_ms: Ints,
    parameters: TrustParameters,
    reads: LoadWindows,
) -> Evidence:
    """Sum up the data that the checks compare, over the windows that loads are made of."""
    n, windows = base.n_brokers, len(rates.start_ms)
    brokers = _since(_aligned(brokers, rates.start_ms), moved_ms)
    reads, reported, whole = _of_followers(base, _aligned(reads, rates.start_ms))
    leader = leading_broker(base)
    claimed, expected, compared = (np.zeros((n, windows, len(_RATES))) for _ in range(3))
    unknown = np.zeros(base.n_partitions, np.bool_)
    # A new leader's reports do not count until the metadata names it.
    settled = rates.start_ms > np.append(moved_ms, -1)[leader][:, None]
    for m in range(len(_RATES)):
        before = reference.rates[:, m]
        has = ~np.isnan(before)
        for w in range(windows):
            value = rates.value[:, w, m]
            known = rates.kind[:, w, m] != Extrapolation.NO_VALID_EXTRAPOLATION
            unknown |= ~known & settled[:, w]
            both = known & has
            claimed[:, w, m] = _sums(leader, value * known, n)
            if both.any():
                expected[:, w, m] = _sums(leader, np.where(both, before, 0.0), n)
                compared[:, w, m] = _sums(leader, value * both, n)
    led = np.bincount(leader, minlength=n + 1)[:n]
    share = 1 - _sums(leader, unknown.astype(np.float64), n) / np.maximum(led, 1)
    beyond = _known(brokers, _BYTES_OUT) - claimed[:, :, 1]
    complete = (share >= parameters.whole_share)[:, None] & ~np.isnan(beyond)
    followed = np.maximum(reported, np.where(complete, beyond, 0.0))
    usual = np.nan_to_num(rates.mean)
    weight = np.zeros((n, windows))
    for w in range(windows):
        known_rates = rates.kind[:, w] != Extrapolation.NO_VALID_EXTRAPOLATION
        of = np.where(known_rates, rates.value[:, w], usual)
        weight[:, w] = broker_weight(base, of, followed[:, w])
    return Evidence(
        base, rates, brokers, sizes, reference, parameters, leader, claimed, expected, compared,
        weight, share, moved_ms, reads, reported, followed, whole,
    )  # fmt: skip


def judge(facts: Evidence) -> CheckResult:
    """Run all checks, and decide which brokers to trust."""
    base, reference, p = facts.base, facts.reference, facts.parameters
    wrong, lying = size_conflicts(facts)
    jumped = jumps(facts)
    windows = range(len(facts.rates.start_ms))
    copied = np.stack([followers_fit(facts, jumped[:, 0], w) for w in windows], axis=1)
    checks: list[Callable[[], Iterator[Objection]]] = [
        lambda: missing(facts),
        lambda: iter(lying),
        lambda: over_capacity(facts),
        lambda: totals(facts),
        lambda: followers(facts, copied),
        lambda: growth(facts),
        lambda: stuck(facts),
        lambda: history(facts, jumped, copied),
        lambda: fan_out(facts),
        lambda: cpu(facts),
    ]
    found: dict[int, Doubt] = {}
    unconfirmed = np.zeros((base.n_brokers, _METRICS), np.bool_)
    for check in checks:
        for b, doubt, metric in check():
            if metric is not None:
                unconfirmed[b, metric] = True
            earlier = found.get(b)
            if earlier is None or (doubt.proven and not earlier.proven):
                found[b] = doubt
    start_ms = facts.rates.start_ms
    now = int(start_ms[-1]) if len(start_ms) else -1
    for b in np.flatnonzero(facts.moved_ms >= start_ms[0]).tolist() if len(start_ms) else ():
        # Windows from before and after a change mix the reports of several brokers.
        last = reference.doubts.get(int(base.broker_ids[b]))
        if b not in found and last is not None and last[0].check != "missing":
            found[b], unconfirmed[b] = last
    # Cpu is judged by bytes, so it is unconfirmed whenever they are.
    unconfirmed[:, -1] |= unconfirmed[:, :-1].any(axis=1)
    for b in np.flatnonzero(np.isin(base.broker_ids, p.believed)).tolist():
        # A value that is not reported cannot be trusted.
        if b in found and found[b].check != "missing":
            del found[b]
    aside = np.zeros(base.n_brokers, np.bool_)
    for b, doubt in found.items():
        aside[b] = not doubt.proven and (
            0 <= reference.since_ms[b] <= now - p.set_aside_after * 1000
        )
        found[b] = replace(doubt, set_aside=bool(aside[b]))
    doubted = np.isin(np.arange(base.n_brokers), list(found)) & ~aside
    doubts = tuple(found[b] for b in sorted(found))
    return CheckResult(doubts, doubted, unconfirmed, aside, wrong)


def believe(reference: Reference, facts: Evidence, verdict: CheckResult) -> None:
    """Store the values of trusted brokers, and the start of each doubt.

    The newest window is left out if there are others: a jump in the middle of it may not
    be large enough to detect yet.
    """
    windows = len(facts.rates.start_ms)
    if not windows:
        return
    settled = max(windows - 1, 1)
    now = int(facts.rates.start_ms[-1])
    unsure = {d.broker for d in verdict.doubts if not d.proven}
    began = np.isin(facts.base.broker_ids, list(unsure))
    reference.since_ms = np.where(
        began, np.where(reference.since_ms >= 0, reference.since_ms, now), -1
    )
    row = dict(zip(facts.base.broker_ids.tolist(), range(facts.base.n_brokers), strict=True))
    reference.doubts = {
        d.broker: (d, verdict.unconfirmed[row[d.broker]].copy()) for d in verdict.doubts
    }
    if now <= reference.time_ms:
        return
    reference.time_ms = now
    trusted = np.append(~verdict.unbelieved, np.zeros((1, _METRICS), np.bool_), axis=0)
    kept = LoadWindows(
        facts.rates.start_ms[:settled],
        facts.rates.value[:, :settled],
        facts.rates.kind[:, :settled],
    )
    mean = kept.mean
    rows = trusted[facts.leader, : len(_RATES)] & ~np.isnan(mean)
    # New arrays: other threads may be reading the old ones.
    reference.rates = np.where(rows, mean, reference.rates)
    sized = (
        ~verdict.doubted[facts.base.replica_broker] & ~np.isnan(facts.sizes) & ~verdict.wrong_sizes
    )
    reference.sizes = np.where(sized, facts.sizes, reference.sizes)
    sent = facts.reads.last(settled).mean[:, 0]
    sends = trusted[facts.base.replica_broker, 1] & ~np.isnan(sent)
    reference.reads = np.where(sends, sent, reference.reads)
    followed = _mean(facts.followed[:, :settled])
    # Reads that move from leaders to followers are compared with one moment for both.
    if not verdict.unconfirmed[:, 1].any():
        reference.followed = followed
    used = facts.own(_CPU)[:, :settled]
    took = trusted[:-1, -1] & ~np.isnan(used).all(axis=1)
    reference.cpu = np.where(took, _mean(used), reference.cpu)
    weight = broker_weight(facts.base, np.nan_to_num(reference.rates), followed)
    reference.weight = np.where(took, weight, reference.weight)
    reference.cpu_ms = np.where(took, now, reference.cpu_ms)


def missing(facts: Evidence) -> Iterator[Objection]:
    """Brokers that serve, but whose partitions' rates are unknown."""
    led = np.bincount(facts.leader, minlength=facts.base.n_brokers + 1)
    windows = len(facts.rates.start_ms)
    for b in np.flatnonzero(facts.share_known < facts.parameters.known_share).tolist():
        known = round(float(facts.share_known[b]) * int(led[b]))
        broker = int(facts.base.broker_ids[b])
        yield facts.contradicted(
            b,
            "missing",
            f"broker {broker} leads {plural(int(led[b]), 'partition')} and its valid records give "
            f"the rates of {known} in all of {plural(windows, 'complete window')}",
        )
    silent = np.isnan(facts.own(_CPU)).all(axis=1) & (facts.moved_ms < 0)
    living = facts.base.broker_state != BrokerState.DEAD
    if 2 * (silent & living).sum() >= living.sum():
        # Not every source measures cpu.
        return
    for b in np.flatnonzero(silent & living & (led[:-1] > 0)).tolist():
        broker = int(facts.base.broker_ids[b])
        yield facts.contradicted(
            b, "missing", f"broker {broker} has sent no valid cpu, and most other brokers have"
        )


def totals(facts: Evidence) -> Iterator[Objection]:
    """Brokers whose own totals differ from the sum of their partitions' rates.

    Consumers may read from followers. Where it is unknown how much, a larger total of bytes_out
    contradicts nothing.
    """
    p = facts.parameters
    led = facts.share_known >= p.whole_share
    for m, metric, sums, complete in (
        (0, _BYTES_IN, facts.claimed[:, :, 0], led),
        (1, _BYTES_OUT, facts.claimed[:, :, 1] + facts.reported, led & facts.whole),
    ):
        measured = facts.own(metric)
        claim, own = _mean(np.where(np.isnan(measured), np.nan, sums)), _mean(measured)
        apart = differ(claim, own, p.contradiction, _floor(facts, claim, own))
        apart &= complete | (claim > own)
        for b in np.flatnonzero(apart).tolist():
            broker = int(facts.base.broker_ids[b])
            yield facts.contradicted(
                b,
                "totals",
                f"the partitions that broker {broker} {'serves' if m else 'leads'} take "
                f"{_rate(claim[b])} of {_RATES[m]} by its report, and the broker as a whole "
                f"{_rate(own[b])}",
            )


def followers(facts: Evidence, measured: Floats) -> Iterator[Objection]:
    """Leaders that claim more or less bytes_in than :func:`followers_fit` measured."""
    p, claim = facts.parameters, facts.claimed[:, :, 0]
    apart = differ(claim, measured, p.contradiction, p.floor * _typical(claim))
    for b in np.flatnonzero(apart.any(axis=1)).tolist():
        broker, w = int(facts.base.broker_ids[b]), int(np.flatnonzero(apart[b])[-1])
        yield facts.contradicted(
            b,
            "followers",
            f"broker {broker} reports {_rate(claim[b, w])} of bytes_in for the partitions it "
            f"leads, and their followers on other brokers copied {_rate(measured[b, w])}",
        )


def followers_fit(facts: Evidence, suspects: Bools, window: int) -> Floats:
    """(B,) bytes_in of suspects in a window, as their followers' brokers measured it; else nan.

    A follower's total mixes copies from many leaders. Leaders that jumped are suspects
    from the start. Then leaders are added one by one: each time the one that explains most
    of the shortfall of the followers' measurements from the leaders' claims, until nothing
    is left to explain. A follower's total that no leader explains is left out. The suspects'
    true rates are fitted by least squares. Followers copy *more* than leaders claim whenever
    replicas move, so that makes no leader a suspect.

    A leader or follower is singled out only if it explains significantly more than the
    noise that remains without it.
    """
    base, p, n = facts.base, facts.parameters, facts.base.n_brokers
    received = facts.own(_REPLICATION_IN)[:, window]
    follows = ~base.replica_is_leader
    partition, at = base.replica_partition[follows], base.replica_broker[follows]
    source = facts.leader[partition]
    mean = facts.rates.value[:, window, 0]
    before = np.nan_to_num(facts.reference.rates[:, 0])
    claim = facts.claimed[:, window, 0]
    measured = np.full(n, np.nan)
    led = source < n
    if not (~np.isnan(received)).any() or not led.any():
        return measured
    key = source[led] * n + at[led]

    # Below the last digit of the bytes that followers copied, nothing can be measured.
    least = np.finfo(np.float64).eps * float(np.nanmax(received))

    def copied(rate: Floats) -> Floats:
        sums = np.bincount(key, rate[partition[led]], n * n).reshape(n, n).astype(np.float64)
        return np.where(sums > least, sums, 0.0)

    # Row b: the bytes that followers of broker b copy, by the follower's broker.
    flow = copied(mean)
    shape = np.where(flow.sum(axis=1, keepdims=True) > 0, flow, copied(before))
    by_leader = _sums(facts.leader, mean, n), _sums(facts.leader, before, n)
    volume = np.where(flow.sum(axis=1) > 0, by_leader[0], by_leader[1])
    rows = ~np.isnan(received) & (base.broker_state != BrokerState.DEAD)
    chosen = suspects.copy()
    scale = np.zeros(0)
    # If a quarter of the brokers had to be wrong, followers measure something else.
    for _ in range(max(2, n // 4) + 1):
        columns = np.flatnonzero(chosen)
        rest = received - flow[~chosen].sum(axis=0)
        if len(columns):
            used = shape[columns][:, rows].T
            size = np.maximum(np.linalg.norm(used, axis=0), np.finfo(np.float64).tiny)
            scale = np.linalg.lstsq(used / size, rest[rows], rcond=None)[0] / size
            # a witness of next to nothing would give a factor that no traffic has
            scale = np.clip(scale, 0.0, LARGEST_SUM)
        left = np.where(rows, rest - scale @ shape[columns], 0.0)
        norm = (np.where(rows, flow, 0.0) ** 2).sum(axis=1)
        excess = np.divide(flow @ left, norm, out=np.zeros(n), where=(norm > 0) & ~chosen)
        # Whatever the factor: one leader's excess cannot be explained by another.
        explained = np.where(excess < 0, excess**2 * norm, 0.0)
        most, odd = int(explained.argmax()), int(np.abs(left).argmax())
        best = max(float(explained[most]), float(left[odd] ** 2))
        noise = max(float((left**2).sum()) - best, 0.0) / max(int(rows.sum()) - 1, 1)
        if best <= p.significance**2 * noise or best <= (p.floor * claim.max()) ** 2 / n:
            break
        if explained[most] >= left[odd] ** 2:
            chosen[most] = True
        else:
            rows[odd] = False
    else:
        return measured
    columns = np.flatnonzero(chosen)
    witnessed = np.where(rows, shape[columns], 0.0).sum(axis=1) > 0
    with np.errstate(over="ignore"):
        found = scale * volume[columns]
    # A witness of next to nothing says nothing.
    witnessed &= np.isfinite(found)
    measured[columns] = np.where(witnessed, found, np.nan)
    # A suspect's claim covers all its partitions, also those without followers.
    alone = claim[columns] > 0
    measured[columns[alone & ~witnessed]] = np.nan
    return measured


def size_conflicts(facts: Evidence) -> tuple[Bools, list[Objection]]:
    """Replicas whose size no other witness of the partition confirms, and brokers with many.

    Witnesses are the other replicas' reports and the sizes of log directories in the
    metadata. The broker with the largest share of conflicts is removed first, so that
    brokers that share partitions with it are not blamed.
    """
    base, p = facts.base, facts.parameters
    wrong = np.zeros(base.n_replicas, np.bool_)
    sizes = facts.sizes.copy()
    known = ~np.isnan(sizes)
    if not known.any():
        return wrong, []
    width = int(base.replication_factor.max(initial=0))
    slot = np.arange(base.n_replicas) - base.replica_offset[base.replica_partition]
    table = np.full((base.n_partitions, width + 2), np.nan)
    table[base.replica_partition, slot] = sizes
    table[:, width:] = witnessed_log_dirs(facts)
    # A fast path: in most partitions all sizes agree.
    floor = p.floor * float(np.nanmedian(sizes))
    high, low = np.fmax.reduce(table, axis=1), np.fmin.reduce(table, axis=1)
    odd = np.flatnonzero(differ(high, low, p.contradiction, floor))
    if not len(odd):
        return wrong, []
    at = np.full(base.n_partitions, -1)
    at[odd] = np.arange(len(odd))
    table = table[odd]
    replica = np.flatnonzero((at[base.replica_partition] >= 0) & known)
    row, column, broker = at[base.replica_partition[replica]], slot[replica], base.replica_broker[
        replica
    ]  # fmt: skip
    counted = known & (high > floor)[base.replica_partition]
    held = np.maximum(np.bincount(base.replica_broker[counted], minlength=base.n_brokers), 1)
    liars: list[int] = []
    found: list[Objection] = []
    while True:
        mine = table[row, column]
        others = table[row]
        others[np.arange(len(row)), column] = np.nan
        heard = ~np.isnan(others)
        against = differ(
            others, np.repeat(mine[:, None], width + 2, axis=1), p.contradiction, floor
        )
        conflict = heard.any(axis=1) & ~(heard & ~against).any(axis=1) & ~np.isnan(mine)
        share = np.bincount(broker[conflict], minlength=base.n_brokers) / held
        worst = int(share.argmax())
        if share[worst] <= p.wrong_sizes:
            wrong[replica[conflict]] = True
            break
        hit = conflict & (broker == worst)
        other = np.nanmedian(others[hit], axis=1)
        identity = int(base.broker_ids[worst])
        found.append(
            facts.contradicted(
                worst,
                "sizes",
                f"{int(hit.sum())} replicas on broker {identity} take {_size(mine[hit].sum())} by "
                f"its report, and {_size(other.sum())} by other replicas and log directories",
            )
        )
        liars.append(worst)
        table[row[broker == worst], column[broker == worst]] = np.nan
    wrong[np.isin(base.replica_broker, liars) & known] = True
    return wrong, found


def log_dir_sizes(base: Snapshot) -> Floats:
    """(P, 2) sizes of leader and followers in the metadata; nan if missing."""
    disk = DEFAULT_RESOURCES[3]
    if disk not in base.resources:
        return np.full((base.n_partitions, 2), np.nan)
    column = base.resource(disk)
    found = np.stack([base.leader_load[:, column], base.follower_load[:, column]], axis=1)
    return np.where(found > 0, found, np.nan)


def witnessed_log_dirs(facts: Evidence) -> Floats:
    """(P, 2) :func:`log_dir_sizes`, if they describe the same cluster and time as the reports.

    That is assumed if they agree with at least half of the reports; invented or outdated
    metadata is no witness.
    """
    base, factor = facts.base, facts.parameters.contradiction
    found = log_dir_sizes(base)
    role = np.where(base.replica_is_leader, 0, 1)
    size = found[base.replica_partition, role]
    known = ~np.isnan(size) & ~np.isnan(facts.sizes)
    agree = known & ~differ(size, facts.sizes, factor, 0.0)
    if 2 * agree.sum() < known.sum():
        found = np.full_like(found, np.nan)
    return found


def growth(facts: Evidence) -> Iterator[Objection]:
    """Brokers whose replicas grew by more than was written, without another witness."""
    base, p, before = facts.base, facts.parameters, facts.reference
    both = ~np.isnan(facts.sizes) & ~np.isnan(before.sizes)
    if before.time_ms < 0 or not both.any():
        return
    log_dirs: Bools = np.logical_not(np.isnan(witnessed_log_dirs(facts)).all(axis=1))
    reports = np.bincount(base.replica_partition[both], minlength=base.n_partitions)
    both &= (reports == 1)[base.replica_partition] & ~log_dirs[base.replica_partition]
    at = base.replica_broker[both]
    grown = np.bincount(at, (facts.sizes - before.sizes)[both], base.n_brokers)
    rate = np.nan_to_num(facts.rates.of(slice(0, 1)).over("max")[:, 0])[base.replica_partition]
    # Plus two windows: sizes are newer than windows, and the reference is older.
    length = int(facts.rates.start_ms[-1] - before.time_ms) / 1000 + 2 * _length(facts.rates)
    written = np.bincount(at, rate[both], base.n_brokers) * length
    held = np.bincount(at, before.sizes[both], base.n_brokers)
    allowed = p.growth * written + p.floor * held
    for b in np.flatnonzero(grown > allowed).tolist():
        broker = int(base.broker_ids[b])
        yield facts.contradicted(
            b,
            "growth",
            f"replicas on broker {broker} grew by {_size(grown[b])}, and {_size(written[b])} "
            "were written to them in that time",
        )


def stuck(facts: Evidence) -> Iterator[Objection]:
    """Brokers that repeat their rates to the last digit while the others' loads vary."""
    p, windows = facts.parameters, len(facts.rates.start_ms)
    if windows < p.stuck_windows:
        return
    for name, value in (
        *((_RATES[m], facts.claimed[:, :, m]) for m in range(len(_RATES))),
        ("cpu", facts.own(_CPU)),
    ):
        high, low = value.max(axis=1), value.min(axis=1)
        rounded = _coarse(high, p.stuck_digits)
        if name == CPU and CPU in facts.base.resources:
            # Also as a percentage of the broker's cores.
            capacity = facts.base.capacity[:, facts.base.resource(CPU)]
            rounded |= _coarse(100 * _ratio(high, capacity), p.stuck_digits)
        spread = np.divide(high - low, high, out=np.full(len(high), np.nan), where=high > 0)
        moving = spread > 1e-6
        same = spread <= 1e-12
        if 2 * moving.sum() <= (~np.isnan(spread)).sum():
            continue
        same &= ~rounded & (facts.share_known >= p.whole_share)
        for b in np.flatnonzero(same).tolist():
            broker = int(facts.base.broker_ids[b])
            yield facts.contradicted(
                b,
                "stuck",
                f"broker {broker} reports {_amount(name, high[b])} of {name} in each of {windows} "
                f"windows, and {int(moving.sum())} other brokers' vary",
            )


def _coarse(value: Floats, digits: int) -> Bools:
    """Which numbers have at most that many significant digits."""
    short = np.array([float(f"{v:.{digits}g}") for v in value.tolist()])
    coarse: Bools = np.isclose(value, short, rtol=1e-9, atol=0.0)
    return coarse


def jumps(facts: Evidence) -> Bools:
    """(B, 2) bool: whether bytes_in or bytes_out of a broker left its history."""
    found = np.zeros((facts.base.n_brokers, len(_RATES)), np.bool_)
    for m in range(len(_RATES)):
        now, before = _history(facts, m)
        found[:, m] = differ(now, before, facts.parameters.jump, _floor(facts, before)).any(axis=1)
    return found


def history(facts: Evidence, jumped: Bools, measured: Floats) -> Iterator[Objection]:
    """Brokers whose bytes left their history without confirmation.

    A jump of bytes_in is confirmed if followers copied as much or, without followers, if
    the broker's cpu changed as these bytes require. A jump of bytes_out is confirmed if
    bytes_in had a similar confirmed jump, if cpu changed as these bytes require, if
    other brokers' partitions of the same topics are read as often, or if reads moved between
    leaders and followers.
    """
    p, n = facts.parameters, facts.base.n_brokers
    if not jumped.any():
        return
    claim = facts.claimed[:, :, 0]
    copied = ~np.isnan(measured).any(axis=1)
    apart = differ(claim, measured, p.contradiction, p.floor * _typical(claim))
    same = copied & ~apart.any(axis=1)
    confirmed = np.zeros((n, len(_RATES)), np.bool_)
    by_cpu = _confirmed_by_cpu(facts)
    confirmed[:, 0] = same | (~copied & by_cpu)
    factors = []
    for m in range(len(_RATES)):
        now, before = _history(facts, m)
        factors.append(_ratio(now[:, -1], before[:, -1]))
    alike = same & ~differ(factors[1], factors[0], p.jump, 0.0)
    confirmed[:, 1] = by_cpu | alike | _reads_moved(facts)
    if (jumped[:, 1] & ~confirmed[:, 1]).any():
        sent, usual = (_sums(facts.leader, value, n) for value in read_elsewhere(facts))
        floor = _floor(facts, sent)
        whole = 2 * sent >= facts.claimed[:, -1, 1]
        confirmed[:, 1] |= whole & (usual > 0) & ~differ(sent, usual, p.contradiction, floor)
    for m in range(len(_RATES)):
        now, before = _history(facts, m)
        apart = differ(now, before, p.jump, _floor(facts, before))
        for b in np.flatnonzero(jumped[:, m] & ~confirmed[:, m]).tolist():
            w = int(np.flatnonzero(apart[b])[-1])
            broker = int(facts.base.broker_ids[b])
            yield facts.unconfirmed(
                b,
                "history",
                m,
                f"{_RATES[m]} of the partitions that broker {broker} leads jumped from "
                f"{_rate(before[b, w])} to {_rate(now[b, w])}, and nothing else confirms it",
            )


def fan_out(facts: Evidence) -> Iterator[Objection]:
    """Brokers without a history, most of whose partitions are read unlike all others.

    Where followers of other brokers are read, leaders tell nothing about each other: consumers
    read in their own zone.
    """
    p, n = facts.parameters, facts.base.n_brokers
    new = ~(facts.expected[:, :, 1] > 0).any(axis=1) & (facts.claimed[:, :, 0] > 0).any(axis=1)
    followed, led = facts.followed.max(axis=1, initial=0.0), facts.claimed[:, :, 1].max(axis=1)
    new &= followed.sum() - followed <= p.floor * led.sum()
    if not new.any():
        return
    sent, usual = read_elsewhere(facts)
    by_broker = _sums(facts.leader, sent, n), _sums(facts.leader, usual, n)
    apart = differ(*by_broker, p.jump, _floor(facts, by_broker[0]))
    # A single partition with unusual readers does not discredit the broker.
    judged = _sums(facts.leader, (usual > 0).astype(np.float64), n)
    odd = _sums(facts.leader, differ(sent, usual, p.contradiction, 0.0).astype(np.float64), n)
    apart &= (judged >= p.witnesses) & (odd >= p.most_partitions * judged)
    for b in np.flatnonzero(new & apart).tolist():
        broker = int(facts.base.broker_ids[b])
        yield facts.unconfirmed(
            b,
            "peers",
            1,
            f"the partitions that broker {broker} leads send {_rate(by_broker[0][b])} of "
            f"bytes_out, and {_rate(by_broker[1][b])} if they were read as often as other "
            "brokers' of the same topics",
        )


def read_elsewhere(facts: Evidence) -> tuple[Floats, Floats]:
    """(P,), (P,) bytes_out of partitions, measured and as expected from other brokers.

    A reader of a topic reads all of its partitions, so the ratio of bytes_out to bytes_in
    is usually the same on every leader. The median broker gives it. Both are 0 for
    partitions of topics that fewer than :attr:`TrustParameters.witnesses` brokers lead, or
    on which these disagree, apart from the highest and the lowest tenth. Both are of the
    newest window: a mean over windows would hide a jump for a while.
    """
    base, n, p = facts.base, facts.base.n_brokers, facts.parameters
    rates = np.nan_to_num(facts.rates.over("latest"))
    led = (facts.leader < n) & (rates[:, 0] > 0)
    # A row for each topic and broker that leads partitions of it, in the order of topics.
    pairs, of = np.unique(base.partition_topic[led] * n + facts.leader[led], return_inverse=True)
    taken, sent = (np.bincount(of, rates[led, m], len(pairs)) for m in range(len(_RATES)))
    with np.errstate(over="ignore"):
        times, topic = sent / taken, pairs // n
    ranked = np.append(times[np.lexsort((times, topic))], 0.0)
    first, end = np.searchsorted(topic, np.arange(len(base.topics)) + np.array([[0], [1]]))
    few = 1 + (end - first) // 10
    heard = end - first >= p.witnesses
    low, high = ranked[np.where(heard, [first + few, end - 1 - few], -1)]
    heard &= high <= p.contradiction * low
    usual = np.where(heard, ranked[(first + end) // 2], 0.0)
    known = led & heard[base.partition_topic]
    return np.where(known, rates[:, 1], 0.0), np.where(
        known, rates[:, 0] * usual[base.partition_topic], 0.0
    )


def cpu(facts: Evidence) -> Iterator[Objection]:
    """Brokers whose cpu left its history or its peers' range, unexplained by their bytes."""
    p, base = facts.parameters, facts.base
    used = facts.own(_CPU)
    before, based = facts.reference.cpu, has_baseline(facts.reference, p)
    floor = p.floor * _typical(_mean(used))
    for w in range(used.shape[1]):
        grown = _ratio(facts.weight[:, w], facts.reference.weight)
        least = before * np.fmin(grown, 1.0) / p.jump - floor
        most = before * np.fmax(grown, 1.0) * p.jump + floor
        odd = based & ((used[:, w] > most) | (used[:, w] < least))
        for b in np.flatnonzero(odd).tolist():
            broker = int(base.broker_ids[b])
            yield facts.unconfirmed(
                b,
                "history",
                len(_RATES),
                f"cpu of broker {broker} jumped from {rounded(before[b], 3)} to "
                f"{rounded(used[b, w], 3)}, and its bytes do not explain it",
            )
    now = _mean(used)
    weight = _mean(np.where(np.isnan(used), np.nan, facts.weight))
    price = _ratio(now, weight)
    # Only brokers busy enough for their cpu to depend on bytes.
    price[weight < _typical(weight) / p.peers] = np.nan
    if (~np.isnan(price)).sum() < p.witnesses:
        return
    usual, middle = float(np.nanmedian(price)), _typical(now)
    explained = usual * weight
    with np.errstate(invalid="ignore"):
        high = now > p.peers * np.maximum(explained, middle)
        low = now * p.peers < np.minimum(explained, middle)
    for b in np.flatnonzero(~based & (high | low)).tolist():
        broker = int(base.broker_ids[b])
        yield facts.unconfirmed(
            b,
            "peers",
            len(_RATES),
            f"broker {broker} uses {rounded(now[b], 3)} of cpu, and the median broker would use "
            f"{rounded(explained[b], 3)} for the same bytes",
        )


def over_capacity(facts: Evidence) -> Iterator[Objection]:
    """Brokers that use far more cpu than their capacity, if most do not."""
    base, p = facts.base, facts.parameters
    if CPU not in base.resources:
        return
    capacity = base.capacity[:, base.resource(CPU)]
    used = _mean(facts.own(_CPU))
    share = _ratio(used, capacity)
    # If that is common, capacities are stated in another unit.
    if _typical(share) > 1:
        return
    with np.errstate(invalid="ignore"):
        over = np.flatnonzero(share > p.contradiction)
    for b in over.tolist():
        broker = int(base.broker_ids[b])
        yield facts.contradicted(
            b,
            "capacity",
            f"broker {broker} uses {rounded(used[b], 3)} of cpu by its report, and has "
            f"{rounded(capacity[b], 3)}",
        )


def has_baseline(reference: Reference, parameters: TrustParameters) -> Bools:
    """(B,) bool: whether cpu was trusted at a time when the broker had enough bytes."""
    least = _typical(reference.weight) / parameters.peers
    with np.errstate(invalid="ignore"):
        based: Bools = ~np.isnan(reference.cpu) & (reference.weight >= least)
    return based & (reference.weight > 0)


def usual_cpu(reference: Reference, weight: Floats, parameters: TrustParameters) -> Floats:
    """(B,) cpu expected for brokers' current bytes from trusted values; nan without those."""
    based = has_baseline(reference, parameters)
    return np.where(based, reference.cpu * _ratio(weight, reference.weight), np.nan)


def broker_weight(base: Snapshot, rates: Floats, followed: Floats) -> Floats:
    """(B,) expected cpu cost of brokers' bytes, by the weights of :func:`attribute_cpu`.

    Parameters
    ----------
    base
        The placement of the P partitions.
    rates : (P, 2) float
        bytes_in and bytes_out of partitions.
    followed : (B,) float
        What its followers send to consumers.
    """
    bytes_in, bytes_out = rates.T
    out = bytes_out + bytes_in * (base.replication_factor - 1)
    of = replica_weights(base, bytes_in, out)
    weight = np.bincount(base.replica_broker, of, base.n_brokers).astype(np.float64)
    return weight + LEADER_OUT_WEIGHT * followed


def leading_broker(base: Snapshot) -> Ints:
    """(P,) index of the broker that leads each partition; the number of brokers for none."""
    leads = base.replica_is_leader
    broker = np.full(base.n_partitions, base.n_brokers)
    broker[base.replica_partition[leads]] = base.replica_broker[leads]
    return broker


def differ(one: Floats, other: Floats, factor: float, floor: float) -> Bools:
    """Which pairs differ by more than a factor and by more than the floor; none with nan.

    Examples
    --------
    >>> differ(np.array([1.0, 3.0, 0.0, np.nan]), np.array([1.0, 1.0, 5.0, 1.0]), 2.0, 0.1).tolist()
    [False, True, True, False]
    """
    high, low = np.maximum(one, other), np.minimum(one, other)
    with np.errstate(invalid="ignore"):
        apart: Bools = (high > factor * low) & (high - low > floor)
    return apart


def _aligned(windows: LoadWindows, start_ms: Ints) -> LoadWindows:
    """The windows that start at those times; without values if missing."""
    entities, _, metrics = windows.value.shape
    value = np.zeros((entities, len(start_ms), metrics))
    kind = np.full(value.shape, Extrapolation.NO_VALID_EXTRAPOLATION, np.int8)
    _, to, source = np.intersect1d(start_ms, windows.start_ms, return_indices=True)
    value[:, to], kind[:, to] = windows.value[:, source], windows.kind[:, source]
    return LoadWindows(start_ms, value, kind)


def _since(windows: LoadWindows, moved_ms: Ints) -> LoadWindows:
    """The windows, with values from before a broker's last change removed."""
    valid = (windows.start_ms > moved_ms[:, None])[:, :, None]
    kind = np.where(valid, windows.kind, Extrapolation.NO_VALID_EXTRAPOLATION)
    return LoadWindows(windows.start_ms, windows.value, kind)


def _history(facts: Evidence, m: int) -> tuple[Floats, Floats]:
    """(B, W), (B, W): sums of a rate now, and by the reference, scaled by the common change."""
    now, before = facts.compared[:, :, m], facts.expected[:, :, m]
    new = ~(before > 0).any(axis=1)
    if new.any():
        now, before = now.copy(), before.copy()
        now[new] = facts.claimed[new, :, m]
        before[new] = np.median(facts.claimed[new, :, m], axis=1, keepdims=True)
    usable = (before > 0).all(axis=1)
    if usable.sum() >= 4:
        common = np.median(now[usable] / before[usable], axis=0)
        before = before * np.where(common > 0, common, 1.0)
    return now, before


def _confirmed_by_cpu(facts: Evidence) -> Bools:
    """(B,) bool: whether cpu changed by half to twice as much as the bytes require.

    Only for brokers with the same replicas and leaders as when their cpu was last trusted:
    the cost of bytes differs between partitions.
    """
    p, reference = facts.parameters, facts.reference
    based = has_baseline(reference, p) & (reference.cpu_ms > facts.moved_ms)
    bytes_ = _ratio(facts.weight[:, -1], reference.weight)
    used = _ratio(facts.own(_CPU)[:, -1], reference.cpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = (used - 1) / (bytes_ - 1)
        moved = (bytes_ > p.busier) | (bytes_ < 1 / p.busier)
        as_much: Bools = based & moved & (change >= 0.5) & (change <= 2.0)
    return as_much


def _reads_moved(facts: Evidence) -> Bools:
    """(B,) bool: whether other brokers' followers send what leaders do not any more, or reverse."""
    left = np.full(facts.base.n_brokers, (facts.expected - facts.compared)[:, -1, 1].sum())
    own = np.nan_to_num(facts.followed[:, -1] - facts.reference.followed)
    came = own.sum() - own
    apart = differ(np.abs(left), np.abs(came), facts.parameters.contradiction, 0.0)
    moved: Bools = (left * came > 0) & ~apart
    return moved


def _of_followers(base: Snapshot, reads: LoadWindows) -> tuple[LoadWindows, Floats, Bools]:
    """Windows of followers' reads, (B, W) their sums, and (B,) whether all are known."""
    follows, n = ~base.replica_is_leader, base.n_brokers
    none = np.int8(Extrapolation.NO_VALID_EXTRAPOLATION)
    kind = np.where(follows[:, None, None], reads.kind, none)
    value = np.where(kind == none, 0.0, reads.value)
    sums = np.zeros((n, len(reads.start_ms)))
    for w in range(sums.shape[1]):
        sums[:, w] = np.bincount(base.replica_broker, value[:, w, 0], n)
    whole = np.ones(n, np.bool_)
    whole[base.replica_broker[follows & (kind == none).any(axis=(1, 2))]] = False
    return LoadWindows(reads.start_ms, value, kind), sums, whole


def _known(windows: LoadWindows, metric: int) -> Floats:
    """(E, W) values of a metric; nan if unknown."""
    known = windows.kind[:, :, metric] != Extrapolation.NO_VALID_EXTRAPOLATION
    return np.where(known, windows.value[:, :, metric], np.nan)


def _sums(leader: Ints, value: Floats, n: int) -> Floats:
    return np.bincount(leader, value, n + 1)[:n].astype(np.float64)


def _mean(value: Floats) -> Floats:
    """(B,) mean over known windows; nan if there are none."""
    known = ~np.isnan(value)
    return _ratio(np.where(known, value, 0.0).sum(axis=1), known.sum(axis=1).astype(np.float64))


def _ratio(now: Floats, before: Floats) -> Floats:
    ratio: Floats = np.full(len(now), np.nan)
    return np.divide(now, before, out=ratio, where=before > 0)


def _floor(facts: Evidence, *rates: Floats) -> float:
    """Bytes/s below which a difference in a rate is no contradiction."""
    p, traffic = facts.parameters, facts.claimed.sum(axis=2)
    return max(p.floor * _typical(*rates), p.negligible * _typical(traffic))


def _typical(*values: Floats) -> float:
    """The median of the brokers' loads, which a few false reports do not shift."""
    found = np.concatenate([v.ravel() for v in values])
    found = found[~np.isnan(found) & (found > 0)]
    return float(np.median(found)) if len(found) else 0.0


def _length(rates: LoadWindows) -> float:
    start = rates.start_ms
    return float(start[1] - start[0]) / 1000 if len(start) > 1 else 0.0


def _amount(name: str, value: float) -> str:
    return rounded(value, 3) if name == "cpu" else _rate(value)


def _rate(value: float) -> str:
    return f"{rounded(value / 1e6, 3)} MB/s"


def _size(value: float) -> str:
    return f"{rounded(value / 1e9, 3)} GB"
