"""Builds the container image from a bare Debian, without a registry of images."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docs" / "deployment" / "Dockerfile"
BASE, IMAGE = "localhost/debian:bookworm-slim", "localhost/counterpoise"


class Images:
    """Images in a folder of their own, made and run by buildah.

    Parameters
    ----------
    folder
        Where they are kept; nothing of the machine's other images is seen or changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def buildah(self, *words: str | Path) -> str:
        """What a command of buildah prints."""
        stored = ["--root", str(self._folder / "root"), "--runroot", str(self._folder / "run")]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            ["buildah", *stored, "--storage-driver", "vfs", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "BUILDAH_ISOLATION": "chroot", "REGISTRY_AUTH_FILE": "/dev/null"},
        )
        assert done.returncode == 0, f"buildah {words[0]}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout.strip()

    def make_base(self) -> None:
        """Make the image that the Dockerfile starts from: a Debian with nothing besides."""
        archive = self._folder / "debian.tar"
        command = ["mmdebstrap", "--variant=minbase", "--quiet", "bookworm", str(archive)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, archive, "/")
        self.buildah("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()

    def build(self) -> None:
        """Build the image as the Dockerfile says."""
        words: list[str | Path] = ["--network", "host", "--pull=never", "--quiet"]
        if authorities := os.environ.get("PIP_CERT"):
            # this machine reaches the package index through a proxy with an authority of its own
            settings = self._folder / "pip.conf"
            settings.write_text("[global]\ncert = /authorities.crt\n")
            words += ["--volume", f"{authorities}:/authorities.crt:ro"]
            words += ["--volume", f"{settings}:/etc/pip.conf:ro"]
        words += ["--build-arg", f"BASE={BASE}", "-f", DOCKERFILE, "-t", IMAGE, "."]
        self.buildah("build", *words)

    @contextmanager
    def container(self) -> Iterator[str]:
        """A container of the image."""
        name = self.buildah("from", "--pull=never", IMAGE)
        yield name
        self.buildah("rm", name)
