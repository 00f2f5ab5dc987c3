"""The one place that imports a Kafka client, and only when one is needed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from metrics_reporter.errors import ReporterError

# How long a broker may take to answer before a person is told, in seconds.
PATIENCE = 30.0


def kafka() -> ModuleType:
    """The module ``confluent_kafka``.

    Raises
    ------
    ReporterError
        Where it is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise ReporterError(
            "confluent_kafka is not installed: pip install 'counterpoise[kafka]'"
        ) from None
    return confluent_kafka


def create(kind: str, properties: dict[str, Any]) -> Any:
    """A ``Producer`` or ``Consumer`` with these client properties.

    Raises
    ------
    ReporterError
        For properties the client refuses.
    """
    module = kafka()
    try:
        return getattr(module, kind)(properties)
    except (module.KafkaException, TypeError, ValueError) as error:
        raise ReporterError(f"Kafka {kind.lower()} properties: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """What a client's exception says, without its wrapping."""
    inner = error.args[0] if error.args else error
    text = getattr(inner, "str", None)
    return str(text()) if callable(text) else str(inner)
