"""Detects settings that match nothing in the cluster, which are probably typos."""

from __future__ import annotations

from balancer.controller.finding import Finding, FirstSeen, View
from balancer.controller.settings import Settings
from cluster_model.snapshot import Snapshot
from goals.patterns import glob_hint, matching
from metrics_reporter.documents import shown


class UnmatchedSettingDetector:
    """Topics and brokers that the settings name but the cluster does not have."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for each entry that matches nothing."""
        sentences = _unmatched(self.settings, view.snapshot)
        since = self._seen.update([*sentences], view.now)
        return [
            Finding(
                kind="unmatched_settings",
                subject=entry,
                sentence=sentence,
                state="notice",
                since=since[entry],
            )
            for entry, sentence in sentences.items()
        ]


def _unmatched(settings: Settings, snapshot: Snapshot) -> dict[str, str]:
    """Entry of the settings that matches nothing -> a sentence about it."""
    missing, drained = settings.missing_replicas, settings.drained_brokers
    patterns = {
        "excluded_topics": settings.excluded_topics,
        "missing_replicas.topics": tuple(missing.topics) if missing.enabled else (),
    }
    brokers = {
        "drained_brokers.brokers": drained.brokers if drained.enabled else (),
        "model.believed": settings.model.believed,
    }
    found = {
        f"{place} {shown(pattern)}": (
            f"{place}: {shown(pattern)} matches none of the topics{glob_hint(pattern)}"
        )
        for place, given in patterns.items()
        for pattern in given
        if not matching(pattern, snapshot.topics).any()
    }
    there = {*snapshot.broker_ids.tolist()}
    return found | {
        f"{place} {broker}": f"{place}: no broker {broker} is in the cluster"
        for place, ids in brokers.items()
        for broker in ids
        if broker not in there
    }
