"""On a real Kafka with accounts: messages about a wrong password or a missing right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from confluent_kafka import Consumer, Producer
from kafka_cases import account, grant
from kafka_plans import move, plan_of
from waiting import wait_for

from balancer import PlanDocument
from balancer.autoscaling.assigned import (
    AssignedConsumer,
    ConsumerSettings,
    ControlSettings,
    GroupController,
)
from balancer.autoscaling.assigned.channel import Channel, control_topic
from balancer.autoscaling.errors import AutoscalingError, NotYetError
from balancer.autoscaling.group import Group
from balancer.autoscaling.kafka_observer import KafkaObserver, Working
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.policy import Decision
from balancer.execution import Executor, Limits, Outcome
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS
from cluster_model.kafka import KafkaDeniedError, admin_client, read_cluster

ADMIN = account("admin")
ANN = account("ann")
TOPIC, GROUP = "guarded", "hers"


@pytest.fixture
def allow(guarded: str) -> Iterator[Callable[[str, str], None]]:
    """Allows ann an operation on the topic, the group or the cluster, until the end of the test."""
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType,
    )

    def create(operation: str, kind: str, name: str | None = None) -> None:
        name = name or {"topic": TOPIC, "group": GROUP}.get(kind, "kafka-cluster")
        with admin_client(guarded, ADMIN, timeout=30) as ask:
            grant(ask, "ann", kind.upper(), name, operation)

    yield create
    everything = ACLFilter(
        principal="User:ann",
        host="*",
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with admin_client(guarded, ADMIN, timeout=30) as ask:
        ask(lambda admin: admin.delete_acls([everything]))


def plan() -> PlanDocument:
    return plan_of(move(TOPIC, 0, 0, 1))


def carried_out(guarded: str, path: Path, throttle: float | None = 1e6) -> Outcome:
    # With such a timeout, a refusal that is asked for again would not end in time.
    limits = Limits(outage_timeout=600.0, throttle=throttle, progress_interval=0.3)
    return Executor(guarded, journal=path / "journal", limits=limits, client=ANN).execute(plan())


def refused(guarded: str, user: Mapping[str, str], path: Path, *words: str) -> str:
    """The only line that a command reports to this user, with exit code 2."""
    properties = path / "client.properties"
    properties.write_text("".join(f"{k}={v}\n" for k, v in user.items()), encoding="utf-8")
    at = ("--bootstrap-server", guarded, "--command-config", str(properties))
    result = invoke([*words, *at])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


def test_a_wrong_password_is_reported_at_once_as_what_it_is(guarded: str, tmp_path: Path) -> None:
    wrong = {**ADMIN, "sasl.password": "wrong"}
    with pytest.raises(KafkaDeniedError, match="authentication failed"):
        read_cluster(guarded, client_properties=wrong, timeout=600.0)
    (tmp_path / "plan.json").write_text(plan().model_dump_json())
    line = refused(
        guarded, wrong, tmp_path, "execute", str(tmp_path / "plan.json"),
        "--timeout", "600", "--journal", str(tmp_path / "journal"), "--yes",
    )  # fmt: skip
    assert "authentication failed" in line
    assert "wrong" not in line


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ([], "DESCRIBE on the cluster"),
        ([("DESCRIBE", "cluster")], f"DESCRIBE on topic {TOPIC}"),
    ],
)
def test_a_missing_right_to_look_is_named_at_once(
    guarded: str,
    allow: Callable[[str, str], None],
    tmp_path: Path,
    rights: Sequence[tuple[str, str]],
    missing: str,
) -> None:
    for right in rights:
        allow(*right)
    with pytest.raises(KafkaDeniedError, match=missing) as denied:
        carried_out(guarded, tmp_path)
    assert "Request" not in str(denied.value)


@pytest.mark.parametrize(
    ("rights", "throttle", "missing"),
    [
        ([], 1e6, "ALTER_CONFIGS on topic guarded"),
        ([("ALTER_CONFIGS", "topic")], 1e6, "ALTER_CONFIGS on the cluster"),
        ([("ALTER_CONFIGS", "topic"), ("ALTER_CONFIGS", "cluster")], 1e6, "ALTER on the cluster"),
        ([], None, "ALTER on the cluster"),
    ],
)
def test_a_missing_right_to_act_is_named_and_nothing_moves(
    guarded: str,
    allow: Callable[[str, str], None],
    tmp_path: Path,
    rights: Sequence[tuple[str, str]],
    throttle: float | None,
    missing: str,
) -> None:
    for right in [("DESCRIBE", "cluster"), ("DESCRIBE", "topic"), *rights]:
        allow(*right)
    outcome = carried_out(guarded, tmp_path, throttle)
    assert outcome.state == "failed"
    assert any(f"give the client's user the right to {missing}" in p for p in outcome.problems)
    assert not any("Request" in p or "Response" in p for p in outcome.problems)
    kafka = Kafka(guarded, ADMIN)
    try:
        assert kafka.view([TOPIC]).partitions[Key(TOPIC, 0)].replicas == (0,)
        lists = [LEADER_REPLICAS, FOLLOWER_REPLICAS]
        found = kafka.configs({ConfigResource("topic", TOPIC): lists})
        if missing == "ALTER on the cluster":
            # It could take its throttle off again.
            assert found == {ConfigResource("topic", TOPIC): dict.fromkeys(lists)}
        else:
            kafka.set_configs({ConfigResource("topic", TOPIC): dict.fromkeys(lists)})
    finally:
        kafka.close()


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ([], f"group '{GROUP}': no rights, DESCRIBE of the group expected"),
        ([("DESCRIBE", "group")], f"topic '{TOPIC}' not found"),
    ],
)
def test_a_missing_right_to_look_at_a_group_is_one_sentence(
    guarded: str,
    allow: Callable[[str, str], None],
    tmp_path: Path,
    rights: Sequence[tuple[str, str]],
    missing: str,
) -> None:
    for right in rights:
        allow(*right)
    line = refused(
        guarded, ANN, tmp_path, "autoscale", "run", "--group", GROUP,
        "--topics", TOPIC, "--capacity", "100", "--command", "true", "--once",
    )  # fmt: skip
    assert missing in line


def test_a_right_to_a_topic_that_is_lost_fails_rounds_and_hides_no_load(
    guarded: str, allow: Callable[..., None]
) -> None:
    group, other = f"{GROUP}-two", "metrics"
    for right in (
        ("DESCRIBE", "group", group),
        ("DESCRIBE", "topic"),
        ("DESCRIBE", "topic", other),
    ):
        allow(*right)
    consumer = Consumer({"bootstrap.servers": guarded, **ADMIN, "group.id": group})
    consumer.subscribe([TOPIC, other])
    observer = KafkaObserver(lambda: admin_client(guarded, ANN), group, (), Working(1.0))

    def looks() -> str:
        """What a look ends with."""
        consumer.poll(0.1)
        try:
            seen = observer.observe()
        except AutoscalingError as error:
            return str(error)
        assert {p.rpartition("-")[0] for p in seen.partitions} == {TOPIC, other}
        return "seen"

    try:
        wait_for(lambda: looks() == "seen", looks)
        with admin_client(guarded, ADMIN, timeout=30) as ask:
            grant(ask, "ann", "TOPIC", other, "DESCRIBE", permission="DENY")
        wait_for(lambda: looks().startswith(f"topic '{other}' not found"), looks)
        assert looks().startswith(f"topic '{other}' not found")
    finally:
        consumer.close()


class Vote:
    """A vote that is always held."""

    acting, epoch = True, 1


# short, as a controller first waits for as long as a lease
QUICK = ControlSettings(lease_seconds=2.0)


def controller(guarded: str, group: str, user: Mapping[str, str] = ANN) -> GroupController:
    return GroupController(guarded, group, Vote(), 2, properties=user, settings=QUICK)


def reads(guarded: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Have a consumer read for a minute."""
    deadline = time.monotonic() + 60.0
    settings = ConsumerSettings(answer_seconds=1.0)
    with AssignedConsumer(guarded, GROUP, "a", properties=ANN, settings=settings) as consumer:
        while time.monotonic() < deadline:
            list(consumer.poll(0.1))
            meanwhile()


def ends_with(what: Callable[[], object], sentence: str, right: str) -> None:
    """Wait until something ends with a sentence that names a right: brokers learn of ACLs late."""

    def ended() -> bool:
        with pytest.raises(AutoscalingError) as refused:
            what()
        said.append(str(refused.value))
        return said[-1].endswith(f"; give the client's user the right to {right}")

    said: list[str] = []
    wait_for(ended, lambda: said)
    assert said[-1].startswith(sentence)
    assert "\n" not in said[-1]


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ([], "CREATE"),
        (["CREATE"], "READ and WRITE"),
        (["CREATE", "READ"], "WRITE"),
        (["CREATE", "WRITE"], "READ"),
    ],
)
def test_a_right_to_the_control_topic_that_a_controller_has_not_is_named(
    guarded: str, allow: Callable[..., None], rights: Sequence[str], missing: str
) -> None:
    group = f"{GROUP}-{'-'.join(['has', *rights])}"
    control = control_topic(group)
    for right in rights:
        allow(right, "topic", control)
    ends_with(
        lambda: controller(guarded, group).start().close(),
        f"topic {control}",
        f"{missing} on topic {control}",
    )


def test_a_command_without_a_right_to_the_control_topic_ends_with_one_line(
    guarded: str, allow: Callable[..., None], tmp_path: Path
) -> None:
    control = control_topic(GROUP)
    for right in (
        ("DESCRIBE", "group"), ("DESCRIBE", "topic"),
        ("CREATE", "topic", "__counterpoise_controller"),
        ("READ", "topic", "__counterpoise_controller"),
        ("READ", "group", f"counterpoise-autoscale-{GROUP}"),
        ("CREATE", "topic", control), ("READ", "topic", control),
    ):  # fmt: skip
        allow(*right)
    line = refused(
        guarded, ANN, tmp_path, "autoscale", "run", "--group", GROUP, "--topics", TOPIC,
        "--capacity", "100", "--assignor", "assigned",
    )  # fmt: skip
    assert line.endswith(f"; give the client's user the right to WRITE on topic {control}")


@pytest.mark.parametrize(
    ("rights", "missing"),
    [([], "READ and WRITE"), (["READ"], "WRITE"), (["WRITE"], "READ")],
)
def test_a_right_to_the_control_topic_that_a_consumer_has_not_is_named(
    guarded: str, allow: Callable[..., None], rights: Sequence[str], missing: str
) -> None:
    control = control_topic(GROUP)
    for right in rights:
        allow(right, "topic", control)
    with controller(guarded, GROUP, ADMIN):
        ends_with(lambda: reads(guarded), f"topic {control}: ", f"{missing} on topic {control}")


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ([], f"READ on group {GROUP}"),
        ([("READ", "group")], f"READ on topic {TOPIC}"),
        ([("READ", "topic"), ("DESCRIBE", "group")], f"READ on group {GROUP}"),
    ],
)
def test_a_right_to_what_a_consumer_is_to_read_is_named(
    guarded: str,
    allow: Callable[..., None],
    rights: Sequence[tuple[str, str]],
    missing: str,
) -> None:
    for operation in ("READ", "WRITE"):
        allow(operation, "topic", control_topic(GROUP))
    for right in rights:
        allow(*right)
    group = Group(
        rate=np.ones(1), lag=np.zeros(1), consumer=np.zeros(1, np.int64), capacity=np.ones(1),
        new_capacity=1.0,
    )  # fmt: skip
    seen = Observation(name=GROUP, group=group, partitions=(f"{TOPIC}-0",), consumers=("a",))
    producer = Producer({"bootstrap.servers": guarded, "log_level": 2, **ADMIN})
    producer.produce(TOPIC, b"event", partition=0)
    assert producer.flush(30.0) == 0
    decided = Decision(consumer=group.consumer)
    with controller(guarded, GROUP, ADMIN) as speaks:
        ends_with(
            lambda: reads(guarded, lambda: speaks.assign(seen, decided)), "consumer a: ", missing
        )


def test_a_consumer_that_waits_for_the_control_topic_does_not_make_it(
    guarded: str,
) -> None:
    topic = control_topic("without-controller")
    channel = Channel(guarded, ADMIN, topic, 5.0)
    try:
        with pytest.raises(AutoscalingError, match=f"topic {topic} .* not found within 1 s"):
            channel.partitions(1.0)
    finally:
        channel.close()
    with admin_client(guarded, ADMIN, timeout=30) as ask:
        assert topic not in ask(lambda admin: admin.list_topics())


def test_the_documented_rights_suffice_for_the_control_topic(
    guarded: str, allow: Callable[..., None]
) -> None:
    # a controller goes on with what an earlier one has said, as in other tests
    group = f"{GROUP}-alone"
    control = control_topic(group)
    for operation in ("CREATE", "READ", "WRITE"):
        allow(operation, "topic", control)
    allow("READ", "topic")
    allow("READ", "group", group)

    def heard() -> bool:
        found: dict[str, object] = {}
        deadline = time.monotonic() + 60.0
        with (
            controller(guarded, group) as speaks,
            AssignedConsumer(guarded, group, "a", properties=ANN) as consumer,
        ):
            while not found and time.monotonic() < deadline:
                # one that does not poll sends no heartbeats
                assert list(consumer.poll(0.1)) == []
                with suppress(NotYetError):
                    found = dict(speaks.members())
        return found == {"a": []}

    # brokers learn of ACLs late
    wait_for(heard, "the consumer is heard", unless=(AutoscalingError,))
