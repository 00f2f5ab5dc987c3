"""The process from which Spark forks Python workers, with what each of them would import."""

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
