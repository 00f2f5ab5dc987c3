"""What brokers measure, on its way to a topic and back: records, wire format, sources."""

from metrics_reporter.consumer import RecordReader, read_records
from metrics_reporter.errors import MalformedRecordError, ReporterError
from metrics_reporter.mock import mock_cluster
from metrics_reporter.records import BYTES_IN, BYTES_OUT, CPU, SIZE, Record
from metrics_reporter.reporter import Reporter
from metrics_reporter.sources import SimulatedSource, Source
from metrics_reporter.wire import decode, decode_all, encode

__all__ = [
    "BYTES_IN",
    "BYTES_OUT",
    "CPU",
    "SIZE",
    "MalformedRecordError",
    "Record",
    "RecordReader",
    "Reporter",
    "ReporterError",
    "SimulatedSource",
    "Source",
    "decode",
    "decode_all",
    "encode",
    "mock_cluster",
    "read_records",
]
