"""Pages of exporters: what is read from them, and that no page does harm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics_reporter import ReporterError
from metrics_reporter.exposition import Sample, checked_url, parse, scrape, shown

NAMES = st.from_regex(r"[A-Za-z_:][A-Za-z0-9_:]*", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    max_size=3,
)
SAMPLES = st.builds(Sample, NAMES, LABELS, st.floats(allow_nan=False), st.just(""))


def written(sample: Sample) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    labels = ",".join(f'{name}="{escaped(value)}"' for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}} {sample.value!r}"


@given(st.lists(SAMPLES))
def test_what_is_written_is_read(samples: list[Sample]) -> None:
    page = "\n".join(["# HELP a b", *map(written, samples), "", "# EOF"])
    assert parse(page) == (samples, 0)


@given(st.text(), st.lists(SAMPLES, max_size=3))
def test_no_text_does_harm(junk: str, samples: list[Sample]) -> None:
    found, malformed = parse("\n".join([junk, *map(written, samples)]))
    assert found[len(found) - len(samples) :] == samples
    assert len(found) + malformed <= len(junk.split("\n")) + len(samples)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "1a 2",
        "a{ 1",
        'a{b="c} 1',
        "a{b=c} 1",
        'a{b="c" d="e"} 1',
        "a{} one",
        "a 1 2 3",
        "a{b='c'} 1",
    ],
)
def test_lines_that_are_none_are_counted(line: str) -> None:
    assert parse(f"{line}\nb 1\n") == ([Sample("b", {}, 1.0)], 1)


def test_values_times_and_commas_as_exporters_write_them() -> None:
    found, malformed = parse(
        'a{x="1",} 1.5E9 1700000000000\r\n\tb  +Inf\nc NaN\nd{e="}{,\\"="} -0.5\n'
    )
    assert malformed == 0
    assert [(s.name, s.labels) for s in found] == [
        ("a", {"x": "1"}),
        ("b", {}),
        ("c", {}),
        ("d", {"e": '}{,"='}),
    ]
    assert [s.value for s in found[:2]] == [1.5e9, math.inf]
    assert math.isnan(found[2].value)


@pytest.fixture
def served() -> Iterator[tuple[str, list[str | None]]]:
    """An address, and the authorizations that came with requests; /missing has status 404."""
    came: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers.get("Authorization"))
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()
            self.wfile.write(b"up 1\n\xff")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", came
    server.shutdown()
    server.server_close()


def test_a_page_is_fetched_with_its_password(served: tuple[str, list[str | None]]) -> None:
    address, came = served
    assert scrape(f"http://{address}/metrics").startswith("up 1\n")
    scrape(f"http://me:p%40ss@{address}/metrics")
    assert came == [None, "Basic bWU6cEBzcw=="]


def test_what_does_not_answer_is_reported_without_its_password(
    served: tuple[str, list[str | None]],
) -> None:
    with pytest.raises(ReporterError, match="HTTP status 404 found, 200 expected") as reported:
        scrape(f"http://me:secret@{served[0]}/missing")
    assert "secret" not in str(reported.value)
    with pytest.raises(ReporterError, match="refused") as reported:
        scrape("http://me:secret@127.0.0.1:1/metrics")
    assert "secret" not in str(reported.value)


@pytest.mark.parametrize("headers", [b"", b"Content-Type: text/plain\r\n\r\nup 1\n"])
def test_a_page_that_drips_ends_with_the_time_for_the_request(headers: bytes) -> None:
    over = Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n" + headers)
            while not over.wait(0.05):
                self.request.sendall(b"a")

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ReporterError, match=r"not read completely in 0\.5 s"):
            scrape(f"http://127.0.0.1:{server.server_address[1]}/metrics", timeout=0.5)
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "url", ["", "broker:7071", "ftp://a/b", "http://", "http://a:b/", "http://a b/"]
)
def test_an_address_that_is_none_is_reported(url: str) -> None:
    with pytest.raises(ReporterError, match="http://broker:7071/metrics expected"):
        checked_url(url)
    assert shown("http://me:secret@a:1/b@c") == "http://a:1/b@c"
