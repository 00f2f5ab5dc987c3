"""Draws the page's view of a skewed cluster: ``python tests/server/page_picture.py page.png``."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from chromium import tab
from server_cases import served

from cluster_model import synthetic_snapshot


def draw(target: Path) -> None:
    """Write the view Now of a cluster of 40 brokers, one of them dead, as PNG."""
    snapshot = synthetic_snapshot(
        brokers=40, partitions=1200, racks=4, topics=12, dead_brokers=1, disks_per_broker=2
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with (
            served(directory, snapshot=snapshot, run=False) as found,
            tab(directory / "profile") as page,
        ):
            size = {"width": 1000, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            page.send("Emulation.setDeviceMetricsOverride", **size)
            page.send("Emulation.setScrollbarsHidden", hidden=True)
            page.open(f"{found.server.url}/")
            picture = page.send("Page.captureScreenshot", format="png")["data"]
    target.write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
