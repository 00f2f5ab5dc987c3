"""Scores candidate actions, and searches for a better placement with them."""
