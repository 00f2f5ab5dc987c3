"""A broker's cpu, shared out among the replicas it holds."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot

# What a byte costs, by the way it takes: Cruise Control's defaults.
LEADER_IN_WEIGHT = 0.7
LEADER_OUT_WEIGHT = 0.15
FOLLOWER_IN_WEIGHT = 0.15

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
    leader_weight = LEADER_IN_WEIGHT * bytes_in + LEADER_OUT_WEIGHT * network_out
    follower_weight = FOLLOWER_IN_WEIGHT * bytes_in
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
