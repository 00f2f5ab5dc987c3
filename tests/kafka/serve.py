"""A real Kafka to try things on, until Ctrl-C: what ``make kafka`` runs."""

from __future__ import annotations

import os
import signal
import sys
import threading

from real_kafka import KafkaCluster, RealKafkaError
from sample import KEPT, METRICS_TOPIC, sample

_FIRST_PORT = "9092"


def main() -> int:
    """Run three brokers until a signal; returns the exit code."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        given = os.environ.get("PORT") or _FIRST_PORT
        if not given.isdecimal():
            raise RealKafkaError(f"PORT: {given!r} found, a number such as 19092 expected")
        kafka = KafkaCluster(brokers=3, exporter=True, properties=KEPT, first_port=int(given))
        print(f"starting three brokers; their logs are in {kafka.directory}", flush=True)
        with kafka, sample(kafka) as capacities:
            print(f"bootstrap servers: {kafka.bootstrap}")
            for broker, rack in enumerate(kafka.racks):
                print(f"broker {broker} ({rack}) measured at {kafka.exporters[broker]}")
            print(f"topics orders, payments and clicks are filled; loads are in {METRICS_TOPIC}")
            server = f"--bootstrap-server {kafka.bootstrap.partition(',')[0]}"
            print(f"what is where:  counterpoise load {server}")
            print(f"what to move:   counterpoise propose {server}")
            print("with measured loads, once a window of five minutes is complete:")
            print(
                f"  counterpoise propose {server} --capacity {capacities} "
                f"--metrics-topic {METRICS_TOPIC}"
            )
            print("Ctrl-C ends them and removes their data", flush=True)
            while not stop.wait(0.5):
                ended = kafka.ended()
                if ended:
                    raise RealKafkaError(f"broker {ended[0]} ended:\n{kafka.tail(ended[0])}")
    except RealKafkaError as error:
        print(f"make kafka: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
