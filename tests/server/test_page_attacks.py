"""The page where things go wrong: odd names, refusals, a server that leaves, races, focus, zoom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from chromium import Tab, tab
from page_cases import (
    click,
    fill_in,
    main_text,
    open_view,
    propose,
    serious_problems,
    tab_to,
    until_ready,
    wait_for_text,
)
from real_kafka import held_ports
from server_cases import Served, served
from waiting import LIMIT

from balancer.server.access import Actor
from balancer.server.api import cluster as cluster_api
from balancer.server.jobs import Job
from cluster_model import Snapshot, synthetic_snapshot

pytestmark = pytest.mark.browser
QUIET = {"interval": 3600}
VIEWS = ("/now", "/broker/2", "/proposals", "/execution", "/decisions", "/what-if", "/why-not")

# Lets a test answer in place of the server, or hold an answer back: window.test.answer(path)
# gives a Response, a promise of one, or nothing.
_BETWEEN = """
const real = window.fetch.bind(window);
window.test = { answer: () => null, real };
window.fetch = async (path, options) =>
  await window.test.answer(String(path), options) ?? real(path, options);
"""


@pytest.fixture(scope="module")
def browser(browser: Tab) -> Iterator[Tab]:
    added = browser.send("Page.addScriptToEvaluateOnNewDocument", source=_BETWEEN)
    yield browser
    browser.send("Page.removeScriptToEvaluateOnNewDocument", **added)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose controller has looked once, and looks when it is asked to."""
    with served(tmp_path_factory.mktemp("served"), settings=QUIET) as found:
        with found.client() as client:
            until_ready(client)
        yield found


@pytest.fixture
def client(running: Served) -> Iterator[httpx.Client]:
    with running.client() as found:
        yield found


@pytest.fixture
def page(browser: Tab, running: Served) -> Iterator[Tab]:
    _load(browser, f"{running.server.url}/")
    yield browser
    browser.send("Emulation.clearDeviceMetricsOverride")
    browser.send("Emulation.setEmulatedMedia", features=[])


@contextmanager
def _tab(directory: Path, script: str) -> Iterator[Tab]:
    """A browser with a script that runs before those of each page."""
    with tab(directory / "profile") as found:
        found.send("Page.addScriptToEvaluateOnNewDocument", source=script)
        yield found


def _load(page: Tab, address: str) -> None:
    page.send("Page.navigate", url="about:blank")
    page.events.clear()
    page.open(address)


def _alert(page: Tab) -> str:
    page.wait("document.querySelector('main [role=alert]') !== null")
    return str(page.run("document.querySelector('main [role=alert]').textContent"))


def _look(client: httpx.Client) -> None:
    """Wait for another round of the controller."""
    before = client.get("/api/v1/state").json()["rounds"]
    client.post("/api/v1/controller/look")
    while client.get("/api/v1/state").json()["rounds"] == before:
        time.sleep(0.05)


def _size(page: Tab, width: int, height: int, scale: float = 1) -> None:
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=scale,
        mobile=width < 400,
    )


def _named_oddly() -> Snapshot:
    found = synthetic_snapshot(brokers=6, partitions=60, racks=3, topics=4, dead_brokers=1)
    return replace(
        found,
        topics=tuple(sorted(("x" * 249, "__proto__", "a\u202egnp.exe", "<i>&quot;\u0007"))),
        racks=tuple(sorted(("west\u202etsae\u0007<b>\"'&", "y" * 249, "constructor"))),
        broker_ids=np.array(sorted(("constructor", "toString", "b" * 249, "4", "007", "a b"))),
    )


def test_odd_names_are_shown_as_what_they_are(browser: Tab, tmp_path: Path) -> None:
    snapshot = _named_oddly()
    dead = snapshot.broker_ids[snapshot.broker_state > 0].tolist()
    with served(tmp_path, snapshot=snapshot, settings=QUIET) as found, found.client() as client:
        until_ready(client)
        _load(browser, f"{found.server.url}/")
        gone = browser.run(
            "[...document.querySelectorAll('.bar.gone .id')].map(e => e.textContent)"
        )
        assert gone == dead
        assert browser.run("document.querySelectorAll('.bar').length") == 6
        labels = "[...document.querySelectorAll('.bar')].map(e => e.ariaLabel).join()"
        assert "native code" not in browser.run(labels)
        for width in (1280, 320):
            _size(browser, width, 800)
            for place in (
                "/now",
                *(f"/broker/{b}" for b in ("constructor", "007", "b" * 249, "a b")),
            ):
                browser.show(place)
                assert browser.run("document.querySelector('main [role=alert]')") is None, place
                assert browser.run("document.documentElement.scrollWidth") <= width, place
                seen = "document.title + document.querySelector('main').outerHTML"
                assert not set(browser.run(seen)) & {"\u202e", "\u0007"}, place
        browser.show("/now")
        assert "west\\u202etsae\\u0007<b>\"'&" in main_text(browser)
    browser.send("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize(
    "place",
    [
        "/broker/%E0%A4%A",
        "/none/<b>",
        *(pytest.param(p, marks=pytest.mark.soak) for p in ("/%", "/proposals/..%2F..%2Fstate")),
    ],
)
def test_an_address_that_means_nothing_is_one_sentence(page: Tab, place: str) -> None:
    page.show(place)
    assert page.run("document.querySelector('h1') !== null")
    thrown = [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
    assert thrown == []
    page.show("/now")
    assert "What is wrong" in main_text(page)
    _load(page, page.run("location.origin") + f"/#{place}")
    page.show("/now")
    assert "What is wrong" in main_text(page)


def test_back_and_forward_and_reload_show_the_same_view(page: Tab) -> None:
    page.show("/broker/2")
    page.show("/decisions")
    page.run("history.back()")
    page.wait("document.body.dataset.ready === 'yes' && document.title.startsWith('Broker 2')")
    page.run("history.forward()")
    page.wait("document.body.dataset.ready === 'yes' && document.title.startsWith('Decisions')")
    page.run("history.back()")
    page.wait("document.body.dataset.ready === 'yes' && document.title.startsWith('Broker 2')")
    page.run("location.reload()")
    page.wait(
        "document.querySelector('h1')?.textContent === 'Broker 2' && "
        "document.body.dataset.ready === 'yes'"
    )


@pytest.mark.parametrize(
    "status", [401, 503, *(pytest.param(s, marks=pytest.mark.soak) for s in (429, 500))]
)
def test_a_view_that_was_refused_is_shown_after_the_next_round(
    page: Tab, client: httpx.Client, status: int
) -> None:
    """Such as one that was opened before the cluster was read."""
    refusal = (
        f"new Response(JSON.stringify({{ error: 'not now, {status}' }}), {{ status: {status} }})"
    )
    page.run(f"test.answer = (path) => path.includes('cluster') ? {refusal} : null")
    page.show("/broker/3")
    assert _alert(page) == f"Not now, {status}."
    page.run("test.answer = () => null")
    client.post("/api/v1/controller/look")
    page.wait("document.querySelector('main').innerText.includes('What it carries')")
    assert page.run("document.querySelector('main [role=alert]')") is None


def test_a_refusal_while_one_looks_leaves_what_is_shown(page: Tab, client: httpx.Client) -> None:
    page.run("test.answer = () => new Response('<h1>Bad gateway</h1>', { status: 502 })")
    client.post("/api/v1/controller/look")
    assert _alert(page) == "The server answers 502."
    assert "What is wrong" in main_text(page)
    page.run("test.answer = () => null")
    client.post("/api/v1/controller/look")
    page.wait("document.querySelector('main [role=alert]') === null")


def test_an_answer_that_is_cut_off_is_said_to_be(page: Tab) -> None:
    page.run("test.answer = (path) => path.includes('decisions') ? new Response('[{\"time') : null")
    page.show("/decisions")
    assert "cut off" in _alert(page)


def test_a_slow_server_is_said_to_be_read(page: Tab) -> None:
    page.run(
        "test.answer = (path) => path.includes('decisions') "
        "? new Promise(go => { test.go = () => go(null); }) : null"
    )
    page.run("location.hash = '/decisions'")
    wait_for_text(page, "Reading from the server")
    page.run("test.go()")
    page.wait("document.querySelectorAll('.timeline li').length >= 1")
    assert "Reading from the server" not in main_text(page)


def test_only_the_last_answer_that_was_asked_for_is_shown(page: Tab) -> None:
    page.run(
        "test.answer = (path) => path.includes('columns/network_in') "
        "? new Promise(go => { test.go = () => go(null); }) : null"
    )
    fill_in(page, "Resource", "network_in")
    page.wait("test.go !== undefined")
    fill_in(page, "Resource", "leader_count")
    page.wait("document.querySelector('input[value=of_capacity]').disabled")
    label = page.run("document.querySelector('.bar').ariaLabel")
    page.run("test.go()")
    page.run("new Promise(go => setTimeout(go, 300))")
    assert page.run("document.querySelector('.bar').ariaLabel") == label


def test_another_version_of_the_server_asks_for_another_page(
    browser: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_ports(1) as (port,):
        with served(tmp_path / "one", settings=QUIET, port=port) as found:
            with found.client() as client:
                until_ready(client)
            _load(browser, f"{found.server.url}/")
        wait_for_text(browser, "The connection to the server is lost")
        monkeypatch.setattr(cluster_api, "_VERSION", "9.9.9")
        with served(tmp_path / "two", settings=QUIET, port=port) as found:
            wait_for_text(browser, "which now has 9.9.9")
            browser.wait("document.getElementById('connection').textContent === ''")
            click(browser, "Load the page again")
            browser.wait(
                "document.getElementById('version').hidden && document.body.dataset.ready === 'yes'"
            )


def test_a_page_follows_events_once(page: Tab, running: Served) -> None:
    for _ in range(8):
        page.run("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("fetch('api/v1/state').then(() => true)")
    for _ in range(2000):
        if running.server.events.followers == 1:
            return
        page.run("new Promise(go => setTimeout(go, 50))")
    assert running.server.events.followers == 1


def test_refused_credentials_are_tried_again_less_and_less_often(
    running: Served, tmp_path: Path
) -> None:
    """Otherwise a tab whose token has expired would use up the failures of its address."""
    refused = """
    window.delays = [];
    window.EventSource = class extends EventTarget {
      static CLOSED = 2;
      readyState = 2;
      constructor() { super(); queueMicrotask(() => this.dispatchEvent(new Event('error'))); }
      close() {}
    };
    const later = window.setTimeout;
    window.setTimeout = (act, delay) => {
      if (delay < 5000) return later(act, delay);
      window.delays.push(delay);
      return window.delays.length < 7 ? later(act, 0) : 0;
    };
    """
    with _tab(tmp_path, refused) as browser:
        _load(browser, f"{running.server.url}/")
        browser.wait("window.delays.length === 7")
        delays = browser.run("window.delays")
    assert delays == [5000, 10000, 20000, 40000, 60000, 60000, 60000]


def test_times_do_not_depend_on_the_clock_of_the_browser(tmp_path: Path) -> None:
    ahead = "const now = Date.now.bind(Date); Date.now = () => now() + 86400e3 * 5;"
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, dead_brokers=1)
    with (
        _tab(tmp_path, ahead) as browser,
        served(tmp_path, snapshot=snapshot, settings=QUIET) as found,
        found.client() as client,
    ):
        until_ready(client)
        _load(browser, f"{found.server.url}/")
        text = main_text(browser)
    assert "since" in text
    assert "days ago" not in text


def test_what_someone_else_approved_meanwhile_is_not_approved_again(
    page: Tab, running: Served, client: httpx.Client
) -> None:
    running.executor.may_end.clear()
    propose(page, limit=5)
    page.run(
        """(async () => {
        const button = [...document.querySelectorAll('button')].find(
          b => b.textContent.startsWith('Approve'));
        const path = 'api/v1/proposals/' + location.hash.split('/').pop();
        const digest = document.querySelector('.facts code').textContent;
        await fetch(path + '/approve', {
          method: 'POST', headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ digest, why: 'the other tab' }) });
        button.click();
        })()"""
    )
    wait_for_text(page, "the other tab")
    running.executor.may_end.set()
    page.wait("document.querySelector('.badge').textContent === 'executed'")
    identity = page.run("location.hash.split('/').pop()")
    assert len(client.get(f"/api/v1/proposals/{identity}").json()["approvals"]) == 1


def test_a_double_click_asks_once(page: Tab, client: httpx.Client) -> None:
    before = len(client.get("/api/v1/proposals").json())
    page.show("/proposals")
    page.run(
        "const b = [...document.querySelectorAll('button')].find(b => b.textContent === 'Propose');"
        "b.click(); b.click(); b.click();"
    )
    page.wait(
        "document.body.dataset.ready === 'yes' && "
        "document.querySelector('h1').textContent.startsWith('Proposal ')"
    )
    assert len(client.get("/api/v1/proposals").json()) <= before + 1
    asked = [
        e
        for e in page.events
        if e["method"] == "Network.requestWillBeSent" and e["params"]["request"]["method"] == "POST"
    ]
    assert len(asked) == 1


@pytest.mark.parametrize(("view", "button"), [("/proposals", "Propose"), ("/what-if", "Try")])
def test_planning_is_cancelled_while_it_waits(
    page: Tab, running: Served, client: httpx.Client, view: str, button: str
) -> None:
    may_end = threading.Event()
    before = len(client.get("/api/v1/proposals").json())
    other = Actor("ola", "operator")
    running.service.jobs.submit(Job("rebalance", other, lambda *_: may_end.wait(LIMIT)))
    try:
        page.show(view)
        click(page, button)
        wait_for_text(page, "Waits for another plan.")
        page.run(
            "[...document.querySelectorAll('button')].find("
            "b => b.textContent === 'Cancel planning').focus()"
        )
        page.press("Enter")
        assert _alert(page) == "The job was cancelled."
        assert "Cancel planning" not in main_text(page)
        assert "Waits" not in main_text(page)
        assert page.run("document.activeElement.getAttribute('role')") == "status"
    finally:
        may_end.set()
    assert len(client.get("/api/v1/proposals").json()) == before
    click(page, button)
    page.wait("document.querySelector('main [role=alert]') === null")


def test_who_did_not_hold_the_controller_reads_who_may_release_it(
    browser: Tab, tmp_path: Path
) -> None:
    access = {"without_credentials": "operator"}
    with served(tmp_path, settings=QUIET, access=access) as found, found.client() as client:
        until_ready(client)
        found.service.hold(True, "an audit", Actor("ada", "admin"))
        _load(browser, f"{found.server.url}/#/execution")
        wait_for_text(browser, "needs the role admin")
        release = "[...document.querySelectorAll('button')].find(b => b.textContent.startsWith"
        assert browser.run(f"{release}('Release')).disabled") is True


def test_what_is_wrong_in_a_form_is_said_at_it_and_nothing_is_asked(page: Tab) -> None:
    invalid = "document.querySelector('main form :invalid') !== null"
    for place, field, value, button in (
        ("/what-if", "Times the load", "", "Try"),
        ("/what-if", "Add brokers", "1.5", "Try"),
        ("/proposals", "At most moves", "-1", "Propose"),
    ):
        page.show("/now")
        page.show(place)
        fill_in(page, field, value)
        page.events.clear()
        click(page, button)
        assert page.run(invalid), field
        assert not [k for k in page.received() if "jobs" in k or "/what-if" in k]
    page.show("/why-not")
    fill_in(page, "Partition", " ")
    fill_in(page, "Broker", " , ")
    click(page, "Ask")
    assert "expected" in _alert(page)
    page.show("/proposals")
    fill_in(page, "Operation", "remove_brokers")
    fill_in(page, "Brokers", "99")
    click(page, "Propose")
    assert "No broker 99" in _alert(page)
    assert "Waits" not in main_text(page)
    assert "Planning" not in main_text(page)


def test_the_controller_is_held_and_released_and_an_execution_is_stopped(
    page: Tab, running: Served, client: httpx.Client
) -> None:
    page.show("/execution")
    click(page, "Hold the controller")
    wait_for_text(page, "It is on hold")
    assert client.get("/api/v1/state").json()["held"] is True
    assert "HOLD" not in main_text(page)
    page.show("/now")
    wait_for_text(page, "The controller is on hold")
    propose(page, limit=4)
    click(page, "Approve")
    assert "on hold; release it first" in _alert(page)
    proposal = page.run("location.hash")
    page.show("/execution")
    click(page, "Release the controller")
    wait_for_text(page, "It acts")
    running.executor.may_end.clear()
    page.show(proposal.removeprefix("#"))
    click(page, "Approve")
    wait_for_text(page, "watch it")
    page.show("/now")
    wait_for_text(page, "An execution is in progress")
    page.show("/execution")
    fill_in(page, "Why", "too slow")
    click(page, "Stop")
    wait_for_text(page, "No execution is in progress.")
    running.executor.may_end.set()
    page.show(proposal.removeprefix("#"))
    wait_for_text(page, "stopped")


def test_the_focus_stays_where_it_was(page: Tab, client: httpx.Client) -> None:
    """Neither an event nor an action may send a reader who uses keys back to the beginning."""
    focused = "document.activeElement.textContent"
    page.show("/execution")
    tab_to(page, f"{focused} === 'Hold the controller'")
    client.post("/api/v1/controller/look")
    page.run("new Promise(go => setTimeout(go, 1000))")
    assert page.run(focused) == "Hold the controller"
    page.press("Enter")
    wait_for_text(page, "It is on hold")
    assert page.run(focused) == "Release the controller"
    page.press("Enter")
    wait_for_text(page, "It acts")
    assert page.run(focused) == "Hold the controller"
    propose(page, limit=2)
    tab_to(page, f"{focused} === 'Reject'")
    page.press("Enter")
    wait_for_text(page, "there is nothing to decide")
    assert page.run("document.activeElement !== document.body")
    page.show("/now")
    tab_to(page, "document.activeElement.classList.contains('bar')")
    page.press("ArrowRight")
    here = page.run("document.activeElement.hash")
    client.post("/api/v1/controller/look")
    page.run("new Promise(go => setTimeout(go, 1000))")
    assert page.run("document.activeElement.hash") == here


def test_no_decision_is_left_out_after_a_long_absence(browser: Tab, tmp_path: Path) -> None:
    with served(tmp_path, settings=QUIET, run=False) as found, found.client() as client:
        _load(browser, f"{found.server.url}/#/decisions")
        for _ in range(120):
            found.controller.step()
        times = "[...document.querySelectorAll('.timeline time')].map(e => e.dateTime)"
        browser.run("document.dispatchEvent(new Event('visibilitychange'))")
        browser.wait(f"{times}.length >= 50")
        browser.run("new Promise(go => setTimeout(go, 1000))")
        over = "[...document.querySelectorAll('main button')].at(-1).hidden"
        while not browser.run(over):
            before = len(browser.run(times))
            click(browser, "Older decisions")
            browser.wait(f"{times}.length > {before} || {over}")
        made = [d["time"] for d in client.get("/api/v1/decisions?limit=1000").json()]
        assert len(browser.run(times)) == len(made)


def test_a_broker_has_its_actions_and_its_history(page: Tab, client: httpx.Client) -> None:
    propose(page, limit=10)
    identity = page.run("location.hash.split('/').pop()")
    path = f"/api/v1/proposals/{identity}"
    action = next(a for a in client.get(f"{path}/actions").json()["actions"] if a["source"])
    broker = action["source"]
    total = client.get(f"{path}/actions?broker={broker}").json()["total"]
    found = client.get(f"/api/v1/cluster/brokers/{broker}/proposals").json()
    assert {p["proposal"]["id"]: p["actions"] for p in found}[identity] == total
    page.show(f"/broker/{broker}")
    text = main_text(page)
    assert f"{action['topic']}-{action['partition']}" in text[text.index("Actions to come") :]
    links = "[...document.querySelectorAll('main a')]"
    page.run(f"{links}.find(a => a.textContent === {json.dumps(identity)}).click()")
    page.wait("document.body.dataset.ready === 'yes' && document.title.startsWith('Proposal')")
    wait_for_text(page, f"of {total} action")
    client.post(f"{path}/reject", json={"why": "no"})
    page.show(f"/broker/{broker}")
    text = main_text(page)
    assert identity in text[text.index("History") :]


def test_a_viewer_has_no_button_that_changes_anything(browser: Tab, tmp_path: Path) -> None:
    access = {"without_credentials": "viewer"}
    with served(tmp_path, settings=QUIET, access=access) as found, found.client() as client:
        until_ready(client)
        _load(browser, f"{found.server.url}/")
        identity = client.get("/api/v1/proposals").json()
        places = [*VIEWS, *(f"/proposals/{p['id']}" for p in identity[:1])]
        assert len(places) == len(VIEWS) + 1
        harmless = {"Show", "Earlier actions", "Later actions", "Older decisions", "All brokers"}
        harmless |= {"Try", "Ask", "Compare"}
        for place in places:
            browser.show(place)
            enabled = browser.run(
                "[...document.querySelectorAll('main button:enabled')].map(b => b.textContent)"
            )
            assert set(enabled) <= harmless, place


def test_at_four_hundred_percent_nothing_scrolls_sideways(page: Tab) -> None:
    _size(page, 320, 256, 4)
    for view in (*VIEWS, "proposal"):
        open_view(page, view)
        assert page.run("document.documentElement.scrollWidth") <= 320, view


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.soak)])
def test_a_comparison_and_a_running_execution_are_accessible_and_narrow(
    page: Tab, running: Served, client: httpx.Client, scheme: str
) -> None:
    _look(client)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.send("Emulation.setEmulatedMedia", features=media)
    propose(page, limit=1)
    one = page.run("location.hash.split('/').pop()")
    propose(page, limit=3)
    other = page.run("location.hash.split('/').pop()")
    page.show(f"/compare/{one}/{other}")
    assert "in both" in main_text(page)
    assert serious_problems(page) == []
    _size(page, 320, 640)
    assert page.run("document.documentElement.scrollWidth") <= 320
    running.executor.may_end.clear()
    page.show(f"/proposals/{other}")
    click(page, "Approve")
    wait_for_text(page, "watch it")
    page.show("/execution")
    page.wait("document.querySelector('progress')?.value > 0")
    assert serious_problems(page) == []
    assert page.run("document.documentElement.scrollWidth") <= 320
    running.executor.may_end.set()
    wait_for_text(page, "No execution is in progress.")


def test_forced_colors_and_less_motion_are_followed(page: Tab) -> None:
    level = "getComputedStyle(document.querySelector('.bar:not(.gone) .level'))"
    canvas = "getComputedStyle(document.body).backgroundColor"
    page.send(
        "Emulation.setEmulatedMedia",
        features=[
            {"name": "forced-colors", "value": "active"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ],
    )
    assert page.run(f"{level}.backgroundColor") != page.run(canvas)
    assert page.run(f"{level}.transitionDuration") == "0s"
    assert (
        page.run("getComputedStyle(document.querySelector('[aria-current]')).outlineStyle")
        == "solid"
    )


def test_one_broker_without_capacity_is_shown(browser: Tab, tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(brokers=1, partitions=4, racks=1, topics=1, replication_factor=1)
    snapshot = replace(snapshot, capacity=np.zeros_like(snapshot.capacity))
    with served(tmp_path, snapshot=snapshot, settings=QUIET) as found, found.client() as client:
        until_ready(client)
        _load(browser, f"{found.server.url}/")
        assert "1 broker, 1 rack" in main_text(browser)
        for view in ("/now", "/broker/1", "/proposals", "/what-if", "/why-not"):
            browser.show(view)
            assert browser.run("document.querySelector('main [role=alert]')") is None, view
            assert not {"NaN", "Infinity", "undefined", "null"} & set(main_text(browser).split()), (
                view
            )
        assert browser.problems() == []
