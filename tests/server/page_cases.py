"""What the tests of the page do with it: fill in, click, wait, and look for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from chromium import Tab
from waiting import wait_for

AXE = Path(__file__).parent / "axe" / "axe.min.js"


def until_ready(client: httpx.Client) -> None:
    """Wait until the controller's first round is over: nothing else is proposed by itself."""
    wait_for(lambda: client.get("/api/v1/decisions").raise_for_status().json())


def click(page: Tab, label: str) -> None:
    """Click the button whose label starts so."""
    page.wait(
        f"[...document.querySelectorAll('button')].some(b => !b.disabled && "
        f"b.textContent.startsWith({json.dumps(label)}))"
    )
    page.run(
        f"[...document.querySelectorAll('button')].find(b => !b.disabled && "
        f"b.textContent.startsWith({json.dumps(label)})).click()"
    )


def fill_in(page: Tab, label: str, value: str) -> None:
    """Write into the first visible field with this label."""
    page.run(
        f"""(() => {{
        const label = [...document.querySelectorAll('main label')].find(
          l => l.textContent.startsWith({json.dumps(label)}));
        const control = document.getElementById(label.htmlFor);
        control.value = {json.dumps(value)};
        for (const kind of ['input', 'change'])
          control.dispatchEvent(new Event(kind, {{ bubbles: true }}));
        }})()"""
    )


def main_text(page: Tab) -> str:
    """What a reader sees of the view."""
    return str(page.run("document.querySelector('main').innerText"))


def wait_for_text(page: Tab, text: str) -> None:
    """Wait until the page shows a text."""
    page.wait(f"document.body.innerText.includes({json.dumps(text)})")


def propose(page: Tab, limit: int | None = None) -> None:
    """Ask for a proposal, and wait until it is shown."""
    page.show("/proposals")
    if limit is not None:
        fill_in(page, "At most moves", str(limit))
    fill_in(page, "Why", "tonight")
    click(page, "Propose")
    page.wait(
        "document.body.dataset.ready === 'yes' && "
        "document.querySelector('h1').textContent.startsWith('Proposal ')"
    )


def tab_to(page: Tab, condition: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(60):
        page.press("Tab")
        if page.run(condition):
            return
    raise AssertionError(f"60 steps do not reach it: {condition}")


def serious_problems(page: Tab) -> list[str]:
    """Serious and critical problems that axe-core finds."""
    page.run(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.run(
        "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter("
        "v => ['serious', 'critical'].includes(v.impact)).map("
        "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html).join(' | ')))"
    )
    return found


def open_view(page: Tab, view: str) -> None:
    """Show a view with everything in it opened; `proposal` makes one first."""
    if view == "proposal":
        propose(page)
    else:
        page.show(view)
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
