"""What can go wrong on the way from a broker to the metrics topic and back."""

from __future__ import annotations


class ReporterError(ValueError):
    """Input or a service that cannot be used: what, where, the value found, what was expected."""


class MalformedRecordError(ReporterError):
    """Bytes that are not a metrics record."""
