"""Puts parts together for the command line and for a server."""
