"""The endpoint with slow or many clients, addresses, and secrets in messages."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack, closing

import pytest
from waiting import LIMIT

from balancer.controller import Endpoint, Redactor
from balancer.controller.endpoint import EndpointError, EndpointLimits, parse_address


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9464", "::1", "::1:9464", "a:b", ":65536", "[::1]", ":²"])
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(EndpointError, match="address to listen on: "):
        parse_address(text)


def test_ipv6_is_served() -> None:
    try:
        endpoint = Endpoint(*parse_address("[::1]:0"), lambda: "up 1\n", dict)
    except EndpointError as error:
        if "Address family" in str(error) or "Cannot assign" in str(error):
            pytest.skip("this machine has no IPv6")
        raise
    try:
        assert endpoint.address.startswith("[::1]:")
        assert read(endpoint.address) == "up 1\n"
    finally:
        endpoint.close()


def test_slow_clients_are_cut_off_and_hold_nobody_up() -> None:
    limits = EndpointLimits(connections=4, seconds=0.5)
    endpoint = Endpoint("127.0.0.1", 0, lambda: "up 1\n", dict, limits)
    host, _, port = endpoint.address.rpartition(":")
    try:
        slow = [socket.create_connection((host, int(port)), timeout=LIMIT) for _ in range(3)]
        for client in slow:
            client.sendall(b"GET /metr")
        assert read(endpoint.address) == "up 1\n"
        for client in slow:
            with closing(client):
                assert client.recv(1) == b""
        assert read(endpoint.address) == "up 1\n"
    finally:
        endpoint.close()


def test_of_more_connections_than_allowed_the_oldest_is_closed() -> None:
    endpoint = Endpoint("127.0.0.1", 0, str, dict, EndpointLimits(connections=1, seconds=30))
    host, _, port = endpoint.address.rpartition(":")
    try:
        with closing(socket.create_connection((host, int(port)), timeout=LIMIT)) as first:
            first.sendall(b"GET /metr")
            with closing(socket.create_connection((host, int(port)), timeout=LIMIT)) as second:
                assert first.recv(1) == b""
                second.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert second.recv(15) == b"HTTP/1.0 200 OK"
    finally:
        endpoint.close()


def test_slow_clients_that_come_again_do_not_starve_the_others() -> None:
    endpoint = Endpoint(
        "127.0.0.1", 0, lambda: "up 1\n", dict, EndpointLimits(connections=8, seconds=30)
    )
    host, _, port = endpoint.address.rpartition(":")
    try:
        with ExitStack() as stack:
            for _ in range(5):
                for _ in range(16):
                    client = socket.create_connection((host, int(port)), timeout=LIMIT)
                    stack.enter_context(closing(client))
                    client.sendall(b"GET /metr")
                assert read(endpoint.address) == "up 1\n"
    finally:
        endpoint.close()


KEY = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhk\niG9w0BAQEFAASCBKcw\n-----END PRIVATE KEY-----"
)


@pytest.mark.parametrize(
    "said",
    [
        f"bad key {KEY}",
        "bad key " + KEY.replace("\n", "\\n"),
        "line 2: iG9w0BAQEFAASCBKcw",
        "line 1: MIIEvQIBADANBgkqhk of it",
    ],
)
@pytest.mark.parametrize("stated", [KEY, KEY.replace("\n", "\\n")])
def test_no_line_of_a_private_key_is_shown(said: str, stated: str) -> None:
    hidden = Redactor({"ssl.key.pem": stated})(said)
    assert "MIIEvQ" not in hidden
    assert "iG9w0" not in hidden
    assert "***" in hidden


def test_a_key_nobody_named_is_not_shown_either() -> None:
    assert Redactor()(f"found {KEY} there") == "found *** there"
