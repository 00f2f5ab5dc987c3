"""Writes the address of a server as people and clients read it."""

from __future__ import annotations


def host_and_port(host: str, port: int) -> str:
    """``HOST:PORT``, with the brackets that an IPv6 address needs.

    Examples
    --------
    >>> host_and_port("127.0.0.1", 9464), host_and_port("::1", 80)
    ('127.0.0.1:9464', '[::1]:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
