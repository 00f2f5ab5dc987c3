"""A real Kafka to try things on, until Ctrl-C: what ``make kafka`` runs."""

from __future__ import annotations

import signal
import sys
import threading

from real_kafka import KafkaCluster, RealKafkaError


def main() -> int:
    """Run three brokers until a signal; returns the exit code."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        kafka = KafkaCluster(brokers=3, exporter=True)
        print(f"starting three brokers; their logs are in {kafka.directory}", flush=True)
        with kafka:
            print(f"bootstrap servers: {kafka.bootstrap}")
            for broker, rack in enumerate(kafka.racks):
                print(f"broker {broker} ({rack}) measured at {kafka.exporters[broker]}")
            print("Ctrl-C ends them and removes their data", flush=True)
            while not stop.wait(0.5):
                ended = kafka.ended()
                if ended:
                    raise RealKafkaError(f"broker {ended[0]} ended; see {kafka.log(ended[0])}")
    except RealKafkaError as error:
        print(f"make kafka: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
