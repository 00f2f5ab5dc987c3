"""Turns a better placement into a plan: steps in a safe order, bounds, reasons, remedies."""
