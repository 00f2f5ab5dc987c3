"""The chart, the manifests that it renders, and the systemd unit are valid."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "docs" / "deployment"
MANIFESTS, CHART = DEPLOYMENT / "kubernetes.yaml", DEPLOYMENT / "helm" / "counterpoise"
HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
# Versions of Kubernetes: the oldest that the chart states, and a new one.
VERSIONS = ("1.25.0", "1.36.0")


def validated(manifests: str) -> list[dict[str, Any]]:
    """The documents, each valid by the schemas of Kubernetes, without unknown fields."""
    import kubernetes_validate

    found = [document for document in yaml.safe_load_all(manifests) if document]
    for document in found:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    return found


def containers(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    specs = [d["spec"]["template"]["spec"] for d in documents if "template" in d.get("spec", {})]
    return [container for spec in specs for container in spec["containers"]]


def test_the_manifests_are_valid_and_ask_for_no_rights() -> None:
    documents = validated(MANIFESTS.read_text(encoding="utf-8"))
    kinds = [d["kind"] for d in documents]
    assert sorted(kinds) == ["ConfigMap", "Deployment", "Service", "StatefulSet"]
    for container in containers(documents):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security["allowPrivilegeEscalation"]
        assert container["resources"]["limits"]["memory"]
    # by default it only proposes
    assert all("--execute" not in c["args"] for c in containers(documents))


def test_the_configuration_in_the_manifests_is_taken(tmp_path: Path) -> None:
    from balancer.controller.settings import Settings
    from cluster_model.capacities import load_capacities

    documents = validated(MANIFESTS.read_text(encoding="utf-8"))
    (data,) = [d["data"] for d in documents if d["kind"] == "ConfigMap"]
    Settings.model_validate(yaml.safe_load(data["settings.yaml"]))
    (tmp_path / "capacities.yaml").write_text(data["capacities.yaml"])
    assert load_capacities(tmp_path / "capacities.yaml")
    assert set(yaml.safe_load(data["counterpoise.yaml"])) == {"bootstrap_server", "metrics_topic"}


def test_the_image_has_every_package_and_runs_without_rights() -> None:
    """Its Dockerfile is built by the soak, too (test_image.py)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (DEPLOYMENT / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        path for line in re.findall(r"(?m)^COPY ([^-].*) \S+$", text) for path in line.split()
    }
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == {"pyproject.toml", "README.md"} | {name.rstrip("*") for name in packages}
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert {*extras.split(",")} <= project["project"]["optional-dependencies"].keys()
    last = dict(line.split(maxsplit=1) for line in text.split("FROM")[-1].splitlines()[1:] if line)
    assert (last["USER"], last["EXPOSE"]) == ("10001", "9464")
    assert last["WORKDIR"] == last["VOLUME"] == "/var/lib/counterpoise"
    assert [last["ENTRYPOINT"]] == [f'["{name}"]' for name in project["project"]["scripts"]]


def test_the_unit_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "counterpoise.service"
    text = (DEPLOYMENT / unit.name).read_text(encoding="utf-8")
    # the program has to exist
    unit.write_text(text.replace("/opt/counterpoise/bin/counterpoise", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    # an unknown key is a warning only
    assert done.returncode == 0
    assert unit.name not in done.stderr


@pytest.mark.peer
def test_helm_renders_the_manifests() -> None:
    helm = shutil.which("helm")
    if helm is None:
        cache = Path(os.environ.get("COUNTERPOISE_CACHE") or "~/.cache/counterpoise").expanduser()
        helm = str(cache / "helm")
        if not Path(helm).exists():
            environment = {**os.environ, "GOBIN": str(cache)}
            subprocess.run(["go", "install", HELM], check=True, env=environment)

    def run(*words: str | Path) -> str:
        done = subprocess.run([helm, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("lint", "--strict", CHART)
    render = ("template", "counterpoise", CHART, "--kube-version", "1.31.0")
    comment, _, rendered = MANIFESTS.read_text(encoding="utf-8").partition("\n")
    assert comment.startswith("#")
    assert run(*render) == rendered
    options = ["replicas=2", "execute=true", "clientSecret=client", "storage.className=fast"]
    documents = validated(run(*render, "--set", ",".join(options)))
    assert any("--execute" in c["args"] for c in containers(documents))
    without = validated(run(*render, "--set", "reporter.enabled=false"))
    assert "Deployment" not in [d["kind"] for d in without]
