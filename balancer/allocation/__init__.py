"""Allocates units with one copy each to nodes under a budget (seed 001, Section 4.3.1)."""
