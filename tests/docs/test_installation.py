"""``pip install .`` alone is enough for everything except talking to Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster_model import save_snapshot, synthetic_snapshot

ROOT = Path(__file__).parents[2]

# As if the extras were not installed: nothing but the dependencies of the core.
_WITHOUT_EXTRAS = """
import sys

EXTRAS = {
    "confluent_kafka", "google", "grpc", "highspy", "hypothesis", "kafka", "kubernetes", "networkx",
    "pymetis", "pyspark",
}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""


def alone(code: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", _WITHOUT_EXTRAS + code, *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, cwd=cwd, env={"PYTHONPATH": str(ROOT)}, timeout=120
    )


def run_cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return alone("from balancer.cli import main; main()", *arguments, cwd=cwd)


def test_every_module_is_imported_without_the_extras() -> None:
    # All but three rooms, which are for their extras and nothing else.
    done = alone("""
import importlib, pkgutil
rooms = ("cluster_model.history", "balancer.allocation", "balancer.collocation")
def walk(package):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        if module.name in rooms or module.name.endswith("__main__"):
            continue
        importlib.import_module(module.name)
        if module.ispkg:
            walk(module.name)
for package in ("metrics_reporter", "cluster_model", "goals", "balancer"):
    walk(package)
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_plan_needs_no_kafka_client(tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, utilization=0.2)
    save_snapshot(snapshot, tmp_path / "cluster.json")
    outputs = ["-o", "plan.json", "--reassignment-json", "moves.json", "--report", "report.html"]
    done = run_cli("propose", "cluster.json", *outputs, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run_cli("verify", "cluster.json", "plan.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_demo_needs_no_kafka_client(tmp_path: Path) -> None:
    done = run_cli("demo", "--output", "demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (sentence,) = (line for line in done.stdout.splitlines() if "pip install" in line)
    assert "counterpoise[kafka]" in sentence
    assert "over topic" not in done.stdout
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "snapshot.json", "plan.json", "reassignment.json", "leader-election.json", "report.html"
    }  # fmt: skip


def test_what_needs_the_client_says_so_in_one_sentence(tmp_path: Path) -> None:
    for words in (
        ["propose", "--bootstrap-server", "localhost:1"],
        ["snapshot", "kafka", "--bootstrap-server", "localhost:1", "-o", "cluster.json"],
    ):
        done = run_cli(*words, cwd=tmp_path)
        assert done.returncode == 2
        (sentence,) = done.stderr.splitlines()
        assert "counterpoise[kafka]" in sentence


def test_a_group_is_sized_without_the_extras(tmp_path: Path) -> None:
    partition = "{topic: orders, partition: 0, rate: 90}"
    content = f"group: orders\ncapacity: 100\npartitions: [{partition}]\n"
    (tmp_path / "group.yaml").write_text(content, encoding="utf-8")
    done = run_cli("autoscale", "decide", "group.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "start new 1" in done.stdout
    for package, made in (
        ("keda", "KedaScaler('127.0.0.1', 0)"),
        ("replicas", "KubernetesReplicas('deployment/orders')"),
    ):
        name = made.partition("(")[0]
        done = alone(f"from balancer.autoscaling.{package} import {name}; {made}")
        assert "pip install 'counterpoise[autoscaling]'" in done.stderr.splitlines()[-1]
