"""The messages of KEDA's external scaler, built from their field numbers when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from balancer.autoscaling.errors import AutoscalingError

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

# Field, number, type; a type in capitals is a scalar, "map" holds strings by string, a list is
# repeated, and anything else is another message.
_MESSAGES: dict[str, tuple[tuple[str, int, str | list[str]], ...]] = {
    "ScaledObjectRef": (
        ("name", 1, "STRING"),
        ("namespace", 2, "STRING"),
        ("scalerMetadata", 3, "map"),
    ),
    "IsActiveResponse": (("result", 1, "BOOL"),),
    "MetricSpec": (
        ("metricName", 1, "STRING"),
        ("targetSize", 2, "INT64"),
        ("targetSizeFloat", 3, "DOUBLE"),
    ),
    "GetMetricSpecResponse": (("metricSpecs", 1, ["MetricSpec"]),),
    "GetMetricsRequest": (
        ("scaledObjectRef", 1, "ScaledObjectRef"),
        ("metricName", 2, "STRING"),
    ),
    "MetricValue": (
        ("metricName", 1, "STRING"),
        ("metricValue", 2, "INT64"),
        ("metricValueFloat", 3, "DOUBLE"),
    ),
    "GetMetricsResponse": (("metricValues", 1, ["MetricValue"]),),
}


@dataclass(frozen=True)
class Messages:
    """Classes of the messages by name."""

    classes: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.classes[name]


@cache
def messages() -> Messages:
    """Build the classes.

    Raises
    ------
    AutoscalingError
        If ``protobuf`` is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise AutoscalingError(
            "protobuf is not installed: pip install 'counterpoise[autoscaling]'"
        ) from None
    kinds: Any = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="externalscaler.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_OPTIONAL
            if isinstance(kind, list) or kind == "map":
                label = kinds.LABEL_REPEATED
            added = message.field.add(name=field, number=number, label=label)
            of = kind[0] if isinstance(kind, list) else kind
            if of == "map":
                entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
                entry.options.map_entry = True
                for at, part in enumerate(("key", "value"), start=1):
                    entry.field.add(
                        name=part,
                        number=at,
                        label=kinds.LABEL_OPTIONAL,
                        type=kinds.TYPE_STRING,
                    )
                of = f"{name}.{entry.name}"
            if of.isupper():
                added.type = getattr(kinds, f"TYPE_{of}")
            else:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{of}"
    # A pool of its own: an application may have these names from KEDA's file already.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return Messages(
        {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
            for name in _MESSAGES
        }
    )
