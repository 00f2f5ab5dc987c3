"""Redraws the README's picture: ``python -m balancer.report docs/images/before-after.svg``."""

from __future__ import annotations

import sys
from pathlib import Path

from balancer.engine import Balancer
from balancer.report import before_after_svg
from cluster_model.synthetic import synthetic_snapshot


def main(arguments: list[str]) -> int:
    """Balance a small synthetic cluster and write its picture to the given path."""
    if len(arguments) != 1 or not arguments[0].endswith(".svg"):
        print("usage: python -m balancer.report FILE.svg", file=sys.stderr)
        return 2
    snapshot = synthetic_snapshot(brokers=18, partitions=1800, racks=3, seed=4)
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before_after_svg(Balancer("default").propose(snapshot)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
