"""Attributes a broker's cpu to the replicas it holds, and estimates the effect of hardware."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter import CPU

# Cpu cost of a byte by direction: Cruise Control's defaults.
LEADER_IN_WEIGHT = 0.7
LEADER_OUT_WEIGHT = 0.15
FOLLOWER_IN_WEIGHT = 0.15

# Only the effects of this many topics, the largest, are separated from those of brokers.
_TOPICS = 2_000
_ITERATIONS = 500
_TOLERANCE = 1e-10
_TINY = np.finfo(np.float64).tiny


def attribute_cpu(
    snapshot: Snapshot, bytes_in: Floats, network_out: Floats, cpu: Floats
) -> tuple[Floats, Floats]:
    """Cpu of each partition's leader and of each of its followers.

    A leader weighs 0.7·in + 0.15·out, a follower 0.15·in; see :func:`attributed`. A broker that
    did not report has the others' average price for a byte. If a broker's replicas carry no
    bytes, its cpu is not attributed.

    Parameters
    ----------
    snapshot
        Placement: B brokers, P partitions; its loads are not read.
    bytes_in, network_out : (P,) float
        Rates of the leader, replication included.
    cpu : (B,) float
        Measured; nan if not.

    Returns
    -------
    leader, follower : (P,) float
        In the unit of `cpu`.
    """
    return attributed(snapshot, *role_weights(bytes_in, network_out), cpu)


def attributed(
    snapshot: Snapshot,
    leader_weight: Floats,
    follower_weight: Floats,
    total: Floats,
    most: float = np.inf,
) -> tuple[Floats, Floats]:
    """Loads of each partition's leader and of each of its followers, from those of brokers.

    Among all loads that add up to the total of each broker, with equal loads for the followers
    of a partition, those closest to the weights (in relative entropy) are chosen, by the
    simultaneous multiplicative algebraic reconstruction technique (Byrne, IEEE Trans. Image
    Process. 2(1), 1993). If no such loads exist, the sums are approximate.

    Parameters
    ----------
    snapshot
        Placement: B brokers, P partitions; its loads are not read.
    leader_weight, follower_weight : (P,) float
        Expected loads, in any unit.
    total : (B,) float
        Measured; nan if not.
    most
        Factor by which a broker's loads may differ from what their weights say. Without a limit
        they go to extremes where no loads add up.

    Returns
    -------
    leader, follower : (P,) float
        In the unit of `total`.
    """
    leads, partition = snapshot.replica_is_leader, snapshot.replica_partition
    broker, n_brokers, n = snapshot.replica_broker, snapshot.n_brokers, snapshot.n_partitions
    weight = np.where(leads, leader_weight[partition], follower_weight[partition])
    weighs = np.bincount(broker, weight, n_brokers)
    measured = ~np.isnan(total) & (weighs > 0)
    if not measured.any():
        return np.zeros(n), np.zeros(n)
    target = np.where(measured, total, 0.0)

    # A load is weight times price. A partition's followers have the geometric mean of
    # their brokers' prices; each round corrects every broker's price at once.
    usual = _log(np.array(target.sum() / weighs[measured].sum()))
    log_price = np.full(n_brokers, usual)
    for _ in range(_ITERATIONS):
        paid = log_price[broker]
        lead = mean_by_group(partition, paid, leads, n)
        follow = mean_by_group(partition, paid, ~leads, n)
        # Without a leader or followers, a future one has the price of the others.
        leader = leader_weight * np.exp(np.where(np.isnan(lead), follow, lead))
        follower = follower_weight * np.exp(np.where(np.isnan(follow), lead, follow))
        carried = np.where(leads, leader[partition], follower[partition])
        current = np.bincount(broker, carried, n_brokers)
        wrong = measured & (current > 0) & (np.abs(target - current) > _TOLERANCE * target)
        if not wrong.any():
            break
        log_price[wrong] += _log(target[wrong] / current[wrong])
        np.clip(log_price, usual - np.log(most), usual + np.log(most), out=log_price)
    return leader, follower


@dataclass(frozen=True)
class CostParameters:
    """Expected variation of cpu per byte by cause: standard deviations of logarithms.

    They decide which part of a difference between brokers is attributed to their hardware,
    and which part to the partitions they hold.

    Parameters
    ----------
    hardware
        Between brokers: half to twice the median is common in clusters of several generations.
    topic
        Between topics: the size of messages and their compression.
    partition
        Between partitions of one topic.
    idle
        Cpu of a broker that bytes do not explain, as a share of a typical broker's.
    least
        Factor below which differences are ignored: then all brokers count as equal, and the
        capacity of cpu is the stated one.
    windows
        Complete windows needed for the first estimate: with 300 brokers and 10 % noise, a
        single window of five minutes makes two look like different hardware.
    half_life
        Seconds after which half of a change is learnt: hardware does not change, but the
        broker's other work may.
    """

    hardware: float = 0.5
    topic: float = 0.5
    partition: float = 0.5
    idle: float = 0.1
    least: float = 1.2
    windows: int = 3
    half_life: float = 86_400.0


def hardware_cost(
    snapshot: Snapshot,
    bytes_in: Floats,
    network_out: Floats,
    cpu: Floats,
    parameters: CostParameters | None = None,
) -> Floats:
    """(B,) cpu that each broker needs for work that takes 1 on the median broker.

    A single measurement of cpu per byte cannot distinguish a slow broker from one with
    expensive partitions. The costs are the predicted broker effects of a mixed model: the
    logarithm of cpu per byte is the broker's effect, plus its topics' and partitions' effects
    by their shares of its bytes, all normal with the given deviations (best linear unbiased
    prediction; Henderson, Biometrics 31(2), 1975). An effect common to many partitions is
    then attributed to their broker; that of one large partition is divided between the two.

    Parameters
    ----------
    snapshot
        Placement: B brokers, P partitions; its loads are not read.
    bytes_in, network_out : (P,) float
        Rates of the leader, replication included.
    cpu : (B,) float
        Measured; nan if not.
    parameters
        Deviations.

    Returns
    -------
    (B,) float
        1 if the difference is small, nothing is known, or fewer than three are measured.
    """
    p = parameters or CostParameters()
    weight = replica_weights(snapshot, bytes_in, network_out)
    broker, n = snapshot.replica_broker, snapshot.n_brokers
    weighs = np.bincount(broker, weight, n)
    cost = np.ones(n)
    with np.errstate(invalid="ignore"):
        known = (weighs > np.finfo(np.float64).eps * weighs.max(initial=0.0)) & (cpu > 0)
    row = np.flatnonzero(known)
    # With two brokers, neither can be identified as the usual one.
    if len(row) < 3:
        return cost
    price = np.log(cpu[row] / weighs[row])
    if np.ptp(price) <= np.log(p.least):
        return cost
    typical = float(np.median(weighs[row]))
    topic = snapshot.partition_topic[snapshot.replica_partition]
    share = weight / np.where(known, weighs, 1.0)[broker]
    own = np.bincount(broker, share**2, n)[row]
    largest = np.argsort(-np.bincount(topic, weight, len(snapshot.topics)), kind="stable")
    column = np.full(len(snapshot.topics), -1)
    column[largest[:_TOPICS]] = np.arange(min(_TOPICS, len(largest)))
    shares = np.zeros((n, min(_TOPICS, len(largest))))
    here = column[topic] >= 0
    np.add.at(shares, (broker[here], column[topic][here]), share[here])
    shares = shares[row]
    rest = np.bincount(broker[~here], share[~here] ** 2, n)[row]
    noise = p.partition**2 * own + p.topic**2 * rest + (p.idle * typical / weighs[row]) ** 2
    variance = p.topic**2 * shares @ shares.T + np.diag(p.hardware**2 + noise)
    solved = np.linalg.solve(variance, np.stack([price, np.ones(len(row))], axis=1))
    effect = p.hardware**2 * (solved[:, 0] - solved[:, 1] * solved[:, 0].sum() / solved[:, 1].sum())
    effect -= np.median(effect)
    cost[row] = np.where(np.abs(effect) > np.log(p.least), np.exp(effect), 1.0)
    return cost


def learnt_cost(before: Floats, now: Floats, seconds: float, half_life: float) -> Floats:
    """(B,) learnt costs, moved towards the current estimates.

    Parameters
    ----------
    before, now : (B,) float
        nan in the first if nothing was learnt yet.
    seconds
        Since `before`.
    half_life
        See :class:`CostParameters`.
    """
    part = 1 - 0.5 ** (seconds / half_life)
    learnt: Floats = np.exp(np.log(before) + part * (np.log(now) - np.log(before)))
    return np.where(np.isnan(before), now, learnt)


def cpu_capacity(snapshot: Snapshot, cost: Floats) -> Floats:
    """(B, R) capacities, with cpu in the median broker's cpu for the same work.

    Parameters
    ----------
    snapshot
        Stated capacities of its B brokers in R resources.
    cost : (B,) float
        As of :func:`hardware_cost`.
    """
    capacity = snapshot.capacity.copy()
    if CPU in snapshot.resources:
        capacity[:, snapshot.resource(CPU)] /= cost
    return capacity


def role_weights(bytes_in: Floats, network_out: Floats) -> tuple[Floats, Floats]:
    """(P,), (P,) weight of each partition's bytes for its leader, and for a follower."""
    lead: Floats = LEADER_IN_WEIGHT * bytes_in + LEADER_OUT_WEIGHT * network_out
    return lead, FOLLOWER_IN_WEIGHT * bytes_in


def replica_weights(snapshot: Snapshot, bytes_in: Floats, network_out: Floats) -> Floats:
    """(N,) weight of each replica's bytes: 0.7·in + 0.15·out for leaders, else 0.15·in."""
    lead, follow = role_weights(bytes_in, network_out)
    partition = snapshot.replica_partition
    weight: Floats = np.where(snapshot.replica_is_leader, lead[partition], follow[partition])
    return weight


def mean_by_group(group: Ints, value: Floats, chosen: Bools, groups: int) -> Floats:
    """(groups,) float: mean of the chosen values of each group; nan if there are none."""
    count = np.bincount(group[chosen], minlength=groups)
    total = np.bincount(group[chosen], value[chosen], groups)
    mean: Floats = np.full(groups, np.nan)
    return np.divide(total, count, out=mean, where=count > 0)


def with_estimates(base: Snapshot, value: Floats) -> Floats:
    """(P,) or (P, R) values of partitions; nan becomes the mean of the topic, or of all.

    Unknown is not zero. Only if nothing at all is known, the value is 0.
    """
    if value.ndim > 1:
        return np.column_stack([with_estimates(base, column) for column in value.T])
    known = ~np.isnan(value)
    if known.all():
        return value
    topic = mean_by_group(base.partition_topic, value, known, len(base.topics))
    overall = float(value[known].mean()) if known.any() else 0.0
    guess = np.where(np.isnan(topic), overall, topic)[base.partition_topic]
    return np.where(known, value, guess)


def _log(ratio: Floats) -> Floats:
    # Not -inf for 0: means and differences of prices must stay finite.
    log: Floats = np.log(np.maximum(ratio, _TINY))
    return log
