"""What `make test` installs, and its message if it may not; nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from waiting import LIMIT

SETUP = Path(__file__).parents[1] / "setup.sh"
NEEDED = ["make", "java", "mvn", "chromium", "buildah", "mmdebstrap", "promtool", "systemd-analyze"]

OTHERS = "buildah mmdebstrap prometheus systemd"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The commands of a machine: a user, a Python that makes environments, and little else."""
    for name in ("sh", "env", "true"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    add(tmp_path, "id", "echo 1000")
    add(tmp_path, "python3")
    return tmp_path


def add(machine: Path, name: str, body: str = "") -> None:
    (machine / name).write_text(f"#!/bin/sh\n{body}\n")
    (machine / name).chmod(0o755)


def with_apt(machine: Path, release: str = "openjdk-17-jre-headless chromium") -> None:
    """A package manager of a release that has these packages; it notes how it is called."""
    add(machine, "apt-get", f'echo "$SUDO$DEBIAN_FRONTEND apt-get $*" >> {machine / "log"}')
    add(machine, "apt-cache", f'case " {release} " in *" $2 "*) exit 0;; esac; exit 100')


def set_up(machine: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SETUP],
        env={"PATH": str(machine)},
        cwd=machine,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def refused(machine: Path) -> str:
    done = set_up(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert not (machine / "log").exists()
    (sentence,) = done.stderr.splitlines()
    return sentence


def test_nothing_is_done_where_nothing_is_missing(machine: Path) -> None:
    for name in NEEDED:
        add(machine, name)
    done = set_up(machine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_user_reads_the_command_to_run(machine: Path) -> None:
    with_apt(machine)
    assert refused(machine).endswith(
        "run: sudo apt-get update && "
        f"sudo apt-get install make openjdk-17-jre-headless maven chromium {OTHERS}"
    )


def test_a_sudo_that_asks_for_a_password_is_not_used(machine: Path) -> None:
    with_apt(machine)
    add(machine, "sudo", '[ "$1" = -n ] && exit 1')
    for name in ("make", "java", "chromium"):
        add(machine, name)
    assert refused(machine).endswith(f"sudo apt-get install maven {OTHERS}")


def test_without_a_package_manager_it_says_what_is_missing(machine: Path) -> None:
    add(machine, "id", "echo 0")
    assert "no apt-get here to install make openjdk-17-jre-headless maven" in refused(machine)


@pytest.mark.parametrize("who", ["root", "sudo"])
def test_who_may_installs_what_is_missing_and_no_more(machine: Path, who: str) -> None:
    with_apt(machine)
    for name in ("make", "mvn"):
        add(machine, name)
    add(machine, "python3", "exit 1")
    if who == "root":
        add(machine, "id", "echo 0")
    else:
        add(machine, "sudo", '[ "$1" = -n ] && shift && SUDO="sudo " exec env "$@"')
    done = set_up(machine)
    assert (done.returncode, done.stderr) == (0, "")
    sudo = "sudo " if who == "sudo" else ""
    assert (machine / "log").read_text().splitlines() == [
        f"{sudo} apt-get update -qq",
        f"{sudo}noninteractive apt-get install -y -qq --no-install-recommends "
        f"openjdk-17-jre-headless chromium {OTHERS} python3-venv",
    ]


def test_packages_are_named_as_the_release_names_them(machine: Path) -> None:
    with_apt(machine, release="openjdk-21-jre-headless chromium-browser")
    found = refused(machine)
    assert found.endswith(f"make openjdk-21-jre-headless maven chromium-browser {OTHERS}")


def test_a_failed_installation_is_a_failure(machine: Path) -> None:
    with_apt(machine)
    add(machine, "apt-get", "echo E: no network >&2; exit 100")
    add(machine, "id", "echo 0")
    done = set_up(machine)
    assert (done.returncode, done.stderr) == (100, "E: no network\n")
