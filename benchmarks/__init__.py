"""Measures Counterpoise and compares it with its peers: one module per benchmark."""
