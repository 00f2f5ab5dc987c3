"""Who is let in: roles, credentials, other sites, oddities of HTTP, secrets, audit."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import logging
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from server_cases import Served, first_application, served
from waiting import wait_for

from balancer.server import ServerSettings, access
from balancer.server.access import Actor, hash_password
from balancer.server.audit import AuditLog
from balancer.server.cruise_control.router import ENDPOINTS
from balancer.server.errors import RequestError, ServerError
from balancer.server.events import Events
from balancer.server.settings import ROLES, load_server_settings

PASSWORD = "correct horse"
HASH = hash_password(PASSWORD, b"0" * 16)
OPEN = {"/health/live", "/health/ready"}
# What is expected of each endpoint; a new one has to be added here.
NEEDS = {
    **dict.fromkeys(
        [
            ("GET", "/metrics"),
            ("GET", "/state"),
            *(
                ("GET", f"/api/v1/{path}")
                for path in [
                    "state",
                    "cluster",
                    "cluster/brokers",
                    "cluster/racks",
                    "cluster/disks",
                    "cluster/topics",
                    "cluster/partitions",
                    "goals",
                    "findings",
                    "decisions",
                    "settings",
                    "operations",
                    "profiles",
                    "execution",
                    "events",
                    "proposals",
                    "proposals/compare",
                    "proposals/{identity}",
                    "proposals/{identity}/plan",
                    "proposals/{identity}/summary",
                    "proposals/{identity}/actions",
                    "proposals/{identity}/changes",
                    "proposals/{identity}/traffic",
                    "cluster/brokers/{broker}",
                    "cluster/brokers/{broker}/proposals",
                    "cluster/columns/{name}",
                    "jobs/{identity}",
                ]
            ),
            ("POST", "/api/v1/what-if"),
            ("POST", "/api/v1/why-not"),
            # That of somebody else takes an operator.
            ("DELETE", "/api/v1/jobs/{identity}"),
            ("GET", "/"),
            ("GET", "/page/{name}"),
            ("GET", "/api/v1/openapi.json"),
            ("HEAD", "/api/v1/openapi.json"),
            *(
                ("GET", f"/kafkacruisecontrol/{name}")
                for name in [
                    "bootstrap",
                    "kafka_cluster_state",
                    "load",
                    "partition_load",
                    "permissions",
                    "proposals",
                    "review_board",
                    "state",
                    "train",
                    "user_tasks",
                ]
            ),
            # To execute a plan takes an operator.
            *(
                ("POST", f"/kafkacruisecontrol/{name}")
                for name in [
                    "add_broker",
                    "demote_broker",
                    "fix_offline_replicas",
                    "rebalance",
                    "remove_broker",
                    "rightsize",
                    "topic_configuration",
                ]
            ),
        ],
        "viewer",
    ),
    **dict.fromkeys(
        [
            ("POST", "/api/v1/proposals"),
            ("POST", "/api/v1/proposals/{identity}/approve"),
            ("POST", "/api/v1/proposals/{identity}/reject"),
            ("POST", "/api/v1/execution/pause"),
            ("POST", "/api/v1/execution/resume"),
            ("POST", "/api/v1/execution/stop"),
            ("PATCH", "/api/v1/execution/limits"),
            ("POST", "/api/v1/controller/hold"),
            # The hold of somebody else takes an admin.
            ("POST", "/api/v1/controller/release"),
            ("POST", "/api/v1/controller/look"),
            *(
                ("POST", f"/kafkacruisecontrol/{name}")
                for name in [
                    "admin",
                    "pause_sampling",
                    "remove_disks",
                    "resume_sampling",
                    "review",
                    "stop_proposal_execution",
                ]
            ),
        ],
        "operator",
    ),
    ("GET", "/api/v1/audit"): "admin",
}


def token(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


ACCESS: dict[str, Any] = {
    "users": {"ann": {"password": HASH, "role": "operator"}},
    "tokens": {
        **{f"a {role}": {"sha256": sha256(role), "role": role} for role in ROLES},
        "old": {"sha256": sha256("old"), "role": "admin", "expires": "2020-01-01T00:00:00Z"},
    },
    "rates": {"requests": 10_000, "changes": 10_000, "failures": 1000},
    "max_body": 10_000,
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("guarded"), access=ACCESS, run=False) as found:
        yield found


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that waits for nobody."""
    access = {**ACCESS, "idle_timeout": 0.6}
    with served(tmp_path_factory.mktemp("hasty"), access=access, run=False) as found:
        yield found


@cache
def endpoints() -> list[tuple[str, str]]:
    def all_routes(routes: Any) -> Iterator[tuple[str, str]]:
        for route in routes:
            if (included := getattr(route, "effective_candidates", None)) is not None:
                yield from all_routes(included())
            elif route.path == "/kafkacruisecontrol/{name}":
                yield from ((e.method, f"/kafkacruisecontrol/{n}") for n, e in ENDPOINTS.items())
            else:
                yield from ((method, route.path) for method in route.methods)

    described = [
        (method.upper(), path)
        for path, methods in first_application().openapi()["paths"].items()
        for method in methods
    ]
    found = {*all_routes(first_application().routes)}
    # No route is of a kind that this does not see.
    assert {*described} <= found
    return sorted(found)


def actual(path: str) -> str:
    """A path with something in its parameters."""
    joint = "?json=true" if path.startswith("/kafkacruisecontrol") else ""
    return re.sub(r"\{\w+\}", "none", path) + joint


def test_each_endpoint_has_a_role() -> None:
    assert {e for e in endpoints() if e[1] not in OPEN} == {*NEEDS}


@pytest.mark.parametrize(("method", "path"), endpoints())
def test_each_endpoint_asks_for_its_role(guarded: Served, method: str, path: str) -> None:
    url = actual(path)
    if path in OPEN:
        assert guarded.client().get(url).status_code == 200
        return
    with guarded.client() as client:
        wrong = [{}, token("guess"), token("old"), {"Cookie": "a=b"}]
        # A password takes long to check, and who is let in is decided before the path is looked at.
        wrong += [basic("ann", "no")] * (path == "/state")
        for headers in wrong:
            refused = client.request(method, url, headers=headers)
            assert refused.status_code == 401, refused.text
            if method != "HEAD":
                keys = set(refused.json())
                assert keys == {"error"} or (
                    path.startswith("/kafkacruisecontrol")
                    and keys == {"errorMessage", "stackTrace", "version"}
                )
            assert "Basic" in refused.headers["www-authenticate"]
        needed = ROLES.index(NEEDS[method, path])
        for place, role in enumerate(ROLES):
            with client.stream(method, url, headers=token(role)) as answer:
                allowed = answer.status_code not in (401, 403)
                assert answer.status_code < 500 or answer.status_code == 501
            assert allowed == (place >= needed), (role, answer.status_code)


def test_a_password_is_checked_and_remembered(
    guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded.client() as client:
        state = client.get("/api/v1/state", headers=basic("ann", PASSWORD))
        assert state.json()["you"] == {"name": "ann", "role": "operator"}
        monkeypatch.setattr(access, "is_password", pytest.fail)
        for _ in range(20):
            assert client.get("/state", headers=basic("ann", PASSWORD)).status_code == 200
        monkeypatch.undo()
        for value in ("Basic", "Basic !!", "Basic YW5u", "Digest a", "Bearer", "Bearer \xff"):
            headers = {b"authorization": value.encode("latin-1")}
            assert client.get("/api/v1/state", headers=headers).status_code == 401


def test_wrong_passwords_do_not_stall_or_lock_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They count for a minute, however long this takes.
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: 0.0))
    stated = {**ACCESS, "rates": {**ACCESS["rates"], "failures": 5}}
    with served(tmp_path, access=stated, run=False) as found, found.client() as client:
        assert client.get("/state", headers=basic("ann", PASSWORD)).status_code == 200
        said: list[str] = []

        def guess(number: int) -> None:
            with found.client() as other:
                answer = other.get("/state", headers=basic("ann", f"no {number}"))
            assert answer.status_code == 401
            said.append(answer.json()["error"])

        threads = [threading.Thread(target=guess, args=(n,)) for n in range(30)]
        for thread in threads:
            thread.start()
        assert client.get("/state", headers=token("viewer")).status_code == 200
        for thread in threads:
            thread.join()
        # At once or one after the other: only so many are checked.
        assert sum("too many" in s for s in said) == 25
        assert "too many" in client.get("/state", headers=basic("ann", "no")).json()["error"]
        # From the same address, with right ones.
        assert client.get("/state", headers=basic("ann", PASSWORD)).status_code == 200
        assert client.get("/state", headers=token("viewer")).status_code == 200


def test_a_client_with_many_addresses_of_one_network_is_one_client() -> None:
    """With IPv6 each machine has 2^64 addresses; written by a socket for both, IPv4 is IPv4."""
    settings = ServerSettings.model_validate({**ACCESS, "rates": {"failures": 5}})
    gate = access.Access(settings, local=False)
    for n in range(5):
        with pytest.raises(access.AccessError, match="wrong"):
            gate.known({"authorization": "Bearer no"}, f"2001:db8:1:2:{n:x}::1")
    with pytest.raises(access.AccessError, match="too many"):
        gate.known({"authorization": "Bearer no"}, "2001:db8:1:2:ffff::1")
    with pytest.raises(access.AccessError, match="wrong"):
        gate.known({"authorization": "Bearer no"}, "2001:db8:1:3::1")
    clients = {Actor("anonymous", "viewer", f"2001:db8:1:2::{n:x}").client for n in range(9)}
    assert len(clients) == 1


def test_a_proxy_that_connects_to_a_socket_for_both_kinds_of_addresses_counts() -> None:
    proxy = {"addresses": ["10.0.0.0/8"]}
    gate = access.Access(ServerSettings.model_validate({**ACCESS, "proxy": proxy}), local=False)
    actor = gate.known({"x-forwarded-user": "bo"}, "::ffff:10.1.2.3")
    assert actor is not None
    assert actor.name == "bo"
    with pytest.raises(access.AccessError):
        gate.known({"x-forwarded-user": "bo"}, "::ffff:11.1.2.3")


def test_a_right_password_does_not_count_as_a_failure(tmp_path: Path) -> None:
    users = {f"u{n}": {"password": HASH} for n in range(6)}
    stated = {**ACCESS, "users": users, "rates": {"failures": 1}}
    with served(tmp_path, access=stated, run=False) as found, found.client() as client:
        for name in users:
            assert client.get("/state", headers=basic(name, PASSWORD)).status_code == 200


def test_a_proxy_counts_from_its_addresses_only(tmp_path: Path) -> None:
    proxy = {
        "addresses": ["127.0.0.1/32"],
        "role_header": "X-Groups",
        "roles": {"sre": "admin", "dev": "operator"},
    }

    def names(where: Path, **changes: Any) -> list[Any]:
        stated = {**ACCESS, "proxy": {**proxy, **changes}}
        where.mkdir()
        with served(where, access=stated, run=False) as found, found.client() as client:
            asked = [
                [("X-Forwarded-User", "bo"), ("X-Groups", "dev, sre")],
                [("X-Forwarded-User", "bo"), ("X-Groups", "other")],
                [("X-Forwarded-User", "bo")],
                [],
                [("X-Forwarded-User", "bo"), ("X-Forwarded-User", "eve")],
                [("X-Forwarded-User", "controller")],
                [("X-Forwarded-User", "b" * 201)],
            ]
            answers = [client.get("/api/v1/state", headers=headers) for headers in asked]
            return [
                a.json()["you"]["role"] if a.status_code == 200 else a.status_code for a in answers
            ]

    assert names(tmp_path / "a") == ["admin", "viewer", "viewer", 401, 400, 401, 401]
    assert names(tmp_path / "b", role=None) == ["admin", 401, 401, 401, 400, 401, 401]
    others = names(tmp_path / "c", addresses=["10.0.0.0/8", "fd00::/8"])
    assert others == [401, 401, 401, 401, 400, 401, 401]


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and two clients; one more client of another authority."""
    where = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for authority in ("ca", "other"):
        openssl(
            *("req", "-x509", *key, "-keyout", f"{authority}.key", "-out", f"{authority}.pem"),
            *("-subj", f"/CN={authority}", "-days", "2"),
            cwd=where,
        )
    (where / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name, authority in (("server", "ca"), ("ann", "ca"), ("bo", "ca"), ("eve", "other")):
        common = "ann" if name == "eve" else name
        openssl(
            *("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj"),
            f"/CN={common}",
            cwd=where,
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey"),
            *(f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "2"),
            *("-extfile", "san"),
            cwd=where,
        )
    openssl(
        *("ec", "-in", "server.key", "-out", "locked.key", "-aes128", "-passout", "pass:secret"),
        cwd=where,
    )
    return where


def test_certificates_give_roles(certificates: Path, tmp_path: Path) -> None:
    tls = {
        "certificate": str(certificates / "server.pem"),
        "key": str(certificates / "server.key"),
        "client_ca": str(certificates / "ca.pem"),
        "roles": {"ann": "operator"},
    }

    def ask(found: Served, name: str | None, headers: dict[str, str] | None = None) -> Any:
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        if name is not None:
            context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
        try:
            with found.client(verify=context) as client:
                answer = client.get("/api/v1/state", headers=headers)
        except httpx.TransportError:
            return "no connection"
        return answer.json()["you"]["name"] if answer.status_code == 200 else answer.status_code

    with served(tmp_path, access={"tls": tls}, run=False) as found:
        assert found.server.url.startswith("https://")
        assert ask(found, "ann") == "ann"
        assert ask(found, "bo") == 401
        assert ask(found, None) == "no connection"
        assert ask(found, "eve") == "no connection"
        host, _, port = found.server.url.removeprefix("https://").partition(":")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection((host, int(port))) as raw,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            old.wrap_socket(raw)


def test_a_key_with_a_password_or_a_missing_one_is_refused(
    certificates: Path, tmp_path: Path
) -> None:
    for key in ("locked.key", "nothing.key", "ann.key", "server.csr"):
        tls = {"certificate": str(certificates / "server.pem"), "key": str(certificates / key)}
        with (
            pytest.raises(ServerError, match="certificate or key cannot be used"),
            served(tmp_path, access={"tls": tls}, run=False),
        ):
            pass


def test_it_listens_beyond_this_machine_only_with_credentials(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        with (
            pytest.raises(ServerError, match="without_credentials"),
            served(tmp_path, host=host, run=False),
        ):
            pass
    with served(tmp_path, host="0.0.0.0", access=ACCESS, run=False) as found:
        url = found.server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/state", verify=False).status_code == 401
        named = {"Host": "any.example", **token("viewer")}
        assert httpx.get(f"{url}/state", headers=named, verify=False).status_code == 200
    stated = {"without_credentials": "viewer"}
    with served(tmp_path, host="0.0.0.0", access=stated, run=False) as found:
        url = found.server.url.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url, verify=False) as client:
            assert client.get("/state").status_code == 200
            assert client.post("/api/v1/controller/hold", json={}).status_code == 403
            assert client.get("/state", headers={"Host": "10.1.2.3:80"}).status_code == 200
            # Without credentials another site's page could read it under its own name.
            assert client.get("/state", headers={"Host": "evil.example"}).status_code == 421


def test_a_listed_user_closes_this_machine_too(guarded: Served, tmp_path: Path) -> None:
    assert guarded.client().get("/state").status_code == 401
    with served(tmp_path, run=False) as found:
        assert found.client().get("/api/v1/state").json()["you"]["role"] == "admin"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "{url}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "{url}.evil.example"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_pages_of_other_sites_change_nothing(
    guarded: Served, headers: dict[str, str], status: int
) -> None:
    stated = {k: v.replace("{url}", guarded.server.url) for k, v in headers.items()}
    with guarded.client() as client:
        answer = client.post("/api/v1/controller/look", headers={**stated, **token("operator")})
        assert answer.status_code == status, answer.text
        assert "access-control-allow-origin" not in answer.headers
        form = client.post(
            "/api/v1/controller/hold", data={"why": "a form"}, headers=token("operator")
        )
        assert form.status_code == 422


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:1234", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.1", 421),
        ("", 400),
        ("[::1", 400),
        ("localhost:port", 400),
        ("localhost/health/live?", 400),
        ("localhost#", 400),
        ("evil.example@localhost", 400),
        ("localhost\\.evil.example", 421),
    ],
)
def test_only_own_names_are_answered(guarded: Served, host: str, status: int) -> None:
    with guarded.client() as client:
        answer = client.get("/state", headers={"Host": host, **token("viewer")})
        assert answer.status_code == status, answer.text
        # Nor does a name let anybody in.
        assert client.get("/state", headers={"Host": host}).status_code in (400, 401, 421)


def raw(found: Served, data: bytes, seconds: float = 120.0) -> bytes:
    """What the server answers to bytes, until it closes the connection."""
    host, _, port = found.server.url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), seconds) as connection:
        try:
            connection.sendall(data)
        except OSError:
            return b"closed"
        answer = b""
        while True:
            try:
                part = connection.recv(65_536)
            except ConnectionError:
                return answer or b"closed"
            if not part:
                return answer
            answer += part


HEAD = b"Host: localhost\r\nAuthorization: Bearer operator\r\n"
END = b"Connection: close\r\n\r\n"
LOOK = b"POST /api/v1/controller/look HTTP/1.1\r\n" + HEAD
PLAN = b"POST /api/v1/proposals HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /state HTTP/1.1\r\n" + HEAD + END, rb"200"),
        (b"GET /state HTTP/1.1\r\nAuthorization: Bearer operator\r\n" + END, rb"4\d\d"),
        (b"GET /state HTTP/1.1\r\nHost: evil.example\r\n" + HEAD + END, rb"4\d\d"),
        (b"GET /state HTTP/1.1\r\nAuthorization: Bearer old\r\n" + HEAD + END, rb"400"),
        (b"GET http://evil.example/state HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET //evil.example/state HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /health/live/../../state HTTP/1.1\r\nHost: localhost\r\n" + END, rb"401"),
        (b"GET /health/live%2f..%2f..%2fstate HTTP/1.1\r\nHost: localhost\r\n" + END, rb"401"),
        (b"GET /health/live;/state HTTP/1.1\r\nHost: localhost\r\n" + END, rb"401"),
        (b"GET /HEALTH/live HTTP/1.1\r\nHost: localhost\r\n" + END, rb"401"),
        (b"GET /api/v1/../../../etc/passwd HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /api/v1/proposals/..%2f..%2faudit.log HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /api/v1/proposals/a%00b HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /api/v1/proposals/%ff%fe HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /api/v1/proposals/%0d%0aX-Evil:1 HTTP/1.1\r\n" + HEAD + END, rb"404"),
        (b"GET /\xff HTTP/1.1\r\n" + HEAD + END, rb"400"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HEAD + END, rb"4\d\d|closed"),
        (
            b"GET /state HTTP/1.1\r\n" + HEAD + b"X: 1\r\n" * 30_000 + END,
            rb"4\d\d|closed",
        ),
        (b"OPTIONS * HTTP/1.1\r\n" + HEAD + END, rb"40\d"),
        (b"TRACE /state HTTP/1.1\r\n" + HEAD + END, rb"405"),
        (b"NONSENSE\r\n\r\n", rb"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", rb"400"),
        (PLAN + b"Content-Length: -1\r\n" + END, rb"4\d\d"),
        (PLAN + b"Content-Length: 99999999999999999999\r\n" + END, rb"413"),
        (PLAN + b"Content-Length: 2\r\nContent-Length: 3\r\n" + END + b"{}", rb"400"),
        (
            PLAN + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n" + END + b"0\r\n\r\n",
            rb"\d\d\d",
        ),
        (PLAN + b"Transfer-Encoding: chunked\r\n" + END + b"zz\r\n", rb"400"),
        (
            PLAN
            + b"Transfer-Encoding: chunked\r\n"
            + END
            + (b"400\r\n" + b" " * 1024 + b"\r\n") * 20,
            rb"413",
        ),
        (PLAN + b"Content-Length: 100\r\n" + END + b"{", rb"408"),
        (PLAN + b"Transfer-Encoding: chunked\r\n" + END + b"1\r\n{\r\n", rb"408"),
        (PLAN + b"Content-Length: 2\r\n" + END + b"\xff\xfe", rb"4\d\d"),
        (PLAN + b"Content-Length: 9000\r\n" + END + b"[" * 9000, rb"4\d\d"),
        (PLAN + b"Content-Length: 14\r\n" + END + b'{"\\ud800": 12}', rb"422"),
        (PLAN + b"Content-Length: 20\r\n" + END + b'{"reason": "\\udfff" }', rb"422"),
        (PLAN + b"Content-Length: 17\r\n" + END + b'{"reason": "a", }', rb"422"),
        (LOOK + b"Content-Length: 0\r\n\r\n" + LOOK + END, rb"200.*HTTP/1.1 200"),
        (b"GET /state HTTP/1.0\r\n" + HEAD + b"\r\n", rb"200"),
        (b"GET /state HTTP/1.1\r\n" + HEAD + b"Upgrade: websocket\r\n" + END, rb"200"),
    ],
)  # fmt: skip
def test_oddities_are_refused_in_a_sentence(
    guarded: Served, hasty: Served, data: bytes, expected: bytes
) -> None:
    answer = raw(hasty if expected == b"408" else guarded, data)
    status = answer.removeprefix(b"HTTP/1.1 ")
    assert re.match(expected, status, re.S), answer[:300]
    assert not status.startswith(b"5"), answer[:300]
    assert b"\nX-Evil" not in answer
    with guarded.client() as client:
        assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"GET /state HT"],
        [b"GET /state HTTP/1.1\r\nHost: localhost\r\n", b"X: 1\r\n", b"Y: 1\r\n"],
        [b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /", b"st", b"a"],
    ],
)
def test_slow_clients_are_closed(hasty: Served, parts: list[bytes]) -> None:
    host, _, port = hasty.server.url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), 120.0) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.1)
        while connection.recv(65_536):
            pass


def test_a_follower_that_never_reads_is_let_go(tmp_path: Path) -> None:
    stated = {"idle_timeout": 0.5, "listeners": 2}
    with served(tmp_path, access=stated, run=False) as found:
        host, _, port = found.server.url.partition("://")[2].partition(":")
        deaf = []
        for _ in range(2):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, int(port)))
            connection.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deaf.append(connection)
        wait_for(lambda: found.server.events.followers == 2)
        with found.client() as client:
            assert client.get("/api/v1/events").status_code == 503

        def publish() -> bool:
            for _ in range(10):
                found.server.events.publish("test", "x" * 200_000)
            return found.server.events.followers == 0

        wait_for(publish)
        for connection in deaf:
            connection.close()
        with found.client() as client, client.stream("GET", "/api/v1/events") as stream:
            assert stream.status_code == 200


def test_a_stream_that_never_starts_is_forgotten() -> None:
    async def follow() -> None:
        events = Events(1, 1)
        stream = await events.follow(dict)
        assert events.followers == 1
        del stream
        assert events.followers == 0

    asyncio.run(follow())


def test_clients_that_wait_for_a_plan_stall_nobody(guarded: Served) -> None:
    may_end = threading.Event()
    plan = guarded.service._plan

    def slow(*arguments: Any) -> Any:
        may_end.wait(300.0)
        return plan(*arguments)

    guarded.service._plan = slow  # type: ignore[assignment, method-assign]
    try:
        with guarded.client() as client:
            job = client.post("/api/v1/proposals", json={}, headers=token("operator")).json()
            path = f"/api/v1/jobs/{job['id']}?wait=60"
            waiting = [
                threading.Thread(
                    target=httpx.get,
                    args=(f"{guarded.server.url}{path}",),
                    kwargs={"headers": token("viewer"), "timeout": 300.0, "verify": False},
                )
                for _ in range(60)
            ]
            for thread in waiting:
                thread.start()
            time.sleep(0.5)
            # More clients than the server has threads.
            answer = client.get("/api/v1/cluster", headers=token("viewer"), timeout=120.0)
            assert answer.status_code == 200
            may_end.set()
            for thread in waiting:
                thread.join(120.0)
            ended = client.get(path, headers=token("viewer")).json()
            assert ended["state"] == "done"
    finally:
        may_end.set()
        del guarded.service._plan


def test_rates_are_limited_by_client(tmp_path: Path) -> None:
    stated = {**ACCESS, "rates": {"requests": 1, "changes": 0.5, "burst": 4}}
    with served(tmp_path, access=stated, run=False) as found, found.client() as client:
        changes = [
            client.post("/api/v1/controller/look", headers=token("operator")).status_code
            for _ in range(4)
        ]
        assert changes[:2] == [200, 200]
        assert changes[3] == 429
        assert client.get("/state", headers=token("viewer")).status_code == 200
        reads = [client.get("/state", headers=token("viewer")) for _ in range(6)]
        assert reads[-1].status_code == 429
        assert reads[-1].headers["retry-after"] == "1"
        assert client.get("/health/live").status_code == 200


def test_secrets_are_in_no_answer_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {
        "webhooks": [{"url": "https://ann:hunter2@chat.example/T0/B1"}],
        "notifiers": [],
    }
    with served(tmp_path, access=ACCESS, settings=settings, run=False) as found:
        with found.client() as client:
            for method, path in endpoints():
                if path.endswith("/events") or path in OPEN:
                    continue
                headers = basic("ann", PASSWORD)
                body = {"why": 3, "digest": PASSWORD} if method != "GET" else None
                answer = client.request(method, actual(path), headers=headers, json=body)
                for secret in ("hunter2", "/T0/B1", HASH, HASH[-20:], sha256("admin")):
                    assert secret not in answer.text, path
            described = client.get("/api/v1/openapi.json", headers=token("viewer")).text
            assert "hunter2" not in described
            client.get("/state", headers=basic("ann", "a wrong secret"))
        logged = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]
        for secret in ("hunter2", HASH[-20:], "a wrong secret", "Bearer"):
            assert not any(secret in line for line in logged)
        assert HASH not in repr(ServerSettings.model_validate(ACCESS))


def test_settings_with_mistakes_are_refused_without_their_secrets(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    for content, expected in [
        ({"users": {"ann": {"password": "hunter2"}}}, "password"),
        ({"users": {"ann": {"password": HASH, "role": "root"}}}, "role"),
        ({"users": {"controller": {"password": HASH}}}, "controller"),
        ({"tokens": {"anonymous": {"sha256": sha256("x")}}}, "anonymous"),
        ({"tokens": {"t": {"sha256": sha256("x"), "expires": "2027-01-01T00:00:00"}}}, "zone"),
        ({"proxy": {"addresses": ["anywhere"]}}, "addresses"),
        ({"proxy": {"addresses": []}}, "addresses"),
        ({"bogus": 1}, "bogus"),
        ({"user": {"ann": {"password": "hunter2"}}}, "user"),
        ({"users": {"ann": "hunter2"}}, "users.ann"),
        ({"users": [{"password": "hunter2"}]}, "users"),
        ({"tls": {"certificate": "a", "key": "b", "password": "hunter2"}}, "tls.password"),
    ]:
        path.write_text(json.dumps(content))
        with pytest.raises(ServerError, match=expected) as caught:
            load_server_settings(path)
        assert "hunter2" not in str(caught.value)
        assert HASH[-20:] not in str(caught.value)


def test_a_change_that_cannot_be_recorded_is_not_made(tmp_path: Path) -> None:
    stated = {"audit": str(tmp_path / "nowhere" / "audit.log")}
    with served(tmp_path, access=stated, run=False) as found, found.client() as client:
        refused = client.post("/api/v1/controller/hold", json={"why": "now"})
        assert refused.status_code == 503
        assert "nothing was changed" in refused.json()["error"]
        assert str(tmp_path) not in refused.text
        assert not found.controller.held
        assert client.post("/api/v1/proposals", json={}).status_code == 503
        assert client.get("/state").status_code == 200


def test_the_audit_log_has_no_half_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    log, write = AuditLog(path), os.write
    log.record(Actor("ann", "admin"), "hold", "controller", "a\n{'b'}\u2028")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        with pytest.raises(RequestError, match="No space"):
            log.record(Actor("ann", "admin"), "release", "controller")
    log.record(Actor("ann", "admin"), "release", "controller")
    lines = path.read_text().split("\n")
    assert [json.loads(line)["action"] for line in lines[:-1]] == ["hold", "release"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_each_change_is_recorded_with_who_and_why(tmp_path: Path) -> None:
    with served(tmp_path, access=ACCESS, run=False) as found, found.client() as client:
        headers = token("operator")
        job = client.post("/api/v1/proposals", json={"reason": "load"}, headers=headers).json()
        client.delete(f"/api/v1/jobs/{job['id']}", headers=headers)
        client.post("/api/v1/controller/hold", json={"why": "a change"}, headers=headers)
        client.post("/api/v1/controller/release", json={}, headers=token("viewer"))
        entries = [json.loads(x) for x in (tmp_path / "audit.log").read_text().splitlines()]
        assert [(e["who"], e["action"], e["why"]) for e in entries] == [
            ("a operator", "propose", "load"),
            ("a operator", "cancel", ""),
            ("a operator", "hold", "a change"),
        ]


def test_answers_forbid_framing_sniffing_and_caching(guarded: Served) -> None:
    for path in ("/state", "/nothing", "/health/live"):
        headers = guarded.client().get(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_before_the_first_look_nothing_fails(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        found.controller._view = None
        for method, path in endpoints():
            if method == "GET" and not path.endswith("/events"):
                answer = client.get(actual(path))
                if path.startswith("/kafkacruisecontrol/"):
                    if answer.status_code != 200:
                        # Clients look for this word, with this status, and ask again.
                        assert "NotEnoughValidWindowsException" in answer.json()["errorMessage"]
                    continue
                assert answer.status_code in (200, 404, 422, 503), answer.text
                assert (
                    answer.status_code == 200
                    or answer.json()["error" if path not in OPEN else "status"]
                )


def test_http_pipelining_keeps_the_order(guarded: Served) -> None:
    connection = http.client.HTTPConnection(guarded.server.url.partition("://")[2])
    for path, status in (("/health/live", 200), ("/nothing", 401), ("/health/ready", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
