"""Decides how many nodes carry a load."""
