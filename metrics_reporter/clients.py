"""The only place that imports a Kafka client, and only when one is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from metrics_reporter.documents import shown
from metrics_reporter.errors import ReporterError

# How long a broker may take to answer before it is reported, in seconds.
ANSWER_TIMEOUT = 30.0

# A consumer whose reader manages its positions: nothing is committed automatically.
MANUAL_POSITIONS = {"enable.auto.commit": False, "enable.auto.offset.store": False}


def kafka() -> ModuleType:
    """Import ``confluent_kafka``.

    Raises
    ------
    ReporterError
        If it is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise ReporterError(
            "confluent_kafka is not installed: pip install 'counterpoise[kafka]'"
        ) from None
    return confluent_kafka


def servers(given: str | Sequence[str]) -> list[str]:
    """Addresses of brokers, from a list or comma-separated text.

    Raises
    ------
    ReporterError
        For an address without a host, or with an impossible port.

    Examples
    --------
    >>> servers("kafka-1:9092, kafka-2:9092"), servers(["[::1]:9092"])
    (['kafka-1:9092', 'kafka-2:9092'], ['[::1]:9092'])
    """
    parts = given.split(",") if isinstance(given, str) else given
    found = [part.strip() for part in parts if part.strip()]
    if not found:
        raise ReporterError("bootstrap servers: none found, host:port expected")
    for server in found:
        host, colon, port = server.rpartition(":")
        # An IPv6 address without a port ends like one with a port.
        if not colon or server.endswith("]"):
            continue
        if not host or re.fullmatch(r"[0-9]{1,5}", port) is None or not 0 < int(port) < 2**16:
            raise ReporterError(
                f"bootstrap servers: {shown(server)} found, host:port expected, with a port from "
                "1 to 65535"
            )
    return found


def create(kind: str, properties: dict[str, Any]) -> Any:
    """A ``Producer`` or ``Consumer`` with these client properties.

    Raises
    ------
    ReporterError
        For properties that the client rejects, and for impossible addresses.
    """
    module = kafka()
    if (given := properties.get("bootstrap.servers")) is not None:
        servers(given)
    try:
        return getattr(module, kind)(properties)
    except (module.KafkaException, TypeError, ValueError) as error:
        raise ReporterError(f"Kafka {kind.lower()} properties: {reason(error)}") from None


def passing(error: Any) -> bool:
    """Whether time may mend a client's error: brokers are away, or do not lead yet.

    Parameters
    ----------
    error
        A ``KafkaError``.
    """
    codes = kafka().KafkaError
    return bool(error.retriable()) or error.code() in (
        codes._ALL_BROKERS_DOWN,
        codes._DESTROY_BROKER,
        codes._RESOLVE,
        codes._TIMED_OUT,
        codes._TIMED_OUT_QUEUE,
        codes._TRANSPORT,
        codes._WAIT_COORD,
        codes.BROKER_NOT_AVAILABLE,
        codes.CONCURRENT_TRANSACTIONS,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.FENCED_LEADER_EPOCH,
        codes.LEADER_NOT_AVAILABLE,
        codes.NETWORK_EXCEPTION,
        codes.NOT_COORDINATOR,
        codes.NOT_LEADER_FOR_PARTITION,
        codes.OFFSET_NOT_AVAILABLE,
        codes.REQUEST_TIMED_OUT,
        codes.UNKNOWN_LEADER_EPOCH,
    )


def denied(error: Any) -> bool:
    """Whether a client's error says that the user has no right to what was asked for.

    Parameters
    ----------
    error
        A ``KafkaError``.
    """
    codes = kafka().KafkaError
    return error.code() in (
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.GROUP_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
    )


def refusal(error: Any, right: str) -> str:
    """The message of a client's error; if a right is missing, with that right.

    Parameters
    ----------
    error
        A ``KafkaError``.
    right
        What the request needs, such as ``"WRITE on topic orders"``.
    """
    text = str(error.str())
    return f"{text}; give the client's user the right to {right}" if denied(error) else text


def reason(error: BaseException) -> str:
    """The message of a client's exception, without its wrapping."""
    inner = error.args[0] if error.args else error
    text = getattr(inner, "str", None)
    return str(text()) if callable(text) else str(inner)
