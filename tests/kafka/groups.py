"""Which tests with a real Kafka run on which of its clusters."""

from __future__ import annotations

# Each group is run by one worker, on a cluster of its own, and all may run at the same time. In
# the order in which its modules run.
GROUPS = {
    # These own four brokers and change all that is there: topics, brokers, the vote. The first
    # one needs brokers that have just been started.
    "kafka-owned": (
        "test_kafka_sources.py",
        "test_kafka_compose.py",
        "test_kafka_controller.py",
        "test_kafka_dead_ends.py",
        "test_kafka_docs.py",
        "test_kafka_loop.py",
        "test_kafka_page.py",
        "test_kafka_propose.py",
        "test_kafka_server.py",
        "test_kafka_unattended.py",
    ),
    # So do these, with three brokers.
    "kafka-voted": ("test_kafka_fencing.py", "test_kafka_uncancelled.py"),
}


def group(module: str) -> str:
    """Name of the group of tests that a module of this folder, such as "test_x.py", belongs to.

    In the group "kafka" each test has topics and groups of its own.
    """
    return next((name for name, modules in GROUPS.items() if module in modules), "kafka")


def place(module: str) -> int:
    """Where a module runs in its group."""
    modules = GROUPS.get(group(module), ())
    return modules.index(module) if module in modules else 0
