"""On a real Kafka with accounts: messages about a wrong password or a missing right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_cases import AUTHORIZER, account, create_topic, grant, with_accounts
from kafka_plans import move, plan_of
from real_kafka import KafkaCluster
from typer.testing import CliRunner

from balancer import PlanDocument
from balancer.autoscaling.assigned import AssignedConsumer, GroupController
from balancer.autoscaling.errors import AutoscalingError, NotYetError
from balancer.cli.app import app
from balancer.execution import Executor, Limits, Outcome
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS
from cluster_model.kafka import KafkaDeniedError, admin_client, read_cluster

ADMIN = account("admin")
ANN = account("ann", "hers")
TOPIC, GROUP = "guarded", "hers"


@pytest.fixture(scope="module")
def guarded(start_kafka: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    """Two brokers that ask who is there, and allow only what ACLs allow."""
    properties = with_accounts({"admin": "secret", "ann": "hers"}) | AUTHORIZER
    kafka = start_kafka(brokers=2, racks=[None, None], properties=properties)
    with admin_client(kafka.bootstrap, ADMIN, timeout=30) as ask:
        create_topic(ask, TOPIC, {0: [0]})
    yield kafka
    kafka.close()


@pytest.fixture
def allow(guarded: KafkaCluster) -> Iterator[Callable[[str, str], None]]:
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
        with admin_client(guarded.bootstrap, ADMIN, timeout=30) as ask:
            grant(ask, "ann", kind.upper(), name, operation)

    yield create
    everything = ACLFilter(
        principal="User:ann",
        host="*",
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with admin_client(guarded.bootstrap, ADMIN, timeout=30) as ask:
        ask(lambda admin: admin.delete_acls([everything]))


def plan() -> PlanDocument:
    return plan_of(move(TOPIC, 0, 0, 1))


def carried_out(guarded: KafkaCluster, path: Path, throttle: float | None = 1e6) -> Outcome:
    # With such a timeout, a refusal that is asked for again would not end in time.
    limits = Limits(outage_timeout=600.0, throttle=throttle, progress_interval=0.3)
    return Executor(guarded.bootstrap, journal=path / "journal", limits=limits, client=ANN).execute(
        plan()
    )


def refused(guarded: KafkaCluster, user: Mapping[str, str], path: Path, *words: str) -> str:
    """The only line that a command reports to this user, with exit code 2."""
    properties = path / "client.properties"
    properties.write_text("".join(f"{k}={v}\n" for k, v in user.items()), encoding="utf-8")
    at = ("--bootstrap-server", guarded.bootstrap, "--command-config", str(properties))
    result = CliRunner().invoke(app, [*words, *at])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


def test_a_wrong_password_is_reported_at_once_as_what_it_is(
    guarded: KafkaCluster, tmp_path: Path
) -> None:
    wrong = {**ADMIN, "sasl.password": "wrong"}
    with pytest.raises(KafkaDeniedError, match="authentication failed"):
        read_cluster(guarded.bootstrap, client_properties=wrong, timeout=600.0)
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
    guarded: KafkaCluster,
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
    guarded: KafkaCluster,
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
    kafka = Kafka(guarded.bootstrap, ADMIN)
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
    guarded: KafkaCluster,
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


class Vote:
    """A vote that is always held."""

    acting, epoch = True, 1


def test_the_documented_rights_suffice_for_the_control_topic(
    guarded: KafkaCluster, allow: Callable[..., None]
) -> None:
    control = f"counterpoise-control-{GROUP}"

    def controller() -> GroupController:
        return GroupController(guarded.bootstrap, GROUP, Vote(), 2, properties=ANN)

    with pytest.raises(AutoscalingError, match=f"topic {control} at .* cannot be created: "):
        controller().start()
    for operation in ("CREATE", "READ", "WRITE"):
        allow(operation, "topic", control)
    allow("READ", "topic")
    allow("READ", "group")
    with (
        controller() as speaks,
        AssignedConsumer(guarded.bootstrap, GROUP, "a", properties=ANN) as consumer,
    ):
        found: dict[str, object] = {}
        deadline = time.monotonic() + 60.0
        while not found and time.monotonic() < deadline:
            # one that does not poll sends no heartbeats
            assert list(consumer.poll(0.1)) == []
            with suppress(NotYetError):
                found = dict(speaks.members())
        assert found == {"a": []}
