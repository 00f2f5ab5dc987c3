"""A group on a Kafka is observed, decided on, and sized; what cannot be decided changes nothing."""

from __future__ import annotations

import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kafka.errors import CoordinatorLoadInProgressError
from rich.console import Console

from balancer.autoscaling import kafka_observer
from balancer.autoscaling.autoscaler import Assignor, Autoscaler, Round, summary
from balancer.autoscaling.errors import AutoscalingError, NotYetError, RebalancingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.kafka_observer import KafkaObserver, Working
from balancer.autoscaling.observation import Observation, enough_in_ranges
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policy import Decision, evenly, stay
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.replicas import Count, Scaler, ScalingLimits
from balancer.cli.autoscale_view import decided, live
from cluster_model.kafka import KafkaDeniedError
from metrics_reporter.exposition import Sample, parse

TopicPartition = namedtuple("TopicPartition", ["topic", "partition"])
Offset = namedtuple("Offset", ["offset"])


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Kafka:
    """What an admin client answers."""

    def __init__(self) -> None:
        self.cluster = "one"
        self.topics = {"orders": 3}
        self.end = {("orders", 0): 1000, ("orders", 1): 500, ("orders", 2): 0}
        self.start = dict.fromkeys(self.end, 0)
        self.committed = {("orders", 0): 900, ("orders", 1): 500}
        self.members = {"a": [0, 1], "b": [2]}
        # topics besides, of which the first member reads everything, and that the user may not see
        self.others: list[str] = []
        self.hidden: set[str] = set()
        self.state = "Stable"
        self.static, self.client = True, "rdkafka"
        self.failure: Exception | None = None
        self.error: str | None = None
        self.errors: list[str] = []
        self.denied: Exception | None = None
        self.kind, self.listed, self.protocol = "classic", "Empty", "consumer"
        self.policy: str | None = "delete"
        # ends of what transactions have committed, if they are not those of all records
        self.settled: dict[tuple[str, int], int] = {}
        self.took: Callable[[], None] = lambda: None

    @contextmanager
    def connect(self) -> Iterator[Callable[[Callable[[Any], Any]], Any]]:
        if self.failure is not None:
            raise self.failure
        yield lambda call: call(self)

    def describe_cluster(self) -> Any:
        return {"cluster_id": self.cluster}

    def describe_groups(self, groups: Sequence[str]) -> Any:
        others = [{"topic": t, "partitions": [0]} for t in self.others]
        members = [
            {
                "member_id": f"{name}-1234",
                "group_instance_id": name if self.static else None,
                "client_id": self.client or name,
                "member_assignment": {
                    "assigned_partitions": [
                        {"topic": "orders", "partitions": numbers},
                        *(others if name == "a" else []),
                    ]
                },
            }
            for name, numbers in self.members.items()
        ]
        if self.denied is not None:
            raise self.denied
        error = self.errors.pop(0) if self.errors else self.error
        found = {
            "group_state": self.state,
            "members": members,
            "error": error,
            "protocol_type": self.protocol,
        }
        return dict.fromkeys(groups, found)

    def list_groups(self) -> Any:
        return [{"group_id": "shop", "group_type": self.kind, "group_state": self.listed}]

    def list_group_offsets(self, groups: Sequence[str]) -> Any:
        return {
            group: {
                TopicPartition(*p): Offset(o)
                for p, o in self.committed.items()
                if p[0] not in self.hidden
            }
            for group in groups
        }

    def describe_topics(self, topics: Sequence[str]) -> Any:
        return [
            {"name": t, "error_code": 0, "partitions": [{"partition_index": n} for n in range(c)]}
            if (c := self.topics.get(t)) and t not in self.hidden
            else {"name": t, "error_code": 29 if t in self.hidden else 3, "partitions": []}
            for t in topics
        ]

    def list_partition_offsets(self, asked: Any, isolation_level: int) -> Any:
        self.took()
        end = self.settled if isolation_level and self.settled else self.end
        return {
            p: Offset((end if which == -1 else self.start)[p.topic, p.partition])
            for p, which in asked.items()
        }

    def describe_configs(self, asked: Any, config_filter: str) -> Any:
        if self.policy is None:
            raise KafkaDeniedError("Kafka at k refused")
        return {"topic": {r.name: {"cleanup.policy": {"value": self.policy}} for r in asked}}


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer(kafka: Kafka, clock: Clock) -> KafkaObserver:
    return KafkaObserver(kafka.connect, "shop", ["orders"], Working(100.0), clock=clock)


def test_a_coordinator_that_is_being_moved_is_asked_again(
    observer: KafkaObserver, kafka: Kafka, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_observer, "_COORDINATOR_SECONDS", 0.0)
    kafka.errors = ["[Error 16] NotCoordinatorError: None", "CoordinatorLoadInProgressError"]
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    assert observer.observe().consumers == ("a", "b")
    # and again in the next round, if that is not enough
    kafka.error = "[Error 15] CoordinatorNotAvailableError: None"
    with pytest.raises(NotYetError, match="coordinator"):
        observer.observe()


def test_a_coordinator_that_answers_between_is_not_out_all_the_time(
    observer: KafkaObserver, kafka: Kafka, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_observer, "_COORDINATOR_SECONDS", 0.0)
    for error, state in (
        ("CoordinatorNotAvailableError", "Stable"),
        (None, "PreparingRebalance"),
        ("CoordinatorNotAvailableError", "Stable"),
    ):
        kafka.error, kafka.state = error, state
        clock.now += 70.0
        with pytest.raises(NotYetError, match="coordinator" if error else "rebalances"):
            observer.observe()


@pytest.mark.parametrize("request_", ["describe_groups", "list_groups", "list_group_offsets"])
def test_no_request_fails_while_a_coordinator_loads_its_groups(
    request_: str, kafka: Kafka, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_observer, "_COORDINATOR_SECONDS", 0.0)
    kafka.members, kafka.state = {}, "Dead"
    observer = KafkaObserver(kafka.connect, "shop", ["orders"], Working(100.0), True, clock)
    answer, loading = getattr(kafka, request_), 2

    def asked(*arguments: object) -> object:
        nonlocal loading
        loading -= 1
        if loading >= 0:
            raise CoordinatorLoadInProgressError(f"{request_} failed, error_code=14")
        return answer(*arguments)

    monkeypatch.setattr(kafka, request_, asked)
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    loading = 100
    clock.now += 10.0
    with pytest.raises(NotYetError, match="coordinator"):
        observer.observe()
    clock.now += 59.0
    with pytest.raises(NotYetError, match="coordinator"):
        observer.observe()
    clock.now += 6.0
    with pytest.raises(
        AutoscalingError, match="its coordinator has not been ready for 65 s"
    ) as failed:
        observer.observe()
    assert not isinstance(failed.value, NotYetError)
    loading = 0
    # arrivals are not spread over the outage
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()


def test_a_group_of_another_cluster_is_another_one(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    observer.observe()
    kafka.cluster = "two"
    for _ in range(2):
        clock.now += 10.0
        with pytest.raises(AutoscalingError, match="cluster 'two' answers, 'one' as at first"):
            observer.observe()
    # nothing of the other one is kept
    kafka.cluster = "one"
    clock.now += 10.0
    assert observer.observe().group.rate.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rate", [1e300, 1e-300, float("inf"), float("nan"), -1.0, 0.0])
def test_a_consumer_that_says_something_absurd_counts_as_not_measured(
    kafka: Kafka, clock: Clock, rate: float
) -> None:
    class Absurd:
        def capacities(self) -> dict[str, float]:
            return {"a": rate, "b": 50.0}

        def rebalance_seconds(self) -> None:
            return None

    observer = KafkaObserver(
        kafka.connect, "shop", ["orders"], Working(), clock=clock, reports=Absurd()
    )
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    found = observer.observe()
    assert dict(found.measured) == {"b": 50.0}
    assert found.group.capacity.tolist() == [50.0, 50.0]


def test_a_consumer_that_reports_far_more_than_all_others_is_not_believed(
    kafka: Kafka, clock: Clock
) -> None:
    said = Said()
    said.rates = {"x": 1e14, "y": 50.0, "z": 60.0}
    members = {"x": [("orders", 0)], "y": [("orders", 1)], "z": [("orders", 2)]}
    kafka.members = {}
    observer = measuring(kafka, clock, Working(), members=lambda: members, reports=said)
    clock.now += 10.0
    found = observer.observe()
    assert dict(found.measured) == {"y": 50.0, "z": 60.0}
    assert found.group.capacity.tolist() == [55.0, 50.0, 60.0]
    # consumers may differ
    said.rates["x"] = 500.0
    clock.now += 10.0
    assert observer.observe().group.capacity.tolist() == [500.0, 50.0, 60.0]


@pytest.mark.parametrize(
    ("rates", "believed"),
    [((1e14, 50.0), {"y": 50.0}), ((1.0, 100.0), {"x": 1.0, "y": 100.0})],
)
def test_of_two_consumers_one_that_reports_far_more_is_not_believed(
    kafka: Kafka, clock: Clock, rates: tuple[float, float], believed: dict[str, float]
) -> None:
    said = Said()
    said.rates = dict(zip("xy", rates, strict=True))
    kafka.members = {}
    members = {"x": [("orders", 0)], "y": [("orders", 1), ("orders", 2)]}
    observer = measuring(kafka, clock, Working(), members=lambda: members, reports=said)
    clock.now += 10.0
    found = observer.observe()
    assert dict(found.measured) == believed
    assert found.group.new_capacity == pytest.approx(sum(believed.values()) / len(believed))
    note = "x says that it can process 1e+14 events/s, far more than the others: not believed"
    assert (note in found.notes) == ("x" not in believed)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("consumer", "its partitions are assigned by the brokers .KIP-848"),
        ("share", "it is a share group, whose consumers share the records of a partition"),
        ("streams", "its tasks are assigned to instances of Kafka Streams"),
        ("later", "it is of the type 'later', a group of consumers of group.protocol=classic"),
    ],
)
def test_a_group_of_another_kind_is_named_and_never_started(
    kind: str, sentence: str, new: bool, kafka: Kafka, clock: Clock
) -> None:
    observer = KafkaObserver(kafka.connect, "shop", ["orders"], Working(100.0), new, clock)
    kafka.error, kafka.members = "[Error 69] GroupIdNotFoundError: shop is not classic", {}
    kafka.kind, kafka.listed = kind, "Stable"
    with pytest.raises(AutoscalingError, match=sentence):
        observer.observe()
    # without members, one of KIP-848 is what its next member makes of it
    kafka.listed = "Empty"
    with pytest.raises(AutoscalingError, match="measured" if kind == "consumer" else sentence):
        observer.observe()


def test_a_group_whose_members_are_no_consumers_is_refused(
    observer: KafkaObserver, kafka: Kafka
) -> None:
    kafka.protocol = "connect"
    with pytest.raises(AutoscalingError, match="no consumers, but of the kind connect"):
        observer.observe()


def test_no_rights_on_a_group_is_one_sentence(observer: KafkaObserver, kafka: Kafka) -> None:
    kafka.denied = KafkaDeniedError(
        "Kafka at k refused: the user of the client properties is not authorized for this on a "
        "consumer group"
    )
    with pytest.raises(AutoscalingError, match="group 'shop': no rights, DESCRIBE of the group"):
        observer.observe()


def test_rates_and_lags_are_those_of_the_offsets(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    kafka.end = {("orders", 0): 1500, ("orders", 1): 700, ("orders", 2): 0}
    seen = observer.observe()
    assert seen.partitions == ("orders-0", "orders-1", "orders-2")
    assert seen.consumers == ("a", "b")
    assert seen.group.rate.tolist() == [50.0, 20.0, 0.0]
    assert seen.group.lag.tolist() == [600.0, 200.0, 0.0]
    assert seen.group.consumer.tolist() == [0, 0, 1]
    assert seen.notes == ("1 partition never committed: counted without lag",)


def test_consumers_have_the_names_that_tell_them_apart(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    for static, client, names in (
        (True, "rdkafka", ("a", "b")),
        (False, "", ("a", "b")),
        (False, "rdkafka", ("a-1234", "b-1234")),
    ):
        kafka.static, kafka.client = static, client
        clock.now += 10.0
        assert observer.observe().consumers == names


def test_rates_are_those_of_the_window(observer: KafkaObserver, kafka: Kafka, clock: Clock) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    for _ in range(5):
        clock.now += 20.0
        kafka.end["orders", 0] += 100
        assert observer.observe().group.rate[0] == 5.0
    # what is older than the window no longer counts
    for rate in (12.5, 20.0):
        clock.now += 20.0
        kafka.end["orders", 0] += 400
        assert observer.observe().group.rate[0] == pytest.approx(rate)


@pytest.mark.parametrize(("minutes", "rate"), [(60, None), (0.1, 6.25)])
def test_an_outage_is_no_time_without_arrivals(
    observer: KafkaObserver, kafka: Kafka, clock: Clock, minutes: float, rate: float | None
) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    kafka.end["orders", 0] += 100
    observer.observe()
    kafka.failure = KafkaDeniedError("Kafka at k refused")
    with pytest.raises(KafkaDeniedError):
        observer.observe()
    kafka.failure = None
    # nobody could write, either
    clock.now += 60.0 * minutes
    if rate is None:
        with pytest.raises(NotYetError, match="being measured"):
            observer.observe()
    else:
        assert observer.observe().group.rate[0] == pytest.approx(rate)
    clock.now += 10.0
    kafka.end["orders", 0] += 100
    expected = 10.0 if rate is None else 200 / 26
    assert observer.observe().group.rate[0] == pytest.approx(expected)


def test_a_topic_that_is_made_anew_is_no_negative_rate(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    kafka.end = dict.fromkeys(kafka.end, 7)
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    kafka.end = dict.fromkeys(kafka.end, 27)
    assert observer.observe().group.rate.tolist() == [2.0, 2.0, 2.0]


def reads_other(kafka: Kafka, topic: str, end: int) -> None:
    """The first member also reads a topic of one partition, and has not committed."""
    kafka.topics[topic] = 1
    kafka.others.append(topic)
    kafka.start[topic, 0], kafka.end[topic, 0] = 0, end


def all_topics(kafka: Kafka, clock: Clock, **given: Any) -> KafkaObserver:
    """An observer without named topics, after its first look."""
    observer = KafkaObserver(kafka.connect, "shop", [], Working(100.0), clock=clock, **given)
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    return observer


def test_another_topic_is_news_and_what_it_held_has_not_arrived_just_now(
    kafka: Kafka, clock: Clock
) -> None:
    observer = all_topics(kafka, clock)
    assert observer.observe().unknown == 0
    reads_other(kafka, "old", 10**9)
    clock.now += 10.0
    with pytest.raises(NotYetError, match="'shop' reads topic old from now on: decided on at the"):
        observer.observe()
    clock.now += 10.0
    kafka.end["old", 0] += 50
    seen = observer.observe()
    assert (seen.partitions[0], seen.group.rate[0], seen.unknown) == ("old-0", 5.0, 0)
    assert "2 partitions never committed: counted without lag" in seen.notes
    kafka.others.clear()
    clock.now += 10.0
    with pytest.raises(NotYetError, match="no longer reads topic old from now on"):
        observer.observe()
    assert observer.observe().partitions == ("orders-0", "orders-1", "orders-2")


def test_offsets_of_a_topic_that_nobody_reads_are_no_load(kafka: Kafka, clock: Clock) -> None:
    kafka.topics["left"] = 1
    for offsets in (kafka.start, kafka.end, kafka.committed):
        offsets["left", 0] = 0
    observer = all_topics(kafka, clock)
    kafka.end["left", 0] = 10**6
    assert observer.observe().partitions == ("orders-0", "orders-1", "orders-2")
    # and it is still known what was read when all members have gone
    kafka.members = {}
    clock.now += 10.0
    assert observer.observe().partitions == ("orders-0", "orders-1", "orders-2")
    # offsets are all that is known of a group whose members were never seen
    assert "left-0" in all_topics(kafka, clock).observe().partitions


def test_members_that_read_nothing_yet_are_waited_for(kafka: Kafka, clock: Clock) -> None:
    kafka.members = {"a": [], "b": []}
    observer = KafkaObserver(kafka.connect, "shop", [], Working(100.0), clock=clock)
    with pytest.raises(NotYetError, match="its members read nothing yet"):
        observer.observe()


@pytest.mark.parametrize("told", [False, True])
def test_a_right_that_is_lost_fails_rounds_and_hides_no_load(
    told: bool, kafka: Kafka, clock: Clock
) -> None:
    reads_other(kafka, "busy", 0)
    kafka.committed["busy", 0] = 0
    given: dict[str, Any] = {}
    if told:
        kafka.members = {}
        given["members"] = lambda: {"x": []}
    observer = all_topics(kafka, clock, **given)
    assert "busy-0" in observer.observe().partitions
    kafka.hidden = {"busy"}
    for _ in range(3):
        clock.now += 10.0
        with pytest.raises(AutoscalingError, match="topic 'busy' not found"):
            observer.observe()


def test_a_topic_that_is_deleted_is_left_out_and_ends_no_consumer_while_members_have_it(
    kafka: Kafka, clock: Clock
) -> None:
    reads_other(kafka, "gone", 0)
    observer = all_topics(kafka, clock)
    observer.observe()
    del kafka.topics["gone"]
    clock.now += 10.0
    with pytest.raises(NotYetError, match="no longer reads topic gone"):
        observer.observe()
    clock.now += 10.0
    seen = observer.observe()
    assert (seen.partitions, seen.unknown) == (("orders-0", "orders-1", "orders-2"), 1)
    assert "topic gone: read by members, and does not exist: left out" in seen.notes


def test_a_partition_that_is_added_has_received_everything_since(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    kafka.topics["orders"] = 4
    kafka.start["orders", 3], kafka.end["orders", 3] = 0, 70
    assert observer.observe().group.rate.tolist() == [0.0, 0.0, 0.0, 7.0]
    clock.now += 10.0
    kafka.end["orders", 3] = 120
    assert observer.observe().group.rate[3] == 6.0


@pytest.mark.parametrize(("looks", "rate"), [(1, 2.5), (8, None)])
def test_a_partition_whose_offsets_come_back_is_measured_from_what_is_known(
    observer: KafkaObserver, kafka: Kafka, clock: Clock, looks: int, rate: float | None
) -> None:
    kafka.end["orders", 0] = 10**9
    with pytest.raises(NotYetError):
        observer.observe()
    kafka.end["orders", 0] = -1
    for _ in range(looks):
        clock.now += 10.0
        seen = observer.observe()
        assert seen.partitions == ("orders-1", "orders-2")
        assert seen.unknown == 1
    clock.now += 10.0
    kafka.end["orders", 0] = 10**9 + 50
    seen = observer.observe()
    assert seen.group.rate.tolist() == ([0.0, 0.0] if rate is None else [rate, 0.0, 0.0])
    # and if it is another one by then, nothing is known of it
    kafka.end["orders", 0] = -1
    clock.now += 10.0
    observer.observe()
    kafka.end["orders", 0] = 3
    kafka.committed["orders", 0] = 3
    clock.now += 10.0
    with pytest.raises(NotYetError):
        observer.observe()


def test_a_static_id_may_be_the_client_id_of_another_member(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    described = kafka.describe_groups(["shop"])
    first, second = described["shop"]["members"]
    first["client_id"], first["group_instance_id"] = "z", "twin"
    second["client_id"], second["group_instance_id"] = "twin", None
    kafka.describe_groups = lambda groups: described  # type: ignore[method-assign]
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    seen = observer.observe()
    assert seen.consumers == ("b-1234", "twin")
    assert seen.group.consumer.tolist() == [1, 1, 0]


def test_retention_changes_no_rate(observer: KafkaObserver, kafka: Kafka, clock: Clock) -> None:
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    kafka.start = dict(kafka.end)
    assert observer.observe().group.rate.tolist() == [0.0, 0.0, 0.0]


def test_lag_that_cannot_be_consumed_is_told_apart(
    observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    kafka.start["orders", 0] = 990
    kafka.committed = {("orders", 0): 10, ("orders", 1): 600}
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    seen = observer.observe()
    assert seen.group.lag.tolist() == [10.0, 0.0, 0.0]
    assert seen.notes == (
        "1 partition never committed: counted without lag",
        "1 partition committed below the oldest record: lag counted from there",
        "1 partition committed beyond the end: counted without lag",
    )


@pytest.mark.parametrize(("committed", "lag"), [(450, 40.0), (490, 0.0), (495, 505.0)])
def test_what_follows_an_open_transaction_is_no_lag_unless_it_is_read(
    committed: int, lag: float, observer: KafkaObserver, kafka: Kafka, clock: Clock
) -> None:
    kafka.committed = dict.fromkeys(kafka.end, 0) | {("orders", 0): committed, ("orders", 1): 500}
    kafka.settled = kafka.end | {("orders", 0): 490}
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    seen = observer.observe()
    assert seen.group.lag.tolist() == [lag, 0.0, 0.0]
    note = "1 partition with an open transaction: lag counted up to its beginning"
    assert seen.notes == ((note,) if committed <= 490 else ())


def test_an_unknown_group_or_topic_is_one_sentence(kafka: Kafka, observer: KafkaObserver) -> None:
    kafka.topics = {}
    with pytest.raises(AutoscalingError, match=r"topic '?orders'? not found"):
        observer.observe()
    kafka.members, kafka.state = {}, "Dead"
    with pytest.raises(AutoscalingError, match=r"group '?shop'? not found"):
        observer.observe()
    kafka.state, kafka.error = "", "[Error 69] GroupIdNotFoundError: Group shop not found."
    with pytest.raises(AutoscalingError, match=r"group '?shop'? not found"):
        observer.observe()
    kafka.error, kafka.state, kafka.committed = None, "Empty", {}
    everything = KafkaObserver(kafka.connect, "shop", [], Working(100.0))
    with pytest.raises(AutoscalingError, match="no committed offset found; name its topics"):
        everything.observe()


def test_no_rights_is_one_sentence(kafka: Kafka, observer: KafkaObserver) -> None:
    kafka.error = "[Error 30] GroupAuthorizationFailedError: not authorized"
    with pytest.raises(AutoscalingError, match=r"group '?shop'?: no rights, DESCRIBE of the group"):
        observer.observe()
    kafka.error = "[Error 42] InvalidRequestError"
    with pytest.raises(AutoscalingError, match="InvalidRequest"):
        observer.observe()
    kafka.failure = KafkaDeniedError("Kafka at a:1 refused: not authorized")
    with pytest.raises(KafkaDeniedError):
        observer.observe()


def test_a_group_that_is_to_be_started_need_not_exist(kafka: Kafka, clock: Clock) -> None:
    kafka.members, kafka.state, kafka.committed = {}, "Dead", {}
    new = KafkaObserver(kafka.connect, "shop", ["orders"], Working(100.0), True, clock)
    with pytest.raises(NotYetError):
        new.observe()
    clock.now += 10.0
    assert new.observe().group.consumer.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_capacity_is_one_sentence(capacity: float) -> None:
    with pytest.raises(AutoscalingError, match=r"capacity: .* found, events/s above 0 expected"):
        Working(capacity)
    with pytest.raises(AutoscalingError, match=r"window: .* found, seconds above 0 expected"):
        Working(1.0, window=capacity if capacity <= 0 else float("nan"))


# --- ranges


def observation(rate: Sequence[float], consumer: Sequence[int], capacity: float) -> Observation:
    count = max(consumer, default=-1) + 1
    group = Group(
        rate=np.array(rate, np.float64),
        lag=np.zeros(len(rate)),
        consumer=np.array(consumer, np.int64),
        capacity=np.full(count, capacity),
        new_capacity=capacity,
    )
    return Observation(
        name="shop",
        group=group,
        partitions=tuple(f"orders-{n}" for n in range(len(rate))),
        consumers=tuple(f"c{n}" for n in range(count)),
    )


def test_ranges_need_more_consumers_than_a_packing() -> None:
    # the first two are read by one consumer until each has a consumer of its own
    seen = observation([60.0, 50.0, 10.0, 10.0, 10.0, 10.0], [0] * 6, 100.0)
    assert enough_in_ranges(seen, 2, 1.0) == 6
    assert enough_in_ranges(seen, 7, 1.0) == 7
    apart = observation([60.0, 10.0, 50.0, 10.0, 10.0, 10.0], [0] * 6, 100.0)
    assert enough_in_ranges(apart, 2, 1.0) == 3


def test_enough_is_the_fewest_that_carry_ranges() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        partitions = int(rng.integers(1, 12))
        rate = rng.integers(0, 60, partitions).astype(np.float64)
        seen = observation(rate.tolist(), [0] * partitions, 100.0)
        found = enough_in_ranges(seen, 1, 1.0)
        carried = [
            np.bincount(evenly(partitions, np.arange(n)), weights=rate).max() <= 100.0
            for n in range(1, partitions + 1)
        ]
        assert found == carried.index(True) + 1


def test_a_partition_that_is_too_much_alone_hides_no_other_overload() -> None:
    # with two consumers the second has 180
    seen = observation([500.0, 20.0, 90.0, 90.0], [0] * 4, 100.0)
    assert enough_in_ranges(seen, 2, 1.0) == 4
    # those beside it are not to wait for it; alone, it asks for no more
    assert enough_in_ranges(observation([500.0, 1.0, 1.0], [0] * 3, 100.0), 1, 1.0) == 3
    assert enough_in_ranges(observation([500.0], [0], 100.0), 1, 1.0) == 1


def test_partitions_that_ranges_never_part_ask_for_no_more_consumers() -> None:
    seen = observation([60.0, *[1.0] * 9], [0] * 10, 100.0)
    two = Observation(
        name="shop",
        group=replace(
            seen.group,
            rate=np.array([60.0, *[1.0] * 9, 60.0]),
            lag=np.zeros(11),
            consumer=np.zeros(11, np.int64),
        ),
        partitions=(*seen.partitions, "clicks-0"),
        consumers=seen.consumers,
    )
    # both first partitions are the first consumer's, alone from ten consumers on
    assert enough_in_ranges(two, 2, 1.0) == 10
    apart = replace(two, group=replace(two.group, rate=np.array([60.0, *[0.0] * 9, 30.0])))
    assert enough_in_ranges(apart, 1, 1.0) == 1


def test_names_that_a_terminal_would_obey_are_quoted(
    kafka: Kafka, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member of the group may choose any client id."""
    kafka.members, kafka.static, kafka.client = {"a": [0, 1, 2]}, False, "x\x1b[2J\nfailed: [red]y"
    observer = KafkaObserver(kafka.connect, "shop", ["orders"], Working(1.0), clock=clock)
    with pytest.raises(NotYetError, match="being measured"):
        observer.observe()
    clock.now += 10.0
    kafka.end = {p: end + 100 for p, end in kafka.end.items()}
    loop = Autoscaler(observer.observe, RepairPolicy(AutoscalingParameters(sla=5.0)))
    done = loop.round()
    assert "will have too much" in done.reason
    assert done.observation is not None
    assert done.decision is not None
    names = done.observation.names_after(done.decision)
    said = [done.reason, *summary(done.observation, done.decision, names)]
    console = Console(file=sys.stdout, width=200, force_terminal=True, color_system=None)
    console.print(live(done), decided(done.observation, done.decision))
    said.append(capsys.readouterr().out)
    for text in said:
        assert "\x1b[2J" not in text
        assert "\nfailed: " not in text


def test_consumers_to_start_have_names_of_their_own() -> None:
    seen = replace(observation([95.0, 95.0], [0, 0], 100.0), consumers=("new 1",))
    decision = RepairPolicy(AutoscalingParameters(sla=1.0)).decide(seen.group, 0.0)
    assert seen.names_after(decision) == ("new 1", "new 2")


@pytest.mark.parametrize("minimum", [1, 2, 4, 6])
def test_a_summary_agrees_with_the_consumers_that_start_and_stop(minimum: int) -> None:
    seen = observation([10.0, 10.0, 10.0, 10.0], [0, 0, 0, 3], 100.0)
    policy = RepairPolicy(AutoscalingParameters(sla=1.0, minimum=minimum))
    decision = policy.decide(seen.group, 0.0)
    lines = summary(seen, decision, seen.names_after(decision))
    after = seen.after(decision)
    assert after >= minimum
    assert after == 4 + decision.start - len(decision.stop)
    assert lines[0].startswith(f"4 -> {after} consumer")
    stopped = [line for line in lines if line.startswith("stop ")]
    assert (len(stopped[0].split(", ")) if stopped else 0) == len(decision.stop)


# --- rounds


class Fixed:
    """Consumers that are always as many as were asked for."""

    name = "fixed"

    def __init__(self, count: int) -> None:
        self.requested = count

    def count(self) -> Count:
        return Count(self.requested, self.requested, self.requested, True)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        self.requested = consumers

    def stand_down(self) -> bool:
        return False

    def close(self) -> None:
        pass


def test_a_round_changes_the_number_and_says_why() -> None:
    fixed, published = Fixed(1), list[tuple[int, int]]()
    seen = observation([90.0, 80.0, 10.0], [0, 0, 0], 100.0)
    autoscaler = Autoscaler(
        lambda: seen,
        RepairPolicy(AutoscalingParameters(sla=1.0)),
        Scaler(fixed, ScalingLimits(maximum=5)),
        lambda needed, running: published.append((needed, running)),
    )
    done = autoscaler.round()
    assert done.kind == "changed"
    assert fixed.requested == done.consumers == 3
    assert published == [(3, 1)]
    assert done.reason.startswith("1 -> 3 consumers: ")
    page = {s.name + str(dict(s.labels)): s.value for s in samples(autoscaler.metrics())}
    assert page["counterpoise_autoscale_consumers_needed{}"] == 3.0
    assert page["counterpoise_autoscale_load{'consumer': 'c0'}"] == pytest.approx(1.8)
    assert page["counterpoise_autoscale_rounds_total{'kind': 'changed'}"] == 1.0
    assert autoscaler.state()["consumers"] == 3
    # they run, and do not join
    done = autoscaler.round()
    assert done.kind == "kept"
    assert done.reason.startswith("3 consumers, as decided: ")
    assert done.reason.endswith("; only 1 of 3 that run are in the group")


def samples(page: str) -> list[Sample]:
    found, bad = parse(page)
    assert bad == 0
    return found


def test_a_failed_look_changes_nothing() -> None:
    fixed = Fixed(4)

    def observe() -> Observation:
        raise KafkaDeniedError("not authorized")

    class Never:
        def decide(self, group: Group, now: float) -> Decision:
            raise AssertionError("nothing was seen")

    autoscaler = Autoscaler(observe, Never(), Scaler(fixed))
    done = autoscaler.round()
    assert (done.kind, done.reason, done.consumers) == ("failed", "not authorized", None)
    assert fixed.requested == 4
    assert "counterpoise_autoscale_failing 1" in autoscaler.metrics()


def test_rounds_end_when_they_are_asked_to() -> None:
    stop, rounds = threading.Event(), list[Round]()
    seen = observation([10.0], [0], 100.0)

    def tell(done: Round) -> None:
        rounds.append(done)
        if len(rounds) == 3:
            stop.set()

    autoscaler = Autoscaler(lambda: seen, RepairPolicy())
    autoscaler.run(stop, 0.01, tell)
    assert [r.kind for r in rounds] == ["decided"] * 3
    with pytest.raises(AutoscalingError, match="interval"):
        autoscaler.run(stop, 0.0, tell)


def test_consumers_that_are_told_what_to_read_are_those_that_say_so(
    kafka: Kafka, clock: Clock
) -> None:
    members: dict[str, list[tuple[str, int]]] = {"x": [("orders", 0)], "y": []}
    observer = KafkaObserver(
        kafka.connect,
        "shop",
        ["orders"],
        Working(100.0, byte_capacity=1e6),
        clock=clock,
        members=lambda: members,
        speeds=lambda partitions: [1000.0 * number for _, number in partitions],
    )
    with pytest.raises(AutoscalingError, match="has members that Kafka assigns partitions to"):
        observer.observe()
    kafka.members = {}
    with pytest.raises(NotYetError):
        observer.observe()
    clock.now += 10.0
    seen = observer.observe()
    assert seen.consumers == ("x", "y")
    assert seen.group.consumer.tolist() == [0, -1, -1]
    assert seen.group.speed.tolist() == [0.0, 1000.0, 2000.0]
    assert seen.group.byte_capacity == 1e6


def assigned(now: Sequence[int], then: Sequence[int], running: int) -> tuple[Observation, Decision]:
    """A group whose partitions receive 10, 20, 30... events/s, and a decision."""
    rate = np.array([10.0 * n for n in range(1, len(now) + 1)])
    group = Group(
        rate=rate,
        lag=np.zeros(len(now)),
        consumer=np.array(now),
        capacity=np.full(running, 100.0),
        new_capacity=100.0,
    )
    seen = Observation(
        name="shop",
        group=group,
        partitions=tuple(f"orders-{n}" for n in range(len(now))),
        consumers=tuple(f"consumer-{n}" for n in range(running)),
    )
    start = len({c for c in then if c >= running})
    return seen, Decision(consumer=np.array(then), start=start)


def test_idle_consumers_take_the_places_of_those_that_would_be_started() -> None:
    seen, decision = assigned([0, 0, 1], [0, 4, 5], running=4)
    found = seen.filled(decision)
    assert found.consumer.tolist() == [0, 1, 2]
    assert found.start == 0
    seen, decision = assigned([0, 0, 0], [0, 2, 3], running=2)
    found = seen.filled(decision)
    assert found.consumer.tolist() == [0, 1, 2]
    assert found.start == 1


def test_nothing_waits_for_a_consumer_that_is_yet_to_start() -> None:
    # the second partition stays; nobody reads the others, so who has least to do reads them
    seen, decision = assigned([0, 0, -1, -1, 1], [0, 2, 2, 3, 1], running=2)
    names = [seen.targets(decision)[p].removeprefix("consumer-") for p in seen.partitions]
    assert names == ["0", "0", "0", "1", "1"]
    seen, decision = assigned([-1], [0], running=0)
    assert seen.targets(decision) == {}


def test_a_consumer_ends_once_its_partitions_have_moved() -> None:
    targets: list[Any] = []
    fixed = Fixed(2)
    group = [0, 1]

    def observe() -> Observation:
        return assigned(group, group, running=2)[0]

    class Saves:
        def decide(self, group: Group, now: float) -> Decision:
            return Decision(consumer=np.zeros(2, np.int64), stop=(1,), moves=1)

    scaler = Scaler(fixed, ScalingLimits(down_cooldown=0.0))

    def assign(seen: Observation, decision: Decision) -> bool:
        targets.append(seen.targets(decision))
        return True

    loop = Autoscaler(observe, Saves(), scaler, assignor="assigned", assign=assign)
    assert loop.round().kind == "kept"
    assert targets == [{"orders-0": "consumer-0", "orders-1": "consumer-0"}]
    group[:] = [0, 0]
    assert loop.round().kind == "changed"
    assert fixed.requested == 1


@pytest.mark.parametrize("assignor", ["packed", "assigned"])
def test_a_consumer_that_has_just_started_is_not_ended_for_having_nothing(
    assignor: Assignor,
) -> None:
    fixed, owner = Fixed(2), np.array([0, 0, 1, 1])

    def look() -> Observation:
        seen = observation([60.0, 50.0, 60.0, 50.0], [fixed.requested - 1] * 4, 200.0)
        group = replace(seen.group, lag=np.full(4, 9000.0), consumer=owner.copy())
        return replace(seen, group=group)

    def assign(seen: Observation, decision: Decision) -> bool:
        targets = seen.targets(decision)
        owner[:] = [seen.consumers.index(targets[p]) for p in seen.partitions]
        return True

    loop = Autoscaler(
        look,
        RepairPolicy(AutoscalingParameters(sla=5.0, maximum=3)),
        Scaler(fixed, ScalingLimits(maximum=3, down_cooldown=0.0)),
        assignor=assignor,
        assign=assign,
    )
    assert [loop.round().kind for _ in range(5)] == ["changed", *["kept"] * 4]
    assert (fixed.requested, len(set(owner.tolist()))) == (3, 3)


@pytest.mark.parametrize("assignor", ["packed", "assigned"])
def test_a_consumer_that_the_policy_keeps_without_partitions_does_not_end(
    assignor: Assignor,
) -> None:
    class Keeps:
        def decide(self, group: Group, now: float) -> Decision:
            return stay(group, "all stay")

    seen, fixed = observation([60.0, 50.0], [0, 2], 100.0), Fixed(3)
    scaler = Scaler(fixed, ScalingLimits(down_cooldown=0.0))
    assert Autoscaler(lambda: seen, Keeps(), scaler, assignor=assignor).round().kind == "kept"
    assert fixed.requested == 3


@pytest.mark.parametrize("assignor", ["range", "packed"])
def test_noise_of_a_constant_load_changes_nothing(assignor: Assignor) -> None:
    clock, fixed, rng = Clock(), Fixed(2), np.random.default_rng(1)

    def look() -> Observation:
        rate = rng.poisson(np.array([47, 47, 10, 10]) * 30) / 30
        members = np.arange(fixed.requested)
        consumer = evenly(4, members) if assignor == "range" else np.array([0, 1, 0, 1])
        seen = observation(rate.tolist(), [fixed.requested - 1] * 4, 100.0)
        return replace(seen, group=replace(seen.group, consumer=consumer))

    parameters = AutoscalingParameters(sla=5.0)
    autoscaler = Autoscaler(
        look,
        RepairPolicy(parameters),
        Scaler(fixed, ScalingLimits(), clock=clock),
        assignor=assignor,
        fill=parameters.fill,
        clock=clock,
    )
    kinds = []
    for _ in range(360):
        kinds.append(autoscaler.round().kind)
        clock.now += 10.0
    assert kinds.count("changed") <= 1


def test_ranges_shrink_once_the_load_has_gone() -> None:
    clock, fixed, rate = Clock(), Fixed(4), [60.0, 50.0, 10.0, 10.0]

    def look() -> Observation:
        seen = observation(rate, [fixed.requested - 1] * 4, 100.0)
        consumer = evenly(4, np.arange(fixed.requested))
        return replace(seen, group=replace(seen.group, consumer=consumer))

    autoscaler = Autoscaler(
        look,
        RepairPolicy(AutoscalingParameters(sla=5.0)),
        Scaler(fixed, ScalingLimits(down_cooldown=0.0), clock=clock),
        clock=clock,
    )
    autoscaler.round()
    assert fixed.requested == 4
    rate[:] = [5.0] * 4
    for _ in range(4):
        clock.now += 10.0
        autoscaler.round()
    assert fixed.requested == 1


def test_a_round_needs_at_least_the_minimum() -> None:
    published = list[tuple[int, int]]()
    seen = observation([5.0, 5.0, 5.0], [0, 0, 2], 100.0)
    policy = RepairPolicy(AutoscalingParameters(minimum=3))
    autoscaler = Autoscaler(
        lambda: seen, policy, publish=lambda *n: published.append(n), assignor="packed", minimum=3
    )
    assert autoscaler.round().consumers == 3
    assert published == [(3, 3)]


def test_what_cannot_be_measured_ends_no_consumer() -> None:
    fixed = Fixed(3)
    seen = replace(observation([5.0, 5.0, 5.0], [0, 1, 2], 100.0), unknown=1)
    limits = ScalingLimits(down_cooldown=0.0)
    autoscaler = Autoscaler(
        lambda: seen, RepairPolicy(), Scaler(fixed, limits), assignor="packed", calm=0.0
    )
    for _ in range(3):
        assert autoscaler.round().kind == "kept"
    assert fixed.requested == 3


def test_a_program_that_cannot_be_started_fails_the_round_only() -> None:
    class Full(Fixed):
        def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

    seen = observation([90.0, 80.0, 10.0], [0, 0, 0], 100.0)
    done = Autoscaler(lambda: seen, RepairPolicy(), Scaler(Full(1))).round()
    assert done.kind == "failed"
    assert "temporarily unavailable" in done.reason


# --- what is measured


def measuring(kafka: Kafka, clock: Clock, working: Working, **given: Any) -> KafkaObserver:
    """An observer after its first look."""
    observer = KafkaObserver(kafka.connect, "shop", ["orders"], working, clock=clock, **given)
    with pytest.raises(NotYetError, match="arrivals are being measured"):
        observer.observe()
    return observer


def lagging(kafka: Kafka, clock: Clock) -> None:
    """Ten seconds, in which consumer a processes 400 events of 1,000 that arrive."""
    clock.now += 10.0
    kafka.end["orders", 0] += 1000
    kafka.committed["orders", 0] += 400


def test_without_a_capacity_the_measured_one_is_used(kafka: Kafka, clock: Clock) -> None:
    kafka.end["orders", 0] = 5000
    observer = measuring(kafka, clock, Working())
    for _ in range(6):
        lagging(kafka, clock)
        seen = observer.observe()
        assert (seen.measuring, dict(seen.measured)) == (True, {})
    lagging(kafka, clock)
    seen = observer.observe()
    assert not seen.measuring
    # six times ten seconds, and the ten that the first offsets may have been late
    expected = pytest.approx(40 * 6 / 7)
    assert seen.measured == {"a": expected}
    # the other one is taken to be like it
    assert seen.group.capacity.tolist() == [expected, expected]
    assert seen.group.new_capacity == expected
    # and what is known stays known once there is no lag, and for others
    kafka.members = {"c": [0, 1, 2]}
    clock.now += 10.0
    seen = observer.observe()
    assert not seen.measuring
    assert seen.group.new_capacity == expected


@pytest.mark.parametrize(("stated", "noted"), [(40.0, False), (100.0, True), (20.0, True)])
def test_a_capacity_that_is_far_from_the_measured_one_is_named(
    kafka: Kafka, clock: Clock, stated: float, noted: bool
) -> None:
    kafka.end["orders", 0] = 5000
    observer = measuring(kafka, clock, Working(stated))
    for _ in range(7):
        lagging(kafka, clock)
        seen = observer.observe()
    assert seen.group.capacity.tolist() == [stated, stated]
    sentence = f"a can process 34.29 events/s as measured, and {stated:g} are stated"
    assert (sentence in seen.notes) == noted


class Said:
    """What consumers have measured themselves."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.took: float | None = None

    def capacities(self) -> dict[str, float]:
        return self.rates

    def rebalance_seconds(self) -> float | None:
        return self.took


def test_what_consumers_say_counts_first(kafka: Kafka, clock: Clock) -> None:
    kafka.members, said = {}, Said()
    members = {"x": [("orders", 0)], "y": [("orders", 1)], "z": [("orders", 2)]}
    observer = measuring(kafka, clock, Working(), members=lambda: members, reports=said)
    clock.now += 10.0
    seen = observer.observe()
    assert seen.measuring
    assert seen.group.rebalance_seconds == 2.0
    said.rates, said.took = {"x": 200.0, "y": 100.0, "gone": 1.0}, 0.3
    clock.now += 10.0
    seen = observer.observe()
    assert not seen.measuring
    assert seen.group.capacity.tolist() == [200.0, 100.0, 150.0]
    assert (seen.group.new_capacity, seen.group.rebalance_seconds) == (150.0, 0.3)


@pytest.mark.parametrize("given", [None, 1.0])
def test_a_rebalance_is_measured_unless_it_is_given(
    kafka: Kafka, clock: Clock, given: float | None
) -> None:
    observer = measuring(kafka, clock, Working(100.0, rebalance_seconds=given))
    clock.now += 10.0
    assert observer.observe().group.rebalance_seconds == (2.0 if given is None else given)
    kafka.state = "PreparingRebalance"
    for _ in range(3):
        clock.now += 1.0
        with pytest.raises(RebalancingError, match=r"rebalances \(PreparingRebalance\)"):
            observer.observe()
    kafka.state = "Stable"
    clock.now += 1.0
    seen = observer.observe()
    assert seen.rebalance_measured == 3.0
    assert seen.group.rebalance_seconds == (3.0 if given is None else given)


def test_a_failure_in_the_middle_of_a_rebalance_is_no_part_of_it(
    kafka: Kafka, clock: Clock
) -> None:
    observer = measuring(kafka, clock, Working(100.0))
    clock.now += 10.0
    observer.observe()
    kafka.state = "PreparingRebalance"
    with pytest.raises(RebalancingError):
        observer.observe()
    kafka.state, kafka.failure = "Stable", KafkaDeniedError("Kafka at k refused")
    clock.now += 1.0
    with pytest.raises(KafkaDeniedError):
        observer.observe()
    kafka.failure = None
    clock.now += 10.0
    assert observer.observe().rebalance_measured is None


def consumes(observer: KafkaObserver, kafka: Kafka, clock: Clock, rounds: int = 12) -> Observation:
    """Rounds in which consumer a commits 50 events/s of the first partition."""
    for _ in range(rounds):
        clock.now += 10.0
        kafka.committed["orders", 0] += 500
        kafka.end["orders", 0] += 500
        if kafka.settled:
            kafka.settled = {p: min(end, kafka.committed.get(p, 0)) for p, end in kafka.end.items()}
        seen = observer.observe()
    return seen


def test_what_an_open_transaction_holds_back_keeps_nobody_busy(kafka: Kafka, clock: Clock) -> None:
    kafka.end["orders", 0] = 10_000
    busy = consumes(measuring(kafka, clock, Working()), kafka, clock)
    assert busy.measured["a"] == pytest.approx(50 * 6 / 7)
    kafka.settled = dict(kafka.end)
    assert consumes(measuring(kafka, clock, Working()), kafka, clock).measuring


@pytest.mark.parametrize("policy", ["compact", "delete,compact", None])
def test_the_offsets_of_a_compacted_topic_count_from_its_end(
    kafka: Kafka, clock: Clock, policy: str | None
) -> None:
    kafka.policy, kafka.end["orders", 0] = policy, 6000
    observer = measuring(kafka, clock, Working())
    assert consumes(observer, kafka, clock).measuring
    assert consumes(observer, kafka, clock).measured["a"] == pytest.approx(50 * 6 / 7)


def test_slow_answers_are_part_of_a_window(kafka: Kafka, clock: Clock) -> None:
    kafka.end["orders", 0] = 100_000
    observer = measuring(kafka, clock, Working())

    def slow() -> None:
        clock.now += 1.0

    kafka.took = slow
    consumes(observer, kafka, clock, 2)
    kafka.took = lambda: None
    assert consumes(observer, kafka, clock).measured["a"] <= 50.0


def test_a_group_that_rebalances_is_looked_at_again_soon() -> None:
    stop, rounds = threading.Event(), list[Round]()

    def observe() -> Observation:
        raise RebalancingError("the group rebalances")

    def tell(done: Round) -> None:
        rounds.append(done)
        if len(rounds) == 3:
            stop.set()

    # the test would time out otherwise
    Autoscaler(observe, RepairPolicy(), rebalance_look=0.01).run(stop, 1e6, tell)
    assert [r.kind for r in rounds] == ["waiting"] * 3


@pytest.mark.parametrize("assignor", ["range", "packed", "assigned"])
def test_while_capacities_are_measured_nothing_ends(assignor: Assignor) -> None:
    class Never:
        def decide(self, group: Group, now: float) -> Decision:
            raise AssertionError("there is no capacity to decide on")

    published, assigned_to = list[tuple[int, int]](), list[dict[str, str]]()
    seen = replace(observation([50.0, 10.0, 0.0], [0, 1, -1], 1.0), measuring=True)

    def assign(seen: Observation, decision: Decision) -> bool:
        assigned_to.append(seen.targets(decision))
        return True

    fixed = Fixed(5)
    loop = Autoscaler(
        lambda: seen,
        Never(),
        Scaler(fixed, ScalingLimits(down_cooldown=0.0)),
        lambda *n: published.append(n),
        assignor,
        assign=assign,
    )
    done = loop.round()
    assert (done.kind, done.observation) == ("waiting", None)
    assert done.reason.startswith("what a consumer can process is being measured")
    assert fixed.requested == 5
    assert published == [(2, 2)]
    # no consumer would process anything that could be measured
    everything = {"orders-0": "c0", "orders-1": "c1", "orders-2": "c1"}
    assert assigned_to == ([everything] if assignor == "assigned" else [])
    assert "counterpoise_autoscale_load{" not in loop.metrics()


def test_the_minimum_starts_before_anything_is_measured() -> None:
    fixed = Fixed(0)
    seen = replace(observation([50.0], [-1], 1.0), measuring=True)
    loop = Autoscaler(lambda: seen, RepairPolicy(), Scaler(fixed), minimum=2)
    done = loop.round()
    assert (done.kind, fixed.requested) == ("changed", 2)
    assert done.reason.startswith("0 -> 2 consumers: what a consumer can process is being")


def test_a_round_says_what_was_measured() -> None:
    seen = observation([50.0, 10.0], [0, 1], 100.0)
    seen = replace(
        seen,
        group=replace(seen.group, rebalance_seconds=1.5),
        measured={"c0": 98.0},
        rebalance_measured=1.5,
    )
    autoscaler = Autoscaler(lambda: seen, RepairPolicy())
    record = autoscaler.round().record()
    assert record["capacity_measured"] == {"c0": 98.0}
    assert (record["rebalance_seconds"], record["rebalance_measured"]) == (1.5, 1.5)
    page = {s.name + str(dict(s.labels)): s.value for s in samples(autoscaler.metrics())}
    assert page["counterpoise_autoscale_capacity_measured{'consumer': 'c0'}"] == 98.0
    assert page["counterpoise_autoscale_rebalance_seconds{}"] == 1.5
