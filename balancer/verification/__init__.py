"""Checks plans independently: shares no code with search and planning."""
