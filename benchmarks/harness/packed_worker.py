"""A packed consumer that writes down when it is ready, and which partitions it reads since when.

python -m benchmarks.harness.packed_worker BOOTSTRAP GROUP TOPIC DECISIONS FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from balancer.autoscaling.packed import PackedSettings, packed_consumer


def main() -> None:
    """Read until SIGTERM."""
    bootstrap, group, topic, decisions, folder = sys.argv[1:]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    name = os.environ["COUNTERPOISE_CONSUMER"]
    settings = PackedSettings(decisions_topic=decisions)
    with (
        (Path(folder) / name).open("w", buffering=1, encoding="utf-8") as log,
        packed_consumer(
            [topic], group=group, name=name, bootstrap_servers=bootstrap, settings=settings
        ) as consumer,
    ):
        log.write(f"{time.time()} ready\n")
        read: set[int] = set()
        while not stopped:
            batch = consumer.poll(timeout_ms=50)
            now = {tp.partition for tp in consumer.assignment()}
            if now != read:
                read = now
                log.write(f"{time.time()} {' '.join(map(str, sorted(read)))}\n")
            if batch:
                consumer.commit()


if __name__ == "__main__":
    main()
