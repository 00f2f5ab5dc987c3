"""The process from which Spark forks Python workers, with what each of them would import."""

import sys
from pathlib import Path

from pyspark.daemon import manager

sys.path.append(str(Path(__file__).parents[3]))

import balancer.backtest.spark  # noqa: F401
import cluster_model.history.columns  # noqa: F401

if __name__ == "__main__":
    manager()
