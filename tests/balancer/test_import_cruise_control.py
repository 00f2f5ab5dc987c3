"""``counterpoise import cruise-control``: each key is accounted for, and the files are usable."""

from __future__ import annotations

import json
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from typer.testing import Result

from balancer.composition.attributes import load_attributes
from balancer.composition.configuration import load_configuration
from balancer.composition.cruise_control.conversion import Imported, import_cruise_control
from balancer.composition.cruise_control.errors import CruiseControlError
from balancer.composition.cruise_control.files import read_broker_sets, read_capacities
from balancer.composition.cruise_control.goals import (
    DEFAULT_GOALS,
    EQUIVALENTS,
    HARD,
    WITHOUT_EQUIVALENT,
)
from balancer.composition.cruise_control.keys import HEALING, RULES, WITHOUT_COUNTERPART
from balancer.composition.properties import parse_properties
from balancer.composition.yaml_text import yaml_text
from balancer.controller import load_settings
from cluster_model import Snapshot, save_snapshot, synthetic_snapshot
from cluster_model.capacities import load_capacities
from goals import available, load_goals
from goals.distribution import UsageDistribution
from metrics_reporter.documents import parse_yaml

SAMPLE = Path(__file__).parent / "cruise_control"
MB, KB = 1024**2, 1024


def run(*args: object) -> Result:
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def of(tmp_path: Path, text: str) -> Imported:
    """The import of some properties, with the capacity file of the sample beside them."""
    shutil.copy(SAMPLE / "capacity.json", tmp_path)
    (tmp_path / "cruisecontrol.properties").write_text(text)
    found = import_cruise_control(tmp_path)
    keys = {p.key for p in parse_properties(text)}
    assert sorted(found.keys) == sorted(keys)
    return found


def ours(found: Imported) -> dict[str, str]:
    return {row.key: row.ours for row in found.taken}


def of_cluster(snapshot: Snapshot, capacities: Path) -> Snapshot:
    """A snapshot with the capacities of a file, loaded to about half."""
    stated = load_capacities(capacities)
    rows = [[stated.of(b)[r] for r in snapshot.resources] for b in snapshot.broker_ids.tolist()]
    capacity = np.array(rows, np.float64)
    scale = 0.3 * capacity.sum(axis=0) / np.maximum(snapshot.broker_load().sum(axis=0), 1e-300)
    return replace(
        snapshot,
        capacity=capacity,
        leader_load=snapshot.leader_load * scale,
        follower_load=snapshot.follower_load * scale,
    )


# --- the shipped sample


def test_every_key_of_the_sample_is_in_exactly_one_group() -> None:
    found = import_cruise_control(SAMPLE)
    given = parse_properties((SAMPLE / "cruisecontrol.properties").read_text())
    assert sorted(found.keys) == sorted(p.key for p in given)
    assert len(given) == 87
    assert found.unknown == []
    assert all(row.why for row in found.left)
    assert all(row.ours for row in found.taken)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["capacity.json", "capacityJBOD.json", "capacityCores.json"])
def test_the_files_of_the_sample_are_taken_by_propose_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, "config")
    properties = Path("config/cruisecontrol.properties")
    text = properties.read_text().replace("capacityJBOD.json", form)
    properties.write_text(text.replace("localhost:9092", "localhost:1"))
    done = run("import", "cruise-control", "config", "-o", "ours")
    assert done.exit_code == 0, done.stderr
    assert "0 unknown" in done.stdout

    # All its files are read before Kafka is, which nobody is here.
    waiting = run("run", "--config", "ours/counterpoise.yaml", "--once", "--timeout", "0.2")
    assert "from ours/counterpoise.yaml: " in waiting.stderr
    for key in ("bootstrap_server", "capacity", "metrics_topic", "goals", "settings"):
        assert key in waiting.stderr.splitlines()[0]
    assert "localhost:1" in waiting.stderr.splitlines()[-1]
    if form != "capacityJBOD.json":
        return  # the goals are the same, and one plan by them is enough

    plain = synthetic_snapshot(brokers=6, partitions=90, racks=3, topics=3)
    save_snapshot(of_cluster(plain, Path("ours/capacities.yaml")), Path("cluster.json"))
    few = ("--max-moves", "5")
    plan = run("propose", "cluster.json", "--config", "ours/counterpoise.yaml", "--json", *few)
    assert plan.exit_code in (0, 1), plan.stderr
    assert "from ours/counterpoise.yaml: goals" in plan.stderr
    judged = {goal["name"] for goal in json.loads(plan.stdout)["goals"]}
    assert {g.name for g in load_goals("ours/goals.yaml")} <= judged
    Path("plan.json").write_text(plan.stdout)
    assert run("verify", "cluster.json", "plan.json").exit_code == 0

    disks = synthetic_snapshot(brokers=3, partitions=30, racks=3, disks_per_broker=2)
    save_snapshot(disks, Path("disks.json"))
    moves = run("propose", "disks.json", "--goals", "ours/disk-goals.yaml", *few)
    assert moves.exit_code in (0, 1), moves.stderr


def test_capacities_are_the_same_in_other_units() -> None:
    plain = read_capacities(SAMPLE / "capacity.json")
    assert plain == {
        "default": {
            "disk": 100_000 * MB,
            "cpu": 100,
            "network_in": 10_000 * KB,
            "network_out": 10_000 * KB,
        },
        "brokers": {
            0: {"disk": 500_000 * MB, "network_in": 50_000 * KB, "network_out": 50_000 * KB}
        },
    }
    cores = read_capacities(SAMPLE / "capacityCores.json")
    assert (cores["default"]["cpu"], cores["brokers"][0]["cpu"]) == (1600, 3200)
    jbod = read_capacities(SAMPLE / "capacityJBOD.json")
    assert jbod["default"]["disk"] == 500_000 * MB
    assert jbod["brokers"][1] == {"network_in": 50_000 * KB, "network_out": 50_000 * KB}


def test_the_limits_are_those_of_cruise_control(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "capacity.config.file=capacity.json\ncpu.balance.threshold=1.2\n"
        "cpu.low.utilization.threshold=0.3\ncpu.capacity.threshold=0.65\n"
        "max.replicas.per.broker=4000\ntopics.with.min.leaders.per.broker=pay.*\n"
        "min.topic.leaders.per.broker=2\n",
    )
    goals = {g.name: g for g in load_goals(found.documents["goals.yaml"])}
    usage = goals["UsageDistribution[cpu]"]
    assert isinstance(usage, UsageDistribution)
    # (T - 1) * 0.9 around the mean, see ResourceDistributionGoal.
    assert usage.slack == pytest.approx(0.2 * 0.9)
    assert usage.low_utilization == 0.3
    fields = {name: goal.model_dump() for name, goal in goals.items()}
    assert fields["ResourceCapacity[cpu]"]["threshold"] == 0.65
    assert fields["HostCapacity[cpu]"]["threshold"] == 0.65
    assert fields["ReplicaCapacity"]["limit"] == 4000
    assert (fields["MinTopicLeaders"]["topics"], fields["MinTopicLeaders"]["minimum"]) == (
        "pay.*",
        2,
    )
    assert "18 % either way" in next(
        row.note for row in found.taken if row.key == "cpu.balance.threshold"
    )


# --- goals


def test_every_goal_has_the_hardness_and_the_order_of_cruise_control() -> None:
    known = available()
    for name, likes in EQUIVALENTS.items():
        for like in likes:
            kind = known[like.goal]
            assert kind.model_fields["hard"].default == (name in HARD), name
            assert set(like.fields) <= set(kind.model_fields), name
            assert ("resource" in kind.model_fields) == like.takes_resource, name
    assert set(DEFAULT_GOALS) <= EQUIVALENTS.keys()


def test_the_default_list_is_the_profile(tmp_path: Path) -> None:
    found = of(tmp_path, "capacity.config.file=capacity.json\n")
    profile = load_goals("cruise-control")
    assert load_goals(found.documents["goals.yaml"]) == profile
    assert any("default.goals" in line for line in found.implied)


def test_goals_without_a_known_capacity_or_a_counterpart_are_named(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "default.goals=a.RackAwareGoal, a.CpuCapacityGoal,b.KafkaAssignerEvenRackAwareGoal,"
        "mine.OfMyOwnGoal,a.BrokerSetAwareGoal\n",
    )
    assert [g.name for g in load_goals(found.documents["goals.yaml"])] == ["RackAwareness"]
    notes = {row.goal: row.note for row in found.goals}
    assert notes["CpuCapacityGoal"] == "left out: no capacity of cpu is known"
    assert "a mode of Cruise Control" in notes["KafkaAssignerEvenRackAwareGoal"]
    assert "of your own" in notes["OfMyOwnGoal"]
    assert "broker.set.config.file" in notes["BrokerSetAwareGoal"]


def test_broker_sets_become_those_of_a_cluster(tmp_path: Path) -> None:
    shutil.copy(SAMPLE / "brokerSets.json", tmp_path)
    found = of(
        tmp_path,
        "broker.set.config.file=config/brokerSets.json\n"
        "default.goals=a.BrokerSetAwareGoal,a.RackAwareGoal\n",
    )
    assert read_broker_sets(SAMPLE / "brokerSets.json") == {"brokerSet0": [0]}
    names = [g.name for g in load_goals(found.documents["goals.yaml"])]
    assert names == ["BrokerSetAwareness", "RackAwareness"]
    file = tmp_path / "attributes.yaml"
    file.write_text(yaml_text(found.documents["attributes.yaml"], "x"))
    file.write_text(file.read_text().replace("[0]", "[1]"))
    cluster = load_attributes(file).applied(synthetic_snapshot(brokers=3), print)
    assert cluster.broker_sets == ("brokerSet0",)
    assert cluster.broker_set.tolist() == [0, -1, -1]


def test_the_controller_has_goals_of_its_own_if_cruise_control_has(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "capacity.config.file=capacity.json\ncpu.balance.threshold=1.2\n"
        "goal.violation.distribution.threshold.multiplier=2.5\n",
    )
    plan, healing = (
        {g.name: g.model_dump() for g in load_goals(found.documents[name])}
        for name in ("goals.yaml", "controller-goals.yaml")
    )
    assert plan["UsageDistribution[cpu]"]["threshold"] == 1.2
    # (T * k - 1) * 0.9, but not for LeaderBytesInDistributionGoal.
    assert healing["UsageDistribution[cpu]"]["threshold"] == 3.0
    assert healing["TopicReplicaDistribution"]["threshold"] == 7.5
    assert healing["LeaderBytesInDistribution"]["threshold"] == 1.1
    own = of(tmp_path, "self.healing.goals=a.RackAwareGoal\n")
    assert [g.name for g in load_goals(own.documents["controller-goals.yaml"])] == ["RackAwareness"]


def test_the_guide_names_every_goal_and_its_counterpart() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "from-cruise-control.md").read_text()
    rows = {
        line.split("|")[1].strip(): line.split("|")[2]
        for line in guide[guide.index("\n## Goals\n") :].splitlines()
        if line.startswith("| ")
    }
    for name, likes in EQUIVALENTS.items():
        assert set(re.findall(r"`([A-Z]\w+)`", rows[name])) == {like.goal for like in likes}
    for name in WITHOUT_EQUIVALENT:
        assert rows[name].strip() == "none"


# --- settings


def test_a_setting_has_the_value_in_its_own_unit(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "default.replication.throttle=50000000\nanomaly.detection.interval.ms=90000\n"
        "broker.failure.alert.threshold.ms=60000\nfixable.failed.broker.percentage.threshold=0.2\n"
        "max.num.cluster.partition.movements=300\nmax.num.cluster.movements=200\n"
        "slow.broker.bytes.in.rate.detection.threshold=1024\n"
        "slow.broker.log.flush.time.threshold.ms=1500\n"
        "default.replica.movement.strategies=x.PostponeUrpReplicaMovementStrategy,"
        "x.PrioritizeOneAboveMinIsrWithOfflineReplicasStrategy,x.BaseReplicaMovementStrategy\n"
        "topics.excluded.from.partition.movement=secret-.*|__.*\n"
        "concurrency.adjuster.inter.broker.replica.enabled=FALSE\n"
        "request.timeout.ms=45000\n",
    )
    file = tmp_path / "settings.yaml"
    file.write_text(yaml_text(found.documents["settings.yaml"], "x"))
    settings = load_settings(file)
    assert settings.execution == {
        "throttle": 50_000_000,
        "concurrent_moves": 200,
        "order": ["postpone_under_replicated", "plan_order"],
        "adaptive": False,
    }
    assert (settings.interval, settings.dead_brokers.alert_after) == (90.0, 60.0)
    assert settings.dead_brokers.max_share == 0.2
    assert settings.slow_brokers.min_bytes_in == 1024 * KB
    assert settings.slow_brokers.signals == {"log_flush_time_ms_p999": 1500.0}
    assert settings.excluded_topics == ("secret-.*|__.*",)
    assert found.documents["counterpoise.yaml"]["timeout"] == 45


@pytest.mark.parametrize(
    ("text", "acting"),
    [
        ("", []),
        ("self.healing.enabled=true\n", []),
        ("anomaly.notifier.class=x.NoopNotifier\nself.healing.enabled=true\n", []),
        (
            "anomaly.notifier.class=x.SlackSelfHealingNotifier\nself.healing.enabled=true\n"
            "self.healing.goal.violation.enabled=false\n",
            ["dead_brokers", "dead_disks", "missing_replicas", "slow_brokers"],
        ),
        (
            "anomaly.notifier.class=x.SelfHealingNotifier\n"
            "self.healing.broker.failure.enabled=true\n",
            ["dead_brokers"],
        ),
    ],
)
def test_what_heals_itself_there_acts_here(tmp_path: Path, text: str, acting: list[str]) -> None:
    settings = of(tmp_path, f"bootstrap.servers=a:1\n{text}").documents["settings.yaml"]
    assert sorted(d for d in HEALING.values() if settings[d]["act"]) == acting


def test_a_replication_factor_is_kept_for_all_topics_but_some(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "topic.anomaly.finder.class=x.TopicReplicationFactorAnomalyFinder\n"
        "self.healing.target.topic.replication.factor=2\n"
        "topic.excluded.from.replication.factor.check=__.*|tmp\n",
    )
    (pattern,) = found.documents["settings.yaml"]["missing_replicas"]["topics"]
    assert found.documents["settings.yaml"]["missing_replicas"]["topics"][pattern] == 2
    names = ("orders", "tmp", "tmp-2", "__offsets", "a__b")
    assert [n for n in names if re.fullmatch(pattern, n)] == ["orders", "tmp-2", "a__b"]
    alone = of(tmp_path, "self.healing.target.topic.replication.factor=2\n")
    assert "TopicReplicationFactorAnomalyFinder only" in alone.left[0].why


def test_a_value_that_ours_does_not_take_is_said(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "default.replication.throttle=100\ndisk.capacity.threshold=0\n",
    )
    why = {row.key: row.why for row in found.left}
    assert "execution.throttle does not take it" in why["default.replication.throttle"]
    assert "ResourceCapacity[disk].threshold does not take it" in why["disk.capacity.threshold"]


FINDER = "topic.anomaly.finder.class=x.TopicReplicationFactorAnomalyFinder\n"


@pytest.mark.parametrize(
    "key",
    [
        "topics.excluded.from.partition.movement",
        "topics.with.min.leaders.per.broker",
        "topic.excluded.from.replication.factor.check",
    ],
)
@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"\p{Alpha}+", r"bad escape \p at position 0"),
        (r"\Qa.b\E", r"bad escape \Q at position 0"),
        ("(?<name>a).*", "unknown extension ?<n"),
        ("[a-z&&[^b]].*", "Java and Python read these differently"),
        ("[a-c[x-z]].*", "Java and Python read these differently"),
        ("${env:TOPICS}", "'${env:TOPICS}' found, the pattern itself expected"),
    ],
)
def test_a_pattern_of_topics_that_stay_is_never_left_out(
    tmp_path: Path, key: str, pattern: str, says: str
) -> None:
    escaped = pattern.replace("\\", "\\\\")
    (tmp_path / "cruisecontrol.properties").write_text(f"{FINDER}{key}={escaped}\n")
    done = run("import", "cruise-control", tmp_path, "-o", tmp_path / "written")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert f"line 2: {key}: " in line
    assert says in line
    assert not (tmp_path / "written").exists()


def test_what_python_and_java_read_alike_is_taken(tmp_path: Path) -> None:
    # possessive and atomic since Python 3.11
    for pattern in (r"a*+b", r"(?>a|ab)c", r"[^\]]x[a]", r"(?i)orders-\d{2,}", r"[a\[&]+"):
        escaped = pattern.replace("\\", "\\\\")
        found = of(tmp_path, f"topics.excluded.from.partition.movement={escaped}\n")
        assert found.documents["settings.yaml"]["excluded_topics"] == [pattern]


def test_goals_that_only_the_controller_judges_are_named(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "default.goals=a.RackAwareGoal,a.ReplicaCapacityGoal,a.DiskUsageDistributionGoal\n"
        "anomaly.detection.goals=a.RackAwareGoal\n",
    )
    (row,) = found.left
    assert "also of ReplicaCapacityGoal, DiskUsageDistributionGoal; goal_violations" in row.why


VALUES = (
    "", "1", "0", "true", "-1", "nan", "0.5", "1e3", "3000000000", "${env:A}", "a.RackAwareGoal",
    "x.NoneOfOurs", "(", ".*", "PEM", "x.SlowBrokerFinder", "x.SelfHealingNotifier",
    "x.TopicReplicationFactorAnomalyFinder", "capacity.json", "brokerSets.json", "'\\u00e4: [",
    "a: b #",
)  # fmt: skip


def test_any_values_give_usable_files_or_one_sentence(tmp_path: Path) -> None:
    random = Random(0)
    shutil.copy(SAMPLE / "brokerSets.json", tmp_path)
    keys = [*WITHOUT_COUNTERPART, *RULES, *HEALING, "default.goals", "sasl.jaas.config"]
    keys += [k for likes in EQUIVALENTS.values() for e in likes for k in e.fields.values()]
    keys += ["capacity.config.file", "broker.set.config.file", "ssl.keystore.location", "x"] * 9
    usable, refusals = 0, list[str]()
    for _ in range(150):
        given = random.choices(keys, k=4)
        try:
            found = of(tmp_path, "".join(f"{key}={random.choice(VALUES)}\n" for key in given))
        except CruiseControlError as error:
            refusals.append(str(error))
            continue
        usable += 1
        for name, content in found.documents.items():
            path = tmp_path / name
            path.write_text(yaml_text(content, "x"))
            assert parse_yaml(path.read_text()) == content
        load_settings(tmp_path / "settings.yaml")
        load_goals(tmp_path / "goals.yaml")
        load_configuration(tmp_path / "counterpoise.yaml")
    assert usable > 50
    assert not [said for said in refusals if "\n" in said]


# --- the client


def test_secrets_are_written_for_the_owner_only_and_never_printed(tmp_path: Path) -> None:
    (tmp_path / "cruisecontrol.properties").write_text(
        "bootstrap.servers=a:1, b:2\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="open sesame";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n"
        "ssl.keystore.location=/client.jks\nssl.keystore.password=open sesame\n"
        "ssl.key.password=${file:/run/secrets:key}\nssl.endpoint.identification.algorithm=\n"
        "slack.self.healing.notifier.webhook=https://open.sesame\n"
        "unheard.of=open sesame\n"
    )
    shown = run("import", "cruise-control", tmp_path, "--json", "-o", tmp_path / "ours")
    assert shown.exit_code == 0, shown.stderr
    said = shown.stdout + run("import", "cruise-control", tmp_path).output
    assert "sesame" not in said
    record = json.loads(shown.stdout)
    assert [row["key"] for row in record["unknown"]] == ["unheard.of"]
    file = tmp_path / "ours" / "counterpoise.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written: Any = parse_yaml(file.read_text())
    assert written["bootstrap_server"] == "a:1,b:2"
    assert written["client"] == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="open sesame";',
        "ssl.ca.location": "/ca.pem",
    }
    why = {row["key"]: row["why"] for row in record["without_counterpart"]}
    assert "PEM" in why["ssl.keystore.location"]


def test_a_pem_key_store_serves_as_certificate_and_key(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "ssl.keystore.type=PEM\nssl.keystore.location=/me.pem\nssl.key.password=${env:KEY}\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;\n",
    )
    assert found.documents["counterpoise.yaml"]["client"] == {
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "${env:KEY}",
    }
    note = next(row.note for row in found.taken if row.key == "ssl.key.password")
    assert "${env:KEY} is looked up" in note
    assert "PLAIN and SCRAM" in next(r.why for r in found.left if r.key == "sasl.jaas.config")


def test_what_only_java_clients_know_is_left(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=x.Handler\nssl.keystore.key=open sesame\n"
        "ssl.truststore.certificates=PEM\nzookeeper.ssl.client.enable=true\n"
        "kafka.broker.failure.detection.enable=true\ndefault.log.dir.throttle=2048\n",
    )
    assert found.documents["counterpoise.yaml"]["client"] == {"security.protocol": "SASL_SSL"}
    assert found.documents["settings.yaml"]["execution"] == {"log_dir_throttle": 2048}
    values = {row.key: (row.value, row.why) for row in found.left}
    assert values["ssl.keystore.key"] == (
        "***",
        "write it to a file, and state ssl.key.location under client",
    )
    assert "no ZooKeeper" in values["zookeeper.ssl.client.enable"][1]
    assert found.unknown == []


def test_values_from_elsewhere_are_named_and_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU", "1.3")
    found = of(
        tmp_path,
        "config.providers=env\nconfig.providers.env.class=x.EnvConfigProvider\n"
        "cpu.balance.threshold=${env:CPU}\n",
    )
    (row,) = (row for row in found.left if row.key == "cpu.balance.threshold")
    assert "looked up elsewhere" in row.why
    assert row.value == "${env:CPU}"


# --- accounting


def test_a_typo_is_unknown_and_a_repeated_key_is_said(tmp_path: Path) -> None:
    found = of(
        tmp_path, "cpu.balance.treshold=1.1\nself.healing.goals=\nx=1\n\nproposal.expiration.ms=1\n"
    )
    assert [(u.key, u.line, u.meant) for u in found.unknown] == [
        ("cpu.balance.treshold", 1, "cpu.balance.threshold"),
        ("x", 3, None),
    ]
    twice = of(tmp_path, "cpu.balance.threshold=1.1\ncpu.balance.threshold=1.5\ngoals=a\ngoals=b\n")
    assert "lines 1, 2, of which the last counts" in twice.left[0].why
    assert "lines 3, 4" in twice.left[1].why


def test_what_gson_reads_is_read(tmp_path: Path) -> None:
    shutil.copy(SAMPLE / "capacityGson.json", tmp_path / "capacity.json")
    (tmp_path / "cruisecontrol.properties").write_text("capacity.config.file=capacity.json\n")
    done = run("import", "cruise-control", tmp_path, "-o", tmp_path / "written")
    assert done.exit_code == 0, done.stderr
    stated = load_capacities(tmp_path / "written" / "capacities.yaml")
    assert stated.of(5) == {"disk": 100_000 * MB, "cpu": 100, "network_in": 10_000 * KB,
                            "network_out": 10_000 * KB}  # fmt: skip
    assert stated.of(0)["disk"] == 100_000 * MB
    assert stated.of(0)["cpu"] == 800
    sets = tmp_path / "brokerSets.json"
    sets.write_text("{brokerSets = [{brokerSetId: a; brokerIds => [0, 1]}] # end\n}")
    assert read_broker_sets(sets) == {"a": [0, 1]}


@pytest.mark.parametrize(
    "text", ["{a: 'b}", "{a: b", "{a: \\}", "{a b}", "{/* a: 1}", "{a: 1,}", '{a: "b}', "{a: /}"]
)
def test_what_gson_does_not_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerSets.json").write_text(text)
    with pytest.raises(CruiseControlError, match="not JSON"):
        read_broker_sets(tmp_path / "brokerSets.json")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kafka.yaml", "a resource of Kubernetes (kind 'Kafka') found, cruisecontrol.properties"),
        ("capacityGson.json", "none of its 5 keys is one of Cruise Control's, cruisecontrol.prop"),
    ],
)
def test_what_is_no_configuration_is_refused(name: str, says: str) -> None:
    done = run("import", "cruise-control", SAMPLE / name)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert says in line


def test_no_key_is_listed_twice() -> None:
    assert not RULES.keys() & WITHOUT_COUNTERPART.keys()
    assert not HEALING.keys() & WITHOUT_COUNTERPART.keys()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p", "cpu.balance.threshold=x\n", "line 1: cpu.balance.threshold: 'x' found, a number"),
        ("p", "cpu.balance.threshold=0.5\n", "a number of at least 1 expected"),
        ("p", "\ncpu.capacity.threshold=7\n", "line 2: cpu.capacity.threshold: '7' found"),
        (
            "p",
            "topic.replica.count.balance.min.gap=9\ntopic.replica.count.balance.max.gap=3\n",
            "topic.replica.count.balance.max.gap: '3' found, another value",
        ),
        ("p", "max.replicas.per.broker=1.5\n", "a whole number expected"),
        ("p", "self.healing.enabled=yes\n", "'yes' found, true or false expected"),
        ("p", "capacity.config.file=none.json\n", "'none.json' found, a file in"),
        ("p", "default.goals=mine.Goal\n", "at least one goal with a counterpart"),
        ("p", "", "no properties found"),
        ("p", "a=\\u12\n", "line 1: \\u found"),
        ("c", "{}", "no brokerCapacities found"),
        ("c", "[]", "list found, a mapping expected"),
        ("c", "{", "not JSON"),
        ("c", '{"brokerCapacities": [{"brokerId": "0"}]}', "entry 0"),
        ("c", '{"brokerCapacities": [{"brokerId": "x", "capacity": {}}]}', "brokerId: 'x' found"),
        (
            "c",
            '{"brokerCapacities": [{"brokerId": "0", "capacity": {"DISC": "1"}}]}',
            "'DISC' found, one of DISK, CPU, NW_IN, NW_OUT expected",
        ),
        (
            "c",
            '{"brokerCapacities": [{"brokerId": "0", "capacity": {"CPU": {"cores": "1"}}}]}',
            "num.cores: None found, a number expected",
        ),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, name: str, text: str, says: str) -> None:
    properties = tmp_path / "cruisecontrol.properties"
    properties.write_text(text if name == "p" else "capacity.config.file=capacity.json\n")
    (tmp_path / "capacity.json").write_text(text if name == "c" else "{}")
    done = run("import", "cruise-control", tmp_path)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert says in line
    with pytest.raises(CruiseControlError):
        import_cruise_control(tmp_path)


def test_nothing_is_replaced_unless_asked(tmp_path: Path) -> None:
    assert "nothing is written" in run("import", "cruise-control", SAMPLE).stderr.lower()
    assert run("import", "cruise-control", SAMPLE, "-o", tmp_path).exit_code == 0
    refused = run("import", "cruise-control", SAMPLE, "-o", tmp_path)
    assert refused.exit_code == 2
    assert "--overwrite replaces them" in refused.stderr
    again = run("import", "cruise-control", SAMPLE, "-o", tmp_path, "--overwrite")
    assert again.exit_code == 0
    missing = run("import", "cruise-control", tmp_path)
    assert "no cruisecontrol.properties found" in missing.stderr
