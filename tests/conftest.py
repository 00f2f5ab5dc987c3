"""What holds for all tests, and the one Spark session of those that need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says something of the machine, not of the code.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two threads, few partitions and a JVM in a hurry, as tests have little data.

    Starting a session takes longer than most tests, so there is one for all of them.
    """
    from cluster_model.history.session import spark_session

    found = spark_session(
        "local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "4",
            "spark.default.parallelism": "4",
        },
    )
    yield found
    found.stop()
