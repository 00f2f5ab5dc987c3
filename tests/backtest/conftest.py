"""The one Spark session of all tests of the history."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cluster_model.history.session import spark_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session that is there already, or one alike; it ends with the process."""
    return SparkSession.getActiveSession() or spark_session(
        "local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "4",
            "spark.log.level": "ERROR",
        },
    )
