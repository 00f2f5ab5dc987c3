"""Scores candidate actions and uses them to search for a better placement."""
