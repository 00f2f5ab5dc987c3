"""A gRPC server that KEDA asks how many consumers a group needs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.keda.hpa import metric_value
from balancer.autoscaling.keda.messages import SERVICE, Messages, messages
from metrics_reporter.addresses import host_and_port
from metrics_reporter.documents import shown
from metrics_reporter.tls import Tls

# Name of the only metric. Its target is 1 per pod, so its value is a number of pods.
METRIC = "counterpoise-consumers"
# Key of a trigger's metadata that names the consumer group.
GROUP = "group"
# Seconds that closing waits for calls in progress.
_GRACE = 1.0


@dataclass(frozen=True)
class _Sizing:
    """How many consumers a group is to have, how many run, and when it was decided."""

    consumers: int
    current: int | None
    maximum: int | None
    at: float

    def __post_init__(self) -> None:
        if self.consumers < 0 or (self.current is not None and self.current < 0):
            raise AutoscalingError(
                f"{min(self.consumers, self.current or 0)} consumers found, at least 0 expected"
            )


@dataclass(frozen=True)
class KedaSettings:
    """Tunable numbers of the server.

    Parameters
    ----------
    stale_seconds
        Age from which a decision is not passed on: KEDA gets an error and keeps to its fallback.
    stale_intervals
        The same in intervals between decisions, if that is more.
    tolerance
        Share of a change that the HorizontalPodAutoscaler ignores.
    calls
        Served at once, streams included; further ones are refused.
    start_seconds
        Until the server must listen.
    """

    stale_seconds: float = 120.0
    stale_intervals: int = 3
    tolerance: float = 0.1
    calls: int = 1000
    start_seconds: float = 10.0


class KedaScaler:
    """Serves KEDA's external scaler from its own thread until closed.

    Only the last decision of a group is passed on: a call never waits for Kafka. Without a
    decision, or with one that is too old, KEDA gets an error rather than a guess when it asks for
    the metric or whether there is need. What the metric is called never changes, and is always
    told: without it KEDA would not apply its fallback.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one.
    settings
        Tunable numbers.
    tls
        Certificates; plain text without.
    clock
        Seconds that never go back.

    Attributes
    ----------
    address : str
        The actual ``host:port``.

    Raises
    ------
    AutoscalingError
        If the address cannot be listened on, a certificate cannot be used, or ``grpcio`` is not
        installed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        settings: KedaSettings | None = None,
        tls: Tls | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grpc = _grpc()
        self._messages: Messages = messages()
        self._settings = settings or KedaSettings()
        self._clock = clock
        self._sizings: dict[str, _Sizing] = {}
        # One per open stream, so that none misses a change.
        self._changes: set[asyncio.Event] = set()
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, tls, started), name="keda", daemon=True
        )
        self._thread.start()
        bound = started.result(self._settings.start_seconds)
        self.address = host_and_port(host, bound)

    def publish(
        self,
        group: str,
        consumers: int,
        current: int | None = None,
        maximum: int | None = None,
    ) -> None:
        """Pass on a decision from now on; streams hear of it at once.

        Parameters
        ----------
        group
            The consumer group.
        consumers
            How many it is to have; 0 lets KEDA scale to its idle number.
        current
            Consumers that run; None if unknown.
        maximum
            Never asked for more, whatever the HorizontalPodAutoscaler ignores; None for no bound.
        """
        sizing = _Sizing(consumers, current, maximum, self._clock())

        def change() -> None:
            self._sizings[group] = sizing
            for event in self._changes:
                event.set()

        self._loop.call_soon_threadsafe(change)

    def close(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def __enter__(self) -> KedaScaler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, host: str, port: int, tls: Tls | None, started: Future[int]) -> None:
        try:
            asyncio.run(self._serve(host, port, tls, started))
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, host: str, port: int, tls: Tls | None, started: Future[int]) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        # Another server on the same port would answer half of the calls.
        server = self._grpc.aio.server(
            options=[("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=self._settings.calls
        )
        server.add_generic_rpc_handlers((self._handlers(),))
        address = host_and_port(host, port)
        credentials = None if tls is None else _credentials(self._grpc, tls)
        try:
            bound = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise AutoscalingError(
                f"cannot listen on {address}: the address is in use or not this machine's"
                + ("" if tls is None else f", or {tls.certificate} and {tls.key} do not match")
            )
        await server.start()
        started.set_result(bound)
        await self._closing.wait()
        await server.stop(_GRACE)

    def _handlers(self) -> Any:
        g, m = self._grpc, self._messages
        reference = m["ScaledObjectRef"]

        def unary(call: Callable[..., Coroutine[Any, Any, Any]], request: Any, answer: Any) -> Any:
            return g.unary_unary_rpc_method_handler(
                call,
                request_deserializer=request.FromString,
                response_serializer=answer.SerializeToString,
            )

        def stream(call: Callable[..., AsyncIterator[Any]], answer: Any) -> Any:
            return g.unary_stream_rpc_method_handler(
                call,
                request_deserializer=reference.FromString,
                response_serializer=answer.SerializeToString,
            )

        active, spec = m["IsActiveResponse"], m["GetMetricSpecResponse"]
        return g.method_handlers_generic_handler(
            SERVICE,
            {
                "IsActive": unary(self._is_active, reference, active),
                "StreamIsActive": stream(self._stream_is_active, active),
                "GetMetricSpec": unary(self._metric_spec, reference, spec),
                "StreamMetricSpec": stream(self._stream_metric_spec, spec),
                "GetMetrics": unary(self._metrics, m["GetMetricsRequest"], m["GetMetricsResponse"]),
            },
        )

    async def _is_active(self, request: Any, context: Any) -> Any:
        sizing = await self._sizing(request, context)
        return self._messages["IsActiveResponse"](result=sizing.consumers > 0)

    async def _metric_spec(self, request: Any, context: Any) -> Any:
        return self._spec()

    async def _metrics(self, request: Any, context: Any) -> Any:
        if request.metricName not in ("", METRIC):
            await context.abort(
                self._grpc.StatusCode.NOT_FOUND,
                f"metric {shown(request.metricName)} found, {METRIC} expected",
            )
        sizing = await self._sizing(request.scaledObjectRef, context)
        value = metric_value(
            sizing.consumers, sizing.current, self._settings.tolerance, sizing.maximum
        )
        found = self._messages["MetricValue"](
            metricName=METRIC, metricValue=value, metricValueFloat=float(value)
        )
        return self._messages["GetMetricsResponse"](metricValues=[found])

    async def _stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        changed, sent = asyncio.Event(), None
        self._changes.add(changed)
        try:
            while True:
                changed.clear()
                sizing = self._sizings.get(await self._group(request, context, known=False))
                active = None if sizing is None or self._stale(sizing) else sizing.consumers > 0
                if active is not None and active != sent:
                    sent = active
                    yield self._messages["IsActiveResponse"](result=active)
                await changed.wait()
        finally:
            self._changes.discard(changed)

    async def _stream_metric_spec(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield self._spec()
        # The target is the same for ever; KEDA would ask again if the stream ended.
        await asyncio.Event().wait()

    def _spec(self) -> Any:
        spec = self._messages["MetricSpec"](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return self._messages["GetMetricSpecResponse"](metricSpecs=[spec])

    async def _sizing(self, reference: Any, context: Any) -> _Sizing:
        group = await self._group(reference, context)
        sizing = self._sizings[group]
        if self._stale(sizing):
            await context.abort(
                self._grpc.StatusCode.UNAVAILABLE,
                f"group {shown(group)}: decided {self._clock() - sizing.at:.0f} s ago, at most "
                f"{self._settings.stale_seconds:g} s expected",
            )
        return sizing

    def _stale(self, sizing: _Sizing) -> bool:
        return self._clock() - sizing.at > self._settings.stale_seconds

    async def _group(self, reference: Any, context: Any, known: bool = True) -> str:
        """The group that a trigger names; the only one if it names none."""
        code = self._grpc.StatusCode
        named = str(reference.scalerMetadata.get(GROUP, ""))
        if not self._sizings and known:
            await context.abort(code.UNAVAILABLE, "no decision yet")
        if not named:
            if len(self._sizings) > 1:
                await context.abort(
                    code.INVALID_ARGUMENT,
                    f"metadata: no {GROUP} found, one of {self._known()} expected",
                )
            named = next(iter(self._sizings), "")
        elif named not in self._sizings and known:
            await context.abort(
                code.NOT_FOUND,
                f"metadata: {GROUP} {shown(named)} found, one of {self._known()} expected",
            )
        return named

    def _known(self) -> str:
        return ", ".join(sorted(self._sizings))


def _grpc() -> ModuleType:
    try:
        import grpc
        import grpc.aio
    except ImportError:
        raise AutoscalingError(
            "grpcio is not installed: pip install 'counterpoise[autoscaling]'"
        ) from None
    module: ModuleType = grpc
    return module


def _credentials(grpc: Any, tls: Tls) -> Any:
    def read(path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise AutoscalingError(f"{path} cannot be read: {error.strerror or error}") from None

    authority = None if tls.client_ca is None else read(tls.client_ca)
    return grpc.ssl_server_credentials(
        [(read(tls.key), read(tls.certificate))],
        root_certificates=authority,
        require_client_auth=authority is not None,
    )
