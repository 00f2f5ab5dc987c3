"""The HTML report: complete, self-contained, safe with any names, and working in a real browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from balancer_cases import QUICK, examples
from command_line import invoke
from hypothesis import given, reject
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation
from balancer.planning.document import Unmet
from balancer.planning.plan import Plan
from balancer.planning.traffic import traffic
from balancer.report import before_after_svg, html_report, verdict
from balancer.report.facts import gather, rack_ratios
from balancer.report.page import ACTIONS, chosen_actions
from cluster_model import BrokerState, save_snapshot, synthetic_snapshot
from cluster_model.columns import LOAD, Column
from cluster_model.placement import Placement
from cluster_model.units import quantity
from metrics_reporter.quantities import amount, period

VOID = {"meta", "input", "br", "link", "img", "hr"}
NASTY = "</script><script>alert('x')</script>&amp;\"<b>"


class Page(HTMLParser):
    """Checks nesting while parsing, and keeps what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.raw: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"attributes of {tag} given twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            key = self.tags[-1][1].get("id") or self.open[-1]
            self.raw[key] = self.raw.get(key, "") + data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def plan() -> Plan:
    s = synthetic_snapshot(brokers=9, partitions=180, racks=3)
    return Balancer("default", strategy=QUICK).propose(s)


@pytest.fixture(scope="module")
def nasty() -> Plan:
    s = synthetic_snapshot(brokers=6, partitions=90, racks=3, topics=3)
    s = replace(
        s,
        topics=tuple(sorted(f"{NASTY}{i}" for i in range(3))),
        racks=tuple(f"{NASTY}r{i}" for i in range(3)),
        resources=("cpu", "network_in", "network_out", f"{NASTY}gpu"),
    )
    goals = {"goals": ["RackAwareness", {"goal": "UsageDistribution", "resource": f"{NASTY}gpu"}]}
    return Balancer(goals).propose(s)


@pytest.fixture(scope="module")
def large() -> Plan:
    """A thousand brokers and more actions than are shown; only the counts are balanced."""
    s = synthetic_snapshot(brokers=1000, partitions=6000, racks=10, replication_factor=2)
    return Balancer({"goals": ["ReplicaDistribution"]}, budget=Budget(moves=3000)).propose(s)


def test_it_is_well_formed_and_names_every_resource_and_goal(plan: Plan) -> None:
    page = Page(html_report(plan))
    assert page.open == []
    for title in ("CPU", "Network in", "Network out", "Disk", "Replicas", "Leaders"):
        assert title in page.text
    for result in plan.goal_results:
        assert result.goal in page.text
    for unmet in plan.unmet:
        assert unmet.reason in page.text
    assert verdict(plan) in page.text
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    links = {(a["href"] or "")[1:] for t, a in page.tags if t == "a"}
    assert links <= set(ids)


def test_it_refers_to_nothing_outside(plan: Plan) -> None:
    text = html_report(plan)
    page = Page(text)
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_equal_plans_give_equal_pages(plan: Plan) -> None:
    again = Balancer("default", strategy=QUICK).propose(plan.snapshot)
    assert html_report(again) == html_report(plan)


def test_it_shows_the_goals_left_out_and_the_warnings(plan: Plan) -> None:
    assert plan.goals_left_out
    page = Page(html_report(replace(plan, warnings=("excluded_topics: '<no>' matches none",))))
    for sentence in plan.goals_left_out.values():
        assert sentence in page.text
    assert "excluded_topics: '<no>' matches none" in page.text


def test_control_characters_in_names_are_replaced_everywhere(plan: Plan) -> None:
    name = "\x1b[31m\u202ea\x85"
    cluster = replace(
        plan.snapshot,
        racks=tuple(f"{name}{i}" for i in range(3)),
        topics=tuple(f"{name}{i:03}" for i in range(len(plan.snapshot.topics))),
    )
    shown = replace(plan, snapshot=cluster, warnings=(name,), goals_left_out={"a": name})
    page = html_report(shown, title=name)
    assert not {"\x1b", "\u202e", "\x85"} & {*page}
    assert not {"\x1b", "\u202e", "\x85"} & {*str(json.loads(Page(page).raw["data"]))}
    assert not {"\x1b", "\u202e"} & {*before_after_svg(shown)}
    data = json.loads(Page(page).raw["data"])
    assert data["racks"][0] == "\ufffd[31m\ufffda\ufffd0"


def test_names_from_the_cluster_are_only_ever_text(nasty: Plan) -> None:
    page = Page(html_report(nasty, title=NASTY))
    assert page.open == []
    assert [t for t, _ in page.tags].count("script") == 2
    assert [t for t, _ in page.tags].count("b") == html_report(nasty).count("<b>")
    assert NASTY in page.text
    shown = json.loads(page.raw["data"])
    assert all(NASTY in name for name in shown["racks"])
    assert any(NASTY in action[2] for action in shown["actions"])
    ET.fromstring(before_after_svg(nasty, ("cpu", f"{NASTY}gpu")))


@examples(6)
@given(
    name=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30
    )
)
def test_any_topic_name_keeps_the_page_whole(plan: Plan, name: str) -> None:
    topics = tuple(sorted({*(t for t in plan.snapshot.topics[1:]), name}))
    if len(topics) != len(plan.snapshot.topics):
        reject()
    page = Page(html_report(replace(plan, snapshot=replace(plan.snapshot, topics=topics))))
    assert page.open == []
    assert [t for t, _ in page.tags].count("script") == 2


def test_ratios_are_those_of_the_plan(plan: Plan) -> None:
    for column in gather(plan).columns:
        before, after = column.ratios()
        assert before.max() == pytest.approx(column.result.before.worst_ratio)
        assert after.max() == pytest.approx(column.result.after.worst_ratio)


def test_ratios_after_a_replication_factor_change_are_in_the_shares_after_it() -> None:
    s = synthetic_snapshot(brokers=8, partitions=120, racks=4, replication_factor=3)
    fewer = Operation(kind="change_replication_factor", replication_factor={".*": 2})
    facts = gather(Balancer("default", strategy=QUICK).propose(s, fewer))
    for column in facts.columns:
        before, after = column.ratios()
        assert before.max() == pytest.approx(column.result.before.worst_ratio)
        assert after.max() == pytest.approx(column.result.after.worst_ratio)
        for racks in rack_ratios(facts, column):
            assert racks.mean() == pytest.approx(1)
        if column.capacity is not None:
            first = column.at_first()
            assert first.capacity is not None
            assert first.capacity * column.share == pytest.approx(
                column.capacity * column.share_after
            )


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        (1, "1 unmet goal with no proof that it cannot be met"),
        (2, "2 unmet goals with no proof that they cannot be met"),
    ],
)
def test_unmet_goals_without_a_proof_are_counted(plan: Plan, goals: int, said: str) -> None:
    unmet = tuple(Unmet(goal=f"g{i}", hard=False, proven=False, reason="") for i in range(goals))
    assert said in Page(html_report(replace(plan, unmet=unmet))).text


def test_bands_tell_the_discontented_brokers_that_the_goals_tell(plan: Plan) -> None:
    results = {g.goal: g for g in plan.goal_results}
    for column in gather(plan).columns[:4]:
        assert column.lower is not None
        assert column.upper is not None
        goal = results[f"UsageDistribution[{column.name}]"]
        for ratio, cells in zip(
            column.ratios(), (goal.unmet_cells_before, goal.unmet_cells_after), strict=True
        ):
            outside = (ratio > column.upper * (1 + 1e-9)) | (ratio < column.lower * (1 - 1e-9))
            assert outside.sum() == cells


def test_topics_count_their_replicas_before_and_after(plan: Plan) -> None:
    s = plan.snapshot
    for topic in gather(plan).topics:
        t = s.topics.index(topic.name)
        for counts, placement in ((topic.before, Placement(s)), (topic.after, plan.placement)):
            held = placement.brokers[s.partition_topic == t]
            assert np.array_equal(counts, np.bincount(held[held >= 0], minlength=s.n_brokers))


def test_a_removed_broker_is_not_blamed_for_being_empty() -> None:
    s = synthetic_snapshot(brokers=9, partitions=90, racks=9, utilization=0.2)
    plan = Balancer("default", strategy=QUICK).propose(
        s, Operation(kind="remove_brokers", brokers=(2,))
    )
    facts = gather(plan)
    assert facts.state[1] == "leaving"
    for column in facts.columns:
        assert column.after[1] == 0
        if column.lower is not None:
            assert not column.after[1] < column.lower[1]
    assert "Remove broker 2" in Page(html_report(plan)).text


@pytest.mark.parametrize(
    "operation",
    [
        Operation(kind="change_replication_factor", replication_factor={".*": 3}),
        Operation(kind="demote_brokers", brokers=(3,)),
        Operation(kind="fix_offline_replicas"),
    ],
    ids=lambda operation: operation.kind,
)
def test_every_operation_has_a_page(operation: Operation) -> None:
    s = synthetic_snapshot(
        brokers=7, partitions=30, racks=3, replication_factor=2, dead_brokers=1, disks_per_broker=2
    )
    assert Page(html_report(Balancer("default", strategy=QUICK).propose(s, operation))).open == []


def test_the_verdict_says_that_there_is_nothing_to_do() -> None:
    s = synthetic_snapshot(brokers=4, partitions=40, racks=2, replication_factor=2, utilization=0.1)
    goals = {"goals": ["ReplicaCapacity"]}
    plan = Balancer(goals).propose(s)
    assert verdict(plan) == "Changes nothing; all 3 goals are met already."
    assert "None." in Page(html_report(plan)).text


def test_the_verdict_says_what_to_add_where_no_placement_helps() -> None:
    s = synthetic_snapshot(brokers=4, partitions=40, racks=2)
    said = verdict(Balancer({"goals": ["RackAwareness"]}).propose(s))
    assert "RackAwareness (hard) cannot be met by any placement" in said
    assert "1 more rack" in said


def test_a_thousand_brokers_fit_into_one_small_file(large: Plan) -> None:
    text = html_report(large)
    assert len(text) < 1_500_000
    page = Page(text)
    shown = json.loads(page.raw["data"])
    assert len(large) > ACTIONS == len(shown["actions"])
    assert f"{len(large):,} actions in all" in page.text
    chosen = chosen_actions(large)
    assert len(np.unique(chosen)) == ACTIONS
    assert int(np.argmax(large.rows.cost)) in chosen


def test_the_picture_stands_alone(tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    subprocess.run([sys.executable, "-m", "balancer.report", str(target)], check=True)
    root = ET.fromstring(target.read_text())
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "style", "rect", "text", "g", "path"}
    checked_in = Path(__file__).parents[2] / "docs" / "images" / "before-after.svg"
    ET.fromstring(checked_in.read_text())


@pytest.fixture(scope="module")
def browser() -> str:
    """Path of a Chromium; a test that needs one fails, never skips, where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        where = "the CI image" if os.environ.get("CI") else "this machine"
        pytest.fail(f"no chromium on {where}: install it with `apt-get install -y chromium`")
    return found


def _dom(browser: str, text: str, folder: Path) -> str:
    """The page as a browser has it after its scripts have run."""
    page = folder / "report.html"
    page.write_text(text, encoding="utf-8")
    quiet = (
        "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-dev-shm-usage "
        "--virtual-time-budget=2000"
    )
    done = subprocess.run(
        [
            browser,
            *quiet.split(),
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_browser_runs_its_script_and_no_other(browser: str, nasty: Plan, tmp_path: Path) -> None:
    smuggled = html_report(nasty).replace(
        "</main>", "<script>document.documentElement.dataset.owned = 1</script></main>"
    )
    dom = _dom(browser, smuggled, tmp_path)
    assert "data-owned" not in dom
    assert 'data-ready="yes"' in dom
    assert re.search(r'id="found"[^>]*>[\d,]+ of [\d,]+ shown', dom)


def test_keys_read_out_brokers_and_the_search_finds_actions(
    browser: str, large: Plan, tmp_path: Path
) -> None:
    text = html_report(large)
    # the page lets no script but its own run; a stand-in for a person needs that lifted
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    hands = """<script>
    const plot = document.querySelector(".plot");
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown"])
      plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
    document.getElementById("broker-details").open = true;
    const search = document.getElementById("search");
    search.value = "no such thing";
    search.dispatchEvent(new Event("input"));
    addEventListener("load", () => setTimeout(() => {
      document.documentElement.dataset.rows =
        document.getElementById("broker-table").tBodies[0].rows.length;
    }, 200));
    </script></body>"""
    dom = _dom(browser, text.replace("</body>", hands), tmp_path)
    assert 'data-ready="yes"' in dom
    assert f'data-rows="{large.snapshot.n_brokers}"' in dom
    tip = re.search(r'id="tip"[^>]*>([^<]*)<', dom)
    assert tip is not None
    assert re.search(r"^broker \d+, rack-\d+\nbefore: [\d.]+ × its share .*\nafter: ", tip[1])
    assert "No action matches." in dom
    assert "0 of 0 shown" in dom


def test_the_search_for_a_broker_finds_that_broker_alone(browser: str, tmp_path: Path) -> None:
    cluster = synthetic_snapshot(brokers=12, partitions=180, racks=3)
    found = Balancer("default", strategy=QUICK).propose(cluster)
    text = html_report(found)
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    hands = """<script>
    const search = document.getElementById("search");
    search.value = "1";
    search.dispatchEvent(new Event("input"));
    </script></body>"""
    dom = _dom(browser, text.replace("</body>", hands), tmp_path)
    ends = [{a.source, a.destination} for a in found.actions]
    assert any({10, 11, 12} & of and 1 not in of for of in ends)
    expected = sum(1 in of for of in ends)
    assert f"of {expected:,} shown" in dom


def test_the_time_that_copying_takes_at_least(plan: Plan) -> None:
    found = traffic(plan.document(), plan.snapshot)
    first = found.brokers[0]
    does = "receives" if first.received >= first.sent else "sends"
    text = Page(html_report(plan)).text
    assert f"Broker {first.broker} {does} most, {amount(found.busiest)}." in text
    assert f"{period(found.busiest / 50e6)} at 50 MB/s" in text
    assert f"{first.broker} {amount(first.received)} {first.copies_received:,}" in text


def test_the_page_names_its_cluster_time_and_goals(plan: Plan) -> None:
    named = replace(plan.snapshot, cluster_id="<b>north</b>", taken_ms=1_700_000_000_000)
    found = Balancer("default", strategy=QUICK).propose(named)
    text = Page(html_report(found, profile="default")).text
    assert "Cluster <b>north</b> As of 2023-11-14 22:13 UTC" in text
    assert "Goals default: tier 0: OnlineReplicas (hard), EligibleLeaders (hard); tier 1:" in text
    assert found.digest is not None
    assert found.digest in text
    assert "snapshot names none" in Page(html_report(plan)).text


@pytest.fixture(scope="module")
def ill() -> Plan:
    """Brokers are emptied in a cluster with a dead broker, crowded racks and limits exceeded."""
    s = synthetic_snapshot(
        brokers=8, partitions=200, racks=3, dead_brokers=1, disks_per_broker=2, seed=0
    )
    return Balancer("default", strategy=QUICK).propose(
        s, Operation(kind="remove_brokers", brokers=(2,))
    )


def test_the_verdict_of_the_operation_comes_first_then_what_is_wrong(ill: Plan) -> None:
    assert ill.verdict is not None
    text = Page(html_report(ill)).text
    first = f"{ill.verdict.sentence[:1].upper()}{ill.verdict.sentence[1:]}."
    order = ["Remove broker 2", first, "Wrong in the cluster now", "Next", "Balancedness"]
    places = [text.rindex(words) if words == order[-1] else text.index(words) for words in order]
    assert places == sorted(places)


def test_the_wrong_now_box_counts_what_the_plan_mends(ill: Plan) -> None:
    s = ill.snapshot
    dead = s.broker_state == BrokerState.DEAD

    def offline(placement: Placement) -> int:
        held = placement.brokers
        return int((dead[held] & (held >= 0)).any(axis=1).sum())

    before, after = offline(Placement(s)), offline(ill.placement)
    assert 0 < after < before
    text = Page(html_report(ill)).text
    (down,) = s.broker_ids[dead].tolist()
    assert f"1 broker is down: {down} (for you to repair or replace)" in text
    assert (
        f"{before} partitions have replicas on dead brokers or disks, or where they may not be "
        f"({before - after} mended by this plan, {after} left)"
    ) in text
    # what only the operation asks for is not wrong now
    assert sum(b == 2 for b in Placement(s).brokers.ravel()) > 0
    assert "a hard limit: ResourceCapacity[cpu] (not mended by this plan)" in text


def test_a_sound_cluster_has_nothing_wrong() -> None:
    s = synthetic_snapshot(
        brokers=6, partitions=60, racks=3, utilization=0.2, rack_violations=0.0, skew=1.2
    )
    found = Balancer("default", strategy=QUICK).propose(s)
    assert all(g.met_before for g in found.goal_results if g.hard)
    assert "Nothing: no broker or disk is down" in Page(html_report(found)).text


def test_a_partition_without_leader_is_named() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    leader = s.leader.copy()
    leader[7] = -1
    s = replace(s, leader=leader)
    name = f"{s.topics[s.partition_topic[7]]}-{s.partition_number[7]}"
    text = Page(html_report(Balancer("default", strategy=QUICK).propose(s))).text
    assert f"1 partition has no leader: {name} (no plan can" in text


def test_equal_reasons_and_remedies_are_merged_with_their_number(plan: Plan) -> None:
    unmet = tuple(
        Unmet(goal=f"g{i}", hard=False, proven=False, reason=why, remedy="more room")
        for i, why in enumerate(("too full", "too full", "too few"))
    )
    text = Page(html_report(replace(plan, unmet=unmet, warnings=("odd", "odd")))).text
    assert "g0, g1 (2 goals): not reached. too full." in text
    assert "g2: not reached. too few." in text
    assert text.count("more room") == 1
    assert "more room (3 goals: g0, g1, g2)." in text
    assert "odd (2 times)" in text


def test_commands_to_run_next_are_exact_and_escaped(plan: Plan) -> None:
    command = "counterpoise verify 'my <b> cluster.json' plan.json"
    page = Page(html_report(plan, commands={"Check": command}))
    assert f"Check {command}" in page.text
    assert [t for t, _ in page.tags].count("code") == 1
    assert "Write the plan to a file as well" in Page(html_report(plan)).text


def test_the_proposed_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = synthetic_snapshot(brokers=6, partitions=60, racks=3, utilization=0.2)
    save_snapshot(cluster, Path("my cluster.json"))
    arguments = ["propose", "my cluster.json", "-o", "the plan.json", "--report", "report.html"]
    said = invoke(arguments)
    assert said.exit_code == 0, said.output
    text = Page(Path("report.html").read_text()).text
    for command in ("verify 'my cluster.json' 'the plan.json'", "explain 'the plan.json'"):
        assert f"counterpoise {command}" in said.stderr
        assert f"counterpoise {command}" in text
        assert invoke(shlex.split(command)).exit_code == 0
    execute = "counterpoise execute 'the plan.json' --bootstrap-server HOST:PORT --yes"
    assert execute in said.stderr
    assert execute in text


def test_a_browser_estimates_the_time_at_a_throttle(
    browser: str, plan: Plan, tmp_path: Path
) -> None:
    text = html_report(plan, commands={"Why": "counterpoise explain plan.json"})
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    busiest = traffic(plan.document(), plan.snapshot).busiest
    hands = """<script>
    const throttle = document.getElementById("throttle");
    for (const rate of ["10 MB/s", "1GiB/s"]) {
      throttle.value = rate;
      throttle.dispatchEvent(new Event("input"));
      document.body.append(document.getElementById("takes").cloneNode(true));
    }
    </script></body>"""
    dom = _dom(browser, text.replace("</body>", hands), tmp_path)
    for rate in (10e6, 2**30):
        assert f">at least {period(busiest / rate)}</output>" in dom
    assert "<code>counterpoise explain plan.json</code>" in dom


def test_figures_have_the_units_of_the_command_line(plan: Plan) -> None:
    shown = json.loads(Page(html_report(plan)).raw["data"])
    for name, column in zip(plan.columns, shown["columns"], strict=True):
        load = Placement(plan.snapshot).recompute(
            "broker", Column(LOAD, name) if name in plan.snapshot.resources else Column.of(name)
        )
        assert column["amounts"][0] == [quantity(name, value) for value in load.tolist()]
