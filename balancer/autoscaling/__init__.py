"""Decides how many nodes or consumers carry a load, and which partitions each consumer reads."""
