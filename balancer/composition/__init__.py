"""Assembles the parts for the command line and for a server."""
