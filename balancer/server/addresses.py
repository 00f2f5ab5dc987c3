"""Addresses of clients: which network they are within, and which of them are one client's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_network(address: str) -> str:
    """Whom an address belongs to: with IPv6 a whole network, since one machine has all of it.

    Examples
    --------
    >>> client_network("192.0.2.7"), client_network("::ffff:192.0.2.7")
    ('192.0.2.7', '192.0.2.7')
    >>> client_network("2001:db8:1:2:3::4"), client_network("a socket")
    ('2001:db8:1:2::/64', 'a socket')
    """
    found = _read(address)
    if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return address if found is None else str(found)


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether an address is in one of the networks.

    Examples
    --------
    >>> is_within("::ffff:10.0.0.5", ["10.0.0.0/8"]), is_within("11.0.0.5", ["10.0.0.0/8"])
    (True, False)
    """
    found = _read(address)
    return found is not None and any(found in ipaddress.ip_network(n) for n in networks)


def _read(address: str) -> Address | None:
    """An address; one of IPv4 that a socket for both writes as IPv6 is one of IPv4."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
