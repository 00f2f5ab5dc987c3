"""The agent keeps reporting whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from confluent_kafka import Producer

from metrics_reporter import Record, ReporterError, mock_cluster, read_records
from metrics_reporter.agent import Agent, NoTopicError
from metrics_reporter.sources import Source


class Faulty:
    """One record a report; the second fails, and a problem is there while it does."""

    def __init__(self) -> None:
        self.asked = 0
        self.problems: dict[str, str] = {}

    def __iter__(self) -> Iterator[list[Record]]:
        while True:
            self.asked += 1
            self.problems = {"broker 9": "broker 9: refused"} if self.asked < 4 else {}
            if self.asked == 2:
                raise RuntimeError("two\nlines")
            yield [Record(1000 + self.asked, 1, {"cpu": 1.0})]


class Steady:
    def __iter__(self) -> Iterator[list[Record]]:
        for i in range(5):
            yield [Record(2000 + i, 2, {"size": 1.0}, "t", 0)]


@contextmanager
def mock() -> Iterator[str]:
    """A cluster with the topic: the mock creates one when it is asked for by name."""
    with mock_cluster() as bootstrap:
        Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("metrics", 10)
        yield bootstrap


def times(bootstrap: str) -> list[int]:
    return sorted(record.time_ms for record in read_records(bootstrap, "metrics"))


def test_a_source_that_fails_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "metrics_reporter")
    with mock() as bootstrap:
        sources: dict[str, Source] = {"faulty": Faulty(), "steady": Steady()}
        agent = Agent(sources, bootstrap=bootstrap, topic="metrics", interval=0.01)
        assert agent.run(5) == 9
        assert times(bootstrap) == [1001, 1003, 1004, 1005, *range(2000, 2005)]
        assert agent.problems == {}
    said = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert said == [
        ("WARNING", "faulty: broker 9: refused"),
        ("WARNING", "faulty: not measured: two lines"),
        ("INFO", "faulty: working again (it was: not measured: two lines)"),
        ("INFO", "faulty: working again (it was: broker 9: refused)"),
    ]


def test_it_ends_when_its_sources_do() -> None:
    with mock() as bootstrap:
        agent = Agent({"s": Steady()}, bootstrap=bootstrap, topic="metrics", interval=0.01)
        assert agent.run() == 5


def test_it_goes_on_when_kafka_comes_late_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "metrics_reporter")
    with mock() as bootstrap:
        agent = Agent({"s": Steady()}, bootstrap=bootstrap, topic="metrics", interval=0.01)
        find, tries = agent._find_topic, []

        def late() -> None:
            tries.append(agent._wait)
            if len(tries) < 4:
                raise ReporterError("nobody there")
            find()

        monkeypatch.setattr(agent, "_find_topic", late)
        assert agent.run() == 5
        assert tries[1:] == [0.01, 0.02, 0.04]
        assert (agent.failures, agent.problems) == (3, {})
    said = [r.getMessage() for r in caplog.records]
    assert said == ["Kafka: nobody there", "Kafka: working again (it was: nobody there)"]


def test_a_kafka_that_is_away_does_not_end_it_and_stop_does() -> None:
    properties = {"message.timeout.ms": 200}
    with mock() as bootstrap:
        agent = Agent(
            {"f": Faulty()}, bootstrap=bootstrap, topic="metrics", interval=0.05,
            client=properties, 
        )  # fmt: skip
        thread = Thread(target=agent.run)
        thread.start()
        while agent.delivered < 2:
            assert thread.is_alive()
    while agent.failures < 2:
        assert thread.is_alive()
    assert set(agent.problems) == {"Kafka"}
    agent.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_what_never_can_be_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def agent(**options: object) -> Agent:
        kept = {"bootstrap": "127.0.0.1:1", "topic": "metrics", "sources": {"s": Steady()}}
        return Agent(**(kept | options))  # type: ignore[arg-type]

    with pytest.raises(ReporterError, match="interval: 0 found"):
        agent(interval=0.0)
    with pytest.raises(ReporterError, match="at least 1"):
        agent(sources={})
    with pytest.raises(ReporterError, match=r"no\.such"):
        agent(client={"no.such": 1}).run()
    monkeypatch.setattr("metrics_reporter.agent.DELIVERY_SECONDS", 0.2)
    with pytest.raises(ReporterError, match=r"metrics topic 'metrics' at 127\.0\.0\.1:1: "):
        agent().run(1)


def test_a_topic_that_is_missing_is_reported() -> None:
    with mock_cluster() as bootstrap:
        agent = Agent({"s": Steady()}, bootstrap=bootstrap, topic="metrics")
        with pytest.raises(NoTopicError, match="no such topic"):
            agent.run()
