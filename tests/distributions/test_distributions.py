"""The built sdist and wheel work when installed into an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = ("balancer", "goals", "cluster_model", "metrics_reporter")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NO_RUBBISH = shutil.ignore_patterns("__pycache__")
EMBEDDED = """
import importlib.util, sys
import balancer
from balancer import Balancer
from cluster_model import synthetic_snapshot

assert balancer.__file__.startswith(sys.prefix), balancer.__file__
assert importlib.util.find_spec("confluent_kafka") is None
plan = Balancer("cruise-control").propose(synthetic_snapshot(brokers=6, partitions=30, racks=3))
assert plan.actions
"""


def interpreters() -> list[str]:
    """The supported versions of Python on this machine besides the running one, by path."""
    supported = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for version in supported:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        several = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
        places = [*map(str, several), shutil.which(f"python{version}")]
        code = "import ensurepip, venv"
        works = (p for p in places if p and not subprocess.call([p, "-c", code], stderr=-3))
        found += [python] if (python := next(works, None)) else []
    return found


def run(*words: str | Path, cwd: Path) -> str:
    """Standard output of a command that knows nothing of this environment."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, directory: Path) -> Path:
    """A distribution that setuptools builds from a directory."""
    code = f"import sys; from setuptools.build_meta import *; build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, directory, cwd=source)
    (found,) = directory.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An sdist of the project, and the wheel that is built from nothing but the sdist."""
    directory = tmp_path_factory.mktemp("built")
    source = directory / "source"
    for package in (*PACKAGES, "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / package, source / package, ignore=NO_RUBBISH)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    sdist = build("sdist", source, directory)
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    return {"sdist": sdist, "wheel": build("wheel", Path(str(sdist)[: -len(".tar.gz")]), directory)}


def files_of(package: Path) -> Iterator[str]:
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT))


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built["wheel"]).namelist()
    found = {name for name in names if ".dist-info/" not in name}
    of_packages = {name for package in PACKAGES for name in files_of(ROOT / package)}
    assert found == of_packages
    assert {f"{package}/py.typed" for package in PACKAGES} <= found


def installed(interpreter: str, package: Path, *further: str, folder: Path) -> None:
    """Install a distribution into an environment of its own, and use it."""
    environment = folder / "environment"
    # pip is the one of this environment: to install one into each takes seconds
    run(interpreter, "-m", "venv", "--without-pip", environment, cwd=folder)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-compile", package, *further, cwd=folder)
    run(*pip, "check", cwd=folder)

    command = environment / "bin" / "counterpoise"
    assert run(command, "--version", cwd=folder) == f"counterpoise {PROJECT['version']}\n"
    assert "All goals are met." in run(command, "demo", cwd=folder)
    assert (folder / "demo" / "report.html").stat().st_size > 10_000
    run(python, "-c", EMBEDDED, cwd=folder)


def test_it_is_installed_and_used(built: dict[str, Path], tmp_path: Path) -> None:
    installed(sys.executable, built["wheel"], folder=tmp_path)


@pytest.mark.soak
def test_so_are_the_sdist_the_lowest_versions_and_other_interpreters(
    built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lowest = [d.replace(">=", "==") for d in PROJECT["dependencies"]]
    wheel, here = built["wheel"], sys.executable
    installed(here, built["sdist"], folder=tmp_path_factory.mktemp("sdist"))
    installed(here, wheel, *lowest, folder=tmp_path_factory.mktemp("lowest"))
    for python in interpreters():
        installed(python, wheel, folder=tmp_path_factory.mktemp(Path(python).name))
