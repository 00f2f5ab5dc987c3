"""Finds sources of metrics by name, built in or from other packages.

Another package adds its own as an entry point of the group ``counterpoise.sources``: a class
whose objects are iterated for reports (:class:`metrics_reporter.Source`), or have a method
``open`` that returns such an object. Options are the fields of a pydantic model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metrics_reporter.errors import ReporterError
from metrics_reporter.plugins import Plugins, fault_of

if TYPE_CHECKING:
    from metrics_reporter.sources import Source

SOURCES: Plugins[type[Any]] = Plugins(
    group="counterpoise.sources",
    noun="source",
    built_in={
        "prometheus": "metrics_reporter.prometheus:PrometheusOptions",
        "admin": "metrics_reporter.admin:AdminOptions",
        "host": "metrics_reporter.host:HostOptions",
    },
    accepts=lambda found: (
        isinstance(found, type)
        and any(callable(getattr(found, name, None)) for name in ("open", "__iter__"))
    ),
    expected="a class whose objects are iterated for reports",
    error=ReporterError,
)


@dataclass(frozen=True)
class Connection:
    """What a source is given to reach the measured cluster.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port``.
    properties
        Properties of a Kafka client, with secrets.
    timeout
        Seconds that a broker or an exporter has to answer.
    admin
        Returns a context manager of a function that runs another with a kafka-python admin client.
    """

    bootstrap: str
    properties: Mapping[str, str]
    timeout: float
    admin: Callable[[], AbstractContextManager[Callable[[Callable[[Any], Any]], Any]]]

    def __repr__(self) -> str:
        return f"Connection({self.bootstrap!r})"


def open_source(name: str, options: Mapping[str, Any], connection: Connection) -> Source:
    """The source of a name, with its options.

    Raises
    ------
    ReporterError
        For an unknown name or option, or a source that cannot be opened, in one sentence.
    """
    made = SOURCES.make(name, options)
    opens = getattr(made, "open", None)
    if opens is None:
        source: Source = made
        return source
    with fault_of(f"source {name} cannot be opened", ReporterError):
        source = opens(connection)
    if not isinstance(source, Iterable):
        raise ReporterError(
            f"source {name}: open() returned {source!r:.100}, an iterable of reports expected"
        )
    return source
