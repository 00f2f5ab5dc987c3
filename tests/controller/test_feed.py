"""What the controller reads from a live model: loads, ages, signals, noise."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from balancer.controller import MeasuredCluster, PlainCluster
from balancer.controller.detect import stale_brokers
from balancer.controller.feed import FeedError, standard_error
from balancer.controller.finding import View
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, simulated_source
from metrics_reporter import Record
from metrics_reporter.metrics import LOG_FLUSH_P999

START_MS = 1_699_999_200_000


class Fed:
    """A model fed by a simulated source, a report a minute."""

    def __init__(self, noise: float = 0.0, **options: object) -> None:
        self.cluster = synthetic_snapshot(brokers=4, partitions=80, topics=4, racks=2, skew=1.0)
        self.now_ms = START_MS
        self.model = ClusterModel(self.cluster, clock=lambda: self.now_ms)
        self.reports = iter(simulated_source(self.cluster, noise=noise, start_ms=START_MS))
        self.looks = 0
        self.view = MeasuredCluster(self.model, self.metadata, **options)  # type: ignore[arg-type]

    def metadata(self) -> Snapshot:
        self.looks += 1
        return self.cluster

    def minutes(self, count: int, flush: float = 100.0) -> None:
        for report in islice(self.reports, count):
            self.model.add_all(report)
            for broker in self.cluster.broker_ids.tolist():
                self.model.add(Record(self.now_ms, broker, {LOG_FLUSH_P999: flush}))
            self.now_ms += 60_000


def test_one_window_is_not_enough_to_tell_load_from_noise() -> None:
    fed = Fed()
    with pytest.raises(FeedError, match="no complete window"):
        fed.view.snapshot()
    fed.minutes(6)
    with pytest.raises(FeedError, match="1 complete window found, at least 2 expected"):
        fed.view.snapshot()
    # To heal, placement is enough.
    assert fed.view.placement().n_brokers == 4
    fed.minutes(5)
    assert fed.view.snapshot().n_brokers == 4
    assert fed.view.since() == START_MS / 1000


def test_before_the_first_record_no_broker_is_called_stale() -> None:
    fed = Fed()
    snapshot = fed.view.placement()
    view = View(snapshot, START_MS / 1000, fed.view.staleness())
    assert stale_brokers(view, 900.0) == []
    fed.model.add(Record(START_MS, 1, {LOG_FLUSH_P999: 1.0}))
    view = View(snapshot, START_MS / 1000, fed.view.staleness())
    assert stale_brokers(view, 900.0) == [2, 3, 4]


def test_what_feeds_the_model_is_named_where_something_is_missing() -> None:
    fed = Fed(problems=lambda: ["metrics not read: no such topic"])
    with pytest.raises(FeedError, match=r"no complete window.*\(metrics not read: no such topic\)"):
        fed.view.snapshot()


def test_an_old_placement_is_not_looked_at() -> None:
    age = [30.0]
    fed = Fed(metadata_age=lambda: age[0], max_age=60.0)
    fed.minutes(11)
    fed.view.snapshot()
    age[0] = 61.0
    with pytest.raises(FeedError, match="the placement is 61 s old, at most 60 s expected"):
        fed.view.snapshot()
    assert fed.looks == 0
    fed.view.placement()
    fed.view.refresh()
    assert fed.looks == 2


def test_ages_are_those_of_each_broker() -> None:
    fed = Fed()
    fed.minutes(11)
    fed.now_ms += 300_000
    fed.model.add(Record(fed.now_ms, 2, {LOG_FLUSH_P999: 1.0}))
    fed.view.snapshot()
    ages = fed.view.staleness()
    assert ages[2] == 0
    assert ages[1] == ages[3] == ages[4] == 360


def test_signals_are_reported_once_a_window() -> None:
    fed = Fed()
    assert fed.view.signals() == {}
    fed.minutes(11, flush=100.0)
    fed.view.snapshot()
    assert fed.view.signals()[LOG_FLUSH_P999] == dict.fromkeys(range(1, 5), 100.0)
    fed.view.snapshot()
    assert fed.view.signals() == {}
    fed.minutes(5, flush=700.0)
    fed.view.snapshot()
    assert set(fed.view.signals()[LOG_FLUSH_P999].values()) != {100.0}


def test_noise_is_measured() -> None:
    quiet, loud = Fed(noise=0.0), Fed(noise=0.3)
    for fed in (quiet, loud):
        fed.minutes(27)
        fed.view.snapshot()
    assert max(quiet.view.noise().values()) == pytest.approx(0.0, abs=1e-9)
    # Five windows of five samples of brokers' cpu.
    assert loud.view.noise()["cpu"] == pytest.approx(0.3 / 5, rel=0.5)
    assert 0 < loud.view.noise()["network_in"] < 0.3 / 5
    assert "disk" not in loud.view.noise()


def test_without_metrics_nothing_is_stale_or_noisy() -> None:
    cluster = synthetic_snapshot(brokers=3, partitions=10, racks=3)
    view = PlainCluster(lambda: cluster)
    view.refresh()
    assert view.snapshot() == cluster
    assert view.signals() == {}
    assert view.noise() == {}


@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (5, 0), (5, 1)])
def test_too_few_values_have_no_noise(shape: tuple[int, int]) -> None:
    with np.errstate(all="raise"):
        assert standard_error(np.ones(shape)) == 0


def test_cpu_that_most_brokers_do_not_send_is_left_out_and_said_once_like_other_problems(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = list[str]()
    fed = Fed(problems=lambda: problems)
    fed.reports = iter(
        [record for record in report if record.scope != "broker"] for report in fed.reports
    )
    fed.minutes(16)
    assert fed.view.snapshot().resources == ("network_in", "network_out", "disk")
    problems.append("metrics not read: not authorized")
    for _ in range(2):
        fed.view.snapshot()
    assert caplog.messages == [
        "cpu: left out, because at least half of the brokers send none",
        "metrics not read: not authorized",
    ]
