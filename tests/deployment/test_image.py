"""The container image is built from its Dockerfile, and its command runs without rights."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import IMAGE, Images

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with tempfile.TemporaryDirectory(prefix="counterpoise-") as folder:
        found = Images(Path(folder))
        found.make_base()
        found.build()
        yield found


def test_the_image_runs_the_command_as_a_user_without_rights(images: Images) -> None:
    config = json.loads(images.buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    assert config["User"] == "10001"
    assert config["Entrypoint"] == ["counterpoise"]
    assert list(config["Volumes"]) == [config["WorkingDir"]] == ["/var/lib/counterpoise"]
    assert list(config["ExposedPorts"]) == ["9464/tcp"]

    with images.container() as name:

        def run(command: str) -> str:
            return images.buildah("run", "--user", config["User"], name, "--", "sh", "-c", command)

        assert run("id -u; id -g").split() == ["10001", "10001"]
        assert "--listen" in run("counterpoise run --help")
        assert "prometheus" in run("counterpoise sources list")
        # the server's packages are there
        assert json.loads(run("counterpoise server openapi"))["openapi"].startswith("3.")
        assert "admin" in run("counterpoise server hash-password --help; counterpoise sources list")
        # it may write where its state is kept, and nowhere else
        written = "touch {0}/x 2>/dev/null && echo {0}"
        folders = ("/opt/counterpoise", "/usr", "/etc", "/var/lib/counterpoise")
        found = run("; ".join(written.format(folder) for folder in folders) + "; true")
        assert found.split() == ["/var/lib/counterpoise"]
        # the whole path once, on an invented cluster
        plan = run(
            "cd /tmp && counterpoise snapshot synthetic -o c.json && counterpoise propose c.json"
        )
        assert "replica" in plan
