"""Converts a configuration of Cruise Control into files that Counterpoise reads."""
