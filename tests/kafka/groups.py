"""Which tests with a real Kafka own the whole cluster that they run on."""

from __future__ import annotations

# These are run one after another on a cluster of their own, and change all that is there: topics,
# brokers, the vote. On the cluster of the other modules each test has topics and groups of its own.
# The two groups may run at the same time. In the order in which they run: the first one needs
# brokers that have just been started.
OWNED = (
    "test_kafka_sources.py",
    "test_kafka_compose.py",
    "test_kafka_controller.py",
    "test_kafka_dead_ends.py",
    "test_kafka_docs.py",
    "test_kafka_fencing.py",
    "test_kafka_loop.py",
    "test_kafka_page.py",
    "test_kafka_propose.py",
    "test_kafka_server.py",
    "test_kafka_unattended.py",
)


def group(module: str) -> str:
    """Name of the group of tests that a module of this folder, such as "test_x.py", belongs to."""
    return "kafka-owned" if module in OWNED else "kafka"


def place(module: str) -> int:
    """Where a module runs in its group."""
    return OWNED.index(module) if module in OWNED else 0
