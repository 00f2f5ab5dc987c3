"""Reads snapshots of a running Kafka, with stated capacities and measured loads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path

from balancer.composition.attributes import StatedAttributes, load_attributes
from cluster_model import Snapshot
from cluster_model.capacities import Capacities, CapacityError, as_capacities
from cluster_model.errors import InputError
from cluster_model.trust import Distrust
from goals import Goal, inapplicable
from metrics_reporter.file_changes import FileChanges

# What Kafka itself measures.
_SIZES = ("disk",)


class Notices:
    """Passes on each notice about a cluster only once, even if the cluster is read often.

    Attributes
    ----------
    notify
        Receives the sentences: the terminal, and later the log.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.notify = notify
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        """Pass a sentence on, unless an earlier one differs only in numbers of bytes."""
        # Numbers of bytes drift from one reading to the next.
        about = re.sub(r"\d[\d.,]* [kMGTPE]?B\b", "", sentence)
        if about not in self._said:
            self._said.add(about)
            self.notify(sentence)


@dataclass
class KafkaSource:
    """A running Kafka, and how to read it.

    Only resources with a known capacity are read. Kafka reports the size of its disks; any
    other resource needs a stated capacity, and is left out unless the metrics topic reports it.
    Those beyond cpu, network and disk are read if the capacity file says that they are measured.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    capacity
        File with the capacities of brokers; None for disks only.
    properties
        Client properties, see :func:`balancer.composition.client.client_properties`.
    topic
        Metrics topic; None if loads are not measured.
    timeout
        Seconds a broker may take to answer.
    notice
        Called with what the reader of a result should know, in sentences.
    partial_view
        Leave out topics that the user may not describe.
    attributes
        File with attributes of brokers and topics; None for none.
    """

    bootstrap: str
    capacity: Path | None
    properties: Mapping[str, str]
    topic: str | None
    timeout: float
    notice: Callable[[str], None]
    partial_view: bool = False
    attributes: Path | None = None

    def __post_init__(self) -> None:
        self._capacity_changes = FileChanges(self.capacity)
        self._attribute_changes = FileChanges(self.attributes)

    @cached_property
    def stated(self) -> Capacities:
        """The capacities, as last read."""
        return as_capacities(self.capacity)

    @cached_property
    def described(self) -> StatedAttributes:
        """The attributes, as last read."""
        return load_attributes(self.attributes)

    def capacities_changed(self, brokers: Iterable[int | str]) -> bool:
        """Whether the file of capacities has changed and was read again; to be polled.

        Raises
        ------
        CapacityError
            If it cannot be used for these brokers, once for each change; the capacities stay.
        """
        if not self._capacity_changes.due():
            return False
        new, old = as_capacities(self.capacity), self.stated
        where = f"capacity file {self.capacity}"
        if (new.resources, new.follower_shares) != (old.resources, old.follower_shares):
            raise CapacityError(
                f"{where}: {', '.join(new.resources)} found, the resources of the start expected "
                f"({', '.join(old.resources)}, measured as then): others need a restart"
            )
        for broker in brokers:
            # Kafka knows its disks itself
            if lacking := {*new.resources} - {"disk", *new.of(int(broker))}:
                raise CapacityError(f"{where}: broker {broker} has no capacity for {min(lacking)}")
        self.stated = new
        return True

    def attributes_changed(self) -> bool:
        """Whether the file of attributes has changed and was read again; to be polled.

        Raises
        ------
        InputError
            If it cannot be used, once for each change; the attributes stay.
        """
        if not self._attribute_changes.due():
            return False
        self.described = load_attributes(self.attributes)
        return True

    def placement(self) -> Snapshot:
        """Where replicas are, without any load: it needs no capacities and no disk sizes."""
        from cluster_model.kafka import read_cluster

        found = read_cluster(
            self.bootstrap,
            resources=(),
            client_properties=self.properties,
            timeout=self.timeout,
            partial_view=self.partial_view,
            placement_only=True,
            notice=self.notice,
        )
        return self.described.applied(found, self.notice)

    def read(self) -> Snapshot:
        """The metadata of the current cluster: loads other than sizes are not known, and 0."""
        from cluster_model.kafka import read_cluster

        stated, attributes = self.stated, self.described
        found = read_cluster(
            self.bootstrap,
            capacity=stated,
            resources=stated.resources,
            client_properties=self.properties,
            timeout=self.timeout,
            partial_view=self.partial_view,
            notice=self.notice,
            topic_configs=attributes.topic_configs,
        )
        return attributes.applied(found, self.notice)

    def sized(self) -> Snapshot:
        """The current cluster with what Kafka itself measures: the sizes of replicas."""
        found = self.read()
        if unmeasured := [r for r in found.resources if r not in _SIZES]:
            self.notice(
                f"{', '.join(unmeasured)}: left out, because without a metrics topic nobody "
                "measures them"
            )
        return found.with_resources(_SIZES)

    def topic_ids(self) -> dict[str, str]:
        """Ids of topics by name, of those that have one."""
        from cluster_model.kafka import topic_ids

        return topic_ids(self.bootstrap, self.properties, timeout=self.timeout)

    def measured(self, goals: Sequence[Goal] | None = None) -> tuple[Snapshot, Distrust]:
        """The cluster with its measured loads, and the loads that no plan may rely on.

        Parameters
        ----------
        goals
            Goals that need the loads: where none of them reads what is not known, that is left
            out, and otherwise an error. None needs all loads.
        """
        if self.topic is None:
            return self.sized(), Distrust()
        found = self.read()
        from balancer.controller.detect import without_stale_metrics
        from balancer.controller.finding import View
        from balancer.controller.settings import StaleMetrics
        from cluster_model.live import ClusterModel
        from metrics_reporter import read_records

        model = ClusterModel(found, measured=self.stated.follower_shares)
        reader = read_records(
            self.bootstrap, self.topic, timeout=self.timeout, client=self.properties
        )
        for batch in reader.batches():
            model.add_batch(batch)
        try:
            seen = model.observe()
            ages = {b: ms / 1000 for b, ms in model.staleness_ms().items() if isfinite(ms)}
            view = View(seen.snapshot, 0.0, ages, distrust=seen.distrust)
            distrust = without_stale_metrics(view, StaleMetrics().max_age).distrust
        except InputError as error:
            sized = found.with_resources(_SIZES)
            if goals is None or {*inapplicable(goals, sized)} != {*inapplicable(goals, found)}:
                raise
            self.notice(f"{error}; only the sizes of replicas are used")
            return sized, Distrust()
        if lacking := seen.left_out(found.resources):
            self.notice(lacking)
        for doubt in distrust.doubts:
            self.notice(f"{doubt.sentence}; its metrics are ignored")
        return seen.snapshot, distrust
