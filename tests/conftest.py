"""Set-up of all tests: settings, markers, sharing of processors, one Spark session."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says something of the machine, not of the code. Each run draws other
# examples, so that a quarter of the usual number will do and leaves time for other tests.
settings.register_profile("steady", deadline=None, max_examples=25)
settings.load_profile("steady")

# Workers of pytest-xdist have one: commands would wrap what tests read.
os.environ.pop("COLUMNS", None)
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "history" / "spark")

# Tests that share what takes long to start, by the first path that fits. Each group is run by
# one worker of pytest-xdist, and before the rest, which is spread by module.
GROUPS = {
    "tests/kafka/": "kafka",
    "tests/history/": "spark",
    "tests/backtest/test_backtest.py": "spark",
    "tests/backtest/test_advice.py": "spark",
}

# What a test needs follows from the fixtures that it uses, by itself or through others. A test
# that starts one of these in another process has the marker in its source.
MARKERS = {
    "start_kafka": "kafka",
    "kafka_cluster": "kafka",
    "spark": "spark",
    "browser": "browser",
}


def _group(nodeid: str) -> str | None:
    return next((GROUPS[path] for path in GROUPS if nodeid.startswith(path)), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give each group to one worker, in the order of `pytest_collection_modifyitems`.

    In place of marks and ``--dist loadgroup``, which pytest-xdist 3.8 ignores without a word
    beside pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need; among workers, groups come first, then modules that take long.

    These are the modules with the most tests marked as slow. Of what is left at the end, when
    another worker may have nothing to do, every module is short.
    """
    for item in items:
        for fixture in MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKERS[fixture])
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = [*dict.fromkeys(GROUPS.values()), None]
        slow = Counter(item.path for item in items if _takes_long(item))
        items.sort(key=lambda item: (order.index(_group(item.nodeid)), -slow[item.path]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let tests with a real Kafka, most of which wait for something to happen, go before others."""
    if "PYTEST_XDIST_WORKER" in os.environ and _group(item.nodeid) != "kafka" and not os.nice(0):
        os.nice(10)


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "spark", "browser"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Share one session among all tests: starting one takes longer than most tests.

    It lives long enough for Java's second compiler to pay, which processes of their own do without
    (history/spark/spark-defaults.conf).
    """
    from cluster_model.history.session import spark_session

    options = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=320m"
    found = spark_session("local[2]", delta=True, config={"spark.driver.extraJavaOptions": options})
    yield found
    found.stop()
