"""A broker that refuses a login and closes: the refusal is reported, however late it is read."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from cluster_model.kafka import KafkaDeniedError, admin_client

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
VERSIONS = [(API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 1)]
REFUSED = 58


def _answer(api: int, version: int) -> Any:
    if api == API_VERSIONS:
        unsupported = 35 * (version > 0)
        return ApiVersionsResponse(version=0, error_code=unsupported, api_keys=VERSIONS)
    if api == SASL_HANDSHAKE:
        return SaslHandshakeResponse(version=version, error_code=0, mechanisms=["PLAIN"])
    return SaslAuthenticateResponse(
        version=version, error_code=REFUSED, error_message="no", auth_bytes=b""
    )


def _serve(connection: socket.socket) -> None:
    """Answer until the login, refuse it, and end the connection with the same packet."""
    with connection, connection.makefile("rb") as requests:
        while len(size := requests.read(4)) == 4:
            api, version, number = struct.unpack(
                ">hhi", requests.read(*struct.unpack(">i", size))[:8]
            )
            if api == SASL_AUTHENTICATE:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            body = struct.pack(">i", number) + _answer(api, version).encode()
            connection.sendall(struct.pack(">i", len(body)) + body)
            if api == SASL_AUTHENTICATE:
                return


@pytest.fixture
def refusing() -> Iterator[str]:
    """Address of such a broker."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    _serve(listening.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_refusal_that_comes_with_the_end_of_the_connection_is_read(refusing: str) -> None:
    user = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "wrong",
    }
    with (
        pytest.raises(KafkaDeniedError, match="authentication failed"),
        admin_client(refusing, user, timeout=20.0),
    ):
        pass
