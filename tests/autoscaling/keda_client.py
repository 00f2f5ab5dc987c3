"""A gRPC client of KEDA's external scaler that writes and reads the wire format by hand.

It shares no code with the server, nor its descriptors: the numbers are those of KEDA's published
``externalscaler.proto``. What it makes of an answer is what KEDA and the Kubernetes autoscaler do.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from waiting import LIMIT

SERVICE = "/externalscaler.ExternalScaler/"
_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _LENGTH) + varint(len(content)) + content


def text(number: int, content: str) -> bytes:
    return block(number, content.encode())


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == _VARINT:
            value, at = read_varint(data, at)
            yield key >> 3, value
        elif key & 7 == _FIXED64:
            yield key >> 3, struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            assert key & 7 == _LENGTH
            size, at = read_varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size


def reference(name: str, namespace: str, metadata: Mapping[str, str]) -> bytes:
    """ScaledObjectRef: name = 1, namespace = 2, scalerMetadata = 3."""
    entries = (block(3, text(1, k) + text(2, v)) for k, v in metadata.items())
    return text(1, name) + text(2, namespace) + b"".join(entries)


class KedaClient:
    """What KEDA does with one trigger of a ScaledObject."""

    def __init__(self, channel: Any, metadata: Mapping[str, str]) -> None:
        self._channel = channel
        self._reference = reference("orders", "shop", metadata)

    def unary(self, method: str, request: bytes) -> bytes:
        answer = self._channel.unary_unary(SERVICE + method)(request, timeout=LIMIT)
        assert isinstance(answer, bytes)
        return answer

    def stream(self, method: str) -> Any:
        return self._channel.unary_stream(SERVICE + method)(self._reference, timeout=LIMIT)

    def active(self) -> bool:
        return 1 in dict(fields(self.unary("IsActive", self._reference))).values()

    def streamed_activity(self) -> tuple[Any, Iterator[bool]]:
        call = self.stream("StreamIsActive")
        return call, (dict(fields(answer)).get(1, 0) == 1 for answer in call)

    def specs(self) -> list[tuple[str, float]]:
        return self._specs(self.unary("GetMetricSpec", self._reference))

    def streamed_specs(self) -> tuple[Any, Iterator[list[tuple[str, float]]]]:
        call = self.stream("StreamMetricSpec")
        return call, (self._specs(answer) for answer in call)

    def _specs(self, answer: bytes) -> list[tuple[str, float]]:
        found = []
        for number, content in fields(answer):
            assert number == 1
            spec = dict(fields(content))
            # KEDA takes the deprecated whole number unless the other is above 0
            found.append((spec[1].decode(), spec[3] if spec.get(3, 0.0) > 0 else spec[2]))
        return found

    def metric(self, name: str) -> float:
        answer = self.unary("GetMetrics", block(1, self._reference) + text(2, name))
        ((number, content),) = fields(answer)
        assert number == 1
        value = dict(fields(content))
        assert value[1].decode() == name
        return float(value[3] if value.get(3, 0.0) > 0 else value.get(2, 0))


def pods(current: int, metric: float, target: float, tolerance: float = 0.1) -> int:
    """What a HorizontalPodAutoscaler runs for an external metric with a target of AverageValue."""
    if 1 - tolerance <= metric / (target * current) <= 1 + tolerance:
        return current
    return math.ceil(metric / target)
