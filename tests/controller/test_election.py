"""Several controllers: one acts, another takes over, and never two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from waiting import wait_for

from balancer.controller import Election
from balancer.controller import election as election_module
from balancer.controller.election import ElectionError
from metrics_reporter import mock_cluster
from metrics_reporter.clients import create

SESSION = 3.0
TOPIC = "__counterpoise_controller"


class Candidate:
    """A child process, and what it wrote down."""

    def __init__(self, bootstrap: str, path: Path) -> None:
        self.path = path
        path.touch()
        script = Path(__file__).with_name("candidate.py")
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [sys.executable, str(script), bootstrap, str(SESSION), str(path)],
            env={**os.environ, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL,
        )

    def samples(self) -> list[tuple[float, bool]]:
        lines = self.path.read_text().splitlines(keepends=True)
        whole = [line.split() for line in lines if line.endswith("\n")]
        return [(float(at), acting == "1") for at, acting in whole]

    def acts(self) -> bool:
        samples = self.samples()
        return bool(samples) and samples[-1][1]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@contextmanager
def _candidates(bootstrap: str, directory: Path) -> Iterator[list[Candidate]]:
    made = [Candidate(bootstrap, directory / f"candidate-{i}") for i in range(2)]
    try:
        yield made
    finally:
        for candidate in made:
            candidate.process.kill()
            candidate.process.wait()


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster(1) as servers:
        # The mock makes topics only when they are written to.
        producer = create("Producer", {"bootstrap.servers": servers})
        producer.produce(TOPIC, b"", partition=0)
        assert producer.flush(30) == 0
        yield servers
        del producer


def _spans(samples: list[tuple[float, bool]]) -> list[tuple[float, float]]:
    """From the first to the last sample of each time of acting."""
    spans: list[tuple[float, float]] = []
    before = False
    for at, acting in samples:
        if acting:
            spans = [*spans[:-1], (spans[-1][0], at)] if before else [*spans, (at, at)]
        before = acting
    return spans


@pytest.mark.slow
def test_one_acts_another_takes_over_from_a_hung_and_a_killed_one_and_never_two_at_once(
    bootstrap: str, tmp_path: Path
) -> None:
    with _candidates(bootstrap, tmp_path) as candidates:

        def actor() -> Candidate | None:
            return next((c for c in candidates if c.acts()), None)

        wait_for(lambda: all(c.samples() for c in candidates))
        # Both have joined when the one that acts does so for longer than a session.
        steady = time.monotonic()
        while time.monotonic() - steady < 2 * SESSION:
            if actor() is None:
                steady = time.monotonic()
            time.sleep(0.05)
        hung = actor()
        assert hung is not None
        (other,) = (c for c in candidates if c is not hung)
        hung.send(signal.SIGSTOP)
        wait_for(other.acts)
        woken = time.monotonic()
        seen = len(hung.samples())
        hung.send(signal.SIGCONT)
        wait_for(lambda: len(hung.samples()) > seen + 20)
        assert not any(acting for at, acting in hung.samples() if at > woken)
        other.send(signal.SIGKILL)
        wait_for(hung.acts)
        first, second = (_spans(c.samples()) for c in candidates)
    assert first
    assert second
    for a in first:
        for b in second:
            assert a[1] < b[0] or b[1] < a[0]


def test_who_leaves_hands_over_and_no_longer_acts(bootstrap: str) -> None:
    with Election(bootstrap, session=SESSION) as first:
        wait_for(lambda: first.acting)
    assert not first.acting
    with Election(bootstrap, session=SESSION) as second:
        wait_for(lambda: second.acting)


def test_a_lease_that_is_not_renewed_runs_out(bootstrap: str) -> None:
    now = [0.0]
    with Election(bootstrap, session=SESSION, clock=lambda: now[0]) as election:
        wait_for(lambda: election.acting)
        # Nothing was heard for a session, whatever the thread that renews it is doing.
        election._renew = lambda module: None  # type: ignore[method-assign]
        now[0] += 0.79 * SESSION
        assert election.acting
        now[0] += 0.02 * SESSION
        assert not election.acting


def test_an_error_of_the_client_costs_the_vote_only_until_it_has_joined_again(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Election(bootstrap, session=SESSION) as election:
        wait_for(lambda: election.acting)
        failing = [True]
        renew = election._renew

        def once(module: Any) -> None:
            if failing and failing.pop():
                assert election.acting
                raise RuntimeError("the client is in a state it should not be in")
            renew(module)

        monkeypatch.setattr(election, "_renew", once)
        wait_for(lambda: not failing)
        wait_for(lambda: election.acting)
        assert election.prove(30.0) is not None


def test_wrong_options_and_silent_brokers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ElectionError, match=r"session: 0\.5 s found, 1 to 1800 s expected"):
        Election("localhost:9092", session=0.5)
    monkeypatch.setattr("balancer.controller.election.ANSWER_TIMEOUT", 0.2)
    with pytest.raises(ElectionError, match=r"election at 127\.0\.0\.1:9: "):
        Election("127.0.0.1:9").start()
    with pytest.raises(ElectionError, match="client properties"):
        Election("127.0.0.1:9", client={"security.protocol": "nonsense"}).start()


def test_who_leaves_knows_the_coordinator_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # The request to leave is sent once, and refused by a broker that is no longer the coordinator.
    calls: list[str] = []

    class Consumer:
        moved = False

        def __init__(self, *_: Any) -> None: ...

        def subscribe(self, *_: Any, **callbacks: Any) -> None: ...

        def poll(self, timeout: float) -> None:
            time.sleep(timeout)

        def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            if self.moved and "refused" not in calls[-1:]:
                calls.append("refused")
                raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
            calls.append("found")
            return places

        def close(self) -> None:
            calls.append("left")

    monkeypatch.setattr(election_module, "create", Consumer)
    monkeypatch.setattr(Election, "_make_topic", lambda self: None)
    with Election("localhost:9092", session=SESSION) as election:
        wait_for(lambda: calls)
        election._consumer.moved = True
    assert calls[-3:] == ["refused", "found", "left"]


@pytest.mark.parametrize("session", [1.0, 1800.0])
def test_the_client_takes_every_session_that_is_allowed(session: float) -> None:
    create("Consumer", Election("localhost:9092", session=session)._properties).close()


@pytest.mark.parametrize("gone", [RuntimeError("Consumer closed"), "denied"])
def test_who_may_not_ask_for_the_coordinator_or_has_left_asks_once(gone: Any) -> None:
    calls: list[str] = []

    class Consumer:
        def __init__(self, *_: Any) -> None: ...

        def committed(self, *_: Any) -> list[TopicPartition]:
            calls.append("asked")
            if gone == "denied":
                raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
            raise gone

        def close(self) -> None:
            calls.append("left")

    # its clock stands still: what ends the wait is not the clock of the lease
    election = Election("localhost:9092", session=SESSION, clock=lambda: 0.0)
    election._consumer = Consumer()
    election._close_client()
    assert calls == ["asked", "left"]
