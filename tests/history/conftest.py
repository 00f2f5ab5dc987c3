"""One Spark session for all tests of the history: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cluster_model.history.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two threads on this machine, and few partitions, as tests have little data."""
    found = spark_session(
        "local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "4",
            "spark.default.parallelism": "4",
            "spark.log.level": "ERROR",
        },
    )
    yield found
    found.stop()
