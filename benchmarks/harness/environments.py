"""Creates the virtual environments that peers need, and keeps them in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.registry import BenchmarkError

Version = tuple[int, int]


class PeerMissing(BenchmarkError):
    """A peer cannot be installed on this machine."""


def environment(
    peer: str,
    requirements: Sequence[str],
    versions: Sequence[Version],
    log: Callable[[str], None],
) -> Path:
    """The interpreter of an environment that holds `requirements`.

    Parameters
    ----------
    peer
        Name of the peer, and of the environment.
    requirements
        Requirements that pip installs.
    versions
        Suitable Python releases, the preferred one first.
    log
        Called with a sentence before the environment is created.

    Raises
    ------
    PeerMissing
        If there is no such Python, or the installation fails.
    """
    version, base = find_python(peer, versions)
    python_name = f"python{version[0]}.{version[1]}"
    pinned = "-".join(requirements).replace("=", "").replace(">", "")
    home = cache_folder() / f"{peer}-{python_name}-{pinned}"
    python, ready = home / "bin" / "python", home / "ready"
    if ready.exists() and python.exists():
        return python
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{home}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another benchmark may have created it meanwhile.
        if not (ready.exists() and python.exists()):
            log(f"creating an environment for {peer} in {home}")
            _create(peer, home, base, requirements)
    return python


def _create(peer: str, home: Path, base: str, requirements: Sequence[str]) -> None:
    shutil.rmtree(home, ignore_errors=True)
    python = home / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([base, "-m", "venv", str(home)], [str(python), *install, *requirements]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            words = (made.stderr or made.stdout).strip().splitlines()
            reason = words[-1] if words else "no reason given"
            raise PeerMissing(f"{peer} could not be installed in {home}: {reason}")
    (home / "ready").touch()


def cache_folder() -> Path:
    """Directory of the environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "counterpoise" / "peers"


def find_python(peer: str, versions: Sequence[Version]) -> tuple[Version, str]:
    """The first of `versions` that is installed, and its interpreter.

    Raises
    ------
    PeerMissing
        If none of them is.
    """
    for version in versions:
        for candidate in _candidates(version):
            if _version(candidate) == version:
                return version, candidate
    requested = ", ".join(f"{major}.{minor}" for major, minor in versions)
    raise PeerMissing(
        f"{peer} needs one of Python {requested}; none was found on PATH or under pyenv"
    )


def _candidates(version: Version) -> Iterator[str]:
    name = f"{version[0]}.{version[1]}"
    if sys.version_info[:2] == version:
        yield sys.executable
    on_path = shutil.which(f"python{name}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for found in sorted(pyenv.glob(f"versions/{name}.*/bin/python"), reverse=True):
        yield str(found)


def _version(python: str) -> Version | None:
    # PATH also has pyenv shims of inactive releases; only running them shows which work.
    ask = "import sys; print(*sys.version_info[:2])"
    try:
        reported = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        major, minor = reported.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError):
        return None
