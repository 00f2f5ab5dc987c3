"""Finds sources of metrics by name, built in or from other packages.

Another package adds its own as an entry point of the group ``counterpoise.sources``: a class
whose objects are iterated for reports (:class:`metrics_reporter.Source`). Options are the
fields of a pydantic model.
"""

from __future__ import annotations

from typing import Any

from metrics_reporter.errors import ReporterError
from metrics_reporter.plugins import Plugins

SOURCES: Plugins[type[Any]] = Plugins(
    group="counterpoise.sources",
    noun="source",
    built_in={
        "prometheus": "metrics_reporter.prometheus:PrometheusSource",
        "admin": "metrics_reporter.admin:AdminSource",
        "host": "metrics_reporter.host:HostSource",
    },
    accepts=lambda found: isinstance(found, type) and callable(getattr(found, "__iter__", None)),
    expected="a class whose objects are iterated for reports",
    error=ReporterError,
)
