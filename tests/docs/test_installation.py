"""``pip install .`` alone is enough for everything except talking to Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from balancer.cli.commands import EXTRAS, _sentence
from cluster_model import save_snapshot, synthetic_snapshot

ROOT = Path(__file__).parents[2]

# As if the extras were not installed: nothing but the dependencies of the core.
_WITHOUT_EXTRAS = """
import sys

EXTRAS = {
    "confluent_kafka", "fastapi", "google", "grpc", "highspy", "hypothesis", "kafka", "kubernetes",
    "networkx", "prometheus_client", "pymetis", "pyspark", "starlette", "uvicorn",
}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""


def alone(
    code: str, *arguments: str, cwd: Path = ROOT, said: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRAS + code, *arguments],
        input=said,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT)},
        timeout=120,
    )


def run_cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return alone("from balancer.cli import main; main()", *arguments, cwd=cwd)


def test_every_module_is_imported_without_the_extras() -> None:
    # All but four rooms, which are for their extras and nothing else.
    done = alone("""
import importlib, pkgutil
rooms = (
    "cluster_model.history", "balancer.allocation", "balancer.collocation", "balancer.server",
)
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


def test_what_needs_an_extra_says_so_in_one_sentence(tmp_path: Path) -> None:
    for words, extra in (
        ("propose --bootstrap-server localhost:1", "kafka"),
        ("snapshot kafka --bootstrap-server localhost:1 -o cluster.json", "kafka"),
        ("run --bootstrap-server localhost:1 --listen 127.0.0.1:0", "server"),
        ("server openapi", "server"),
        ("history prepare archive --metadata m.json -o prepared", "spark"),
    ):
        done = run_cli(*words.split(), cwd=tmp_path)
        assert done.returncode == 2, words
        (sentence,) = done.stderr.splitlines()
        assert f"pip install 'counterpoise[{extra}]'" in sentence, words


def test_a_password_is_hashed_without_the_server() -> None:
    done = alone(
        "from balancer.cli import main; main()", "server", "hash-password", said="a secret\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("scrypt$")


def test_a_package_that_lacks_a_module_is_not_said_to_be_missing() -> None:
    error = ModuleNotFoundError("No module named 'kafka.net'", name="kafka.net")
    said = _sentence(error, SimpleNamespace(invoked_subcommand="load"))
    assert said.startswith("load failed unexpectedly (ModuleNotFoundError: No module named")


def test_packages_are_named_with_the_extra_that_brings_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        "delta": "delta-spark",
        "grpc": "grpcio",
        "kafka": "kafka-python",
        "starlette": "fastapi",
    }
    for package, extra in EXTRAS.items():
        brought = [re.split("[><=]", needed)[0] for needed in extras[extra]]
        assert named.get(package, package.replace("_", "-")) in brought, package


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
