"""Which days of archives have changed since they were prepared, or have other metadata now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from cluster_model.history.archive_days import archived_days, changed_days
from cluster_model.history.days import DAY_MS, Reach
from cluster_model.history.delta import TableVersion
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepared import PreparedArchive, PreparedCluster


class Changes(NamedTuple):
    """Days of arrival to prepare; days are numbers since 1970.

    Parameters
    ----------
    changed
        Days that are new, or have other messages or other metadata, ascending.
    present
        Days of which there are messages.
    known
        What is prepared, with these days as pending, and those that an archive has lost as expired.
    digests
        For each present day a digest of the metadata that concerns it.
    log_is_gone
        Whether all days count as changed because the archives' logs do not say which did.
    """

    changed: tuple[int, ...]
    present: frozenset[int]
    known: PreparedCluster
    digests: Mapping[int, str]
    log_is_gone: bool

    def of_everything(self) -> Changes:
        """The same where nothing is prepared."""
        fresh = PreparedCluster(archives=self.known.archives, pending=self.present)
        return self._replace(changed=tuple(sorted(self.present)), known=fresh, log_is_gone=False)


def find_changes(
    spark: SparkSession,
    archives: Sequence[tuple[str | Path, TableVersion]],
    metadata: MetadataLog,
    own: PreparedCluster | None,
    reach: Reach,
) -> Changes:
    """Compare archives and metadata with what is prepared.

    Parameters
    ----------
    spark, archives
        The session, and paths and versions of the archives.
    metadata
        Metadata of the cluster.
    own
        What is prepared of the cluster, from these archives in this order; None for nothing.
    reach
        How far a record may be from its arrival.
    """
    cluster = metadata.cluster
    before = [None] * len(archives) if own is None else [*own.archives]
    touched = [
        None if was is None else changed_days(spark, path, was.version, now.version, cluster)
        for (path, now), was in zip(archives, before, strict=True)
    ]
    found, lost = [], set[int]()
    for (path, now), was, days in zip(archives, before, touched, strict=True):
        held = frozenset() if was is None or days is None else was.days - days
        if days is None or days:
            held |= archived_days(spark, path, now.version, cluster, days)
        found.append(PreparedArchive(identity=now.identity, version=now.version, days=held))
        if was is not None and was.days - held:
            # Days expire from the first one on, whatever has arrived again for them since.
            newest = max(was.days - held)
            lost |= {day for day in was.days if day <= newest}
    known = own or PreparedCluster()
    present = frozenset[int]().union(*(archive.days for archive in found))
    expired = known.expired | (lost & known.days.keys())
    days_kept = {day: x for day, x in known.days.items() if day not in expired}
    digests = metadata_digests(metadata, present, reach)
    changed = {day for day, x in days_kept.items() if digests[day] != x}
    log_is_gone = own is not None and None in touched
    if own is None or log_is_gone:
        changed |= present
    else:
        changed |= present & known.pending.union(*(days for days in touched if days is not None))
    changed -= expired
    known = known.model_copy(
        update={
            "archives": tuple(found),
            "days": days_kept,
            "expired": expired,
            "pending": frozenset(changed),
        }
    )
    return Changes(tuple(sorted(changed)), present, known, digests, log_is_gone)


def metadata_digests(metadata: MetadataLog, days: Iterable[int], reach: Reach) -> dict[int, str]:
    """By day of arrival a digest of the brokers, topics and placements within reach of it.

    What becomes valid later does not change it.
    """
    digests = metadata.digests()
    times = np.array(metadata.times_ms)
    states: list[bytes] = []
    for digest in digests:
        states.append(hashlib.sha256((states[-1] if states else b"") + digest).digest())
    found = {}
    for day in days:
        low, high = (day - reach.before) * DAY_MS, (day + reach.after + 1) * DAY_MS
        # The first entry also holds for the time before it.
        first = max(1, int(np.searchsorted(times, low, "right")))
        end = max(first, int(np.searchsorted(times, high, "left")))
        later = times[first:end].tobytes() + b"".join(digests[first:end])
        found[day] = hashlib.sha256(states[first - 1] + later).hexdigest()[:16]
    return found
