"""Keeps a live model up to date from a running Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster_model.capacities import Capacities
from cluster_model.errors import InputError
from cluster_model.kafka import read_cluster
from cluster_model.live import ClusterModel
from cluster_model.snapshot import DEFAULT_RESOURCES, Snapshot
from metrics_reporter import RecordReader, read_records

# Longest wait for a thread to end, in seconds; one stuck in its client ends on its own.
_GOODBYE = 5.0


class FollowError(InputError):
    """A follower that cannot be used."""


class Follower:
    """Feeds a :class:`ClusterModel` from two threads, metadata and metrics, until stopped.

    Nothing that happens in a cluster stops it: unreachable brokers, a topic that is
    missing, recreated or denied, messages that are not records. It retries, keeps
    its data, and lists the current problems in `problems`.

    Parameters
    ----------
    metadata
        Returns the cluster's current state; called by :meth:`start`, and repeatedly
        afterwards.
    records
        Returns a reader that follows a metrics topic, from about the given time (ms since
        1970); called again whenever a reader fails.
    refresh, retry
        Seconds between two reads of the metadata, and before a new reader.
    options
        Arguments of the :class:`ClusterModel`.

    Attributes
    ----------
    malformed, skipped : int
        Messages so far that were not records, and that were of an unknown kind.

    Examples
    --------
    ::

        with follow_kafka("localhost:9092", "metrics", capacity="capacity.yaml") as follower:
            time.sleep(1000)
            print(follower.model.observe().completeness.ratio, follower.problems)
    """

    def __init__(
        self,
        metadata: Callable[[], Snapshot],
        records: Callable[[int], RecordReader],
        *,
        refresh: float = 60.0,
        retry: float = 5.0,
        **options: Any,
    ) -> None:
        for name, value in (("refresh", refresh), ("retry", retry)):
            if not value > 0:
                raise FollowError(f"follower, {name}: {value} found, more than 0 s expected")
        self.malformed = 0
        self.skipped = 0
        self._metadata = metadata
        self._records = records
        self._refresh = refresh
        self._retry = retry
        self._options = options
        self._model: ClusterModel | None = None
        self._reader: RecordReader | None = None
        self._problems: dict[str, str] = {}
        self._refreshed = 0.0
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def model(self) -> ClusterModel:
        """The model that is kept up to date.

        Raises
        ------
        FollowError
            Before :meth:`start`.
        """
        if self._model is None:
            raise FollowError("follower: no model before start()")
        return self._model

    @property
    def problems(self) -> tuple[str, ...]:
        """Current problems, in sentences; empty if there are none."""
        return tuple(self._problems.values())

    @property
    def metadata_age(self) -> float:
        """Seconds since the metadata was last read."""
        return time.monotonic() - self._refreshed

    def start(self) -> Follower:
        """Read the metadata, and start to follow.

        Raises
        ------
        InputError
            If the metadata cannot be read; later this is only a problem.
        FollowError
            If it was already started.
        """
        if self._threads:
            raise FollowError("follower: already started; a follower can be started only once")
        self._model = ClusterModel(self._metadata(), **self._options)
        self._refreshed = time.monotonic()
        self._threads = [
            threading.Thread(target=self._follow_metadata, name="follow metadata", daemon=True),
            threading.Thread(target=self._follow_records, name="follow metrics", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End both threads; the model stays as it is. May be called more than once."""
        self._stop.set()
        if self._reader is not None:
            self._reader.stop()
        for thread in self._threads:
            thread.join(_GOODBYE)

    def __enter__(self) -> Follower:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _follow_metadata(self) -> None:
        while not self._stop.wait(self._refresh):
            try:
                self.model.update(self._metadata())
            # Clients raise more than they document, and following must continue.
            except Exception as error:
                self._problems["metadata"] = f"metadata not refreshed: {_sentence(error)}"
            else:
                self._refreshed = time.monotonic()
                self._problems.pop("metadata", None)

    def _follow_records(self) -> None:
        while not self._stop.is_set():
            try:
                self._reader = reader = self._records(self.model.oldest_ms)
                if self._stop.is_set():
                    break
                for batch in reader.batches():
                    self.malformed += batch.malformed
                    self.skipped += batch.skipped
                    self.model.add_batch(batch)
                    self._problems.pop("metrics", None)
            except Exception as error:
                self._problems["metrics"] = f"metrics not read: {_sentence(error)}"
            self._stop.wait(self._retry)


def follow_kafka(
    bootstrap: str,
    topic: str,
    *,
    capacity: Capacities | Mapping[str, Any] | str | Path | None = None,
    resources: Sequence[str] = DEFAULT_RESOURCES,
    client: Mapping[str, Any] | None = None,
    consumer: Mapping[str, Any] | None = None,
    timeout: float = 10.0,
    partial_view: bool = False,
    notice: Callable[[str], None] | None = None,
    refresh: float = 60.0,
    retry: float = 5.0,
    **options: Any,
) -> Follower:
    """A follower of a running Kafka and its metrics topic, not yet started.

    The topic may be this project's, Cruise Control's ``__CruiseControlMetrics`` or
    AutoMQ's ``__auto_balancer_metrics``.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    capacity, resources, timeout, partial_view, notice
        As in :func:`cluster_model.kafka.read_cluster`.
    client
        Client properties for both the admin client and the consumer.
    consumer
        Further properties of the librdkafka consumer alone; they take precedence.
    refresh, retry, options
        As in :class:`Follower`.
    """

    def metadata() -> Snapshot:
        return read_cluster(
            bootstrap,
            capacity=capacity,
            resources=resources,
            client_properties=client,
            timeout=timeout,
            partial_view=partial_view,
            notice=notice,
        )

    def records(since_ms: int) -> RecordReader:
        return read_records(
            bootstrap,
            topic,
            follow=True,
            since_ms=since_ms,
            timeout=timeout,
            client={**(client or {}), **(consumer or {})},
        )

    return Follower(metadata, records, refresh=refresh, retry=retry, **options)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
