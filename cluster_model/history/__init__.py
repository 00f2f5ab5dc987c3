"""Turns months of metrics into model inputs, with Spark."""

from cluster_model.history.errors import MissingSparkError

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise MissingSparkError(
        f"{error.name} is not installed: pip install 'counterpoise[spark]'"
    ) from None
