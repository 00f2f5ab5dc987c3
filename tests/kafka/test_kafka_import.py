"""What an import of Cruise Control's configuration writes is all that a real Kafka needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import invoke
from kafka_cases import create_topic
from real_kafka import KafkaCluster
from typer.testing import Result

from cluster_model import load_snapshot
from cluster_model.capacities import as_capacities
from cluster_model.kafka import admin_client

SAMPLE = Path(__file__).parents[1] / "balancer" / "cruise_control"
MB = 1024**2


def counterpoise(*args: object) -> Result:
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.kafka
def test_propose_and_run_work_with_the_imported_files_alone(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, "config")
    file = Path("config/cruisecontrol.properties")
    text = file.read_text().replace("localhost:9092", kafka_cluster.bootstrap)
    # No reporter is in these brokers; the sample names no broker sets.
    text = text.replace("CruiseControlMetricsReporterSampler", "NoopSampler")
    text += "security.protocol=PLAINTEXT\nbroker.set.config.file=config/brokerSets.json\n"
    file.write_text(text)
    with admin_client(kafka_cluster.bootstrap) as ask:
        create_topic(ask, "imported", {n: [0, 1] for n in range(6)})

    done = counterpoise("import", "cruise-control", "config", "-o", ".")
    assert done.exit_code == 0, done.stderr

    # counterpoise.yaml is in the current directory: nothing needs to be named.
    taken = counterpoise("snapshot", "kafka", "-o", "cluster.json")
    assert taken.exit_code == 0, taken.stderr
    assert "from counterpoise.yaml: bootstrap_server, capacity, " in taken.stderr
    cluster = load_snapshot("cluster.json")
    assert cluster.resources == ("disk",)
    assert cluster.capacity[:, 0].tolist() == [500_000 * MB] * 3
    network = [as_capacities(Path("capacities.yaml")).of(b)["network_in"] for b in range(3)]
    assert network == [50_000 * 1024, 50_000 * 1024, 10_000 * 1024]
    assert cluster.broker_sets == ("brokerSet0",)
    assert cluster.broker_set.tolist() == [0, -1, -1]

    # Goals of the file that read loads cannot be judged without a metrics topic.
    refused = counterpoise("propose", "--json")
    assert refused.exit_code == 2, refused.stdout
    assert "without a metrics topic nobody measures them" in refused.stderr
    assert "the snapshot has no resource 'network_in'" in refused.stderr
    plan = counterpoise("propose", "--json", "--goals", "cruise-control")
    assert plan.exit_code in (0, 1), plan.stderr

    decided = counterpoise("run", "--once", "--json")
    assert decided.exit_code in (0, 1), decided.stderr
    assert "settings" in decided.stderr.splitlines()[0]
    decision = json.loads(decided.stdout.splitlines()[-1])
    # Self healing is off in the sample.
    assert decision["kind"] != "executed"
