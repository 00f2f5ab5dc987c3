"""Reports how evenly a cluster is loaded, in figures and in a sentence."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import Any

import numpy as np

from cluster_model.columns import COUNT, LEADER, LOAD, Column
from goals import Cluster

_NOUNS = {Column(COUNT): "replicas", Column(COUNT, role=LEADER): "leaders"}
# What Kafka itself tells.
_TOLD = {*_NOUNS, Column(LOAD, "disk")}


def evenness(cluster: Cluster, untrusted: Collection[int] = ()) -> dict[str, Any]:
    """The most loaded broker, and the largest deviation from a fair share in any column.

    Counts are left out if a whole replica is more than a tenth of a share: such counts are
    never even. So are measured loads of brokers (ids) whose reports are not trusted.

    Returns
    -------
    dict
        ``deviation``: the largest distance from a share, as a fraction of it; ``worst``: the
        broker, column and ratio of load to share of the most loaded; ``ratios``: the
        highest ratio of each column; ``unknown``: the untrusted brokers, if there are any. Empty
        if nothing is loaded.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> from cluster_model.placement import Placement
    >>> from goals import Cluster
    >>> cluster = Cluster(Placement(synthetic_snapshot(brokers=6, partitions=100, racks=3)))
    >>> sorted(evenness(cluster))
    ['deviation', 'ratios', 'worst']
    """
    s = cluster.snapshot
    silent = np.isin(s.broker_ids, list(untrusted))
    columns = [*(Column(LOAD, r) for r in s.resources), *_NOUNS]
    ratios: dict[str, float] = {}
    worst: dict[str, Any] = {}
    deviation = 0.0
    for column in columns:
        share = cluster.fair_share(column)
        usable = share > (10 if column in _NOUNS else 0)
        if column not in _TOLD:
            usable = usable & ~silent
        if not usable.any():
            continue
        value = cluster.placement.recompute("broker", column)
        ratio = np.divide(value, share, out=np.ones(len(share)), where=usable)
        at = int(np.argmax(np.where(silent & ~usable, -np.inf, ratio)))
        name = _NOUNS.get(column, column.resource)
        ratios[name] = float(ratio[at])
        deviation = max(deviation, float(np.abs(ratio[usable] - 1).max()))
        if not worst or ratio[at] > worst["ratio"]:
            worst = {"broker": s.broker_ids[at].item(), "column": name, "ratio": float(ratio[at])}
    if not worst:
        return {}
    unknown = {"unknown": sorted(untrusted)} if untrusted else {}
    return {"deviation": deviation, "worst": worst, "ratios": ratios, **unknown}


def even_sentence(even: dict[str, Any]) -> str:
    """The result of :func:`evenness` as a sentence.

    Examples
    --------
    >>> even_sentence({"deviation": 0.084,
    ...     "worst": {"broker": 3, "column": "disk", "ratio": 1.0712}, "ratios": {}})
    'every broker is within 9 % of its share; the worst is broker 3, disk, 1.07 x its share'
    """
    if not even:
        return "brokers carry too little to judge how even they are"
    worst, within = even["worst"], max(1, ceil(100 * even["deviation"] - 1e-9))
    who = "every broker whose loads are known" if even.get("unknown") else "every broker"
    return (
        f"{who} is within {within} % of its share; the worst is broker {worst['broker']}, "
        f"{worst['column']}, {worst['ratio']:.2f} x its share"
    )
