"""Reads the attributes of brokers and topics that an operator states in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, field_validator

from cluster_model import InputError, Snapshot
from cluster_model.build import OwnAttributes
from goals.patterns import PatternError, glob_hint, matching
from metrics_reporter.documents import Whole, WholeKey, as_model, load_mapping, shown


class AttributesError(InputError):
    """An invalid file of attributes; says what is wrong and where."""


class StatedAttributes(BaseModel):
    """Attributes of brokers by id and of topics by pattern, and Kafka's own to read as such.

    Parameters
    ----------
    brokers
        Broker id to its attributes.
    topics
        Regular expression for whole topic names to attributes of these topics; where several
        match, the last one that names an attribute gives it.
    topic_configs
        Configs of topics that Kafka states, such as ``retention.ms``, to read as attributes.
    broker_sets
        Name of a broker set to the ids of its brokers, each in at most one; they replace those of
        the snapshot.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> stated = StatedAttributes(brokers={1: {"zone": "a"}}, topics={".*": {"tenant": "shop"}})
    >>> found = stated.applied(synthetic_snapshot(brokers=3, topics=1), print)
    >>> found.attributes("broker")["zone"].tolist(), found.attributes("topic")["tenant"].tolist()
    (['a', '', ''], ['shop'])
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    brokers: dict[WholeKey, OwnAttributes] = {}
    topics: dict[str, OwnAttributes] = {}
    topic_configs: tuple[str, ...] = ()
    broker_sets: dict[str, tuple[Whole, ...]] = {}

    @field_validator("broker_sets")
    @classmethod
    def _each_broker_once(cls, given: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        brokers = [broker for ids in given.values() for broker in ids]
        if len(set(brokers)) < len(brokers):
            raise ValueError("each broker in at most one set expected")
        return given

    def applied(self, snapshot: Snapshot, notice: Callable[[str], None]) -> Snapshot:
        """A snapshot with these attributes too; they replace its own of the same name.

        Parameters
        ----------
        snapshot
            The cluster.
        notice
            Called with a sentence for each broker that is not in the cluster, and for each
            pattern that matches no topic.
        """
        s = snapshot
        index = {broker: i for i, broker in enumerate(s.broker_ids.tolist())}
        brokers = [s.attributes("broker").of_row(i) for i in range(s.n_brokers)]
        topics = [s.attributes("topic").of_row(i) for i in range(len(s.topics))]
        for broker, own in self.brokers.items():
            if broker in index:
                brokers[index[broker]] |= own
            else:
                notice(f"attributes are stated for broker {broker}, which is not in the cluster")
        for pattern, own in self.topics.items():
            chosen = matching(pattern, s.topics)
            if not chosen.any():
                notice(
                    f"attributes are stated for topics {shown(pattern)}, which matches none"
                    f"{glob_hint(pattern)}"
                )
            for i in chosen.nonzero()[0].tolist():
                topics[i] |= own
        s = replace(s, broker_attributes=_columns(brokers), topic_attributes=_columns(topics))
        if not self.broker_sets:
            return s
        sets = np.full(s.n_brokers, -1, np.int64)
        for place, (name, ids) in enumerate(self.broker_sets.items()):
            for broker in ids:
                if broker in index:
                    sets[index[broker]] = place
                else:
                    notice(f"broker set {name} has broker {broker}, which is not in the cluster")
        return replace(s, broker_sets=tuple(self.broker_sets), broker_set=sets)


def load_attributes(path: Path | None) -> StatedAttributes:
    """Read a YAML or JSON file of attributes; None states nothing.

    Raises
    ------
    InputError
        For an unreadable file, or for the first invalid entry, by name.
    """
    if path is None:
        return StatedAttributes()
    where = f"attributes file {path}"
    content = load_mapping(
        path,
        where,
        AttributesError,
        "an attributes file",
        expected="a mapping with brokers, topics, topic_configs and broker_sets",
    )
    expected = {"extra_forbidden": "brokers, topics, topic_configs or broker_sets"}
    found = as_model(StatedAttributes, content, where, AttributesError, expected)
    for pattern in found.topics:
        try:
            matching(pattern, ())
        except PatternError as error:
            raise AttributesError(f"{where}: topics: {error}") from None
    return found


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = {name for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}
