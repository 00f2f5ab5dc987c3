"""Errors of reporting to the metrics topic and reading from it."""

from __future__ import annotations


class ReporterError(ValueError):
    """An unusable input or service: what, where, the value found, what was expected."""


class MalformedRecordError(ReporterError):
    """Bytes that are not a metrics record."""
