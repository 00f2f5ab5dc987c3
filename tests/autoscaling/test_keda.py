"""KEDA's external scaler answers a client made from its published field numbers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keda_client import KedaClient, pods

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.keda import KedaScaler, KedaSettings, metric_value
from balancer.autoscaling.keda.messages import messages
from metrics_reporter.tls import Tls

grpc = pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

METRIC = "counterpoise-consumers"


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[KedaScaler]:
    with KedaScaler("127.0.0.1", 0, clock=clock) as started:
        yield started


@pytest.fixture
def channel(server: KedaScaler) -> Iterator[Any]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


def refused(call: Any, code: str, sentence: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code().name == code
    assert re.fullmatch(sentence, caught.value.details()), caught.value.details()


def test_keda_runs_as_many_pods_as_were_decided(server: KedaScaler, channel: Any) -> None:
    keda = KedaClient(channel, {"scalerAddress": server.address, "group": "orders"})
    current = 1
    for decided in (1, 2, 5, 3, 9, 1, 40):
        server.publish("orders", decided, current)
        ((name, target),) = keda.specs()
        assert (name, target) == (METRIC, 1.0)
        assert keda.active()
        current = pods(current, keda.metric(name), target)
        assert current == decided


def test_a_group_without_need_is_not_active(server: KedaScaler, channel: Any) -> None:
    keda = KedaClient(channel, {"group": "orders"})
    server.publish("orders", 0)
    assert not keda.active()
    assert keda.metric(METRIC) == 0.0


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.1, 0.25])
def test_the_autoscaler_never_ignores_a_lack_of_pods(tolerance: float) -> None:
    for current in range(1, 130):
        for wanted in range(1, 140):
            value = metric_value(wanted, current, tolerance)
            runs = pods(current, value, 1.0, tolerance)
            assert runs >= wanted
            # beyond what is needed it runs at most what its tolerance makes necessary
            if wanted > current:
                assert runs == wanted or runs - 1 <= current * (1 + tolerance) + 1e-9
            # and then it rests
            if runs > wanted > current:
                assert pods(runs, metric_value(wanted, runs, tolerance), 1.0, tolerance) == runs


@pytest.mark.parametrize("maximum", [1, 11, 12, 13, 40])
def test_the_maximum_is_never_exceeded(server: KedaScaler, channel: Any, maximum: int) -> None:
    keda = KedaClient(channel, {"group": "orders"})
    for current in (None, *range(maximum + 3)):
        server.publish("orders", maximum, current, maximum)
        assert keda.metric(METRIC) == maximum
    for wanted in range(60):
        for current in range(60):
            assert metric_value(wanted, current, 0.1, maximum) <= maximum


def test_a_stream_does_not_tell_an_old_decision(
    server: KedaScaler, channel: Any, clock: Clock
) -> None:
    keda = KedaClient(channel, {"group": "orders"})
    server.publish("orders", 3)
    assert keda.active()
    clock.now = 500.0
    call, activity = keda.streamed_activity()
    # the server has the stream once its answers to later calls are there
    refused(keda.active, "UNAVAILABLE", ".* decided 500 s ago, .*")
    server.publish("orders", 0)
    assert next(activity) is False
    call.cancel()


def test_groups_are_told_apart(server: KedaScaler, channel: Any) -> None:
    server.publish("orders", 3)
    assert KedaClient(channel, {}).metric(METRIC) == 3.0
    server.publish("clicks", 7)
    assert KedaClient(channel, {"group": "clicks"}).metric(METRIC) == 7.0
    assert KedaClient(channel, {"group": "orders"}).metric(METRIC) == 3.0
    refused(
        KedaClient(channel, {}).active,
        "INVALID_ARGUMENT",
        "metadata: no group found, one of clicks, orders expected",
    )
    refused(
        KedaClient(channel, {"group": "payments"}).active,
        "NOT_FOUND",
        "metadata: group '?payments'? found, one of clicks, orders expected",
    )


def test_keda_gets_an_error_rather_than_a_guess(
    server: KedaScaler, channel: Any, clock: Clock
) -> None:
    keda = KedaClient(channel, {"group": "orders"})
    # KEDA applies its fallback only if it knows what the metric is called
    assert keda.specs() == [(METRIC, 1.0)]
    refused(keda.active, "UNAVAILABLE", "no decision yet")
    refused(lambda: keda.metric(METRIC), "UNAVAILABLE", "no decision yet")
    server.publish("orders", 3)
    refused(
        lambda: keda.metric("lag"),
        "NOT_FOUND",
        "metric '?lag'? found, counterpoise-consumers expected",
    )
    clock.now = 120.0
    assert keda.metric(METRIC) == 3.0
    clock.now = 121.0
    refused(
        lambda: keda.metric(METRIC),
        "UNAVAILABLE",
        "group '?orders'?: decided 121 s ago, at most 120 s expected",
    )
    refused(
        keda.active, "UNAVAILABLE", "group '?orders'?: decided 121 s ago, at most 120 s expected"
    )


def test_streams_tell_every_change_at_once(server: KedaScaler, channel: Any) -> None:
    keda = KedaClient(channel, {"group": "orders"})
    call, activity = keda.streamed_activity()
    for consumers, active in ((2, True), (0, False), (4, True)):
        server.publish("orders", consumers)
        assert next(activity) is active
        # the same state again is no news
        server.publish("orders", 2 * consumers)
    call.cancel()
    specs_call, specs = keda.streamed_specs()
    assert next(specs) == keda.specs()
    specs_call.cancel()


def test_streams_leave_room_for_calls_and_end_with_the_server(clock: Clock) -> None:
    with KedaScaler("127.0.0.1", 0, clock=clock) as server:
        server.publish("orders", 2)
        with grpc.insecure_channel(server.address) as channel:
            keda = KedaClient(channel, {"group": "orders"})
            streams = [keda.streamed_activity() for _ in range(50)]
            assert all(next(activity) for _, activity in streams)
            assert keda.metric(METRIC) == 2.0
            server.close()
            with pytest.raises(grpc.RpcError):
                next(streams[0][1])
    assert not [t for t in threading.enumerate() if t.name == "keda"]


def test_a_port_in_use_is_one_sentence(server: KedaScaler) -> None:
    host, _, port = server.address.rpartition(":")
    with pytest.raises(AutoscalingError, match=rf"cannot listen on {server.address}: .*in use"):
        KedaScaler(host, int(port))


def certificate(directory: Path) -> tuple[Path, Path]:
    key, pem = directory / "key.pem", directory / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += f" -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {key} -out {pem}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return key, pem


def test_tls_keeps_others_out(tmp_path: Path, clock: Clock) -> None:
    key, pem = certificate(tmp_path)
    with KedaScaler(
        "localhost", 0, tls=Tls(certificate=pem, key=key, client_ca=pem), clock=clock
    ) as server:
        server.publish("orders", 5)
        with_certificate = grpc.ssl_channel_credentials(
            pem.read_bytes(), key.read_bytes(), pem.read_bytes()
        )
        with grpc.secure_channel(server.address, with_certificate) as channel:
            assert KedaClient(channel, {}).metric(METRIC) == 5.0
        without = grpc.ssl_channel_credentials(pem.read_bytes())
        with grpc.secure_channel(server.address, without) as channel:
            keda = KedaClient(channel, {})
            with pytest.raises(grpc.RpcError) as caught:
                keda.active()
            assert caught.value.code().name == "UNAVAILABLE"


def test_a_certificate_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "certificate.pem"
    with pytest.raises(AutoscalingError, match=f"{missing} cannot be read: No such file"):
        KedaScaler("127.0.0.1", 0, tls=Tls(certificate=missing, key=missing))


@pytest.mark.parametrize("consumers", [-1, -40])
def test_negative_numbers_are_refused(server: KedaScaler, consumers: int) -> None:
    with pytest.raises(AutoscalingError, match=f"{consumers} consumers found, at least 0 expected"):
        server.publish("orders", consumers)
    with pytest.raises(AutoscalingError, match="pods found, at least 0 expected"):
        metric_value(consumers, None)
    with pytest.raises(AutoscalingError, match="tolerance"):
        metric_value(1, 1, float(consumers))


def test_messages_are_built_beside_those_of_an_application() -> None:
    """KEDA's own file may be loaded in the same process."""
    assert messages() is messages()
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool
other = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package="externalscaler")
other.message_type.add(name="ScaledObjectRef")
descriptor_pool.Default().Add(other)
from balancer.autoscaling.keda.messages import messages
assert messages()["ScaledObjectRef"](name="orders").name == "orders"
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_settings_have_the_defaults_that_the_guide_states() -> None:
    assert KedaSettings() == KedaSettings(120.0, 3, 0.1, 1000, 10.0)
