"""Runs the reporter as a service: several sources, and a Kafka that may be unavailable."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from metrics_reporter.clients import ANSWER_TIMEOUT, create, kafka, reason
from metrics_reporter.coverage import Coverage, coverage
from metrics_reporter.errors import ReporterError
from metrics_reporter.records import Record
from metrics_reporter.reporter import Reporter
from metrics_reporter.sources import Source

log = logging.getLogger(__name__)

# Seconds to try to deliver a record; by then the next interval has newer ones.
DELIVERY_SECONDS = 10.0
# Longest wait between attempts while Kafka does not answer, in seconds.
_LONGEST_WAIT = 300.0
# Long enough for any model's windows, and no longer.
_RETENTION_MS = 6 * 3_600_000


class NoTopicError(ReporterError):
    """A metrics topic that does not exist."""


class Agent:
    """Reports the measurements of several sources until it is stopped, despite failures.

    A source that fails is left out of the report. If Kafka does not answer, the report
    is dropped (the next one is newer) and the wait doubles. Each problem is logged once
    when it starts and once when it ends.

    Parameters
    ----------
    sources
        By the name that problems are reported under.
    bootstrap, topic, interval, client
        As for :class:`metrics_reporter.Reporter`.
    create_topic
        Create the topic if it is missing, with Kafka's default number of replicas.

    Attributes
    ----------
    problems : dict
        Current problems, in sentences; empty if there are none.
    failures : int
        Intervals so far in which Kafka did not accept the report.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        bootstrap: str,
        topic: str,
        interval: float = 60.0,
        client: Mapping[str, Any] | None = None,
        create_topic: bool = False,
    ) -> None:
        if not sources:
            raise ReporterError("agent: no source found, at least 1 expected")
        if not interval > 0:
            raise ReporterError(f"agent, interval: {interval:g} found, more than 0 s expected")
        properties = {
            "message.timeout.ms": int(1000 * DELIVERY_SECONDS),
            # Errors are returned with each message; the client need not log them too.
            "log_level": 0,
            **(client or {}),
        }
        self.problems: dict[str, str] = {}
        self.failures = 0
        self._sources = dict(sources)
        self._iterators = {name: iter(source) for name, source in sources.items()}
        self._properties = {"bootstrap.servers": bootstrap, **properties}
        self._topic = topic
        self._create_topic = create_topic
        self._interval = interval
        self._reporter = Reporter(
            _Reports(self), bootstrap=bootstrap, topic=topic, interval=interval, client=properties
        )
        self._stop = threading.Event()
        self._failed_since = 0
        self._delivered = 0
        self._report: list[Record] = []

    @property
    def delivered(self) -> int:
        """Records that the topic acknowledged so far."""
        return self._reporter.delivered

    @property
    def coverage(self) -> Coverage:
        """What the newest report covers."""
        return coverage(self._report)

    def run(self, reports: int | None = None) -> int:
        """Report until :meth:`stop`, for a number of reports, or until all sources end.

        Parameters
        ----------
        reports
            Number of reports, for a trial run: then Kafka's failures are raised.

        Returns
        -------
        int
            Records delivered so far.

        Raises
        ------
        NoTopicError
            If Kafka answers that the topic does not exist, before the first report.
        ReporterError
            For invalid client properties; with `reports`, for any failure.
        """
        found = False
        # Invalid properties stay invalid, so this fails at once.
        create("Producer", self._properties)
        while not self._stop.is_set():
            try:
                if not found:
                    self._find_topic()
                    found = True
                self._reporter.run(reports)
                break
            except NoTopicError:
                raise
            except ReporterError as error:
                if reports is not None:
                    raise
                self._failed(str(error))
            self._stop.wait(self._wait)
        return self.delivered

    def stop(self) -> None:
        """End :meth:`run` after the current report; may be called from any thread."""
        self._stop.set()
        self._reporter.stop()

    @property
    def _wait(self) -> float:
        longest = max(self._interval, _LONGEST_WAIT)
        return min(self._interval * 2.0 ** min(self._failed_since - 1, 32), longest)

    def _measured(self) -> Iterator[list[Record]]:
        """One report after the other, each from all sources."""
        while self._iterators:
            if self.delivered > self._delivered:
                self._delivered = self.delivered
                self._failed_since = 0
                self._log_problems({k: v for k, v in self.problems.items() if k != "Kafka"})
            report: list[Record] = []
            problems = {k: v for k, v in self.problems.items() if k == "Kafka"}
            for name in list(self._iterators):
                try:
                    report += next(self._iterators[name])
                except StopIteration:
                    del self._iterators[name]
                # A source may be third-party code, and the others must continue.
                except Exception as error:
                    said = " ".join(str(error).split()) or type(error).__name__
                    problems[name] = f"not measured: {said}"
                    self._iterators[name] = iter(self._sources[name])
                reported: Mapping[str, str] = getattr(self._sources[name], "problems", {})
                problems |= {f"{name}: {key}": value for key, value in reported.items()}
            self._log_problems(problems)
            self._report = report
            yield report

    def _log_problems(self, problems: dict[str, str]) -> None:
        for key in problems.keys() - self.problems.keys():
            log.warning("%s: %s", key.partition(":")[0], problems[key])
        for key in self.problems.keys() - problems.keys():
            log.info("%s: working again (it was: %s)", key.partition(":")[0], self.problems[key])
        self.problems = problems

    def _failed(self, why: str) -> None:
        self.failures += 1
        self._failed_since += 1
        self._log_problems(self.problems | {"Kafka": why})

    def _find_topic(self) -> None:
        module = kafka()
        where = f"metrics topic {self._topic!r} at {self._properties['bootstrap.servers']}"
        try:
            client = create("Producer", self._properties)
            topics = client.list_topics(timeout=DELIVERY_SECONDS).topics
            if self._topic in topics:
                return
            if not self._create_topic:
                raise NoTopicError(f"{where}: no such topic; create it, or let it be created")
            _create(self._topic, self._properties)
        except module.KafkaException as error:
            raise ReporterError(f"{where}: {reason(error)}") from None
        log.info("created %s", where)


class _Reports:
    """The agent as a source; its reports resume where they were left."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __iter__(self) -> Iterator[list[Record]]:
        return self._agent._measured()


def _create(topic: str, properties: Mapping[str, Any]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    # The admin client would only warn about the producer's own properties.
    own = {k: v for k, v in properties.items() if k != "message.timeout.ms"}
    new = NewTopic(topic, 1, config={"retention.ms": str(_RETENTION_MS)})
    module = kafka()
    try:
        admin = AdminClient(own)
        admin.create_topics([new])[topic].result(ANSWER_TIMEOUT)
    except module.KafkaException as error:
        # Another reporter created it first.
        if error.args[0].code() != module.KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    except TimeoutError:
        raise ReporterError(
            f"metrics topic {topic!r}: not created in {ANSWER_TIMEOUT:g} s"
        ) from None
