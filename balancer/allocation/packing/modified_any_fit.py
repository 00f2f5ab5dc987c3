"""Modified Any Fit: packs bin by bin, so that large items stay where they are (seed 000)."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from balancer.allocation.packing.any_fit import FITS
from balancer.allocation.packing.bins import Bins
from balancer.allocation.packing.problem import Packing
from cluster_model.snapshot import Ints


def modified_any_fit(
    problem: Packing, fit: Literal["best", "worst"], *, by: Literal["sum", "largest"]
) -> Ints:
    """Pack by MWF, MBF, MWFP or MBFP (seed 000, Algorithm 1 and Table II).

    Parameters
    ----------
    problem
        The packing problem.
    fit
        How items that leave their bin choose another: ``worst`` (MWF, MWFP) or ``best`` (MBF,
        MBFP).
    by
        Bins come in decreasing order of what they hold, ``sum`` (MWF, MBF), or of their
        ``largest`` item (MWFP, MBFP).

    Returns
    -------
    (P,) int
        The bin of each item.
    """
    bins, choose, too_large = Bins(problem), FITS[fit], problem.too_large
    share = bins.share
    held: dict[int, list[int]] = defaultdict(list)
    for item, owner in enumerate(problem.owner.tolist()):
        held[owner].append(item)
    homeless = held.pop(-1, [])
    measure = sum if by == "sum" else max
    for owner in sorted(held, key=lambda b: (-round(measure(share[i] for i in held[b]), 9), b)):
        items = sorted(held[owner], key=lambda i: (-share[i], i))
        while items and (bin_ := choose(bins, items[-1])) >= 0:
            bins.put(items.pop(), bin_)
        if not items:
            continue
        bins.open(owner)
        stays = 0
        while stays < len(items) and (
            bins.fits(items[stays], owner) or (stays == 0 and too_large[items[0]])
        ):
            bins.put(items[stays], owner)
            stays += 1
        homeless += items[stays:]
    for item in sorted(homeless, key=lambda i: (-share[i], i)):
        bin_ = choose(bins, item)
        bins.put(item, bin_ if bin_ >= 0 else bins.open_for(item))
    return bins.result()
