"""A broker's cpu, shared out among the replicas it holds, and what hardware has to do with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter import CPU

# What a byte costs, by the way it takes: Cruise Control's defaults.
LEADER_IN_WEIGHT = 0.7
LEADER_OUT_WEIGHT = 0.15
FOLLOWER_IN_WEIGHT = 0.15

# The effects of at most so many topics are separated from those of brokers: the largest.
_TOPICS = 2_000
_ITERATIONS = 500
_TOLERANCE = 1e-10
_TINY = np.finfo(np.float64).tiny


def attribute_cpu(
    snapshot: Snapshot, bytes_in: Floats, network_out: Floats, cpu: Floats
) -> tuple[Floats, Floats]:
    """Cpu of each partition's leader and of each of its followers.

    A leader weighs 0.7·in + 0.15·out, a follower 0.15·in. Of all loads in which the
    followers of a partition are alike, those nearest to the weights (in relative entropy)
    are taken whose sums are the cpu measured on each broker, by the simultaneous
    multiplicative algebraic reconstruction technique (Byrne, IEEE Trans. Image Process.
    2(1), 1993). Where no such loads exist, the sums are close. A broker that did not
    report pays for a byte what the others pay on average; a broker whose replicas carry
    no bytes has nobody to attribute its cpu to.

    Parameters
    ----------
    snapshot
        Placement: B brokers, P partitions; its loads are not read.
    bytes_in, network_out : (P,) float
        Rates of the leader, replication included.
    cpu : (B,) float
        Measured; nan where not.

    Returns
    -------
    leader, follower : (P,) float
        In the unit of `cpu`.
    """
    leads, partition = snapshot.replica_is_leader, snapshot.replica_partition
    broker, n_brokers, n = snapshot.replica_broker, snapshot.n_brokers, snapshot.n_partitions
    leader_weight, follower_weight = role_weights(bytes_in, network_out)
    weight = np.where(leads, leader_weight[partition], follower_weight[partition])
    weighs = np.bincount(broker, weight, n_brokers)
    measured = ~np.isnan(cpu) & (weighs > 0)
    if not measured.any():
        return np.zeros(n), np.zeros(n)
    target = np.where(measured, cpu, 0.0)

    # Loads are weight times price, and a partition's followers pay the geometric mean
    # of their brokers' prices; each round corrects every broker's price at once.
    log_price = np.full(n_brokers, _log(np.array(target.sum() / weighs[measured].sum())))
    for _ in range(_ITERATIONS):
        paid = log_price[broker]
        lead = mean_by_group(partition, paid, leads, n)
        follow = mean_by_group(partition, paid, ~leads, n)
        # Where nobody leads, or follows, whoever will would pay what the others do.
        leader = leader_weight * np.exp(np.where(np.isnan(lead), follow, lead))
        follower = follower_weight * np.exp(np.where(np.isnan(follow), lead, follow))
        carried = np.where(leads, leader[partition], follower[partition])
        current = np.bincount(broker, carried, n_brokers)
        wrong = measured & (current > 0) & (np.abs(target - current) > _TOLERANCE * target)
        if not wrong.any():
            break
        log_price[wrong] += _log(target[wrong] / current[wrong])
    return leader, follower


@dataclass(frozen=True)
class CostParameters:
    """What cpu per byte may vary by, and for what reason: standard deviations of logarithms.

    They decide what part of a difference between brokers is put down to their hardware, and
    what part to what they happen to hold.

    Parameters
    ----------
    hardware
        Of brokers: from half to twice as much is usual in clusters of several generations.
    topic
        Of topics: the size of messages and their compression.
    partition
        Of partitions of one topic.
    idle
        Cpu of a broker that no byte explains, as a share of a typical broker's.
    least
        Factor below which a difference is none: then all brokers are alike, and a capacity
        of cpu is what was stated.
    windows
        Complete windows that the first estimate is made of: of 300 brokers with a tenth of
        noise, a single window of five minutes makes two look like other hardware.
    half_life
        Seconds after which half of a change is learnt: hardware does not change, but what
        else a broker does may.
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
    """(B,) cpu that each broker needs for what takes 1 on the median broker.

    One measurement of cpu per byte cannot tell a slow broker from one that holds expensive
    partitions. Taken are the expected effects of brokers in a mixed model: the logarithm of
    cpu per byte is an effect of the broker, plus its topics' and partitions' by their shares
    of its bytes, all of them normal with the given deviations (best linear unbiased
    prediction; Henderson, Biometrics 31(2), 1975). What many partitions have in common is
    then their broker's; what one large partition does is shared between the two.

    Parameters
    ----------
    snapshot
        Placement: B brokers, P partitions; its loads are not read.
    bytes_in, network_out : (P,) float
        Rates of the leader, replication included.
    cpu : (B,) float
        Measured; nan where not.
    parameters
        Deviations.

    Returns
    -------
    (B,) float
        1 where the difference is small, nothing is known, or fewer than three are measured.
    """
    p = parameters or CostParameters()
    weight = replica_weights(snapshot, bytes_in, network_out)
    broker, n = snapshot.replica_broker, snapshot.n_brokers
    weighs = np.bincount(broker, weight, n)
    cost = np.ones(n)
    with np.errstate(invalid="ignore"):
        known = (weighs > np.finfo(np.float64).eps * weighs.max(initial=0.0)) & (cpu > 0)
    row = np.flatnonzero(known)
    # Of two, nobody can say which is the usual one.
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
    """(B,) costs as they were learnt, brought nearer to what they seem to be now.

    Parameters
    ----------
    before, now : (B,) float
        nan in the first where nothing was learnt yet.
    seconds
        Since `before`.
    half_life
        See :class:`CostParameters`.
    """
    part = 1 - 0.5 ** (seconds / half_life)
    learnt: Floats = np.exp(np.log(before) + part * (np.log(now) - np.log(before)))
    return np.where(np.isnan(before), now, learnt)


def cpu_capacity(snapshot: Snapshot, cost: Floats) -> Floats:
    """(B, R) capacities, with that of cpu in what the median broker needs for the same work.

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
    """(P,), (P,) what the bytes of each partition weigh for its leader, and for a follower."""
    lead: Floats = LEADER_IN_WEIGHT * bytes_in + LEADER_OUT_WEIGHT * network_out
    return lead, FOLLOWER_IN_WEIGHT * bytes_in


def replica_weights(snapshot: Snapshot, bytes_in: Floats, network_out: Floats) -> Floats:
    """(N,) what the bytes of each replica weigh: 0.7·in + 0.15·out of leaders, else 0.15·in."""
    lead, follow = role_weights(bytes_in, network_out)
    partition = snapshot.replica_partition
    weight: Floats = np.where(snapshot.replica_is_leader, lead[partition], follow[partition])
    return weight


def mean_by_group(group: Ints, value: Floats, chosen: Bools, groups: int) -> Floats:
    """(groups,) float: mean of the chosen values of each group; nan where none is."""
    count = np.bincount(group[chosen], minlength=groups)
    total = np.bincount(group[chosen], value[chosen], groups)
    mean: Floats = np.full(groups, np.nan)
    return np.divide(total, count, out=mean, where=count > 0)


def with_estimates(base: Snapshot, value: Floats) -> Floats:
    """(P,) or (P, R) values of partitions; nan becomes the mean of the topic, or of all.

    Unknown is not zero. Only where nothing is known at all, 0 is as good as any value.
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
    # Not -inf for 0: means and differences of prices must stay numbers.
    log: Floats = np.log(np.maximum(ratio, _TINY))
    return log
