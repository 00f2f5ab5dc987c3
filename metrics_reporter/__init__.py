"""Measures brokers and moves the records through a Kafka topic: schema, wire format, sources."""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from metrics_reporter.batch import RecordBatch, decode_batch
    from metrics_reporter.consumer import RecordReader, read_records
    from metrics_reporter.errors import MalformedRecordError, ReporterError
    from metrics_reporter.foreign import Format, decode_any, format_of
    from metrics_reporter.metrics import BROKER_METRICS, BYTES_IN, BYTES_OUT, CPU, CPU_RATIO, SIZE
    from metrics_reporter.mock import mock_cluster
    from metrics_reporter.records import Record
    from metrics_reporter.reporter import Reporter
    from metrics_reporter.sources import SimulatedSource, Source
    from metrics_reporter.wire import decode, decode_all, encode
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "metrics_reporter.batch": ("RecordBatch", "decode_batch"),
            "metrics_reporter.consumer": ("RecordReader", "read_records"),
            "metrics_reporter.errors": ("MalformedRecordError", "ReporterError"),
            "metrics_reporter.foreign": ("Format", "decode_any", "format_of"),
            "metrics_reporter.metrics": (
                "BROKER_METRICS",
                "BYTES_IN",
                "BYTES_OUT",
                "CPU",
                "CPU_RATIO",
                "SIZE",
            ),
            "metrics_reporter.mock": ("mock_cluster",),
            "metrics_reporter.records": ("Record",),
            "metrics_reporter.reporter": ("Reporter",),
            "metrics_reporter.sources": ("SimulatedSource", "Source"),
            "metrics_reporter.wire": ("decode", "decode_all", "encode"),
        },
    )

__all__ = [
    "BROKER_METRICS",
    "BYTES_IN",
    "BYTES_OUT",
    "CPU",
    "CPU_RATIO",
    "SIZE",
    "Format",
    "MalformedRecordError",
    "Record",
    "RecordBatch",
    "RecordReader",
    "Reporter",
    "ReporterError",
    "SimulatedSource",
    "Source",
    "decode",
    "decode_all",
    "decode_any",
    "decode_batch",
    "encode",
    "format_of",
    "mock_cluster",
    "read_records",
]
