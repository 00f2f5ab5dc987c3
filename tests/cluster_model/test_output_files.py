"""Writing over existing files: modes, links, pipes, devices, full disks."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from cluster_model.files import write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def save(path: Path, data: bytes = b"new") -> None:
    write_atomically(path, lambda f: f.write(data))


def test_a_new_file_is_its_owners_only(tmp_path: Path) -> None:
    save(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o600


@pytest.mark.parametrize("bits", [0o644, 0o600, 0o664])
def test_a_file_that_exists_keeps_its_mode(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(bits)
    save(path)
    assert (path.read_bytes(), mode(path)) == (b"new", bits)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link, dangling = (tmp_path / n for n in ("elsewhere/t", "link", "dangling"))
    target.write_bytes(b"old")
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "elsewhere/new")
    save(link)
    save(dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_bytes() == (tmp_path / "elsewhere/new").read_bytes() == b"new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    save(pipe)
    reader.join(20)
    assert found == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_to(tmp_path: Path) -> None:
    save(Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fill(file: object) -> None:
        with open("/dev/full", "wb") as full:
            full.write(b"x" * 100_000)

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, fill)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", [".", "missing/a"])
def test_what_cannot_be_written_raises_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on the name
        save(tmp_path / name)
    assert os.listdir(tmp_path) == []
